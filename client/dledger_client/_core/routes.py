"""The route table: which group holds a queue, who leads it, where its members are. Pure.

Owns: what is believed and when a newer answer replaces it (D14):
- a leader of a lower term never replaces one of a higher term, from whatever source it comes;
- a topic decided at a lower index of the control log never replaces one decided at a higher;
- a full answer adds and renews. It drops a topic only if its source knows every group of the
  topic's layout: a member answers for its own group alone, and a name server that was just
  started knows nothing yet; neither is evidence that a topic is gone;
- an ordering key maps over all queues that take messages, whether its groups are known or not;
- inside the members' network a client uses the addresses of the peers, although hints name the
  published ones.
Not: fetching (`_shell/cluster.py`), choosing a queue (`selectors.py`, `producer/topics.py`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dledger_proto.cleanup import COMPACT, cleanup_of
from dledger_proto.v1 import broker_pb2, routes_pb2


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group."""

    name: str
    address: str
    """"host:port", where this client reaches it."""
    alive: bool
    published: str = ""
    """What hints call it; empty: `address`."""

    def is_called(self, address: str) -> bool:
        """Return whether an address that a member told is this member's."""
        return address == (self.published or self.address)


@dataclass(frozen=True, slots=True)
class GroupRoute:
    """One broker group. `leader` and `leader_address` are empty while none is known."""

    name: str
    term: int
    leader: str
    leader_address: str
    members: tuple[Member, ...]
    control: bool

    @property
    def has_leader(self) -> bool:
        """True: the group is known to have a leader."""
        return bool(self.leader_address)

    def addresses(self) -> list[str]:
        """Return all addresses, those of members known to live first."""
        living = [member.address for member in self.members if member.alive]
        return living + [member.address for member in self.members if not member.alive]


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """One topic's whole layout. Queues are numbered through `parts`."""

    name: str
    id: bytes
    layout_version: int
    parts: tuple[tuple[str, int], ...]
    """(group, queues) in order: all queues that ever existed. A number stays with its group."""
    write_queues: int
    """So many of the first queues take messages: the divisor of ordering keys."""
    read_queues: int
    """So many of the first are read; those that take messages are in any case."""
    permission: int
    control_index: int
    kind: int = 0
    """`broker_pb2.TopicType`."""
    retention_ms: int = 0
    """How long messages stay after they were stored. RETENTION_DEFAULT (0): as the cluster is
    configured; RETENTION_FOREVER: no bound; RETENTION_BY_KEY: the topic is compacted."""
    retention_bytes: int = 0
    """How many bytes of batches each queue keeps; as `retention_ms`."""

    @property
    def is_compacted(self) -> bool:
        """Of each key the last message stays, for good."""
        return cleanup_of(self.retention_ms) == COMPACT

    @property
    def is_fifo(self) -> bool:
        """It takes only messages with an ordering key."""
        return self.kind == broker_pb2.TOPIC_TYPE_FIFO

    @property
    def is_delay(self) -> bool:
        """It takes only messages with a delivery time."""
        return self.kind == broker_pb2.TOPIC_TYPE_DELAY

    @property
    def has_priorities(self) -> bool:
        """Its queues are of different priorities."""
        return self.kind == broker_pb2.TOPIC_TYPE_PRIORITY

    def priority_of(self, queue: int) -> int:
        """Return the priority of a queue, 0 the lowest: its place among its group's queues."""
        if not self.has_priorities:
            return 0
        earlier: dict[str, int] = {}
        for group, queues in self.parts:
            if queue < queues:
                return earlier.get(group, 0) + queue
            queue -= queues
            earlier[group] = earlier.get(group, 0) + queues
        return 0

    @property
    def readable_queues(self) -> int:
        """How many queues a reader of all has to read."""
        return max(self.read_queues, self.write_queues)

    @property
    def all_queues(self) -> int:
        """How many queues it ever had: closed ones hold what was written to them."""
        return sum(queues for _, queues in self.parts)

    def group_of(self, queue: int) -> str | None:
        """Return the group that holds `queue`, also a closed one; None: the topic never had it."""
        if queue < 0:
            return None
        for group, queues in self.parts:
            if queue < queues:
                return group
            queue -= queues
        return None


@dataclass(slots=True)
class RouteChange:
    """What one answer changed; names of groups and topics."""

    new_leaders: set[str] = field(default_factory=set)
    """A leader of a higher term than known before."""
    lost_leaders: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)
    dropped_topics: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(
            self.new_leaders
            or self.lost_leaders
            or self.members
            or self.topics
            or self.dropped_topics
        )


