"""The configuration of a member process: its values, their meaning and their limits.

Owns the keys. `checks` has the relations between values; `load` reads files and the environment.
The name of a value ends with its unit. A refusal names the key, the value and the limit. The
docstring of a section says what its keys mean; `docs/generate.py` makes a page of it.

One process may be a member of several groups (`[[groups]]`) or of one (`[group]`). It serves all
of them on one port, and takes the links of other members on the port above. Minimal file:

    cluster = "shop"
    member = "a"
    listen = "0.0.0.0:10911"
    folder = "/var/lib/dledger"
    name_servers = ["ns-1:9876", "ns-2:9876"]
    tls.folder = "/etc/dledger/tls"

    [group]
    name = "orders"
    members = { a = "host-1:10911", b = "host-2:10911", c = "host-3:10911" }

`members` says where the members reach each other. When clients reach the members elsewhere
(published ports of containers, another network), `clients` is a second table of the same names.
Members send clients to the addresses of `clients`, and use those of `members` among themselves.
`links` is a third table, for links on other ports than those above.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from dledger.log.settings import LogSettings
from dledger.raft.api import GroupSettings
from dledger.types import MemberId
from dledger_broker.config.checks import ConfigError, broken_relations
from dledger_broker.config.sections import (
    Address,
    AddressOrNone,
    AdmissionConfig,
    BrokerGroupName,
    ConsumerGroupsConfig,
    FolderPath,
    LogConfig,
    MetricsConfig,
    Name,
    RaftConfig,
    RefillConfig,
    RegistrationConfig,
    ScrubConfig,
    Section,
    ShutdownConfig,
    StateConfig,
    StorageConfig,
    TlsConfig,
    TopicsConfig,
)
from dledger_proto.limits import (
    MEMBERS_MAX,
)
from dledger_proto.network.addresses import next_port
from dledger_proto.network.exposure import Security

GROUPS_PER_PROCESS_MAX: Final = 16
NAME_SERVERS_MAX: Final = 16


class GroupConfig(Section):
    """One Raft group this process is a member of.

    Attributes:
        name: The group's name, unique in its cluster. `room@name` says in which machine room it
            stands, for the strategies of consumer groups that look at rooms.
        members: Every voter by its id, this process included, and the address where the other
            members reach it. It cannot change later.
        clients: The address where clients reach each member. Default: `members`.
        links: The address where the other members reach each member's links, over which they
            replicate the log. Default: `members`, each with the port above its own. It must be
            given when `link_listen` has another port than that.
        member: This process's id in the group. Default: the top-level `member`.
        folder: The folder of the group's data. Default: the group's name within the top-level
            `folder`.
    """

    name: BrokerGroupName
    members: Annotated[Mapping[Name, Address], Field(min_length=1, max_length=MEMBERS_MAX)]
    clients: Annotated[Mapping[Name, Address], Field(min_length=1, max_length=MEMBERS_MAX)] = {}
    links: Annotated[Mapping[Name, Address], Field(min_length=1, max_length=MEMBERS_MAX)] = {}
    member: Name = ""
    folder: FolderPath = Path()


class MemberConfig(Section):
    """Everything a member process is told. `load.load_config` makes it, or a test.

    Attributes:
        cluster: The cluster's name. Members and name servers refuse other clusters.
        member: This process's id. It is the same in each group unless the group says otherwise.
        listen: The address to serve on.
        link_listen: The address to take the links of the other members on. Default: the host of
            `listen` and the port above. Any port but the one above this member's in `members`
            needs `links`, so that the others dial it.
        security: `auto`: without TLS the process starts only when no other machine can reach it by
            `listen`, `link_listen` or its own addresses in `members`, `clients` and `links`. Hosts
            by name are looked up; a wildcard, and a name without a number here, count as reached.
            `off`: it starts without TLS, and says so. Not together with `tls.folder`.
        users: `true`: each call needs a user who has logged in and may make it. It needs
            `tls.folder`: members are told by their certificates. Set it alike in all members.
        folder: Folder of all data. A relative one is relative to the configuration file.
        name_servers: The addresses of all name servers. Without any, the process registers nowhere
            and knows only the groups of this configuration.
        control_group: The group that decides topics for the cluster (D1). Default: the first group
            here.
        groups: The groups of this process.
        storage: The log on disk.
        state: The derived state.
        raft: Elections and replication.
        refill: The bounds of a refill, and of what is kept for members that are away.
        scrub: How often and how fast a member looks for damage on its disk.
        topics: Topics and producers.
        consumer_groups: Consumer groups.
        admission: What may wait or run at once.
        registration: The place at the name servers.
        tls: Certificates.
        shutdown: How SIGTERM ends the process.
        log: The process's own log lines.
        metrics: What monitoring asks this process.
    """

    cluster: Name
    member: Name
    listen: Address
    link_listen: AddressOrNone = ""
    security: Annotated[Security, Field(strict=False)] = Security.AUTO
    users: bool = False
    folder: FolderPath
    name_servers: Annotated[
        tuple[Address, ...], Field(strict=False, max_length=NAME_SERVERS_MAX)
    ] = ()
    control_group: BrokerGroupName = ""
    groups: Annotated[
        tuple[GroupConfig, ...],
        Field(strict=False, min_length=1, max_length=GROUPS_PER_PROCESS_MAX),
    ]
    storage: StorageConfig = StorageConfig()
    state: StateConfig = StateConfig()
    raft: RaftConfig = RaftConfig()
    refill: RefillConfig = RefillConfig()
    scrub: ScrubConfig = ScrubConfig()
    topics: TopicsConfig = TopicsConfig()
    consumer_groups: ConsumerGroupsConfig = ConsumerGroupsConfig()
    admission: AdmissionConfig = AdmissionConfig()
    registration: RegistrationConfig = RegistrationConfig()
    tls: TlsConfig = TlsConfig()
    shutdown: ShutdownConfig = ShutdownConfig()
    log: LogConfig = LogConfig()
    metrics: MetricsConfig = MetricsConfig()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        problems = list(broken_relations(self))
        if problems:
            raise ConfigError(problems)
        _fill_derived(self)
        return self

    def log_settings(self) -> LogSettings:
        """Return the sizes of each group's log."""
        storage = self.storage
        return LogSettings(
            segment_size=storage.segment_size_bytes,
            tail_cache_bytes=storage.tail_cache_bytes,
            checkpoint_bytes=storage.checkpoint_bytes,
            reserve_bytes=storage.disk_reserve_bytes,
            low_water_bytes=storage.disk_low_water_bytes,
        )

    def group_settings(self, group: GroupConfig) -> GroupSettings:
        """Return the settings of a Raft group, in seconds where the file has milliseconds."""
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
            flush=self.storage.flush,
            flush_interval=self.storage.flush_interval_ms / 1000,
            inflight_bytes_max=raft.inflight_bytes_max,
            uncommitted_bytes_max=raft.uncommitted_bytes_max,
            waiting_bytes_max=raft.waiting_bytes_max,
            absent_bytes_max=self.refill.absent_bytes_max,
            absent_seconds_max=self.refill.absent_ms_max / 1000,
        )


def _with_next_ports(addresses: Mapping[str, str]) -> dict[str, str]:
    return {member: next_port(address) for member, address in addresses.items()}


def _fill_derived(config: MemberConfig) -> None:
    """Fill in values that follow from others. Called once, while the object is made."""
    groups = tuple(
        group.model_copy(
            update={
                "member": group.member or config.member,
                "clients": group.clients or group.members,
                "links": group.links or _with_next_ports(group.members),
                "folder": group.folder if group.folder != Path() else config.folder / group.name,
            }
        )
        for group in config.groups
    )
    values = {
        "groups": groups,
        "control_group": config.control_group or groups[0].name,
        "link_listen": config.link_listen or next_port(config.listen),
    }
    for name, value in values.items():
        # A frozen model can complete itself in its own validator in no other way.
        object.__setattr__(config, name, value)
