"""The configuration of a member process: its values, their limits, the relations between them.

Owns the shape and the checks. `config_load` reads files and the environment into it. Every value
carries its unit in its name; every refusal names the key, the value and the limit.

One process may be a member of several groups (`[[groups]]`) or of one (`[group]`); all of them
are served on one port. Minimal file:

    cluster = "shop"
    member = "a"
    listen = "0.0.0.0:10911"
    folder = "/var/lib/dledger"
    name_servers = ["ns-1:9876", "ns-2:9876"]

    [group]
    name = "orders"
    members = { a = "host-1:10911", b = "host-2:10911", c = "host-3:10911" }

`members` is where the members reach each other. Where clients reach them elsewhere (published ports
of containers, another network), `clients` is a second table of the same names; where clients are
told to go is from there, and nothing that members do among themselves is.
"""

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from dledger.raft.api import GroupSettings
from dledger.types import Durability, MemberId
from dledger_proto.addresses import check_address, split_address
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import (
    ENTRY_SIZE_MAX,
    FRAME_SIZE_MAX,
    GIB,
    GROUP_NAME_LENGTH_MAX,
    KIB,
    MIB,
    PRODUCER_EXPIRY_MS,
    QUEUES_PER_TOPIC_MAX,
)

MEMBERS_PER_GROUP_MAX: Final = 7
GROUPS_PER_PROCESS_MAX: Final = 16
NAME_SERVERS_MAX: Final = 16
LISTEN_ONLY_HOSTS: Final = frozenset({"0.0.0.0", "[::]"})
KEY_SHOWN_LENGTH_MAX: Final = 200
"""Above the longest sound key, `group.members.NAME`."""
HEARTBEATS_PER_ELECTION_TIMEOUT_MIN: Final = 3
"""An election timeout must outlast this many heartbeats, or a healthy leader is deposed."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: the key, its value, what the limit is, where the value came from."""

    key: str
    value: str
    limit: str
    source: str = ""

    def describe(self) -> str:
        """Return the problem as one line."""
        key = self.key[:KEY_SHOWN_LENGTH_MAX] + "..." * (len(self.key) > KEY_SHOWN_LENGTH_MAX)
        shown = f" = {self.value}" if self.value else ""
        where = f" ({self.source})" if self.source else ""
        return f"{key}{shown}{where}: {self.limit}"


class ConfigError(DledgerError):
    """The configuration cannot be used; `problems` has a line for each thing that is wrong."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(
            Code.INVALID_ARGUMENT, "; ".join(problem.describe() for problem in problems)
        )
        self.problems = tuple(problems)


def check_name(name: str) -> str:
    """Return the name of a cluster, group or member; ValueError when it breaks the rule."""
    if not _NAME.match(name) or len(name) > GROUP_NAME_LENGTH_MAX:
        raise ValueError(
            f"must be 1 to {GROUP_NAME_LENGTH_MAX} letters, digits, '_' or '-', "
            "and begin with a letter or digit"
        )
    return name


Name = Annotated[str, AfterValidator(check_name)]
Address = Annotated[str, AfterValidator(check_address)]
FolderPath = Annotated[Path, Field(strict=False)]
Milliseconds = Annotated[int, Field(ge=1, le=3_600_000)]


class FlushMode(enum.StrEnum):
    """When an acknowledgement may leave (D4): after fdatasync, or once it is written."""

    SYNC = "sync"
    ASYNC = "async"


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
    """A part of the file: unknown keys refused, values never coerced, never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class GroupConfig(Section):
    """One Raft group this process is a member of."""

    name: Name
    members: Annotated[
        Mapping[Name, Address], Field(min_length=1, max_length=MEMBERS_PER_GROUP_MAX)
    ]
    """Every voter by its id, this process included, and where its peers reach it."""
    clients: Annotated[
        Mapping[Name, Address], Field(min_length=1, max_length=MEMBERS_PER_GROUP_MAX)
    ] = {}
    """Where clients reach each of them; default: `members`."""
    member: Name = ""
    """This process's id in the group; default: the top-level `member`."""
    folder: FolderPath = Path()
    """The group's data; default: `<folder>/<group name>`."""


