"""The results of apply: one for each payload of an entry. No logic, no formats.

A refusal is a result, never an exception: every member computes it alike (D6, D8).
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from dledger.state.progress.row import Progress
from dledger.state.values import Topic
from dledger_proto.errors import Code

DELAYED_OFFSET: Final = -1


class Appended(NamedTuple):
    """A batch is in its queue, `record_count` records from `base_offset`."""

    base_offset: int
    """DELAYED_OFFSET: a timer holds the batch, and no queue yet."""
    record_count: int
    duplicate: bool = False
    """True: the batch is a repeat; the offset is that of its first copy."""


class Refused(NamedTuple):
    """A batch is void (stored in no queue), or a command changed nothing."""

    code: Code
    detail: str


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """The topic as it is now."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class ConsumerGroupChanged:
    """The two topics of a consumer group as they are now."""

    retry: Topic
    """Its settings are those of the group."""
    dead_letters: Topic


@dataclass(frozen=True, slots=True)
class TopicsForgotten:
    """These deleted topics have no row now. `more`: others are due; propose the command again."""

    topic_ids: tuple[bytes, ...]
    more: bool


class LastSequence(NamedTuple):
    """The newest sequence that a queue holds of a producer's epoch."""

    topic_id: bytes
    queue: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Registered:
    """This life of the producer may write with `epoch`, from sequence 0 on in every queue.

    `last`: of the epoch before it.
    """

    epoch: int
    last: tuple[LastSequence, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """Another life of the producer holds `epoch`. A life that takes over asks for the next one."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ProducersExpired:
    """`count` producers are forgotten. `more`: others are due; propose the command again."""

    count: int
    more: bool


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """For each offset of the command: OK or the refusal, and the stored offset (-1: none)."""

    codes: tuple[Code, ...]
    stored_offsets: tuple[int, ...]


class Claimed(NamedTuple):
    """What a claim came to: OK or why not."""

    code: Code
    detail: str
    row: Progress | None = None
    """As it is now; None when the queue cannot be served."""
    lease_left_ms: int = 0
    """Of an ordered group: of the consumer's own lease, or with LEASED of the other's."""


@dataclass(frozen=True, slots=True)
class QueuesClaimed:
    """Of each queue of the command, in its order."""

    rows: tuple[Claimed, ...]
    time_ms: int
    """The leader's stamp: what leases and suspensions are measured by."""
    paused: str = ""
    """Why the group is handed nothing; empty: it is not paused."""


@dataclass(frozen=True, slots=True)
class QueuesBegun:
    """How many queues got a floor."""

    count: int


@dataclass(frozen=True, slots=True)
class QueuesReleased:
    """Of each queue of the command: OK or why not."""

    codes: tuple[Code, ...]


class FailureStored(NamedTuple):
    """What a failure came to: OK or why not."""

    code: Code
    detail: str
    attempts: int = 0
    """Now."""
    is_dead: bool = False
    """No further try: it is in the dead letters, or dropped if the group has none.

    Told of an ordered group also when the record was done before.
    """
    due_ms: int = 0
    """Leader time of the next try."""


@dataclass(frozen=True, slots=True)
class FailuresStored:
    """Of each record of the command, in its order."""

    rows: tuple[FailureStored, ...]
    time_ms: int
    """The leader's stamp."""


@dataclass(frozen=True, slots=True)
class DeadLettersSettled:
    """Of each offset: OK; NOT_FOUND: it is settled already; HELD: by the guard; or another."""

    codes: tuple[Code, ...]


@dataclass(frozen=True, slots=True)
class GroupResumed:
    """Why the group was paused; empty: it was not."""

    why: str


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The queue's minimum now. `held_by`: the owner of the hold that stopped the trim, or empty."""

    minimum: int
    held_by: str = ""
    held_until_ms: int = 0
    """Leader time."""


@dataclass(frozen=True, slots=True)
class RecordsExpired:
    """The minimum of each queue now, in the order of the command, and what stopped it there."""

    queues: tuple[Trimmed, ...]


@dataclass(frozen=True, slots=True)
class TimersFired:
    """`count` timers fired. `more`: others are due; propose the command again."""

    count: int
    more: bool


@dataclass(frozen=True, slots=True)
class TimerRecalled:
    """The message is taken back; it would have been delivered at this leader time."""

    due_ms: int


@dataclass(frozen=True, slots=True)
class ScheduleSet:
    """The schedule is there; `replaced`: one of the same name was there before."""

    schedule_id: bytes
    last_due_ms: int
    """It sends at later times only."""
    replaced: bool


@dataclass(frozen=True, slots=True)
class ScheduleDeleted:
    """The schedule is gone; the last message that it sent, or could have sent, was due then."""

    schedule_id: bytes
    last_due_ms: int


@dataclass(frozen=True, slots=True)
class Held:
    """The hold lasts until this leader time, in milliseconds; 0: there is no hold."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class Joined:
    """The consumer is in its group. `joined` names its session."""

    joined: int
    group_epoch: int
    replaced: str
    """The static consumer whose place it took over; or empty."""


@dataclass(frozen=True, slots=True)
class SessionsEnded:
    """These consumers are not in their group any more."""

    consumers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assigned:
    """The targets are stored: how many queues were granted, and how many have to come back."""

    granted: int
    revoked: int


@dataclass(frozen=True, slots=True)
class GivenBack:
    """So many queues were taken back; the others are not the consumer's by these grants."""

    count: int


@dataclass(frozen=True, slots=True)
class CarriedForward:
    """So many batches lie at the end of the log now, under their old positions."""

    count: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """So many records are gone; what stays of their batches are so many runs."""

    gone: int
    runs: int


@dataclass(frozen=True, slots=True)
class UserChanged:
    """The user is as the command says."""

    name: str
    revision: int
    """Of the list of users now."""


@dataclass(frozen=True, slots=True)
class UsersImported:
    """The range is as the command says; the newest list that is known as a whole."""

    revision: int


@dataclass(frozen=True, slots=True)
class FormatLevelSet:
    """From now on a leader may propose commands up to this level."""

    level: int


Result = (
    Appended
    | Refused
    | TopicChanged
    | ConsumerGroupChanged
    | TopicsForgotten
    | Registered
    | Taken
    | ProducersExpired
    | OffsetsCommitted
    | QueuesClaimed
    | QueuesBegun
    | QueuesReleased
    | GroupResumed
    | FailuresStored
    | DeadLettersSettled
    | Trimmed
    | RecordsExpired
    | CarriedForward
    | Compacted
    | TimersFired
    | TimerRecalled
    | ScheduleSet
    | ScheduleDeleted
    | Held
    | Joined
    | SessionsEnded
    | Assigned
    | GivenBack
    | UserChanged
    | UsersImported
    | FormatLevelSet
)
