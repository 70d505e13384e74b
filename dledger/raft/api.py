"""The boundary of a Raft group: what drives it, what it drives, what goes in and out.

`dledger.raft.group.RaftGroup` does no I/O, starts no thread and asks no clock. A driver feeds it:
`dledger.raft.driver.host` with asyncio and worker threads, `tests.sim` on a virtual clock. After
*every* input the driver drains `RaftGroup.outputs()`. It may ask before whether anything would come
of that: `RaftGroup.is_due`, and `RaftGroup.cuts_now` after a proposal.

- `messages` leave at once, in order per peer. What must wait for the disk is not in the list yet.
- `write`, when not None, is executed with `Round.execute()` where blocking is allowed. Then
  the driver calls `RaftGroup.write_finished` or, with the OSError, `RaftGroup.write_failed`. At
  most one write round is in flight.
- `apply_ready`: the driver calls `RaftGroup.apply_slice(now)` until it returns False. The event
  loop gets a turn between two calls.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dledger.log.writing.write_round import Round
from dledger.raft.wire.messages import Message
from dledger.types import Entry, FlushMode, LogIndex, MemberId, Term
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import MEMBERS_MAX


class Role(enum.Enum):
    """What a member is to its group now."""

    UNFORMED = "unformed"
    QUARANTINED = "quarantined"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What a group is told by configuration. Times in seconds."""

    cluster: str
    group: str
    member: MemberId
    members: Sequence[MemberId]
    """All configured voters, this one included; one to seven."""
    heartbeat: float = 0.1
    election_timeout_min: float = 0.6
    election_timeout_max: float = 1.2
    link_loss_redial: float = 0.05
    campaign_jitter: float = 0.1
    disk_hang_limit: float = 2.0
    """A disk hangs when a round takes longer: a leader hands over, a follower does not campaign."""
    flush: FlushMode = FlushMode.SYNC
    flush_interval: float = 0.5
    """With `FlushMode.ASYNC`: how long what was written may stay unsynced. RocketMQ's default."""
    gather_bytes: int = 64 << 10
    """A smaller entry waits for the commit of the entry before it; with 0 none waits."""
    inflight_bytes_max: int = 16 << 20
    """Append bytes on the way to one follower."""
    uncommitted_bytes_max: int = 64 << 20
    """With so many uncommitted bytes in its log a leader refuses proposals as BUSY (L10)."""
    waiting_bytes_max: int = 32 << 20
    """With so many bytes in waiting proposals a leader refuses more as BUSY."""

    absent_bytes_max: int = 8 << 30
    """A leader keeps so much log for a member that is behind; beyond it the member is refilled."""
    absent_seconds_max: float = 259_200.0
    """A leader keeps log for a silent member for so long."""

    def check(self) -> None:
        """Raise DledgerError INVALID_ARGUMENT, naming field, value and limit."""
        members = ", ".join(self.members)
        if not 1 <= len(self.members) <= MEMBERS_MAX or len(set(self.members)) < len(self.members):
            raise _invalid(f"members {members}: 1 to {MEMBERS_MAX} different ones")
        if self.member not in self.members:
            raise _invalid(f"member {self.member}: must be one of {members}")
        if not 0 < self.heartbeat < self.election_timeout_min / 3:
            raise _invalid(
                f"heartbeat {self.heartbeat} s: above 0 and below a third of "
                f"election_timeout_min {self.election_timeout_min} s"
            )
        if not self.election_timeout_min < self.election_timeout_max:
            raise _invalid(
                f"election_timeout_max {self.election_timeout_max} s: must be above "
                f"election_timeout_min {self.election_timeout_min} s"
            )
        if self.flush_interval <= 0:
            raise _invalid(f"flush_interval {self.flush_interval} s: must be above 0")
        if min(self.inflight_bytes_max, self.uncommitted_bytes_max, self.waiting_bytes_max) <= 0:
            raise _invalid("inflight, uncommitted and waiting bytes: must be above 0")
        if self.absent_bytes_max <= 0 or self.absent_seconds_max <= 0:
            raise _invalid("absent bytes and seconds: must be above 0")
        if self.gather_bytes < 0:
            raise _invalid(f"gather_bytes {self.gather_bytes}: must be 0 or above")


def _invalid(detail: str) -> DledgerError:
    return DledgerError(Code.INVALID_ARGUMENT, detail)


class Machine(Protocol):
    """The replicated state machine, as a group sees it. `apply` never raises on content (F17)."""

    @property
    def applied_index(self) -> LogIndex:
        """The newest entry whose effects are visible."""
        ...

    @property
    def saved_index(self) -> LogIndex:
        """The newest applied entry that a synced state covers; the head is trimmed only below."""
        ...

    def apply(self, entry: Entry) -> Sequence[object]:
        """Apply one committed entry, the successor of `applied_index`; one result per payload.

        `machine.UnknownCommand` (a newer format level) stops the member, nothing else leaves.
        """
        ...

    def head_needed(self) -> int:
        """Return the lowest log position that the state still refers to."""
        ...


@dataclass(slots=True)
class Outputs:
    """What the driver has to do now."""

    messages: list[tuple[MemberId, Message]] = field(default_factory=list)
    write: Round | None = None
    apply_ready: bool = False


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """A leader's view of one other member."""

    member: MemberId
    connected: bool
    match_index: LogIndex
    next_index: LogIndex
    inflight_bytes: int
    incarnation: str
    quarantined: bool
    refused: str
    """Why this member believes nothing that the peer says, in a sentence; else empty."""
    clock_offset_ms: int | None
    """The peer's clock less the group's time; None for a follower or an unheard clock."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A frozen picture of a group for people, metrics and tests."""

    role: Role
    term: Term
    leader: MemberId | None
    first_index: LogIndex
    last_index: LogIndex
    durable_index: LogIndex
    commit_index: LogIndex
    applied_index: LogIndex
    group_id: bytes
    incarnation: str
    reason: str
    """Why the member does not serve, in a sentence; empty when it does."""
    peers: Sequence[PeerStatus]
    clock_offset_ms: int
    """This member's clock less the group's time (the majority's median); 0 when unknown."""
    clock_is_off: bool
    """The clock was off by more than a stamp may be, and has not come within half of that."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, as this member knows it."""

    role: Role
    term: Term
    leader: MemberId | None


OnLeadership = Callable[[Leadership], None]

OnBarrier = Callable[[LogIndex | None, str], None]
"""Called with the confirmed read index, or None and the reason. Reads wait until it is applied."""

OnTransferred = Callable[[bool, str], None]
"""Called once: whether leadership was handed over, and why not."""