class StorageConfig(Section):
    """The log on disk."""

    flush: Annotated[FlushMode, Field(strict=False)] = FlushMode.SYNC
    flush_interval_ms: Milliseconds = 500
    """With `flush: async`: how long what was written and acknowledged may stay unsynced."""
    segment_size_bytes: Annotated[int, Field(le=64 * GIB)] = GIB
    tail_cache_bytes: Annotated[int, Field(le=4 * GIB)] = 32 * MIB
    checkpoint_bytes: Annotated[int, Field(ge=256 * KIB, le=GIB)] = 16 * MIB
    disk_low_water_bytes: Annotated[int, Field(ge=0)] = 256 * MIB
    """Below this much free space (0: never) writes are refused DISK_FULL but those that free space,
    below half of it these, too; reads go on."""
    disk_reserve_bytes: Annotated[int, Field(ge=0)] = 64 * MIB
    """Held back for hard state, state commits and the tail (I16)."""


class StateConfig(Section):
    """The derived state in LMDB."""

    map_size_bytes: Annotated[int, Field(ge=64 * MIB, le=1024 * GIB)] = 64 * GIB
    """Address space, not disk space. It cannot grow while the member runs."""
    save_interval_ms: Milliseconds = 500
    """So long a change of the state stays unsaved; what a crash takes of it the log gives back."""


class RaftConfig(Section):
    """Elections and replication."""

    heartbeat_ms: Milliseconds = 100
    election_timeout_min_ms: Milliseconds = 600
    election_timeout_max_ms: Milliseconds = 1_200
    link_loss_redial_ms: Milliseconds = 50
    campaign_jitter_ms: Milliseconds = 100
    disk_hang_limit_ms: Milliseconds = 2_000
    inflight_bytes_max: Annotated[int, Field(le=GIB)] = 16 * MIB
    uncommitted_bytes_max: Annotated[int, Field(le=4 * GIB)] = 64 * MIB
    waiting_bytes_max: Annotated[int, Field(le=4 * GIB)] = 32 * MIB


class TopicsConfig(Section):
    """Topics and producers."""

    auto_create: bool = True
    """A send to an unknown topic creates it, on every eligible group (S20, S21)."""
    default_queues_per_group: Annotated[int, Field(ge=1, le=QUEUES_PER_TOPIC_MAX)] = 4
    producer_expiry_ms: Annotated[int, Field(ge=60_000)] = PRODUCER_EXPIRY_MS


class AdmissionConfig(Section):
    """What may wait or run at once, by class of call; beyond it: BUSY."""

    append_bytes_max: Annotated[int, Field(le=4 * GIB)] = 64 * MIB
    """Of frames of which a batch is not answered, over all append streams."""
    append_batches_max: Annotated[int, Field(ge=1, le=1_000_000)] = 32_768
    stream_bytes_max: Annotated[int, Field(le=GIB)] = 32 * MIB
    """The same for one append stream."""
    append_streams_max: Annotated[int, Field(ge=1, le=100_000)] = 4_096
    fetch_streams_max: Annotated[int, Field(ge=1, le=100_000)] = 4_096
    fetch_bytes_max: Annotated[int, Field(le=4 * GIB)] = 64 * MIB
    """Of frames read and not yet taken by gRPC, over all fetch streams."""
    queries_max: Annotated[int, Field(ge=1, le=100_000)] = 1_024
    lookups_max: Annotated[int, Field(ge=1, le=10_000)] = 64
    """Of single records; few read at once, the others wait."""
    admin_calls_max: Annotated[int, Field(ge=1, le=10_000)] = 64
    log_streams_max: Annotated[int, Field(ge=1, le=10_000)] = 16
    """Of the log's entries, as `LogEntries` sends them for comparing members."""
    route_watchers_max: Annotated[int, Field(ge=1, le=100_000)] = 4_096


class RegistrationConfig(Section):
    """How this process keeps its place at the name servers."""

    heartbeat_ms: Milliseconds = 2_000


