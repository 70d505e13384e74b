"""The sections of a member's configuration, and the rules of single values.

Owns the keys of each section. `model` has the whole. The docstring of a section says what its keys
mean; `docs/generate.py` makes a page of it.
"""

import enum
import re
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from dledger.state.values import Retention
from dledger.types import FlushMode
from dledger_proto.limits import (
    GIB,
    GROUP_NAME_LENGTH_MAX,
    KIB,
    MIB,
    OFFSET_MAX,
    PRODUCER_EXPIRY_MS,
    QUEUES_PER_TOPIC_MAX,
    RETENTION_FOREVER,
    SCRUB_RATE_MIN,
    TIME_MS_MAX,
)
from dledger_proto.network.addresses import check_address

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")


def check_name(name: str) -> str:
    """Return the name of a cluster, group or member; ValueError when it breaks the rule."""
    if not _NAME.match(name) or len(name) > GROUP_NAME_LENGTH_MAX:
        raise ValueError(
            f"must be 1 to {GROUP_NAME_LENGTH_MAX} letters, digits, '_' or '-', "
            "and begin with a letter or digit"
        )
    return name


def check_broker_group(name: str) -> str:
    """Return the name of a broker group, which may begin with a machine room: `room@name`."""
    for part in name.split("@", 1):
        check_name(part)
    if len(name) > GROUP_NAME_LENGTH_MAX:
        raise ValueError(f"must be at most {GROUP_NAME_LENGTH_MAX} characters")
    return name


Name = Annotated[str, AfterValidator(check_name)]
BrokerGroupName = Annotated[str, AfterValidator(check_broker_group)]
Address = Annotated[str, AfterValidator(check_address)]
AddressOrNone = Annotated[str, AfterValidator(lambda value: value and check_address(value))]
FolderPath = Annotated[Path, Field(strict=False)]
Milliseconds = Annotated[int, Field(ge=1, le=3_600_000)]


class LogLevel(enum.StrEnum):
    """The least severe lines that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(enum.StrEnum):
    """How a line looks: coloured for people, or one JSON object."""

    CONSOLE = "console"
    JSON = "json"


class Section(BaseModel):
    """A part of the file. It refuses unknown keys, converts no value, and never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class StorageConfig(Section):
    """The log on disk.

    Attributes:
        flush: When a send may be acknowledged: `sync`, after a majority synced it to disk; `async`,
            as soon as a majority wrote it.
        flush_interval_ms: With `flush = "async"`: how long written data may stay unsynced.
        segment_size_bytes: Largest size of a segment file. Not below the largest entry.
        tail_cache_bytes: The newest entries that stay in memory. Not below the largest entry.
        checkpoint_bytes: The member writes a checkpoint after this many bytes of log. A restart
            reads about as much.
        disk_low_water_bytes: With less free space than this, the member refuses writes with
            DISK_FULL, except those that free space; below half of it, these too. Reads go on. 0
            switches this off. Not below `disk_reserve_bytes`; it must leave room for the bytes that
            may be in flight when the disk is found to be full.
        disk_reserve_bytes: Space that each group holds back for hard state, saves of the state and
            the tail of the log (I16).
    """

    flush: Annotated[FlushMode, Field(strict=False)] = FlushMode.SYNC
    flush_interval_ms: Milliseconds = 500
    segment_size_bytes: Annotated[int, Field(le=64 * GIB)] = GIB
    tail_cache_bytes: Annotated[int, Field(le=4 * GIB)] = 32 * MIB
    checkpoint_bytes: Annotated[int, Field(ge=256 * KIB, le=GIB)] = 16 * MIB
    disk_low_water_bytes: Annotated[int, Field(ge=0)] = 256 * MIB
    disk_reserve_bytes: Annotated[int, Field(ge=0)] = 64 * MIB


class StateConfig(Section):
    """The derived state in LMDB.

    Attributes:
        map_size_bytes: Largest size of the state. It takes address space, not disk space. It cannot
            grow while the member runs.
        save_interval_ms: How long changes of the state may stay unsaved. A restart applies the log
            again from the last save.
    """

    map_size_bytes: Annotated[int, Field(ge=64 * MIB, le=1024 * GIB)] = 64 * GIB
    save_interval_ms: Milliseconds = 500


