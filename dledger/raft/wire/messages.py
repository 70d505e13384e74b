"""The closed list of messages between the members of a group. Values only.

Owns: what members can say to each other, and one stable line for each. Does not own their bytes
(`message_codec.py`), nor what is believed of them (`gate.py`, `membership/hellos.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from dledger.types import AppendPayload, DiskRoom


@dataclass(slots=True)
class Message(ABC):
    """What every message carries; `session` and `sequence` are stamped when it leaves."""

    TYPE: ClassVar[int] = 0
    session: int = field(default=0, kw_only=True)
    sequence: int = field(default=0, kw_only=True)

    @abstractmethod
    def describe(self) -> str:
        """Return one stable line for logs and tests, without session and sequence."""


@dataclass(slots=True)
class Hello(Message):
    """Who the sender is (D18). Repeated until the receiver's own hello shows that it was heard."""

    TYPE: ClassVar[int] = 1
    cluster: str
    group: str
    member: str
    incarnation: bytes
    state_number: int
    """Grows whenever what the sender says of itself changes."""
    term: int
    """On the sender's disk: a later process of this life that says less has forgotten it."""
    group_id: bytes = b""
    """Empty: the sender has not formed."""
    quarantined: bool = False
    lifted: bool = False
    recorded: bytes = b""
    """The incarnation of the receiver that the sender has on disk; empty when none."""
    forgotten: bool = False
    """The life `recorded` has promised more than its data says: nothing of it is believed."""
    echo_session: int = 0
    """The receiver's session as the sender knows it, 0 when it does not."""
    echo_state: int = 0
    met: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Of a sender that has not formed: whom it has met, itself included, by incarnation."""
    genesis: bytes = b""
    """The genesis payload; only when the receiver may need it."""

    def describe(self) -> str:
        flags = " quarantined" * self.quarantined + " lifted" * self.lifted
        flags += " forgotten" * self.forgotten
        return (
            f"hello {self.cluster}/{self.group}/{self.member} "
            f"incarnation={self.incarnation.hex()[:8]} state={self.state_number} "
            f"term={self.term} group_id={self.group_id.hex()[:8] or '-'}{flags} "
            f"recorded={self.recorded.hex()[:8] or '-'} echo_state={self.echo_state} "
            f"met={','.join(sorted(self.met)) or '-'} genesis={len(self.genesis)}"
        )


@dataclass(slots=True)
class PreVote(Message):
    """Would you vote for me in `term`, which is one above my own? Changes nothing (L1)."""

    TYPE: ClassVar[int] = 2
    number: int
    term: int
    last_index: int
    last_term: int

    def describe(self) -> str:
        return f"pre-vote #{self.number} term={self.term} last={self.last_index}@{self.last_term}"


@dataclass(slots=True)
class PreVoteAnswer(Message):
    """Answers `PreVote` of the same number; `term` is the voter's own."""

    TYPE: ClassVar[int] = 3
    number: int
    term: int
    granted: bool

    def describe(self) -> str:
        return f"pre-vote-answer #{self.number} term={self.term} granted={self.granted}"


@dataclass(slots=True)
class VoteRequest(Message):
    """Raft's RequestVote. Leaves when the candidate's own vote is on disk."""

    TYPE: ClassVar[int] = 4
    number: int
    term: int
    last_index: int
    last_term: int

    def describe(self) -> str:
        return (
            f"vote-request #{self.number} term={self.term} last={self.last_index}@{self.last_term}"
        )


@dataclass(slots=True)
class VoteAnswer(Message):
    """Answers `VoteRequest` of the same number and term; granted ones leave once on disk."""

    TYPE: ClassVar[int] = 5
    number: int
    term: int
    voter_term: int
    granted: bool

    def describe(self) -> str:
        return (
            f"vote-answer #{self.number} term={self.term} granted={self.granted} "
            f"voter_term={self.voter_term}"
        )


@dataclass(slots=True)
class AppendRequest(Message):
    """Raft's AppendEntries; without entries a heartbeat.

    A sender fills `payload`, a receiver reads `frames`.
    """

    TYPE: ClassVar[int] = 6
    number: int
    term: int
    prev_index: int
    prev_term: int
    commit_index: int
    trim_floor: int
    """No member may trim its log above this (the slowest member's match index)."""
    wall_ms: int
    """The group's time as the leader knows it (D8); 0: not yet."""
    jump_ms: int = 0
    """How far the majority's clock is ahead of that (below 0: behind), while a jump waits."""
    answer: bool = True
    """False: a mere notice of the commit index; answered only when it does not match."""
    payload: AppendPayload | None = None
    frames: memoryview | None = None

    def describe(self) -> str:
        if self.payload is not None:
            what = f"{self.payload.first}..{self.payload.last}"
        else:
            what = f"{len(self.frames)} bytes" if self.frames else "-"
        return (
            f"append #{self.number} term={self.term} prev={self.prev_index}@{self.prev_term} "
            f"entries={what} commit={self.commit_index} floor={self.trim_floor}"
            f"{'' if self.answer else ' notice'}"
        )


@dataclass(slots=True)
class AppendAnswer(Message):
    """Answers the `AppendRequest` of the same number and term (F3)."""

    TYPE: ClassVar[int] = 7
    number: int
    term: int
    """Of the request."""
    own_term: int
    matched: bool
    match_index: int
    """Matched: up to here the logs agree, and it is on the follower's disk."""
    hint_index: int
    hint_term: int
    """Not matched: the follower's newest entry that may agree (L4)."""
    wall_ms: int
    """The follower's clock."""
    quarantined: bool = False
    disk_room: DiskRoom = DiskRoom.ENOUGH
    disk_hangs: bool = False
    unsynced: bool = False
    """`match_index` is written, and will be synced: the follower's `flush` is async."""

    def describe(self) -> str:
        what = (
            f"match={self.match_index}"
            if self.matched
            else f"mismatch hint={self.hint_index}@{self.hint_term}"
        )
        flags = "".join(
            (
                " quarantined" * self.quarantined,
                f" disk-{self.disk_room.name.lower()}" * (self.disk_room > 0),
                " disk-hangs" * self.disk_hangs,
                " unsynced" * self.unsynced,
            )
        )
        return (
            f"append-answer #{self.number} term={self.term} {what} own_term={self.own_term}{flags}"
        )


@dataclass(slots=True)
class TermNotice(Message):
    """Tells a stale leader or candidate of a higher term (L9)."""

    TYPE: ClassVar[int] = 8
    term: int

    def describe(self) -> str:
        return f"term-notice {self.term}"


@dataclass(slots=True)
class TimeoutNow(Message):
    """Raft's TimeoutNow: the leader hands over."""

    TYPE: ClassVar[int] = 9
    term: int

    def describe(self) -> str:
        return f"timeout-now term={self.term}"


@dataclass(slots=True)
class BarrierRequest(Message):
    """A follower asks its leader for a read index, or a quarantined member for D18's barrier."""

    TYPE: ClassVar[int] = 10
    number: int
    quarantined: bool = False

    def describe(self) -> str:
        return f"barrier #{self.number}{' quarantined' if self.quarantined else ''}"


@dataclass(slots=True)
class BarrierAnswer(Message):
    """Answers `BarrierRequest` of the same number; `confirmed` False: ask again."""

    TYPE: ClassVar[int] = 11
    number: int
    term: int
    index: int
    confirmed: bool

    def describe(self) -> str:
        return (
            f"barrier-answer #{self.number} index={self.index} term={self.term} "
            f"confirmed={self.confirmed}"
        )
