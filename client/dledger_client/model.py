"""The values that users of this package send and get back; records as read: `records.py`."""

import enum
from dataclasses import dataclass
from typing import TypedDict, cast

from dledger_client.config import ConsumeOrder
from dledger_client.errors import ClientError, invalid
from dledger_proto.batch.codec import Record
from dledger_proto.limits import DELAY_MS_MAX
from dledger_proto.names import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX

Message = Record
"""One message to send: body, tag, keys, properties, time_ms (0: when it was handed over)."""


class Acknowledgement(enum.StrEnum):
    """What a majority had done when the acknowledgement left (D4)."""

    MAJORITY_SYNCED = "majority-synced"
    MAJORITY_WRITTEN = "majority-written"
    """`flush: async`: a power cut of the whole group may lose it."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """A stored message. Only what is stored has a result; everything else is an exception."""

    topic: str
    group: str
    """The broker group that stores it."""
    queue: int
    offset: int
    """Place in the queue. -1: an earlier try stored the message, and the group has forgotten its
    offset (`duplicate` is then true)."""
    index: int
    """Index of its log entry; 0 when not known."""
    term: int
    message_id: bytes
    """24 bytes: producer id, running number. Empty without idempotence."""
    acknowledgement: Acknowledgement
    duplicate: bool
    """An earlier try had stored the message; this is its place."""

    @property
    def offset_id(self) -> str:
        """The message's place as text: group/topic/queue/offset."""
        return f"{self.group}/{self.topic}/{self.queue}/{self.offset}"


@dataclass(frozen=True, slots=True)
class ProducerStatus:
    """What a producer holds now."""

    buffered_bytes: int
    """Upper bound of the bytes of everything that is not settled."""
    batches: int
    """Unsettled."""
    outstanding: int
    """Batches on their way, of which no answer has come yet."""
    links: tuple[str, ...]
    """One line for each append stream."""
    epochs: tuple[tuple[str, int], ...]
    """(group, epoch) of each registration."""
    is_closed: bool


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """What a queue holds: offsets `minimum` up to, not including, `maximum`."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class MemberProgress:
    """What a leader knows of another member. A follower knows only its name and address."""

    member: str
    address: str
    """The address published to clients, also when asked from inside."""
    is_connected: bool
    match_index: int
    next_index: int
    inflight_bytes: int
    incarnation: str
    is_quarantined: bool
    clock_offset_ms: int | None
    """How far its clock is from the group's time; None unless a leader has heard it."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What one member says about itself and its group. Terms, indexes and positions as in D1."""

    cluster: str
    group: str
    member: str
    address: str
    """The address that was asked."""
    role: str
    term: int
    leader: str
    leader_address: str
    """The address published to clients, also when asked from inside."""
    first_index: int
    last_index: int
    durable_index: int
    commit_index: int
    applied_index: int
    first_position: int
    last_position: int
    digest: bytes
    """Of the state at `applied_index`; equal on members at equal applied index."""
    flush_mode: str
    format_level: int
    group_id: bytes
    incarnation: str
    reason: str
    """Why the member does not serve, in a sentence; empty when it does."""
    topics_problem: str
    """Why the leader does not follow the control group's topics; empty when it does."""
    members: tuple[MemberProgress, ...]
    is_control_group: bool
    is_disk_low: bool
    clock_offset_ms: int
    """How far its clock is from the group's time, which is the median of a majority."""
    is_clock_off: bool
    """The clock was more than 1 s off and not within 0.5 s since: the member does not lead."""
    version: str
    security: str
    """`on`: only holders of a certificate connect to it (TLS). `users`: and they log in. `off`.
    Empty: an older program."""


@dataclass(frozen=True, slots=True)
class QueueHold:
    """What keeps a queue from being trimmed at or above `offset`."""

    topic: str
    topic_id: bytes
    group: str
    queue: int
    owner: str
    offset: int
    until_ms: int
    """When the hold ends unless somebody renews it, ms since 1970, by the leader's clock."""


class StartFrom(enum.IntEnum):
    """Where a consumer group begins in a queue in which it has no offset (S103)."""

    LAST = 0
    FIRST = 1
    TIME = 2
    """At the first record stored at `start_time_ms` or later."""


