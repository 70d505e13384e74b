"""The parts of one group, wired together: who hears of what, and what follows from a change.

Owns: the making of the parts, which part takes which message, what follows from a changed role,
term, leader or commit index, and the order of a tick. Does not own the boundary (`group.py`):
inputs, outputs, fail-stop.
"""

from typing import Final

from dledger.log.errors import DamagedFile
from dledger.log.identity import Identity
from dledger.raft.api import Leadership, Role
from dledger.raft.commit.applying import Applying, check_state
from dledger.raft.commit.cutting import Cutting
from dledger.raft.commit.proposals import Proposals
from dledger.raft.commit.refusals import Refusals
from dledger.raft.context import Context
from dledger.raft.engine._pysyncobj import Engine
from dledger.raft.engine.journal import CommittedConflict, Journal
from dledger.raft.leadership.barrier import Barriers
from dledger.raft.leadership.clocks import GroupClock
from dledger.raft.leadership.election import Elections
from dledger.raft.leadership.last_seen import LastSeen
from dledger.raft.leadership.transfer import Transfer
from dledger.raft.membership.hellos import Hooks, Membership
from dledger.raft.membership.quarantine import Quarantine
from dledger.raft.replication.follower import Following
from dledger.raft.replication.leader import Replication
from dledger.raft.wire.messages import (
    AppendAnswer,
    AppendRequest,
    BarrierAnswer,
    BarrierRequest,
    Message,
    PreVote,
    PreVoteAnswer,
    TermNotice,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
)
from dledger.types import FlushMode, LogIndex, MemberId
from dledger_proto.entry import CorruptEntry

GENESIS_INDEX: Final = LogIndex(1)


