"""Settings of producers, consumers and connections: frozen, checked, each with its unit.

Owns: the values and their limits. Not: bounds both ends agree on (`dledger_proto.limits`). What a
field means is said in the docstring of its class, where `help()` finds it; `docs/generate.py` makes
a page of it.
"""

import enum
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final, TypeVar

from dledger_client.latency import TABLE_5X, LatencyTable
from dledger_proto.batch.codec import Compression
from dledger_proto.limits import (
    BATCH_RECORDS_MAX,
    BODY_SIZE_MAX,
    CALL_TIMEOUT_MS_MAX,
    FRAME_SIZE_TARGET,
    KIB,
    MIB,
    PRODUCER_BATCHES_IN_FLIGHT_MAX,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

TIMEOUT_MS_MAX: Final = 86_400_000
"""Of any one call: a day."""

Number = TypeVar("Number", int, float)


def _limited(default: Number, least: Number, most: Number) -> Number:
    """Return a field that holds a number within limits; a whole number unless they are floats."""
    return field(default=default, metadata={"limits": (least, most)})


def _check_fields(config: "DataclassInstance") -> None:
    """Raise ValueError unless each number is within its limits, each other value of its type."""
    for each in fields(config):
        value = getattr(config, each.name)
        if "limits" in each.metadata:
            _check(each.name, value, *each.metadata["limits"])
        elif not isinstance(value, type(each.default)):
            kind = type(each.default).__name__
            raise ValueError(f"{each.name}: {value!r}, must be a {kind}")


def _check(name: str, value: object, least: float, most: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    words = "an integer" if isinstance(least, int) else "a number"
    if not is_number or not isinstance(value, int | type(least)) or not least <= value <= most:
        raise ValueError(f"{name}: {value!r}, must be {words} from {least:.0f} to {most:.0f}")


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """How a client reaches the cluster.

    Attributes:
        try_timeout_ms: The client gives up one try of a call after this time. The whole call has
            its own budget.
        call_timeout_ms: Budget for all tries of one call of a consumer or of administration.
        connect_timeout_ms: Budget of one attempt to connect.
        keepalive_ms: The client probes a connection that was silent for this time.
        keepalive_timeout_ms: The client closes a connection whose probe is not answered in this
            time.
        tls_folder: The folder with `ca.crt`, `tls.crt` and `tls.key`, for a cluster that has TLS.
            Changed files are used for new connections, without a restart. Empty: no TLS.
        user: Who logs in, where members ask for users. Empty: nobody.
        secret_file: The file with the user's secret. It is read at each login, and no secret is
            kept in this object.
        inside: Use the addresses by which members reach each other, not the published ones. For
            clients within the members' container network.
    """

    try_timeout_ms: int = _limited(1_500, 10, 600_000)
    call_timeout_ms: int = _limited(10_000, 10, CALL_TIMEOUT_MS_MAX)
    connect_timeout_ms: int = _limited(1_000, 10, 60_000)
    keepalive_ms: int = _limited(10_000, 1_000, 3_600_000)
    keepalive_timeout_ms: int = _limited(3_000, 100, 600_000)
    tls_folder: str = ""
    user: str = ""
    secret_file: str = ""
    inside: bool = False

    def __post_init__(self) -> None:
        _check_fields(self)
        if bool(self.user) != bool(self.secret_file):
            given, missing = ("user", "secret_file") if self.user else ("secret_file", "user")
            raise ValueError(f"{given}: {getattr(self, given)!r} given without {missing}")


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """How a producer batches, repeats and bounds its sends.

    Attributes:
        name: A producer with a name keeps its id when it is made again, and the newest producer of
            a name fences those before it (D11). Empty: a new id each time. At most 1024 bytes.
        idempotent: Register with each group and number the batches, so that a repeated batch is
            stored once. When this is off, the producer does not repeat a send of unknown outcome,
            and keeps one batch of a queue in flight.
        timeout_ms: Budget of one send: waiting, all tries, elections. A batch ends when the budget
            of its first record ends.
        tries_max: Tries of one batch within its budget. 0: as many as fit. RocketMQ's default is 3.
        linger_ms: How long a batch waits for more records while another batch of its queue is in
            flight. A lone send never waits.
        batch_bytes: The producer closes a batch at this size. A message that is larger gets a batch
            of its own.
        batch_records: The producer closes a batch at this many records.
        batches_in_flight: Batches of one queue that may be in flight at once.
        in_flight_bytes: Bytes that may be in flight to one broker group. Records that come
            meanwhile gather in larger batches.
        buffer_bytes: Bytes of all records that are not settled yet. Beyond them `submit` raises
            BufferFull, and `send` waits.
        compression: How the producer compresses the bodies of a batch.
        create_topics: Ask for topics that do not exist to be created. The cluster may have this
            switched off.
        avoid_slow_groups: Avoid groups that answered slowly, for messages that are bound to no
            queue (S36, latency fault tolerance).
        latency_table: After which latency to avoid a group, and for how long.
        connection: How the producer reaches the cluster.
    """

    name: str = ""
    idempotent: bool = True
    timeout_ms: int = _limited(10_000, 1, TIMEOUT_MS_MAX)
    tries_max: int = _limited(0, 0, 1_000_000)
    linger_ms: float = _limited(5.0, 0.0, 60_000.0)
    batch_bytes: int = _limited(256 * KIB, 1, BODY_SIZE_MAX)
    batch_records: int = _limited(4_096, 1, BATCH_RECORDS_MAX)
    batches_in_flight: int = _limited(
        PRODUCER_BATCHES_IN_FLIGHT_MAX, 1, PRODUCER_BATCHES_IN_FLIGHT_MAX
    )
    in_flight_bytes: int = _limited(8 * MIB, FRAME_SIZE_TARGET, 1_024 * MIB)
    buffer_bytes: int = _limited(64 * MIB, 2 * BODY_SIZE_MAX, 64 * 1_024 * MIB)
    compression: Compression = Compression.NONE
    create_topics: bool = True
    avoid_slow_groups: bool = False
    latency_table: LatencyTable = TABLE_5X
    connection: ConnectionConfig = ConnectionConfig()

    def __post_init__(self) -> None:
        _check_fields(self)
        if len(self.name.encode()) > 1_024:
            raise ValueError(f"name: {len(self.name.encode())} bytes, at most 1024")
        if self.name and not self.idempotent:
            raise ValueError(
                f"name: {self.name!r} given with idempotent=False; only ids have names"
            )


class ConsumeOrder(enum.IntEnum):
    """What a consumer group hands out one after the other.

    CONCURRENT: nothing. QUEUE: the records of a queue. KEY: the records of a queue that have the
    same ordering key; of records without one, the first of their keys.
    """

    CONCURRENT = 0
    QUEUE = 1
    KEY = 2


class StartAt(enum.Enum):
    """Where a queue begins for a consumer group without a stored offset (S103), or past its end.

    FIRST: at the oldest record. LAST: behind the newest record. ERROR: nowhere; the consumer raises
    OffsetOutOfRange.
    """

    FIRST = "first"
    LAST = "last"
    ERROR = "error"


PREFERENCES = ("leader", "follower")
"""What `ConsumerConfig.prefer` may be besides the name of a member."""


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """How a consumer reads and buffers.

    Attributes:
        group: Consumer group that `subscribe` joins, and whose offsets `commit` and `committed`
            use. Empty: none of these can be called.
        start_at: Where to begin without a stored offset, and where to go when an offset is out of
            range.
        prefer: Read from the "leader", from any "follower", or from the member of this name. While
            no such member serves, read from any that does. `assign` refuses a name that no group
            has.
        buffer_bytes: Bytes of records that are fetched and not yet polled. Beyond them the consumer
            does not read its streams. Compressed bodies count with their decompressed size. One
            poll returns at most this much, but at least one run of records.
        frame_bytes: Bytes that one frame of a fetch may hold. At least one batch always comes.
        wait_ms: A member sends an empty frame after this time without data. The consumer takes a
            stream that stays silent for broken.
        fail_on_unreadable: Raise UnreadableData for a batch that cannot be decoded as its producer
            sent it. When this is off, the consumer leaves such batches out, warns of each in the
            log, and counts their records (`passed_over`); it decodes each batch once more for that.
        create_group: Create the consumer group when it does not exist, with `order` and `start_at`.
            The cluster may have this switched off.
        order: What the consumer is able to do. A group of another order refuses it.
        commit_interval_ms: How often `subscribe` commits what is done. The records of a poll are
            done when the next poll begins. 0: only `commit` does.
        revoke_timeout_ms: How long a queue that the group asks back waits for the next poll. After
            this time the consumer gives it back without a commit of what the last poll returned.
        instance: Name of a static consumer. When it comes back within the group's session limit,
            it gets the same queues. Empty: none.
        strategy: How this consumer wants queues to be dealt out. Empty: as the group is set.
        room: Machine room of this consumer, for strategies that ask for it.
        connection: How the consumer reaches the cluster.
    """

    group: str = ""
    start_at: StartAt = StartAt.LAST
    prefer: str = "leader"
    buffer_bytes: int = _limited(32 * MIB, FRAME_SIZE_TARGET, 64 * 1_024 * MIB)
    frame_bytes: int = _limited(FRAME_SIZE_TARGET, 1 * KIB, 4 * FRAME_SIZE_TARGET)
    wait_ms: int = _limited(1_000, 10, 30_000)
    fail_on_unreadable: bool = True
    create_group: bool = True
    order: ConsumeOrder = ConsumeOrder.CONCURRENT
    commit_interval_ms: int = _limited(1_000, 0, 3_600_000)
    revoke_timeout_ms: int = _limited(30_000, 0, TIMEOUT_MS_MAX)
    instance: str = ""
    strategy: str = ""
    room: str = ""
    connection: ConnectionConfig = ConnectionConfig()

    def __post_init__(self) -> None:
        _check_fields(self)
        if not self.prefer:
            raise ValueError('prefer: empty, must be "leader", "follower" or a member id')


@dataclass(frozen=True, slots=True)
class PushConfig:
    """How a push consumer hands records to its listener.

    Attributes:
        consumer: How it fetches, and what it is in its group. `order` says whether the listener
            gets records one after the other; `commit_interval_ms` must not be 0.
        concurrency: Calls of the listener at the same time. For a function also the threads.
        batch_size: Records that one call gets. Above 1 the listener gets a list of them.
        listener_timeout_ms: A call that takes longer has failed (S108). A coroutine is cancelled. A
            function goes on in its thread; what it returns does not count any more.
        queue_records: Records of one queue in hand, beyond which no more are taken (S102).
        queue_bytes: Bytes of them.
        queue_span: Offsets from the oldest record that is not done to the newest in hand. With the
            order KEY it does not count while a record that failed waits for its next try.
        close_timeout_ms: How long `close` waits until the listener has finished what it has.
        broadcast: Every consumer gets every record. Offsets are kept in `offsets_file`, and what
            fails is not delivered again (S86, S112).
        offsets_file: Where a broadcasting consumer keeps its offsets. Empty: nowhere.
    """

    consumer: ConsumerConfig = ConsumerConfig()
    concurrency: int = _limited(20, 1, 1_000)
    batch_size: int = _limited(1, 1, 10_000)
    listener_timeout_ms: int = _limited(900_000, 1, TIMEOUT_MS_MAX)
    queue_records: int = _limited(1_000, 1, 1_000_000)
    queue_bytes: int = _limited(100 * MIB, 1, 64 * 1_024 * MIB)
    queue_span: int = _limited(2_000, 1, 1_000_000)
    close_timeout_ms: int = _limited(30_000, 0, TIMEOUT_MS_MAX)
    broadcast: bool = False
    offsets_file: str = ""

    def __post_init__(self) -> None:
        _check_fields(self)
        if not self.consumer.commit_interval_ms:
            raise ValueError("consumer.commit_interval_ms: 0, a push consumer commits by itself")
        if self.offsets_file and not self.broadcast:
            raise ValueError("offsets_file: given without broadcast; a group keeps its own offsets")
        if self.broadcast and self.consumer.order is not ConsumeOrder.CONCURRENT:
            raise ValueError("broadcast: given with an order; a broadcast has none")
