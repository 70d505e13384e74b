"""Settings of producers, consumers and connections: frozen, checked, each with its unit.

Owns: the values and their limits. Not: bounds both ends agree on (`dledger_proto.limits`).
"""

import enum
from dataclasses import dataclass, field
from typing import Final

from dledger_client.latency import TABLE_5X, LatencyTable
from dledger_proto.batch import Compression
from dledger_proto.limits import (
    BATCH_RECORDS_MAX,
    BODY_SIZE_MAX,
    CALL_TIMEOUT_MS_MAX,
    FRAME_SIZE_TARGET,
    KIB,
    MIB,
    PRODUCER_BATCHES_IN_FLIGHT_MAX,
)

TIMEOUT_MS_MAX: Final = 86_400_000
"""Of any one call: a day."""


def _check(field_name: str, value: object, minimum: int, maximum: int) -> None:
    """Raise ValueError unless `value` is an integer within limits."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise ValueError(f"{field_name}: {value!r}, must be an integer from {minimum} to {maximum}")


def _check_type(field_name: str, value: object, kind: type[object]) -> None:
    if not isinstance(value, kind):
        # A ValueError as for every other wrong setting: one thing to catch.
        raise ValueError(f"{field_name}: {value!r}, must be a {kind.__name__}")  # noqa: TRY004


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """How a client reaches the cluster. Times in milliseconds."""

    try_timeout_ms: int = 1_500
    """A try that is not answered after this long is given up; the whole call has its own budget."""
    call_timeout_ms: int = 10_000
    """Budget for all tries of one call of a consumer or of administration."""
    connect_timeout_ms: int = 1_000
    """How long one connection attempt may take."""
    keepalive_ms: int = 10_000
    """A silent connection is probed after this long."""
    keepalive_timeout_ms: int = 3_000
    """A probe that is not answered after this long closes the connection."""
    inside: bool = False
    """Use the members' own addresses, as their peers do, instead of the published ones: for clients
    within the same container network."""

    def __post_init__(self) -> None:
        for name, least, most in (
            ("try_timeout_ms", 10, 600_000),
            ("call_timeout_ms", 10, CALL_TIMEOUT_MS_MAX),
            ("connect_timeout_ms", 10, 60_000),
            ("keepalive_ms", 1_000, 3_600_000),
            ("keepalive_timeout_ms", 100, 600_000),
        ):
            _check(name, getattr(self, name), least, most)
        _check_type("inside", self.inside, bool)


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """How a producer batches, repeats and bounds its sends. Milliseconds and bytes."""

    name: str = ""
    """A named producer has the same id in every life; a new one fences the one before (D11)."""
    idempotent: bool = True
    """Register with each group and number the batches, so that a repeat is stored once. Switched
    off, a send of unknown outcome is not repeated and one batch per queue is in flight."""
    timeout_ms: int = 10_000
    """Budget of one send: waiting, all tries, elections. A batch shares its first record's end."""
    tries_max: int = 0
    """Tries of one batch within its budget; 0: as many as fit. RocketMQ's default would be 3."""
    linger_ms: float = 5.0
    """How long a batch gathers while another of its queue is in flight. A lone send never waits."""
    batch_bytes: int = 256 * KIB
    """A batch is closed at this size; a single larger message is a batch of its own."""
    batch_records: int = 4_096
    """A batch is closed at this many records."""
    batches_in_flight: int = PRODUCER_BATCHES_IN_FLIGHT_MAX
    """Per queue."""
    in_flight_bytes: int = 8 * MIB
    """Per broker group; what gathers beyond goes into larger batches."""
    buffer_bytes: int = 64 * MIB
    """Of everything not yet settled; beyond it `submit` raises BufferFull and `send` waits."""
    compression: Compression = Compression.NONE
    create_topics: bool = True
    """Ask for a topic that does not exist to be created; the cluster may have this switched off."""
    avoid_slow_groups: bool = False
    """Latency fault tolerance (S36), for messages that are bound to no queue."""
    latency_table: LatencyTable = TABLE_5X
    connection: ConnectionConfig = field(default_factory=ConnectionConfig)

    def __post_init__(self) -> None:
        for field_name, kind in (
            ("name", str),
            ("compression", Compression),
            ("latency_table", LatencyTable),
            ("connection", ConnectionConfig),
        ):
            _check_type(field_name, getattr(self, field_name), kind)
        if len(self.name.encode()) > 1_024:
            raise ValueError(f"name: {len(self.name.encode())} bytes, at most 1024")
        for name, least, most in (
            ("timeout_ms", 1, TIMEOUT_MS_MAX),
            ("tries_max", 0, 1_000_000),
            ("batch_bytes", 1, BODY_SIZE_MAX),
            ("batch_records", 1, BATCH_RECORDS_MAX),
            ("batches_in_flight", 1, PRODUCER_BATCHES_IN_FLIGHT_MAX),
            ("in_flight_bytes", FRAME_SIZE_TARGET, 1_024 * MIB),
            ("buffer_bytes", 2 * BODY_SIZE_MAX, 64 * 1_024 * MIB),
        ):
            _check(name, getattr(self, name), least, most)
        if not isinstance(self.linger_ms, int | float) or not 0 <= self.linger_ms <= 60_000:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"linger_ms: {self.linger_ms!r}, must be a number from 0 to 60000")
        if self.name and not self.idempotent:
            raise ValueError(
                f"name: {self.name!r} given with idempotent=False; only ids have names"
            )


