"""What this process knows of the groups of its cluster: where they are, which member leads.

The process knows its own groups from the configuration, and the other groups from the name servers,
whose routes it watches. The view is a hint: a wrong member forwards or refuses a call. A leader of
a lower term never replaces a leader of a higher term (D14).
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from dledger.raft.driver.tasks import end_task
from dledger.raft.links.line_budget import LineBudget
from dledger_broker.cluster.channels import Channels, connected
from dledger_broker.process.tasks import start_running
from dledger_proto.limits import RECONNECT_BACKOFF_MAX_MS
from dledger_proto.names import NO_SUCH_TOPIC
from dledger_proto.network.tls import Callee, member_name, name_server_name
from dledger_proto.rpc import raw, status
from dledger_proto.v1 import routes_pb2

WATCH_METHOD: Final = "/dledger.v1.Routes/Watch"
GROUPS_MAX: Final = 4_096


@dataclass(slots=True)
class GroupPlace:
    """Where members reach the members of a group, and the leader of its newest term."""

    addresses: dict[str, str] = field(default_factory=dict)
    leader: str = ""
    term: int = 0


class ClusterView:
    """All groups known here, by name."""

    def __init__(self, cluster: str, own: Mapping[str, Mapping[str, str]]) -> None:
        self._cluster = cluster
        self._own = frozenset(own)
        self._groups = {name: GroupPlace(dict(addresses)) for name, addresses in own.items()}
        self._tasks: list[asyncio.Task[None]] = []
        self._log = structlog.get_logger()

    def groups(self) -> list[str]:
        """Return the names of all known groups, sorted."""
        return sorted(self._groups)

    def place(self, group: str) -> GroupPlace | None:
        """Return where a group is; None when the process does not know it."""
        return self._groups.get(group)

    def members(self, group: str) -> list[Callee]:
        """Return whom to ask in a group, the leader first; nobody, when it is not known."""
        place = self._groups.get(group)
        if place is None:
            return []
        members = sorted(place.addresses.items(), key=lambda each: each[0] != place.leader)
        return [
            Callee(address, member_name(self._cluster, group, member))
            for member, address in members
        ]

    def start(self, name_servers: tuple[str, ...], channels: Channels) -> None:
        """Watch the routes of each name server."""
        for address in name_servers:
            watch = partial(self._watch, address, channels)
            self._tasks.append(start_running(watch, f"routes of {address}"))

    async def stop(self) -> None:
        """End the watches."""
        for task in self._tasks:
            await end_task(task)

    async def _watch(self, address: str, channels: Channels) -> None:
        # Topics come from the control group.
        request = routes_pb2.RoutesRequest(topics=[NO_SUCH_TOPIC]).SerializeToString()
        lines = LineBudget()
        while True:
            channel = channels.to(Callee(address, name_server_name(self._cluster)))
            problem = ""
            try:
                async for reply in raw.raw_read(channel, WATCH_METHOD)(request):
                    lines = LineBudget()
                    self.merge(routes_pb2.RoutesReply.FromString(reply))
            except grpc.aio.AioRpcError as error:
                problem = str(status.from_rpc_error(error, write=False))
            except DecodeError as error:
                problem = f"its routes are unreadable: {error}"
            if problem and lines.may_say(problem, asyncio.get_running_loop().time()):
                self._log.warning("no routes of a name server", address=address, reason=problem)
            await asyncio.sleep(RECONNECT_BACKOFF_MAX_MS / 1000)
            await connected(channel)

    def merge(self, reply: routes_pb2.RoutesReply) -> None:
        """Take over what a name server says of groups that this process does not host."""
        if reply.cluster and reply.cluster != self._cluster:
            return
        for route in reply.groups:
            if route.group in self._own or len(self._groups) >= GROUPS_MAX:
                continue
            place = self._groups.setdefault(route.group, GroupPlace())
            place.addresses.update(
                {each.member: each.peer_address or each.address for each in route.members}
            )
            if route.term >= place.term:
                place.term, place.leader = route.term, route.leader
        for name in reply.removed_groups:
            if name not in self._own:
                self._groups.pop(name, None)