class ShutdownConfig(Section):
    """How SIGTERM ends the process."""

    drain_ms: Milliseconds = 3_000
    """For calls in flight and for handing leadership over; then the process ends anyway."""


class LogConfig(Section):
    """The process's own log lines, on standard error."""

    level: Annotated[LogLevel, Field(strict=False)] = LogLevel.INFO
    format: Annotated[LogFormat, Field(strict=False)] = LogFormat.CONSOLE


class MemberConfig(Section):
    """Everything a member process is told. Made by `config_load.load_config`, or by a test."""

    cluster: Name
    member: Name
    """This process's id; equal in each group unless the group says otherwise."""
    listen: Address
    folder: FolderPath
    name_servers: Annotated[
        tuple[Address, ...], Field(strict=False, max_length=NAME_SERVERS_MAX)
    ] = ()
    control_group: Name = ""
    """The group that decides topics for the cluster (D1); default: the first group here."""
    groups: Annotated[
        tuple[GroupConfig, ...],
        Field(strict=False, min_length=1, max_length=GROUPS_PER_PROCESS_MAX),
    ]
    storage: StorageConfig = StorageConfig()
    state: StateConfig = StateConfig()
    raft: RaftConfig = RaftConfig()
    topics: TopicsConfig = TopicsConfig()
    admission: AdmissionConfig = AdmissionConfig()
    registration: RegistrationConfig = RegistrationConfig()
    shutdown: ShutdownConfig = ShutdownConfig()
    log: LogConfig = LogConfig()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        problems = list(_relations(self))
        if problems:
            raise ConfigError(problems)
        _fill_derived(self)
        return self

    def group_settings(self, group: GroupConfig) -> GroupSettings:
        """Return what the Raft group of `group` is told (seconds where the file has ms)."""
        raft = self.raft
        return GroupSettings(
            cluster=self.cluster,
            group=group.name,
            member=MemberId(group.member),
            members=tuple(MemberId(member) for member in group.members),
            heartbeat=raft.heartbeat_ms / 1000,
            election_timeout_min=raft.election_timeout_min_ms / 1000,
            election_timeout_max=raft.election_timeout_max_ms / 1000,
            link_loss_redial=raft.link_loss_redial_ms / 1000,
            campaign_jitter=raft.campaign_jitter_ms / 1000,
            disk_hang_limit=raft.disk_hang_limit_ms / 1000,
            durability=Durability(self.storage.flush.value),
            flush_interval=self.storage.flush_interval_ms / 1000,
            inflight_bytes_max=raft.inflight_bytes_max,
            uncommitted_bytes_max=raft.uncommitted_bytes_max,
            waiting_bytes_max=raft.waiting_bytes_max,
        )

    def is_control_group(self, group: GroupConfig) -> bool:
        """Tell whether the group decides topics for the cluster."""
        return group.name == self.control_group


def _fill_derived(config: MemberConfig) -> None:
    """Fill in what follows from other values. Called once, while the object is being made."""
    groups = tuple(
        group.model_copy(
            update={
                "member": group.member or config.member,
                "clients": group.clients or group.members,
                "folder": group.folder if group.folder != Path() else config.folder / group.name,
            }
        )
        for group in config.groups
    )
    values = {
        "groups": groups,
        "control_group": config.control_group or groups[0].name,
    }
    for name, value in values.items():
        # A frozen model has no other way to complete itself in its own validator.
        object.__setattr__(config, name, value)


def _relations(config: MemberConfig) -> Iterator[Problem]:
    yield from _group_relations(config)
    yield from _raft_relations(config.raft)
    storage = config.storage
    yield from _at_least("storage.segment_size_bytes", storage.segment_size_bytes, ENTRY_SIZE_MAX)
    yield from _at_least("storage.tail_cache_bytes", storage.tail_cache_bytes, ENTRY_SIZE_MAX)
    if storage.disk_low_water_bytes < storage.disk_reserve_bytes:
        yield Problem(
            "storage.disk_low_water_bytes",
            str(storage.disk_low_water_bytes),
            f"must be at least storage.disk_reserve_bytes = {storage.disk_reserve_bytes}",
        )
    yield from _room_relations(config)
    admission = config.admission
    for key in ("append_bytes_max", "stream_bytes_max", "fetch_bytes_max"):
        yield from _at_least(f"admission.{key}", getattr(admission, key), FRAME_SIZE_MAX)