class StartAt(enum.Enum):
    """Where a queue begins for a consumer group without a stored offset (S103), or past its end."""

    FIRST = "first"
    LAST = "last"
    ERROR = "error"
    """Raise OffsetOutOfRange instead of choosing."""


PREFERENCES = ("leader", "follower")
"""What `ConsumerConfig.prefer` may be besides the name of a member."""


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """How a consumer reads and buffers. Times in milliseconds, sizes in bytes."""

    group: str = ""
    """Consumer group whose offsets `commit` and `committed` use; empty: neither is possible."""
    start_at: StartAt = StartAt.LAST
    """Where to begin without a stored offset, and where to go when an offset is out of range."""
    prefer: str = "leader"
    """Read from the "leader", from any "follower", or from the member of this name; while there is
    none such, from whoever serves. A name that no group has is refused by `assign`."""
    buffer_bytes: int = 32 * MIB
    """Fetched and not yet polled; beyond it the streams are not read. Compressed bodies count as
    large as they are decompressed. One poll hands out no more than this, but at least one run."""
    frame_bytes: int = FRAME_SIZE_TARGET
    """What one fetch frame may hold; at least one batch always comes."""
    wait_ms: int = 1_000
    """A member sends an empty frame after this long without data; a silent stream is broken."""
    fail_on_unreadable: bool = True
    """Raise UnreadableData where a batch is read that cannot be decoded as its producer sent it.
    False: leave such batches out, warn of each in the log, and count their records
    (`passed_over`); each batch is decoded once more for that."""
    connection: ConnectionConfig = field(default_factory=ConnectionConfig)

    def __post_init__(self) -> None:
        for name, least, most in (
            ("buffer_bytes", FRAME_SIZE_TARGET, 64 * 1_024 * MIB),
            ("frame_bytes", 1 * KIB, 4 * FRAME_SIZE_TARGET),
            ("wait_ms", 10, 30_000),
        ):
            _check(name, getattr(self, name), least, most)
        for field_name, kind in (
            ("group", str),
            ("start_at", StartAt),
            ("prefer", str),
            ("fail_on_unreadable", bool),
            ("connection", ConnectionConfig),
        ):
            _check_type(field_name, getattr(self, field_name), kind)
        if not self.prefer:
            raise ValueError('prefer: empty, must be "leader", "follower" or a member id')
