"""The control group's leader tells the other groups that it has decided something.

Owns: how long it waits, and which groups are missing then. Not owned: what is decided
(`topic_authority.py`, `users/authority.py`), how a group takes it over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import grpc.aio

from dledger_broker.cluster.channels import GROUP_KEY, Channels
from dledger_broker.cluster.view import ClusterView
from dledger_broker.group.group_view import ANSWER_BY, GroupView
from dledger_proto.rpc import raw

CARRY_SECONDS: Final = 2.0
"""How long the control group waits for another group. After that it reports the group as missing;
the group takes the decision over later."""


class Telling:
    """Tells the other groups of a cluster."""

    def __init__(self, view: GroupView, cluster_view: ClusterView, channels: Channels) -> None:
        self._view = view
        self._cluster = cluster_view
        self._channels = channels

    def others(self) -> list[str]:
        """Return the groups that are known beside the own one."""
        return [name for name in self._cluster.groups() if name != self._view.names.group]

    async def missing(
        self, groups: Sequence[str], tell: Callable[[str], Awaitable[bool]]
    ) -> list[str]:
        """Tell all groups at once; return those that did not take the decision over in time."""
        left = ANSWER_BY.get() - self._view.clock.monotonic()
        limit = max(0.0, min(left, CARRY_SECONDS))

        async def took(group: str) -> bool:
            try:
                async with asyncio.timeout(limit):
                    return await tell(group)
            except TimeoutError:
                return False

        taken = await asyncio.gather(*map(took, groups))
        return [name for name, done in zip(groups, taken, strict=True) if not done]

    async def pulled(self, group: str, method: str, request: bytes) -> bool:
        """Ask a group to pull now; True when it has."""
        for member in self._cluster.members(group):
            try:
                unary = raw.raw_unary(self._channels.to(member), method)
                await unary(request, timeout=CARRY_SECONDS, metadata=((GROUP_KEY, group),))
            except grpc.aio.AioRpcError:
                continue
            return True
        return False
