"""`dledger.v1.Routes` of a member: the routes of its own groups, for clients without a name server.

Owns `GetRoutes` and the pushes: every watcher gets each change of leader or topics. Not owned: the
table of the whole cluster (`dledger_namesrv`).
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

from dledger.state.values import Topic
from dledger_broker.group.group_view import GroupView
from dledger_broker.rpc.admission import Bound
from dledger_broker.rpc.calls import Call, metadata_of, send_all
from dledger_broker.rpc.topic_proto import topic_to_proto
from dledger_broker.security import deciding
from dledger_broker.security.gate import Caller, Gate
from dledger_namesrv.chunks import routes_at_once, routes_in_parts
from dledger_proto.errors import DledgerError
from dledger_proto.rpc import raw, status
from dledger_proto.v1 import routes_pb2 as pb


async def get_routes(call: Call, request: pb.RoutesRequest) -> pb.RoutesReply:
    """Return the routes of all groups of this process, in one message."""
    views = [group.messaging.view for group in call.groups.values()]
    return routes_at_once(_table(views, frozenset(request.topics), call.caller))


class RouteWatch:
    """The watchers of `Routes.Watch`."""

    def __init__(self, views: Mapping[str, GroupView], bound: Bound, gate: Gate) -> None:
        self._views = views
        self._cluster = next(iter(views.values())).names.cluster
        self._bound = bound
        self._gate = gate
        self._watchers: dict[asyncio.Event, None] = {}
        """In the order in which they came."""
        for view in views.values():
            view.host.watch_leadership(lambda _leadership: self.changed())

    def changed(self) -> None:
        """Wake every watcher: a leader or a topic changed."""
        for event in self._watchers:
            event.set()

    async def watch(self, request_bytes: bytes, context: raw.RawContext) -> None:
        """Send everything, then each change. A reader that is too slow ends with BUSY."""
        try:
            caller = self._gate.caller(context, metadata_of(context), "Watch")
            request = status.parsed(pb.RoutesRequest, request_bytes)
            with self._bound.held(caller.name):
                replies = self._follow(frozenset(request.topics), caller)
                await send_all(replies, context, "watch again")
        except DledgerError as error:
            await status.abort(context, error)

    async def _follow(
        self, names: frozenset[str], caller: Caller
    ) -> AsyncGenerator[pb.RoutesReply]:
        event = asyncio.Event()
        self._watchers[event] = None
        try:
            sent = {name: _versions(view) for name, view in self._views.items()}
            for reply in _table(list(self._views.values()), names, caller):
                yield reply
            while True:
                await event.wait()
                event.clear()
                groups: list[pb.GroupRoute] = []
                topics: list[Topic] = []
                for name, view in self._views.items():
                    before, now = sent[name], _versions(view)
                    if before == now:
                        continue
                    sent[name] = now
                    groups.append(group_route(view))
                    if before[2] != now[2]:
                        topics += view.topic_watch.changed_since(before[2])
                if groups:
                    for reply in _parts(self._cluster, groups, topics, names, caller, full=False):
                        yield reply
        finally:
            del self._watchers[event]


def _versions(view: GroupView) -> tuple[int, str, int]:
    leadership = view.host.leadership
    return leadership.term, leadership.leader or "", view.topic_watch.version


def _table(
    views: Sequence[GroupView], names: frozenset[str], caller: Caller
) -> list[pb.RoutesReply]:
    groups = [group_route(view) for view in views]
    topics = [topic for view in views for topic in view.machine.queries.topics()]
    return _parts(views[0].names.cluster, groups, topics, names, caller, full=True)


def _parts(
    cluster: str,
    groups: Sequence[pb.GroupRoute],
    topics: Sequence[Topic],
    names: frozenset[str],
    caller: Caller,
    *,
    full: bool,
) -> list[pb.RoutesReply]:
    """Return messages with each topic once; the word of the first group that has it counts."""
    once: dict[bytes, Topic] = {}
    for topic in topics:
        is_wanted = not names or topic.name in names
        if is_wanted and caller.knows(deciding.topic(topic.name)):
            once.setdefault(topic.topic_id, topic)
    wanted = map(topic_to_proto, once.values())
    return routes_in_parts(cluster, groups, wanted, full=full)


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