@dataclass(frozen=True, slots=True)
class RefreshRoutes:
    """What a core asks its driver to do: fetch all routes; answer with `routes_changed`.

    May be dropped if one is on its way.
    """


def topic_route(topic: broker_pb2.Topic) -> TopicRoute:
    """Return a topic as it was told."""
    parts = tuple((part.group, part.queues) for part in topic.layout)
    return TopicRoute(
        name=topic.name,
        id=topic.id,
        layout_version=topic.layout_version,
        parts=parts,
        write_queues=topic.write_queues,
        read_queues=topic.read_queues,
        permission=topic.permission,
        control_index=topic.control_index,
        kind=topic.type,
        retention_ms=topic.retention_ms,
        retention_bytes=topic.retention_bytes,
    )


@dataclass(slots=True)
class _Told:
    """Names of groups and topics that a full answer has told so far; it may come in parts."""

    groups: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)

    def copy(self) -> "_Told":
        return _Told(set(self.groups), set(self.topics))

    def add(self, reply: routes_pb2.RoutesReply) -> None:
        self.groups.update(group.group for group in reply.groups)
        self.topics.update(topic.name for topic in reply.topics)


class _Snapshot(NamedTuple):
    """What a table knows, but for names and flags; an answer in parts as far as it is."""

    groups: dict[str, GroupRoute]
    topics: dict[str, TopicRoute]
    topics_by_id: dict[bytes, TopicRoute]
    topic_floors: dict[str, int]
    told: _Told | None