class ConsumerGroupSettings(TypedDict, total=False):
    """What may be set of a consumer group. What is left out has the cluster's default."""

    order: ConsumeOrder
    retry_delays_ms: tuple[int, ...]
    """The pause before each retry; the last one repeats."""
    retries_max: int
    """Failures that are retried; the next one is the last."""
    dead_letters: bool
    """True: what failed for the last time goes to the dead letters; False: it is done."""
    start: StartFrom
    start_time_ms: int
    session_ms: int
    """A consumer that is silent for so long is gone."""
    lease_ms: int
    """Of an ordered group: how long a consumer owns a queue without renewing it."""
    strategy: str
    """How queues are dealt out."""
    pause_failures: int
    """So many failures within a minute pause the group; 0: never."""
    pause_share: int
    """They must be so many percent of what was handed out."""
    paused: bool


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A consumer group: its settings, as in `ConsumerGroupSettings`, and where it is kept."""

    name: str
    id: bytes
    """A new group of the same name has another one."""
    coordinator: str
    """The broker group that keeps its consumers."""
    dead_letter_topic_id: bytes
    control_index: int
    """Index of the control group's log that decided this."""
    order: ConsumeOrder
    retry_delays_ms: tuple[int, ...]
    retries_max: int
    dead_letters: bool
    start: StartFrom
    start_time_ms: int
    session_ms: int
    lease_ms: int
    strategy: str
    pause_failures: int
    pause_share: int
    paused: bool

    @property
    def retry_topic(self) -> str:
        """The topic of records that are to come again."""
        return RETRY_TOPIC_PREFIX + self.name

    @property
    def dead_letter_topic(self) -> str:
        """The topic of records that failed for the last time."""
        return DEAD_LETTER_TOPIC_PREFIX + self.name


@dataclass(frozen=True, slots=True)
class WaitingTimer:
    """What is put into a queue at `due_ms`: a delayed batch, or a retry."""

    due_ms: int
    """Milliseconds since 1970, by the leader's clock."""
    topic: str
    """Empty when the topic's name is not known any more."""
    topic_id: bytes
    group: str
    queue: int
    record_count: int
    message_id: bytes
    """Of the first record, 24 bytes; empty: it cannot be recalled."""
    attempts: int
    """Of a retry: how often the record failed."""


@dataclass(frozen=True, slots=True)
class DeadRecord:
    """A record in the dead letters of a consumer group that is not settled."""

    broker_group: str
    dead_queue: int
    """Of the topic of dead letters, `%DLQ%` and the name of the consumer group."""
    dead_offset: int
    died_ms: int
    """Milliseconds since 1970, by the leader's clock."""
    topic: str
    """Where it comes from; empty: the topic is deleted."""
    topic_id: bytes
    queue: int
    offset: int
    attempts: int
    resent: int
    """How often it was sent again."""
    error: str
    """The last one."""


@dataclass(frozen=True, slots=True)
class SettledRecords:
    """What became of dead letters that were to be sent again, or dropped."""

    settled: int
    """Sent again, or dropped; of a dry run: that would be sent."""
    left_by_guard: int = 0
    """They were sent `resent_max` times."""
    left_by_ranges: int = 0
    """Too many are settled here and there; settle the oldest first."""
    others: int = 0
    """They were settled already: by others, or by a call whose answer was lost."""


@dataclass(frozen=True, slots=True)
class SuspendedRecord:
    """A record of an ordered consumer group that failed and is to be handed out again."""

    offset: int
    attempts: int
    left_ms: int
    """Until it may be handed out."""


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a consumer group is in a queue."""

    broker_group: str
    floor: int | None
    """The next offset to consume: everything below is done. None: the group has none."""
    minimum: int
    maximum: int
    done: tuple[tuple[int, int], ...]
    """Ranges above the floor that are done: first offset, and the offset behind the last."""
    holder: str
    """The consumer that has the queue; empty: nobody."""
    epoch: int
    """Of its claim, or of the last one."""
    resets: int
    lease_left_ms: int
    suspended: tuple[SuspendedRecord, ...]
    committed_ms: int
    """When the group committed last, ms since 1970, by the leader's clock; 0: never."""
    lag_messages: int | None
    """How many records wait; None: the group has no floor."""
    lag_bytes: int | None
    """Of the batches that hold them, as they are stored; estimated when they are very many."""
    lag_ms: int
    """How long ago the oldest record that waits was stored; 0: none waits."""
    expires_in_ms: int | None
    """When the retention of the topic deletes it; None: never, or none waits."""
    lost: int
    """Records above the floor that were trimmed, or expired, before the group was done with them.
    The next commit moves the floor beyond them."""
    paused: str
    """Why the group is handed nothing here; empty: it is not paused."""


