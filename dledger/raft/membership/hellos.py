"""Hellos between members: who is who, which process of whom is current, who takes part (D18).

Owns: sessions of peers, hellos and their repetition, the record of incarnations, what each life has
promised. `formation.py` decides who takes part, `joining.py` writes what makes this member part of
a group, and `quarantine.py` is the way out of a quarantine. The hooks tell the rest of the group
about a peer's new life.

A member believes a hello only when the hello echoes the session of this very process. Its sender
has then heard this process since it started. So nothing that an earlier process of a peer said can
be mistaken for news.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from dledger.log.hard_state import HardState
from dledger.log.identity import INCARNATION_SIZE
from dledger.raft.context import Context
from dledger.raft.gate import Arrival, PeerSession, term_on_disk
from dledger.raft.membership.formation import Promise, forgotten_by, met_by, recorded_by
from dledger.raft.membership.joining import Joining
from dledger.raft.wire.messages import Hello, Message
from dledger.types import MemberId
from dledger_proto.entry import parse_genesis

HELLO_PERIOD: Final = 0.2
"""Seconds after which an unanswered hello is repeated."""
FIRST_ENTRY_SECONDS: Final = 2.0
"""After so long without it, nobody has the first entry of the group any more."""
HELLO_PAUSE: Final = 0.02
"""The least time between two hellos to a peer, unless there is news."""


@dataclass(slots=True)
class Hooks:
    """What the group does when membership moves."""

    formed: Callable[[], None]
    new_life: Callable[[MemberId], None]
    """Nothing that this peer has said so far holds any more."""
    renewed: Callable[[], None]
    """This member itself begins a new life."""
    quarantine_ended: Callable[[], None]


class Membership:
    """This member's place in its group, and what it knows of the others."""

    def __init__(
        self, context: Context, incarnation: bytes, group_id: bytes, genesis: bytes, hooks: Hooks
    ) -> None:
        self._context = context
        self._first_life = incarnation
        self.group_id = group_id
        """16 bytes once formed here, else empty."""
        self._genesis_payload = genesis
        self._hooks = hooks
        self.views: dict[MemberId, Hello] = {}
        """The newest hello of each peer, with the first entry from an earlier one if it had any."""
        self._sessions = {peer: PeerSession() for peer in context.peers}
        self._heard_session = dict.fromkeys(context.peers, 0)
        """The session of each peer's newest hello, believed or not. Own hellos echo it."""
        self._state_number = 1
        self._hello_at = dict.fromkeys(context.peers, math.inf)
        self._hello_sent_at = dict.fromkeys(context.peers, -math.inf)
        durable = context.durability.durable_state
        self._recorded = dict(durable.incarnations)
        self._told = (durable.incarnations, durable.quarantined, durable.lifted)
        self._promised = dict.fromkeys(context.peers, Promise(b"", 0))
        """Of each peer: the highest term its life has told; once formed, its recorded life."""
        self._forgetful: set[MemberId] = set()
        """Peers whose recorded life does not know what it has promised any more."""
        self._joining = Joining(context)
        self._lacking_since = math.inf
        """Since when peers have data and none of them told the first entry."""
        self.refusals: dict[MemberId, str] = {}
        self.reason = ""
        """Why this member does not take part; empty when it does."""

    @property
    def incarnation(self) -> bytes:
        """The life of this member: its folder's, or a later one that the hard state names."""
        return self._life_in(self._context.durability.state)

    def _life_in(self, state: HardState) -> bytes:
        return state.incarnations.get(self._context.member, self._first_life)

    def recorded(self, peer: MemberId) -> bytes:
        """Return the incarnation that this member answers to."""
        return self._context.durability.state.incarnations.get(peer, b"")

    @property
    def lacks_first_entry(self) -> bool:
        """Tell whether this member has no data, and its group has trimmed the first entry.

        A peer that still has the entry sends it with its next hello.
        """
        return self._context.now - self._lacking_since >= FIRST_ENTRY_SECONDS

    def _note_first_entry(self) -> None:
        formed = [view for view in self.views.values() if view.group_id]
        if self._context.formed or not formed or any(view.genesis for view in formed):
            self._lacking_since = math.inf
        else:
            self._lacking_since = min(self._lacking_since, self._context.now)

    # Arriving messages.

    def admit(self, sender: MemberId, message: Message) -> bool:
        """Tell whether a message other than a hello may be handled; asks who it is if unknown.

        A peer that was met before this member had formed may live a life that is not on record
        yet. Its messages count from the hello on that records this life.
        """
        admission = self._sessions[sender].admit(message)
        if admission is Arrival.UNKNOWN_SESSION or self._is_off_record(sender):
            self._say_hello(sender, asked=False)
            return False
        if admission is not Arrival.FRESH or sender in self._forgetful:
            return False
        self._promise(sender, self.views[sender].incarnation, term_on_disk(message))
        return True

    def _promise(self, sender: MemberId, life: bytes, term: int) -> None:
        self._promised[sender] = self._promised[sender].told(life, term)

    def on_hello(self, sender: MemberId, hello: Hello) -> None:
        """Learn who a peer is; answer when it does not know us, or when it brings news."""
        context = self._context
        settings = context.settings
        wrong = ""
        if (hello.cluster, hello.group, hello.member) != (settings.cluster, settings.group, sender):
            wrong = f"WRONG_CLUSTER: it is {hello.cluster}/{hello.group}/{hello.member}"
        elif hello.group_id and self.group_id and hello.group_id != self.group_id:
            wrong = f"WRONG_CLUSTER: its group id is {hello.group_id.hex()}"
        if wrong:
            self._refuse(sender, wrong)
            return
        session = self._sessions[sender]
        if session.is_retired(hello.session) or hello.session == 0:
            return
        self._heard_session[sender] = hello.session
        if hello.echo_session != context.outbox.session:
            self._say_hello(sender, asked=False)
            return
        if session.session == hello.session and session.admit(hello) is not Arrival.FRESH:
            return
        if hello.forgotten and hello.recorded == self.incarnation:
            # Believe any sender here: an old copy may know the sender by an earlier life.
            self._begin_anew(sender)
        if not self._may_begin(sender, hello):
            return
        if session.session != hello.session:
            session.begin(hello.session, hello.sequence)
        self._learn(sender, hello)

    def _is_off_record(self, sender: MemberId) -> bool:
        if not self._context.formed:
            return False
        return self.views[sender].incarnation != self.recorded(sender)

    def _refuse(self, sender: MemberId, why: str) -> None:
        if self.refusals.get(sender) != why:
            self.refusals[sender] = why
            self._context.trace.event("refused", sender=sender, reason=why)

    def _may_begin(self, sender: MemberId, hello: Hello) -> bool:
        """Check a peer's incarnation, and record a new one."""
        context = self._context
        if context.formed and hello.group_id and hello.incarnation != self.recorded(sender):
            known = self.recorded(sender)
            if known and not (hello.quarantined or hello.lifted):
                self._refuse(
                    sender, f"its incarnation {hello.incarnation.hex()} is of an earlier life"
                )
                return False
            context.durability.set_incarnation(sender, hello.incarnation)
            context.trace.event(
                "incarnation_recorded", peer=sender, incarnation=hello.incarnation.hex()
            )
            context.gate.forget(sender)
            self._hooks.new_life(sender)
            self._forgetful.discard(sender)
        elif context.formed and hello.incarnation == self.recorded(sender):
            what = forgotten_by(hello, self._promised[sender])
            if what:
                self.forget_life(sender, what)
            if sender in self._forgetful:
                self._say_hello(sender, asked=False)
                return False
        self.refusals.pop(sender, None)
        return True

    # Forgotten promises: an old copy of a data folder (D18).

    def forget_life(self, peer: MemberId, what: str) -> None:
        """Believe nothing more of a peer's recorded life: it has forgotten a promise.

        This member tells the peer so until the peer has begun a new life. The new life is in
        quarantine, like a member without data.
        """
        if peer in self._forgetful:
            return
        self._forgetful.add(peer)
        self.refusals[peer] = f"an old copy of its data: {what}"
        self._context.trace.event("forgotten", peer=peer, what=what)
        self._context.gate.forget(peer)
        self._hooks.new_life(peer)
        self._say_hello(peer, asked=True)

    def _begin_anew(self, teller: MemberId) -> None:
        """Begin a new life in quarantine: this one has promised more than its data says.

        The old data also said who the others are, so this member lets them introduce themselves.
        """
        context = self._context
        incarnation = context.random.randbytes(INCARNATION_SIZE)
        context.trace.event("life_renewed", told_by=teller, incarnation=incarnation.hex())
        if not context.formed:
            self._joining.begin_anew()
            context.durability.begin_life({context.member: incarnation}, quarantined=True)
            self.announce()
            return
        context.gate.clear()
        context.durability.renew_life(context.member, incarnation)
        self._hooks.renewed()

    def _learn(self, sender: MemberId, hello: Hello) -> None:
        before = self.views.get(sender)
        if hello.group_id and hello.incarnation == self.recorded(sender):
            self._promise(sender, hello.incarnation, hello.term)
        view = replace(
            hello, genesis=hello.genesis or (before.genesis if before and before.group_id else b"")
        )
        news = before is None or (before.incarnation, before.state_number) != (
            view.incarnation,
            view.state_number,
        )
        self.views[sender] = view
        if before is None or _met_matters(before) != _met_matters(view):
            self._announce_if_unformed()
        if self._is_heard(sender):
            self._hello_at[sender] = math.inf
            if news:
                self._say_hello(sender, asked=True)
        else:
            self._say_hello(sender, asked=news)
        self._note_first_entry()
        self._end_lift()
        self.advance()

    def _end_lift(self) -> None:
        """Drop the operator's word once everybody has recorded this life (D18).

        Else a later copy of this disk would pass for a new life, even after its successors.
        """
        context = self._context
        if not (context.formed and context.durability.state.lifted):
            return
        recorded = recorded_by(
            incarnation=self.incarnation,
            group_id=self.group_id,
            peers=context.peers,
            views=self.views,
        )
        if not recorded.missing:
            context.durability.end_lift()

    # Hellos.

    def _announce_if_unformed(self) -> None:
        if not self._context.formed:
            self.announce()

    def announce(self) -> None:
        """Tell everybody that something about this member has changed."""
        self._state_number += 1
        for peer in self._context.peers:
            self._say_hello(peer, asked=True)

    def _needs_genesis(self, peer: MemberId) -> bool:
        view = self.views.get(peer)
        return self._context.formed and (view is None or not view.group_id)

    def _is_heard(self, peer: MemberId) -> bool:
        """Tell whether a peer has heard this member's newest hello, and has the first entry.

        A hello without the first entry has the same state number, so the echo alone proves less.
        """
        view = self.views.get(peer)
        echoed = view is not None and view.echo_state == self._state_number
        return echoed and not self._needs_genesis(peer)

    def _say_hello(self, peer: MemberId, *, asked: bool) -> None:
        context = self._context
        if peer not in context.outbox.up:
            self._hello_at[peer] = math.inf
            return
        due = self._hello_sent_at[peer] + HELLO_PAUSE
        if not asked and context.now < due:
            self._hello_at[peer] = min(self._hello_at[peer], due)
            return
        view = self.views.get(peer)
        heard = self._is_heard(peer) and peer not in self._forgetful
        self._hello_at[peer] = math.inf if heard else context.now + HELLO_PERIOD
        self._hello_sent_at[peer] = context.now
        durable = context.durability.durable_state
        # The view is of the process whose session has begun. A newer process numbers its states
        # from the start, so an echo of the older one's number could pass for an answer to it.
        known = self._sessions[peer].session == self._heard_session[peer]
        context.send(
            peer,
            Hello(
                context.settings.cluster,
                context.settings.group,
                context.member,
                self._life_in(durable) if context.formed else self.incarnation,
                self._state_number,
                durable.term if context.formed else 0,
                group_id=self.group_id,
                quarantined=context.formed and durable.quarantined,
                lifted=context.formed and durable.lifted,
                recorded=self._recorded.get(peer, b"") if context.formed else b"",
                forgotten=peer in self._forgetful,
                echo_session=self._heard_session[peer],
                echo_state=0 if view is None or not known else view.state_number,
                met={} if context.formed else met_by(context.member, self.incarnation, self.views),
                genesis=self._genesis_payload if self._needs_genesis(peer) else b"",
            ),
        )

    def link_up(self, peer: MemberId) -> None:
        """Introduce this process. A peer that knows it already answers so."""
        self._say_hello(peer, asked=True)

    def link_down(self, peer: MemberId) -> None:
        """Say nothing into a broken link."""
        self._hello_at[peer] = math.inf

    def next_deadline(self) -> float:
        """Return when `tick` has something to do."""
        return min(self._hello_at.values(), default=math.inf)

    def tick(self) -> None:
        """Repeat what was not answered."""
        for peer, at in self._hello_at.items():
            if self._context.now >= at:
                self._say_hello(peer, asked=True)
        self.advance()

    # Joining.

    def advance(self) -> None:
        """Take the next step to being a member, as far as disk and peers allow."""
        if self._context.formed:
            return
        genesis = self._joining.advance(self.incarnation, self.views)
        self.reason = self._joining.reason
        if genesis:
            self._genesis_payload = genesis
            self.group_id = parse_genesis(genesis).group_id
            self._recorded = dict(self._context.durability.durable_state.incarnations)
            self._hooks.formed()
            self.announce()

    def storage_moved(self) -> None:
        """A round is on disk: what is recorded may be told, forming may go on."""
        durable = self._context.durability.durable_state
        told = (durable.incarnations, durable.quarantined, durable.lifted)
        if self._context.formed and told != self._told:
            self._told = told
            self._recorded = dict(durable.incarnations)
            self.announce()
        self.advance()


def _met_matters(view: Hello) -> tuple[bytes, bytes]:
    return view.incarnation, view.group_id