class RaftConfig(Section):
    """Elections and replication.

    Attributes:
        heartbeat_ms: The leader sends a heartbeat to each follower this often.
        election_timeout_min_ms: A follower asks for an election after a time without its leader
            that is drawn between this and `election_timeout_max_ms`. Above three heartbeats.
        election_timeout_max_ms: The end of that range. Above `election_timeout_min_ms`. A leader
            that has not heard from a majority for so long steps down.
        link_loss_redial_ms: A follower whose link to the leader breaks gives it this time to come
            back, then asks for an election without waiting for the timeout.
        campaign_jitter_ms: A member repeats an election that it cannot win after a random time up
            to this.
        disk_hang_limit_ms: When a write to the disk takes longer than this, a leader hands its
            leadership over, and a follower asks for no election.
        inflight_bytes_max: Bytes of log that may be on their way to one follower. Not below the
            largest entry.
        uncommitted_bytes_max: Bytes of log that the leader holds uncommitted. Beyond them it
            refuses writes with BUSY. Not below the largest entry.
        waiting_bytes_max: Bytes of writes that wait for a place in the log. Beyond them the leader
            refuses writes with BUSY. Not below the largest entry.
    """

    heartbeat_ms: Milliseconds = 100
    election_timeout_min_ms: Milliseconds = 600
    election_timeout_max_ms: Milliseconds = 1_200
    link_loss_redial_ms: Milliseconds = 50
    campaign_jitter_ms: Milliseconds = 100
    disk_hang_limit_ms: Milliseconds = 2_000
    inflight_bytes_max: Annotated[int, Field(le=GIB)] = 16 * MIB
    uncommitted_bytes_max: Annotated[int, Field(le=4 * GIB)] = 64 * MIB
    waiting_bytes_max: Annotated[int, Field(le=4 * GIB)] = 32 * MIB


class RefillConfig(Section):
    """Refills: log and state of a peer for a member that replication cannot fill any more.

    Attributes:
        bytes_per_second: A member that is refilled takes no more than this.
        absent_bytes_max: The leader keeps so many bytes of log for a member that is behind. A
            member that is further behind is refilled when it is there again.
        absent_ms_max: The leader keeps the log for a silent member for so long.
    """

    bytes_per_second: Annotated[int, Field(ge=KIB, le=100 * GIB)] = 64 * MIB
    absent_bytes_max: Annotated[int, Field(ge=64 * KIB)] = 8 * GIB
    absent_ms_max: Annotated[int, Field(ge=60_000)] = 259_200_000


class ScrubConfig(Section):
    """Scrubs: a member reads all of its log by itself and mends what is damaged from its peers.

    Attributes:
        every_ms: Everything is read once in this time. 0: only `dledger scrub` begins a scrub.
        bytes_per_second: A scrub that begins by itself reads no more than this.
    """

    every_ms: Annotated[int, Field(ge=0, le=TIME_MS_MAX)] = 604_800_000
    bytes_per_second: Annotated[int, Field(ge=SCRUB_RATE_MIN, le=100 * GIB)] = 8 * MIB


RETENTION_MS_MIN: Final = 60_000
TOMBSTONE_MS: Final = 86_400_000
"""Kafka's day."""
GROUP_EXPIRY_MS_MIN: Final = 3_600_000
RETENTION_DEFAULT_MS: Final = 259_200_000
"""RocketMQ's 72 hours."""


def _not_by_mistake(value: int) -> int:
    """Refuse a retention of hours that were meant as such: 72 ms would delete everything."""
    if 0 < value < RETENTION_MS_MIN:
        raise ValueError(f"must be 0, or at least {RETENTION_MS_MIN}: it is in milliseconds")
    return value


def _an_hour_or_never(value: int) -> int:
    """Refuse to delete consumer groups that only pause: an hour is the least."""
    if 0 < value < GROUP_EXPIRY_MS_MIN:
        raise ValueError(f"must be 0, or at least {GROUP_EXPIRY_MS_MIN}: it is in milliseconds")
    return value


class TopicsConfig(Section):
    """Topics and producers.

    Attributes:
        auto_create: A send to an unknown topic creates it, on every group that may have it (S20,
            S21).
        default_queues_per_group: Queues that a topic gets in each group when its creator names no
            number.
        producer_expiry_ms: The leader forgets a producer that sent nothing for this time.
        retention_ms: Messages are deleted so long after they were stored, whether or not anybody
            has read them, unless their topic says otherwise. 0: never.
        retention_bytes: The oldest messages of a queue are deleted when its batches have more
            bytes, unless its topic says otherwise. 0: no bound.
        tombstone_ms: A message without a body deletes its key in a compacted topic. It stays so
            long, so that readers that are behind see it.
        delete_when_low: While the leader's disk is low, the oldest messages of topics that have a
            bound are deleted early, a segment of the log at a time.
    """

    auto_create: bool = True
    default_queues_per_group: Annotated[int, Field(ge=1, le=QUEUES_PER_TOPIC_MAX)] = 4
    producer_expiry_ms: Annotated[int, Field(ge=60_000)] = PRODUCER_EXPIRY_MS
    retention_ms: Annotated[int, Field(ge=0, le=TIME_MS_MAX), AfterValidator(_not_by_mistake)] = (
        RETENTION_DEFAULT_MS
    )
    retention_bytes: Annotated[int, Field(ge=0, le=OFFSET_MAX)] = 0
    tombstone_ms: Annotated[int, Field(ge=0, le=TIME_MS_MAX)] = TOMBSTONE_MS
    delete_when_low: bool = False

    @property
    def retention(self) -> Retention:
        """What counts for a topic that has no retention of its own."""
        return Retention(
            self.retention_ms or RETENTION_FOREVER, self.retention_bytes or RETENTION_FOREVER
        )


