"""Members and watchers of a registry, on virtual time."""

import hashlib
from dataclasses import dataclass, field

from dledger_namesrv.chunks import chunks_of
from dledger_namesrv.registry import Names, Registry
from dledger_proto.v1.broker_pb2 import LayoutPart, Topic
from dledger_proto.v1.routes_pb2 import GroupRoute, Registration, RegistrationAnswer, RoutesReply

LEASE = 10.0
MEMBERS = ("a", "b", "c")


def topic(
    name: str,
    *,
    control_index: int = 1,
    groups: tuple[str, ...] = ("g",),
    deleted: bool = False,
    number: int | None = None,
) -> Topic:
    """A topic whose id follows from name and `number`, four queues in each group."""
    seed = f"{name}/{number}" if number is not None else name
    return Topic(
        id=hashlib.md5(seed.encode()).digest(),
        name=name,
        control_index=control_index,
        layout_version=1,
        layout=[LayoutPart(group=group, queues=4) for group in groups],
        write_queues=4 * len(groups),
        read_queues=4 * len(groups),
        permission=6,
        deleted=deleted,
    )  # fmt: skip


@dataclass
class FakeMember:
    """Registers like a member does: numbered messages on one stream, full when asked."""

    registry: Registry
    group: str = "g"
    name: str = "a"
    cluster: str = "c"
    address: str = ""
    peer_address: str = ""
    topics: list[Topic] = field(default_factory=list)
    applied_index: int = 1
    term: int = 1
    leader: str = ""
    configured: tuple[str, ...] = MEMBERS
    control_group: bool = True
    session: int = 0
    sequence: int = 0
    connected: bool = False
    peers: list["FakeMember"] = field(default_factory=list, repr=False)

    def connect(self) -> "FakeMember":
        """Open a new stream; the old one is not closed."""
        self.session, self.sequence = self.registry.open_session(), 0
        self.connected = True
        return self

    def message(self, *, full: bool = False, topics: list[Topic] | None = None) -> Registration:
        """The next message of the stream."""
        self.sequence += 1
        return Registration(
            cluster=self.cluster,
            group=self.group,
            member=self.name,
            address=self.address or f"{self.name}.example:1",
            peer_address=self.peer_address,
            sequence=self.sequence,
            full=full,
            term=self.term,
            leader=self.leader,
            applied_index=self.applied_index,
            topics=self.topics if full else topics or [],
            control_group=self.control_group,
            configured_members=self.configured,
        )

    def send(self, now: float, *topics: Topic, full: bool = False) -> RegistrationAnswer:
        """Send one message."""
        return self.registry.register(
            self.session, self.message(full=full, topics=list(topics)), now
        )

    def join(self, now: float) -> RegistrationAnswer:
        """Connect and send everything, in chunks."""
        self.connect()
        answer = RegistrationAnswer()
        for chunk in chunks_of(self.message(full=True)):
            answer = self.registry.register(self.session, chunk, now)
            self.sequence = chunk.sequence
        return answer

    def leave(self) -> None:
        """The stream breaks."""
        self.connected = False
        self.registry.close_session(self.session)

    def tell(self, now: float, term: int, leader: str) -> None:
        """Say who leads."""
        self.term, self.leader = term, leader
        self.send(now)

    def win(self, now: float, term: int) -> None:
        """Be elected: a voter among the peers tells of the term, too."""
        self.tell(now, term, self.name)
        for voter in self.peers:
            if voter.connected and voter.term < term:
                voter.tell(now, term, "")
                return


@dataclass
class FakeWatcher:
    """Follows snapshot and deltas as a client does."""

    registry: Registry
    names: Names = ()
    groups: dict[str, GroupRoute] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    seen: int = -1
    fulls: int = 0

    def catch_up(self) -> None:
        """Take what changed since the last call."""
        delta = self.registry.changes_since(self.seen, self.names) if self.seen >= 0 else None
        self.seen = self.registry.version
        for reply in [delta] if delta else self.registry.snapshot(self.names):
            self.take(reply)

    def take(self, reply: RoutesReply) -> None:
        """Fold one reply in."""
        if reply.full:
            self.fulls += 1
            self.groups, self.topics = {}, {}
        for name in reply.removed_groups:
            self.groups.pop(name, None)
            gone = [
                topic.name
                for topic in self.topics.values()
                if all(part.group not in self.groups for part in topic.layout)
            ]
            for topic_name in gone:
                del self.topics[topic_name]
        for group in reply.groups:
            self.groups[group.group] = group
        for topic in reply.topics:
            if topic.deleted:
                self.topics.pop(topic.name, None)
            else:
                self.topics[topic.name] = topic


def group_line(registry: Registry, name: str = "g") -> str:
    """One group as one line: `g 3 leader=b a+ b+ c-`; empty when it is not listed."""
    for route in registry.snapshot()[0].groups:
        if route.group == name:
            members = " ".join(
                f"{member.member}{'+' if member.alive else '-'}" for member in route.members
            )
            return f"{name} {route.term} leader={route.leader} {members}"
    return ""


def topic_names(registry: Registry) -> list[str]:
    """Names of all living topics."""
    return sorted(topic.name for reply in registry.snapshot() for topic in reply.topics)
