"""`dledger.v1.Routes` of a member: the routes of its own groups, for clients without name server.

Owns the pushes: a change of leader or topics is sent to every watcher at once. Not owned: the
whole cluster's table (the name server's).
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

import grpc.aio

from dledger.state.values import Topic
from dledger_broker.group.group_view import GroupView
from dledger_broker.rpc.calls import Calls
from dledger_broker.rpc.topic_proto import topic_to_proto
from dledger_namesrv.chunks import routes_at_once, routes_in_parts
from dledger_proto.errors import DledgerError
from dledger_proto.rpc import status
from dledger_proto.rpc.stall import within_stall_limit
from dledger_proto.v1 import routes_pb2 as pb
from dledger_proto.v1 import routes_pb2_grpc


class RoutesService(routes_pb2_grpc.RoutesServicer):
    """Routes of the groups hosted here."""

    def __init__(self, calls: Calls, groups: Mapping[str, GroupView]) -> None:
        self._calls = calls
        self._groups = groups
        self._watchers: set[asyncio.Event] = set()
        for view in groups.values():
            view.host.watch_leadership(lambda _leadership: self.changed())

    def changed(self) -> None:
        """Wake every watcher: a leader or a topic changed."""
        for event in self._watchers:
            event.set()

    async def Get(  # noqa: N802 - the wire's name
        self,
        request: pb.RoutesRequest,
        context: "grpc.aio.ServicerContext[pb.RoutesRequest, pb.RoutesReply]",
    ) -> pb.RoutesReply:
        """See routes.proto."""
        try:
            with self._calls.admission.queries.held():
                return routes_at_once(self._table(frozenset(request.topics)))
        except DledgerError as error:
            await status.abort(context, error)

    # A coroutine that writes: the time of each message is limited.
    async def Watch(  # type: ignore[override] # noqa: N802 # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        request: pb.RoutesRequest,
        context: "grpc.aio.ServicerContext[pb.RoutesRequest, pb.RoutesReply]",
    ) -> None:
        """See routes.proto."""
        write = within_stall_limit(context.write, "watch again")
        try:
            with self._calls.admission.route_watchers.held():
                replies = self._follow(frozenset(request.topics))
                async with aclosing(replies):
                    async for reply in replies:
                        await write(reply)
        except DledgerError as error:
            await status.abort(context, error)

    async def _follow(self, names: frozenset[str]) -> AsyncGenerator[pb.RoutesReply]:
        event = asyncio.Event()
        self._watchers.add(event)
        try:
            sent = {name: self._versions(view) for name, view in self._groups.items()}
            for reply in self._table(names):
                yield reply
            while True:
                await event.wait()
                event.clear()
                groups: list[pb.GroupRoute] = []
                topics: list[Topic] = []
                for name, view in self._groups.items():
                    before, now = sent[name], self._versions(view)
                    if before == now:
                        continue
                    sent[name] = now
                    groups.append(group_route(view))
                    if before[2] != now[2]:
                        topics += view.topic_watch.changed_since(before[2])
                if groups:
                    for reply in self._parts(groups, topics, names, full=False):
                        yield reply
        finally:
            self._watchers.discard(event)

    def _versions(self, view: GroupView) -> tuple[int, str, int]:
        leadership = view.host.leadership
        return leadership.term, leadership.leader or "", view.topic_watch.version

    def _cluster(self) -> str:
        return next(iter(self._groups.values())).names.cluster

    def _table(self, names: frozenset[str]) -> list[pb.RoutesReply]:
        groups = [group_route(view) for view in self._groups.values()]
        topics = [
            topic for view in self._groups.values() for topic in view.machine.queries.topics()
        ]
        return self._parts(groups, topics, names, full=True)

    def _parts(
        self,
        groups: Sequence[pb.GroupRoute],
        topics: Sequence[Topic],
        names: frozenset[str],
        *,
        full: bool,
    ) -> list[pb.RoutesReply]:
        """Return messages with each topic once, of several groups the first one's."""
        once: dict[bytes, Topic] = {}
        for topic in topics:
            if not names or topic.name in names:
                once.setdefault(topic.topic_id, topic)
        wanted = map(topic_to_proto, once.values())
        return routes_in_parts(self._cluster(), groups, wanted, full=full)


def group_route(view: GroupView) -> pb.GroupRoute:
    """Return the route of one group as this member knows it."""
    leadership = view.host.leadership
    alive = {peer.member for peer in view.host.group.status().peers if peer.connected}
    alive.add(view.names.member)
    return pb.GroupRoute(
        group=view.names.group,
        leader=leadership.leader or "",
        term=leadership.term,
        members=[
            pb.MemberRoute(
                member=member,
                address=view.names.clients[member],
                alive=member in alive,
                peer_address=address,
            )
            for member, address in view.names.addresses.items()
        ],
        control_group=view.names.is_control,
    )