class ConsumerGroupsConfig(Section):
    """Consumer groups.

    Attributes:
        auto_create: The first consumer of an unknown consumer group creates it, with the default
            settings and the order of its listener.
        expiry_ms: A consumer group that nobody used for this time is deleted, with its progress. 0:
            never. The control group's members go by it.
    """

    auto_create: bool = True
    expiry_ms: Annotated[int, Field(ge=0, le=TIME_MS_MAX), AfterValidator(_an_hour_or_never)] = 0


class AdmissionConfig(Section):
    """What may wait or run in the process at once. The member refuses what is beyond with BUSY.

    Attributes:
        append_bytes_max: Bytes of append frames with a batch that is not answered yet, over all
            append streams. Not below the largest frame.
        append_batches_max: Batches that are not answered yet, over all append streams.
        stream_bytes_max: As `append_bytes_max`, for one append stream.
        append_streams_max: Append streams.
        fetch_streams_max: Fetch streams.
        fetch_bytes_max: Bytes of frames that are read from the log and not yet taken by gRPC, over
            all fetch streams. Not below the largest frame.
        queries_max: Calls that ask for routes and offsets, plan reads, commit offsets and register
            producers.
        lookups_max: Look-ups of single records. A few run at once, the others wait.
        admin_calls_max: Calls about topics, trims, holds, status and leadership.
        log_streams_max: Streams of `LogEntries`, by which tools compare members.
        route_watchers_max: Streams of route changes.
        sessions_max: Sessions of consumers, over all consumer groups that are coordinated here.
        user_percent: What one user may hold of each of these bounds of streams, sessions and calls,
            where users are asked for. One is always allowed.
    """

    append_bytes_max: Annotated[int, Field(le=4 * GIB)] = 64 * MIB
    append_batches_max: Annotated[int, Field(ge=1, le=1_000_000)] = 32_768
    stream_bytes_max: Annotated[int, Field(le=GIB)] = 32 * MIB
    append_streams_max: Annotated[int, Field(ge=1, le=100_000)] = 4_096
    fetch_streams_max: Annotated[int, Field(ge=1, le=100_000)] = 4_096
    fetch_bytes_max: Annotated[int, Field(le=4 * GIB)] = 64 * MIB
    queries_max: Annotated[int, Field(ge=1, le=100_000)] = 1_024
    lookups_max: Annotated[int, Field(ge=1, le=10_000)] = 64
    admin_calls_max: Annotated[int, Field(ge=1, le=10_000)] = 64
    log_streams_max: Annotated[int, Field(ge=1, le=10_000)] = 16
    route_watchers_max: Annotated[int, Field(ge=1, le=100_000)] = 4_096
    sessions_max: Annotated[int, Field(ge=1, le=100_000)] = 4_096
    user_percent: Annotated[int, Field(ge=1, le=100)] = 50


class TlsConfig(Section):
    """TLS, on every port and connection of the process, or on none.

    Attributes:
        folder: The folder with `ca.crt`, `tls.crt` and `tls.key`; `dledger tls` makes it. Whoever
            connects needs a certificate of the same authority. Changed files are used for new
            connections, without a restart. Empty: no TLS.
    """

    folder: FolderPath = Path()

    @property
    def is_on(self) -> bool:
        """True with a folder."""
        return self.folder != Path()


class RegistrationConfig(Section):
    """How this process keeps its place at the name servers.

    Attributes:
        heartbeat_ms: The process renews its registration this often.
    """

    heartbeat_ms: Milliseconds = 2_000


class ShutdownConfig(Section):
    """How SIGTERM ends the process.

    Attributes:
        drain_ms: Time for calls in flight and for handing the leadership over. Then the process
            ends anyway.
    """

    drain_ms: Milliseconds = 3_000


class LogConfig(Section):
    """The process's own log lines, on standard error.

    Attributes:
        level: The least severe lines that are written.
        format: `console`, coloured lines for people; `json`, one object a line.
    """

    level: Annotated[LogLevel, Field(strict=False)] = LogLevel.INFO
    format: Annotated[LogFormat, Field(strict=False)] = LogFormat.CONSOLE


class MetricsConfig(Section):
    """What monitoring asks this process (`/metrics`, `/healthz`, `/readyz`).

    Attributes:
        listen: The address to serve HTTP on, without encryption and without a password. Default:
            none, and nothing is served.
        series_max: So many topics of each broker group have series of their own, so many consumer
            groups, and so many pairs of a consumer group and a topic. A gauge says how many are
            left out.
    """

    listen: AddressOrNone = ""
    series_max: Annotated[int, Field(ge=1, le=10_000)] = 1_000