@dataclass(frozen=True, slots=True)
class GroupConsumer:
    """A consumer of a consumer group, as the leader of its coordinator knows it."""

    member_id: str
    instance: str
    """Name of a static consumer; or empty."""
    client: str
    """Host and process, as it says."""
    room: str
    member_epoch: int
    """Log index of the last change of what it holds, or has to give back."""
    connected: bool
    silent_ms: int
    """For so long it has said nothing; 0 when this leader has never heard it."""


@dataclass(frozen=True, slots=True)
class QueueGrant:
    """Who has a queue, and who should have it."""

    broker_group: str
    holder: str
    target: str
    """Another than the holder: the holder has to give it back. Empty: nobody should have it."""
    epoch: int
    """Of the grant to the holder."""
    since_ms: int
    """Since when, ms since 1970, by the leader's clock."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A consumer group: its consumers, and who has which queue."""

    name: str
    coordinator: str
    """The broker group that coordinates it."""
    strategy: str
    paused: bool
    """By its settings."""
    group_epoch: int
    assignment_epoch: int
    """Equal to the group epoch: what follows from who is there is decided."""
    topics: tuple[str, ...]
    """That the consumers subscribe to."""
    patterns: tuple[str, ...]
    consumers: tuple[GroupConsumer, ...]
    queues: dict[tuple[str, int], QueueGrant]
    """By topic and queue."""
    unassigned: tuple[tuple[str, int], ...]
    """Queues that are subscribed to, and that nobody should have."""
    problems: tuple[str, ...]
    """Why queues are not dealt out as they should be, in a sentence each."""


@dataclass(frozen=True, slots=True)
class EntryMark:
    """What identifies an entry of the log: equal on every member that holds it."""

    index: int
    term: int
    crc: int


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """What a lookup found."""

    topic: str
    """Empty when the topic's name is not known any more."""
    topic_id: bytes
    queue: int
    offset: int
    store_time_ms: int
    message_id: bytes
    """24 bytes; empty when the record cannot be decoded."""
    content: Record | None
    error: ClientError | None = None
    """Why the record cannot be decoded."""

    @property
    def record(self) -> Record:
        """The record; raises `error` when nobody can decode it."""
        if self.error is not None:
            raise self.error.again()
        assert self.content is not None, f"offset {self.offset}: neither a record nor an error"
        return self.content


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One thing that happened to a record."""

    broker_group: str
    index: int
    """Of the log entry; 0: it is so now."""
    time_ms: int
    """Milliseconds since 1970, by the leader's clock."""
    event: str
    """stored, claimed, done, failed, retry, dead, ...: docs/delivery.md lists them."""
    topic: str
    """Where it happened; empty: the topic is deleted."""
    topic_id: bytes
    queue: int
    offset: int
    """-1: the message is in no queue yet."""
    consumer_group: str
    member_id: str
    """The consumer; empty: none."""
    epoch: int
    """Of its claim; 0: none."""
    text: str
    """A phrase for people."""


class TopicKind(enum.IntEnum):
    """What a topic is for (S19, S48). TRANSACTION is refused until members know it."""

    NORMAL = 0
    FIFO = 1
    """Each message has an ordering key."""
    DELAY = 2
    """Each message has a delivery time."""
    TRANSACTION = 3
    PRIORITY = 4
    """Messages of a higher priority overtake others; the queues of a group are its priorities."""


@dataclass(frozen=True, slots=True)
class Retry:
    """What a listener returns for a record that is to come again. It counts as a failure."""

    delay_ms: int | None = None
    """After this time; None: as the group is set."""
    error: str = ""
    """Why, for people."""

    def __post_init__(self) -> None:
        """Raise InvalidRequest for a value that no failure can be told with."""
        _check_text("error", self.error)
        delay = cast("object", self.delay_ms)
        if delay is None:
            return
        is_number = isinstance(delay, int) and not isinstance(delay, bool)
        if not is_number or not 0 <= cast("int", delay) <= DELAY_MS_MAX:
            raise invalid(f"delay_ms: {delay!r}, must be an integer from 0 to {DELAY_MS_MAX}")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What a listener returns for a record that is to go to the dead letters now."""

    error: str = ""
    """Why, for people."""

    def __post_init__(self) -> None:
        """Raise InvalidRequest for a text that is none."""
        _check_text("error", self.error)


def _check_text(field: str, value: object) -> None:
    if not isinstance(value, str):
        raise invalid(f"{field}: {value!r}, must be text")


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a listener may ask about the records it got."""

    attempts: int
    """Failures before this delivery, of the first record."""
    epoch: int
    """Grows with each owner of the queue: a fencing number for the listener's own database."""
    deadline: float
    """By the clock of `time.monotonic`: a result that comes later does not count any more."""