class Wiring:
    """Everything a group is made of. The parts that need a core are idle until there is one."""

    def __init__(self, context: Context, identity: Identity) -> None:
        self._context = context
        log = context.log
        genesis = b""
        if not log.is_empty and log.first_index == GENESIS_INDEX:
            genesis = bytes(log.entries(GENESIS_INDEX, GENESIS_INDEX, 1)[0].payloads[0])
        self.clocks = GroupClock(context.clock, len(context.settings.members), context.trace)
        self.elections = Elections(context)
        self.replication = Replication(context, self.clocks)
        self._hooks = Hooks(
            self.begin_core, self.replication.forget_data, self._life_renewed, self.elections.rearm
        )
        self.membership = Membership(
            context, identity.incarnation, identity.group_id, genesis, self._hooks
        )
        self._following = Following(context, self.elections, self.clocks)
        self.barriers = Barriers(context, self.replication)
        self.replication.on_answer = self.barriers.on_answer
        self.replication.on_forgotten = self.membership.forget_life
        self._quarantine = Quarantine(context, self.membership, self.barriers)
        self.transfer = Transfer(context, self.replication, self.clocks)
        self.proposals = Proposals()
        self.refusals = Refusals(context, self.membership, self.proposals, self.replication)
        self.cutting = Cutting(
            context, self.proposals, self.replication, self.transfer, self.clocks
        )
        self.applying = Applying(context, self.proposals)
        self.last_seen = LastSeen()
        self._commit_seen = 0

    def begin_core(self) -> None:
        """Make the core: the genesis entry is on disk."""
        context = self._context
        state = context.durability.state
        applied = context.machine.applied_index
        log = context.log
        place = f"state of member {context.member}"
        check_state(place, applied, log.first_index, log.last_index)
        journal = Journal(
            context.log,
            self.clocks,
            term=state.term,
            vote=state.vote,
            # The first entry is the same on each member from the start, so it is committed (F14).
            commit_index=max(GENESIS_INDEX, applied),
            on_hard_state=context.durability.set_term,
            on_truncated=self._on_truncated,
        )
        engine = Engine(
            context.member,
            context.settings.members,
            journal,
            fallback_timeout=context.settings.election_timeout_max,
            covered_index=lambda: context.durability.covered_index,
            now=context.now,
        )
        if engine.term != state.term:  # acknowledged entries of a term that was never promised
            raise DamagedFile(
                f"hard state of member {context.member}",
                f"it says term {state.term}, and the log has entries of term {engine.term}",
            )
        context.set_core(engine, journal)
        self.elections.rearm()
        if state.quarantined:
            life = self.membership.incarnation.hex()
            context.trace.event("quarantined", incarnation=life)

    @property
    def needs_refill(self) -> bool:
        """See `RaftGroup.needs_refill`."""
        if self._context.formed:
            return not self._context.engine.is_leader and self._following.is_below_head
        return self.membership.lacks_first_entry

    @property
    def is_filled(self) -> bool:
        """See `RaftGroup.is_filled`."""
        context = self._context
        return context.formed and (context.engine.is_leader or self._following.has_matched)

    # Hooks.

    def _on_truncated(self, first: int, last: int) -> None:
        context = self._context
        context.durability.touch()
        context.trace.event("truncated", first=first, last=last, term=context.engine.term)

    def _life_renewed(self) -> None:
        """This member has begun a new life: it neither leads nor campaigns."""
        self._context.engine.step_down()
        self.elections.leadership_lost()

    # Inputs that several parts hear of. All but `link_*` need a core.

    def link_up(self, peer: MemberId) -> None:
        """Messages to a peer can leave."""
        self._context.outbox.up.add(peer)
        self.membership.link_up(peer)
        if self._context.formed:
            self.elections.link_up(peer)
            self.replication.link_changed(peer)

    def link_down(self, peer: MemberId) -> None:
        """What was on its way to a peer is lost."""
        self._context.outbox.up.discard(peer)
        self._context.gate.forget(peer)
        self.membership.link_down(peer)
        if self._context.formed:
            self.elections.link_down(peer)
            self.replication.link_changed(peer)

    def dispatch(self, sender: MemberId, message: Message) -> None:
        """Give a message that was admitted to the part that takes it."""
        context = self._context
        engine = context.engine
        match message:
            case AppendRequest():
                self._on_append(sender, message)
            case AppendAnswer():
                engine.adopt_term(sender, message.own_term, context.now)
                if self.replication.on_append_answer(sender, message):
                    engine.tick(context.now)
            case PreVote():
                self.elections.on_pre_vote(sender, message)
            case PreVoteAnswer():
                self.elections.on_pre_vote_answer(sender, message)
            case VoteRequest():
                self.elections.on_vote_request(sender, message)
            case VoteAnswer():
                self.elections.on_vote_answer(sender, message)
            case TermNotice():
                engine.adopt_term(sender, message.term, context.now)
            case TimeoutNow():
                self.elections.on_timeout_now(sender, message.term)
            case BarrierRequest():
                self.barriers.on_request(sender, message)
            case BarrierAnswer():
                self.barriers.on_barrier_answer(message)
            case _:
                raise AssertionError(f"no part takes {message.describe()}")

    def _on_append(self, sender: MemberId, message: AppendRequest) -> None:
        try:
            self._following.on_append(sender, message)
        except CorruptEntry as damaged:
            # The message counts as lost: nothing of it was kept, and the leader sends it again.
            what = message.describe()
            self._context.trace.event("dropped", sender=sender, message=what, reason=str(damaged))
        except CommittedConflict as conflict:
            if self._context.settings.flush is FlushMode.SYNC:
                raise
            raise DamagedFile(
                f"log of member {self._context.member}",
                f"{conflict}: with `flush: async` a power cut took from a majority of the group "
                f"what this member still has",
            ) from conflict
        self.elections.clock_is_off = self.clocks.is_off

    def tick(self, *, paused: bool) -> None:
        """Do what is due. A process that was paused reads its messages before it judges (L2)."""
        context = self._context
        if not paused:
            self.elections.tick()
        self.replication.tick()
        self.barriers.tick()
        self.transfer.tick()
        self.proposals.tick(context.now)
        context.engine.tick(context.now)

    def next_deadline(self) -> float:
        """Return when `tick` has something to do."""
        return min(
            self.elections.next_deadline(),
            self.replication.next_deadline(),
            self.barriers.next_deadline(),
            self.transfer.next_deadline(),
            self.proposals.next_deadline(),
        )

    def lift_quarantine(self) -> None:
        """End this member's quarantine at an operator's word."""
        self._quarantine.lift(self._hooks)

    # What follows from an input.

    def advance(self) -> None:
        """Let everything follow that the last input made possible."""
        self._observe()
        quarantined = self._context.quarantined
        if quarantined or self.transfer.active:
            self._quarantine.advance(self._hooks)
            self.transfer.advance()
            self._observe()
        if self.applying.trim_is_due:
            leads = self._context.engine.is_leader
            following = self._following.trim_floor
            self.applying.trim(self.replication.trim_floor() if leads else following)

    def _observe(self) -> None:
        context = self._context
        engine = context.engine
        before = self.last_seen.notice(context)
        if before is not None:
            self._leadership_changed(before, self.last_seen.core)
        commit = engine.commit_index
        if commit != self._commit_seen:
            self._commit_seen = commit
            term = context.log.term_at(LogIndex(commit))
            context.trace.event("commit", index=commit, term=term)
            if engine.is_leader:
                self.proposals.committed(commit, context.now)
                self.replication.commit_moved(self.proposals.expected_until)
                self.barriers.advance()

    def _leadership_changed(self, before: Leadership, now: Leadership) -> None:
        context = self._context
        context.trace.event("role", role=now.role.value, term=now.term, leader=now.leader)
        if now.term != before.term:
            self.elections.term_changed()
        led, leads = before.role is Role.LEADER, now.role is Role.LEADER
        if leads:
            self.replication.begin_reign()
            self.replication.tick()
            self.proposals.leadership_won(context.log.last_index)
        elif led:
            self.replication.end_reign()
            self.elections.leadership_lost()
            self.proposals.leadership_lost(context.now, now.leader or self.transfer.hint)
        if not leads and (led or now.leader is not None):
            self.transfer.leadership_changed()
        self.barriers.leadership_changed()
        context.engine.tick(context.now)
