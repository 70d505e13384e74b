"""The configuration of a simulated member: the product's, with sizes that a minute of load fills.

Owns: addresses and ports of the simulated machines. Not owned: what a seed draws (`world/plan.py`).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from pydantic import PrivateAttr

from dledger.log.settings import LogSettings
from dledger.raft.api import GroupSettings
from dledger_broker.config.model import GroupConfig, MemberConfig
from dledger_broker.config.sections import (
    ConsumerGroupsConfig,
    RaftConfig,
    RefillConfig,
    ScrubConfig,
    StateConfig,
    StorageConfig,
    TopicsConfig,
)
from dledger_proto.limits import MIB
from tests.sim.faults.damage import DATA, FOLDER
from tests.sim.world.plan import WorldPlan

CLUSTER: Final = "sim"
PORT: Final = 10911
NAME_SERVER_PORT: Final = 9876
MAP_SIZE: Final = 64 * MIB
TOMBSTONE_MS: Final = 2_000
EXPIRY_MS: Final = 600_000
"""Longer than any world lasts: no producer counts as silent."""


def address_of(member: str) -> str:
    """Return where a member listens."""
    return f"{member}:{PORT}"


def member_at(address: str) -> str:
    """Return the member that listens at an address."""
    return address.rpartition(":")[0]


class SimConfig(MemberConfig):
    """A member's configuration; what no configuration file may say comes from the plan."""

    _log: LogSettings = PrivateAttr(default_factory=LogSettings)
    _gather_bytes: int = PrivateAttr(default=0)

    @classmethod
    def of(cls, plan: WorldPlan, group: str, member: str, name_servers: Sequence[str] = ()) -> Self:
        """Return what a member of a group of the plan is told."""
        members = {name: address_of(name) for name in plan.groups[group]}
        config = cls(
            cluster=CLUSTER,
            member=member,
            listen=f"0.0.0.0:{PORT}",
            folder=Path(DATA),
            name_servers=tuple(f"{name}:{NAME_SERVER_PORT}" for name in name_servers),
            control_group=next(iter(plan.groups)),
            groups=(GroupConfig(name=group, members=members, folder=Path(FOLDER)),),
            storage=StorageConfig(flush=plan.flush),
            state=StateConfig(map_size_bytes=MAP_SIZE),
            raft=RaftConfig(
                heartbeat_ms=int(1_000 * plan.heartbeat),
                election_timeout_min_ms=int(1_000 * plan.election_timeout[0]),
                election_timeout_max_ms=int(1_000 * plan.election_timeout[1]),
            ),
            refill=RefillConfig(
                bytes_per_second=plan.refill_bytes_per_second,
                absent_bytes_max=plan.absent_bytes_max,
            ),
            scrub=ScrubConfig(every_ms=plan.scrub_ms, bytes_per_second=MIB),
            topics=TopicsConfig(
                producer_expiry_ms=EXPIRY_MS, retention_ms=0, tombstone_ms=TOMBSTONE_MS
            ),
            # Shorter than any file may say.
            consumer_groups=ConsumerGroupsConfig.model_construct(
                auto_create=True, expiry_ms=plan.group_expiry_ms
            ),
        )
        config._log = plan.log
        config._gather_bytes = plan.gather_bytes
        return config

    def log_settings(self) -> LogSettings:
        """See `MemberConfig.log_settings`; smaller than any file may say."""
        return self._log

    def group_settings(self, group: GroupConfig) -> GroupSettings:
        """See `MemberConfig.group_settings`."""
        return replace(super().group_settings(group), gather_bytes=self._gather_bytes)
