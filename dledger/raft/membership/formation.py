"""Who may take part: first formation, adoption, quarantine (D18). Pure decisions on what was heard.

Owns: the decision table of a member without data, the derivation of a group's identity, and when a
quarantine's condition (a) holds. Does not own hellos, sessions or writes (`hellos.py`).

What a member without data does, once a peer's process has shown that it has heard this process:

  row  what is heard                                             then
  A    a formed peer of another cluster, group or member list    wait, say why
  B    formed peers of two different groups                      wait, say why
  C    formed peers whose first entries list this incarnation,
       and no other incarnation is on record anywhere            adopt their first entry
  D    any other formed peer                                     adopt it, in quarantine
  E    all configured members, all without data, and each has
       met the very incarnations that this one has met           form
  F    anything less                                             wait, say for whom

Row E's condition on what the *others* have met makes two different formations impossible. A member
that said that it met (a1, b1, c1) never forms with (a2, b1, c1) while it lives: it would have to
meet a2 instead. A member that forgot everything by a restart starts to listen anew. Row C is safe
because this incarnation has never promised anything. It has no data, and a member that lost its
data has another incarnation.

Condition (a) of a quarantined member: each other member has formed in the same group and has this
incarnation on disk. From then on each of them refuses messages of the earlier incarnation. The term
that it tells is at least every term in which it counted such messages.
"""

import enum
import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dledger.raft.wire.messages import Hello
from dledger.types import MemberId
from dledger_proto.entry import CorruptEntry, encode_genesis, parse_genesis


class Forming(enum.Enum):
    """What a member without data does; see the table above."""

    WAIT = "wait"
    FORM = "form"
    ADOPT = "adopt"
    QUARANTINE = "quarantine"


class Decision(NamedTuple):
    """The step, with the payload of the first entry, or with the reason to wait."""

    step: Forming
    genesis: bytes = b""
    reason: str = ""


def group_id_of(cluster: str, group: str, lives: Mapping[str, bytes]) -> bytes:
    """Return the 16 bytes that name a group, the same for each member that derives them."""
    digest = hashlib.sha256()
    parts = [cluster.encode(), group.encode()]
    for member, incarnation in sorted(lives.items()):
        parts += (member.encode(), incarnation)
    for part in parts:
        digest.update(len(part).to_bytes(4, "little"))
        digest.update(part)
    return digest.digest()[:16]


def genesis_of(cluster: str, group: str, lives: Mapping[str, bytes]) -> bytes:
    """Return the payload of the first entry."""
    return encode_genesis(cluster, group, group_id_of(cluster, group, lives), sorted(lives.items()))


def decide(
    *,
    cluster: str,
    group: str,
    member: MemberId,
    incarnation: bytes,
    members: Sequence[MemberId],
    views: Mapping[MemberId, Hello],
) -> Decision:
    """Apply the table to a member without data."""
    formed = {peer: view for peer, view in views.items() if view.group_id}
    # One first entry is enough for a quarantine: all formed peers are in the same group.
    told = {peer: view for peer, view in formed.items() if view.genesis}
    for peer, view in sorted(told.items()):
        wrong = _mismatch(view, group, members)
        if wrong:
            return Decision(Forming.WAIT, reason=f"{peer} {wrong}")
    if formed:
        if len({view.group_id for view in formed.values()}) > 1:
            return Decision(
                Forming.WAIT, reason=f"{', '.join(sorted(formed))} are in different groups"
            )
        if not told:
            reason = f"{', '.join(sorted(formed))}: has data, but its log lacks entry 1"
            return Decision(Forming.WAIT, reason=reason)
        view = told[min(told)]
        listed = dict(parse_genesis(view.genesis).members).get(member)
        known = listed == incarnation and all(
            each.recorded in (b"", incarnation) for each in formed.values()
        )
        silent = sorted(set(formed) - set(told))
        if known and silent:  # one that trimmed it knows that this life had data
            reason = f"{', '.join(silent)}: has data, but has not sent entry 1 yet"
            return Decision(Forming.WAIT, reason=reason)
        return Decision(Forming.ADOPT if known else Forming.QUARANTINE, genesis=view.genesis)
    met = met_by(member, incarnation, views)
    missing = sorted(set(members) - set(met))
    if missing:
        return Decision(
            Forming.WAIT, reason=f"the group forms once this member has met {', '.join(missing)}"
        )
    behind = sorted(peer for peer, view in views.items() if dict(view.met) != met)
    if behind:
        return Decision(Forming.WAIT, reason=f"{', '.join(behind)} has not met all members yet")
    return Decision(Forming.FORM, genesis=genesis_of(cluster, group, met))


def _mismatch(view: Hello, group: str, members: Sequence[MemberId]) -> str:
    try:
        genesis = parse_genesis(view.genesis)
    except CorruptEntry as error:
        return f"tells a first entry that cannot be read: {error}"
    # The cluster is that of the hello. A restored group keeps the first entry of the old cluster.
    if genesis.group != group:
        return f"belongs to group {genesis.group}, this member to {group}"
    if genesis.group_id != view.group_id:
        return "contradicts itself about its group id"
    names = sorted(name for name, _ in genesis.members)
    if names != sorted(members):
        return f"has the members {', '.join(names)}, configured are {', '.join(sorted(members))}"
    return ""


def met_by(
    member: MemberId, incarnation: bytes, views: Mapping[MemberId, Hello]
) -> dict[str, bytes]:
    """Return whom a member without data has met: itself, and the others without data."""
    met: dict[str, bytes] = {member: incarnation}
    met.update((peer, view.incarnation) for peer, view in views.items() if not view.group_id)
    return met


class Promise(NamedTuple):
    """The highest term that one life of a peer has told to be on its disk; 0: none."""

    life: bytes
    term: int

    def told(self, life: bytes, term: int) -> "Promise":
        """Return what holds once `life` has told `term`: another life owes nothing for this one."""
        return Promise(life, max(self.term, term) if life == self.life else term)


def forgotten_by(hello: Hello, promise: Promise) -> str:
    """Return what the sender's recorded life has promised and forgotten; "" if nothing.

    Sessions are in order, so the hello is from after the promise: the disk holds an older copy, or
    nothing.
    """
    if hello.incarnation != promise.life or hello.term >= promise.term:
        return ""
    return f"it promised term {promise.term}, but its data knows only term {hello.term}"


class Recorded(NamedTuple):
    """How far condition (a) of a quarantine is."""

    missing: Sequence[MemberId]
    term: int
    """The highest term that was told."""


def recorded_by(
    *,
    incarnation: bytes,
    group_id: bytes,
    peers: Sequence[MemberId],
    views: Mapping[MemberId, Hello],
) -> Recorded:
    """Return who has not recorded this incarnation yet, and the highest term of those who have."""
    missing: list[MemberId] = []
    term = 0
    for peer in peers:
        view = views.get(peer)
        if view is None or view.group_id != group_id or view.recorded != incarnation:
            missing.append(peer)
        else:
            term = max(term, view.term)
    return Recorded(missing, term)