def _room_relations(config: MemberConfig) -> Iterator[Problem]:
    """What may still come after the disk was found low or full must find room on it (I16)."""
    storage, groups = config.storage, len(config.groups)
    reserves = storage.disk_reserve_bytes * groups
    if storage.disk_low_water_bytes + reserves == 0:
        return
    for share, divisor, key in (
        ("it", 1, "uncommitted_bytes_max"),
        ("half of it", 2, "inflight_bytes_max"),
    ):
        room = storage.disk_low_water_bytes // divisor + reserves
        coming = (getattr(config.raft, key) + ENTRY_SIZE_MAX) * groups
        if room < coming:
            yield Problem(
                "storage.disk_low_water_bytes",
                str(storage.disk_low_water_bytes),
                f"{share} and storage.disk_reserve_bytes = {storage.disk_reserve_bytes} of each "
                f"group must hold {coming}: raft.{key} and an entry of each group, which may still "
                "come when the disk is found to be that full",
            )


def _at_least(key: str, value: int, minimum: int) -> Iterator[Problem]:
    if value < minimum:
        yield Problem(key, str(value), f"must be at least {minimum}, the largest thing it holds")


def _raft_relations(raft: RaftConfig) -> Iterator[Problem]:
    needed_ms = HEARTBEATS_PER_ELECTION_TIMEOUT_MIN * raft.heartbeat_ms
    if needed_ms >= raft.election_timeout_min_ms:
        yield Problem(
            "raft.election_timeout_min_ms",
            str(raft.election_timeout_min_ms),
            f"must be above {needed_ms}, {HEARTBEATS_PER_ELECTION_TIMEOUT_MIN} times "
            f"raft.heartbeat_ms = {raft.heartbeat_ms}",
        )
    if raft.election_timeout_min_ms >= raft.election_timeout_max_ms:
        yield Problem(
            "raft.election_timeout_max_ms",
            str(raft.election_timeout_max_ms),
            f"must be above raft.election_timeout_min_ms = {raft.election_timeout_min_ms}",
        )
    for key in ("inflight_bytes_max", "uncommitted_bytes_max", "waiting_bytes_max"):
        yield from _at_least(f"raft.{key}", getattr(raft, key), ENTRY_SIZE_MAX)


def _group_relations(config: MemberConfig) -> Iterator[Problem]:
    names: set[str] = set()
    folders: dict[Path, str] = {}
    for group in config.groups:
        key = f"group {group.name}" if len(config.groups) > 1 else "group"
        if group.name in names:
            yield Problem(f"{key}.name", group.name, "two groups of one process have this name")
        names.add(group.name)
        folder = group.folder if group.folder != Path() else config.folder / group.name
        if folder in folders and folders[folder] != group.name:
            yield Problem(f"{key}.folder", str(folder), f"is also the folder of {folders[folder]}")
        folders[folder] = group.name
        member = group.member or config.member
        if member not in group.members:
            listed = ", ".join(group.members)
            yield Problem(f"{key}.members", listed, f"must contain this member, {member!r}")
        yield from _address_relations(f"{key}.members", group.members)
        yield from _address_relations(f"{key}.clients", group.clients)
        if group.clients and set(group.clients) != set(group.members):
            listed, wanted = ", ".join(group.clients), ", ".join(group.members)
            yield Problem(f"{key}.clients", listed, f"must name exactly the members: {wanted}")


def _address_relations(key: str, addresses: Mapping[str, str]) -> Iterator[Problem]:
    seen: dict[tuple[str, int], str] = {}
    for member, address in addresses.items():
        host, port = split_address(address)
        if host in LISTEN_ONLY_HOSTS:
            limit = "is an address to listen on; say at which one others reach this member"
            yield Problem(f"{key}.{member}", address, limit)
        place = host.lower(), port
        if place in seen:
            yield Problem(f"{key}.{member}", address, f"is also the address of {seen[place]}")
        seen[place] = member