class RouteTable:
    """Everything known about groups and topics of one cluster."""

    def __init__(self, *, inside: bool = False) -> None:
        self._inside = inside
        self._groups: dict[str, GroupRoute] = {}
        self._topics: dict[str, TopicRoute] = {}
        self._topics_by_id: dict[bytes, TopicRoute] = {}
        self._topic_floors: dict[str, int] = {}
        self._told: _Told | None = None
        """While a full answer is not complete."""
        self._source: RouteTable | None = None
        """Of the table that this one adopted: equal topics are kept once in memory."""
        self.cluster = ""
        """Name of the cluster; empty before the first answer."""
        self.is_loaded = False
        """True after the first full answer."""

    def group(self, name: str) -> GroupRoute | None:
        """Return the route of a group."""
        return self._groups.get(name)

    def groups(self) -> list[GroupRoute]:
        """Return all groups."""
        return list(self._groups.values())

    def group_names(self) -> list[str]:
        """Return the names of all groups: those with a route, and those that topics name.

        A client that was told by one member knows topics before it knows the route of each group.
        """
        named = (group for topic in self._topics.values() for group, _ in topic.parts)
        return list(dict.fromkeys((*self._groups, *named)))

    def topic(self, name: str) -> TopicRoute | None:
        """Return the route of a topic."""
        return self._topics.get(name)

    def topics(self) -> list[TopicRoute]:
        """Return all topics."""
        return list(self._topics.values())

    def topic_by_id(self, topic_id: bytes) -> TopicRoute | None:
        """Return the route of the topic with this id."""
        return self._topics_by_id.get(topic_id)

    def control_group(self) -> GroupRoute | None:
        """Return the group that decides about topics: the one marked so, or the only one."""
        for group in self._groups.values():
            if group.control:
                return group
        return next(iter(self._groups.values())) if len(self._groups) == 1 else None

    def addresses(self) -> Iterator[str]:
        """Iterate over the addresses of all members of all groups."""
        for group in self._groups.values():
            yield from group.addresses()

    def adopt(self, known: "RouteTable") -> RouteChange:
        """Begin with all that another table knows, in place of its own; return the change.

        Both tables are told the same answers from now on, and each goes its own way.
        """
        self._source = known
        self.cluster, self.is_loaded = known.cluster, known.is_loaded
        (
            self._groups,
            self._topics,
            self._topics_by_id,
            self._topic_floors,
            self._told,
        ) = known.snapshot()
        return RouteChange(
            new_leaders={route.name for route in self._groups.values() if route.has_leader},
            members=set(self._groups),
            topics=set(self._topics),
        )

    def snapshot(self) -> _Snapshot:
        """Return copies of what is known, for `adopt`."""
        told = None if self._told is None else self._told.copy()
        return _Snapshot(
            dict(self._groups),
            dict(self._topics),
            dict(self._topics_by_id),
            dict(self._topic_floors),
            told,
        )

    def apply(self, reply: routes_pb2.RoutesReply) -> RouteChange:
        """Take in an answer of `Routes.Get` or `Routes.Watch`; return what it changed."""
        change = RouteChange()
        self.cluster = reply.cluster or self.cluster
        for incoming in reply.groups:
            self._apply_group(incoming, change)
        for name in reply.removed_groups:
            if self._groups.pop(name, None) is not None:
                change.lost_leaders.add(name)
                change.members.add(name)
        self.apply_topics(reply.topics, change)
        if reply.full:
            self._told = _Told()
        if self._told is not None:
            self._told.add(reply)
            if not reply.more:
                self._drop_missing(self._told, change)
                self.is_loaded, self._told = True, None
        return change

    def _apply_group(self, incoming: routes_pb2.GroupRoute, change: RouteChange) -> None:
        known = self._groups.get(incoming.group)
        members = tuple(map(self._member, incoming.members))
        if not members and known is not None:
            members = known.members
        address = next((m.address for m in members if m.name == incoming.leader), "")
        route = GroupRoute(
            name=incoming.group,
            term=incoming.term,
            leader=incoming.leader if address else "",
            leader_address=address,
            members=members,
            control=incoming.control_group,
        )
        if known is not None and incoming.term < known.term:
            route = replace(
                route, term=known.term, leader=known.leader, leader_address=known.leader_address
            )
        self._replace_group(known, route, change)

    def _member(self, told: routes_pb2.MemberRoute) -> Member:
        if self._inside and told.peer_address:
            return Member(told.member, told.peer_address, told.alive, published=told.address)
        return Member(told.member, told.address, told.alive)

    def _replace_group(
        self, known: GroupRoute | None, route: GroupRoute, change: RouteChange
    ) -> None:
        self._groups[route.name] = route
        if known is None or known.members != route.members:
            change.members.add(route.name)
        old = (0, "") if known is None else (known.term, known.leader_address)
        if route.has_leader and (route.term, route.leader_address) != old:
            change.new_leaders.add(route.name)
        elif not route.has_leader and old[1]:
            change.lost_leaders.add(route.name)

    def heard_leader(self, group: str, address: str, term: int) -> RouteChange:
        """Take in which leader a member named; ignored unless the term is newer.

        `address` is a published one. From inside, an address of no known member cannot be reached.
        """
        change = RouteChange()
        known = self._groups.get(group)
        if known is None or not address:
            return change
        if term > known.term or (term == known.term and not known.has_leader):
            member = next((m for m in known.members if m.is_called(address)), None)
            if member is not None:
                leader, address = member.name, member.address
            elif self._inside:
                return change
            else:
                leader = address
            route = replace(known, term=term, leader=leader, leader_address=address)
            self._replace_group(known, route, change)
        return change

    def apply_topics(self, topics: Iterable[broker_pb2.Topic], change: RouteChange) -> None:
        """Take in topics, from routes or from an answer of administration."""
        for incoming in topics:
            floor = self._topic_floors.get(incoming.name, 0)
            if incoming.control_index < floor:
                continue
            self._topic_floors[incoming.name] = incoming.control_index
            if incoming.deleted:
                self.drop_topic(incoming.name, change)
                continue
            known = self._topics.get(incoming.name)
            route = self._once(topic_route(incoming))
            if known is not None:
                if known == route or (
                    known.id == route.id and route.layout_version < known.layout_version
                ):
                    continue
                self._topics_by_id.pop(known.id, None)
            self._topics[route.name] = self._topics_by_id[route.id] = route
            change.topics.add(route.name)

    def _once(self, route: TopicRoute) -> TopicRoute:
        same = None if self._source is None else self._source.topic(route.name)
        return same if same is not None and same == route else route

    def drop_topic(self, name: str, change: RouteChange) -> None:
        """Forget a topic that is known to be deleted."""
        route = self._topics.pop(name, None)
        if route is not None:
            self._topics_by_id.pop(route.id, None)
            change.dropped_topics.add(name)

    def _drop_missing(self, told: _Told, change: RouteChange) -> None:
        for name in self._topics.keys() - told.topics:
            if all(group in told.groups for group, _ in self._topics[name].parts):
                self.drop_topic(name, change)
