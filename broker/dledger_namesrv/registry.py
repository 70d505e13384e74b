"""The name server's table: members with leases, leaders, topics, and what changed. Pure.

Owns every rule of registration (S4-S9). The registry knows no stream, no task and no clock: the
caller passes `now`, in seconds of any monotonic clock. `service` turns streams into calls.

Rules
- A registration stream is a *session* of one member. Its messages are numbered 1, 2, 3... Each
  message is a heartbeat and moves the lease. The first message, and the message after a gap, must
  be full. Until a full message comes, every answer says `send_full`; the name server takes leader
  and lease from the others all the same.
- A member may cut a full registration: the first message has full = true and the first topics, the
  next messages carry the rest as deltas. So 100,000 topics never hold back a heartbeat (S6).
- When a session closes, its member is not alive any more, at once. The member stays listed until
  its lease ends. A silent session ends with its lease. When a group loses its last member, the name
  server removes the group and the topics that only this group told. Watchers hear of the group's
  removal, not of these topics.
- `groups` says what counts of what members tell. The name server takes no topics of a process that
  does not belong to the group. As soon as the process belongs to it, the name server asks for all
  topics.
- A name server knows one control group: the first group that said it is one. It stays the control
  group, listed or not, until the table is empty. So no group that registers later decides about
  topics.
- A name server serves one cluster: the cluster that was named at start, or else the cluster of the
  first member that registers while the table is empty.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from dledger_namesrv.changes import ChangeLog
from dledger_namesrv.chunks import routes_at_once, routes_in_parts
from dledger_namesrv.groups import BrokerGroup, Member, Session
from dledger_namesrv.intake import check_registration
from dledger_namesrv.silent import GROUPS_MAX, MEMBERS_PER_GROUP_MAX, Last, SilentMembers
from dledger_namesrv.topics import TopicTable
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import FRAME_SIZE_TARGET
from dledger_proto.v1.broker_pb2 import Topic
from dledger_proto.v1.routes_pb2 import (
    GroupRoute,
    Registration,
    RegistrationAnswer,
    RoutesReply,
)

LEASE_SECONDS: Final = 10.0
TOPICS_MAX: Final = 500_000
CHANGED_KEYS_MAX: Final = 2 * (TOPICS_MAX + GROUPS_MAX)

Names = Collection[str]
"""The topic names that a caller asks for; empty: all topics."""
_Key = tuple[str, str | bytes]
_GROUP: Final = "group"
_TOPIC: Final = "topic"

Note = Callable[[str, dict[str, object]], None]
"""Called with what an operator wants to know: an event name and its fields."""


@dataclass(slots=True)
class _Stream:
    group: str = ""
    member: str = ""
    sequence: int = 0
    needs_full: bool = True


class Registry:
    """Registrations in, routes out."""

    def __init__(
        self,
        cluster: str = "",
        *,
        lease: float = LEASE_SECONDS,
        note: Note = lambda _event, _fields: None,
    ) -> None:
        self._named_cluster = cluster
        self._cluster = cluster
        self.lease = lease
        """Seconds for which one message keeps a member listed."""
        self._note = note
        self._streams: dict[Session, _Stream] = {}
        self._newest_session: Session = 0
        self._groups: dict[str, BrokerGroup] = {}
        self._silent = SilentMembers()
        self._topics = TopicTable()
        self._changes: ChangeLog[_Key] = ChangeLog(CHANGED_KEYS_MAX)

    @property
    def groups(self) -> list[BrokerGroup]:
        """The groups that have a registered member."""
        return list(self._groups.values())

    @property
    def topic_count(self) -> int:
        """How many topics routes tell."""
        return sum(1 for _ in self._topics.living())

    def open_session(self) -> Session:
        """Return the number of a new registration stream."""
        self._newest_session += 1
        self._streams[self._newest_session] = _Stream()
        return self._newest_session

    def register(
        self, session: Session, registration: Registration, now: float
    ) -> RegistrationAnswer:
        """Take one message of a stream; DledgerError (the stream must end) when it is refused."""
        stream = self._streams.get(session)
        if stream is None:
            raise DledgerError(Code.NOT_FOUND, "a newer stream of this member is registered")
        self._check(stream, registration)
        group = self._groups.get(registration.group)
        if group is None:
            group = self._add_group(registration.group)
        member = self._renew(group, session, stream, registration, now)
        self._cluster = registration.cluster
        self._silent.serve(registration.cluster)
        self._take_group_fields(group, member, registration)
        gap = registration.sequence != stream.sequence + 1
        stream.sequence = registration.sequence
        stream.needs_full = not registration.full and (stream.needs_full or gap)
        if not group.has(member.name):
            stream.needs_full = True
            return self._answer(registration, send_full=False)
        for topic in registration.topics:
            if not self._fits(group, topic):
                continue
            if self._topics.merge(group.name, registration.applied_index, topic):
                self._changes.mark((_TOPIC, topic.id))
        for dropped in self._topics.take_dropped():
            self._changes.forget((_TOPIC, dropped))
        return self._answer(registration, send_full=stream.needs_full)

    def _fits(self, group: BrokerGroup, topic: Topic) -> bool:
        """Tell whether a topic has the name that is known for its id; the control group decides.

        The name server passes over any other topic. It does not refuse the group, which may be
        right.
        """
        known = self._topics.name_of(topic.id)
        if known is None or known == topic.name:
            return True
        names = {"group": group.name, "topic": topic.name, "known": known, "id": topic.id.hex()}
        self._note("topic of another name", dict(names))
        if group.name != self._topics.control:
            return False
        self._topics.drop(topic.id)
        self._changes.forget((_TOPIC, topic.id))
        return True

    def _answer(self, registration: Registration, *, send_full: bool) -> RegistrationAnswer:
        return RegistrationAnswer(
            sequence=registration.sequence,
            send_full=send_full,
            lease_ms=round(self.lease * 1000),
        )

    def close_session(self, session: Session) -> None:
        """End a stream: its member is not alive any more, at once."""
        stream = self._streams.pop(session, None)
        if stream is None or not stream.group:
            return
        group = self._groups.get(stream.group)
        member = group.members.get(stream.member) if group else None
        if group and member and member.session == session:
            member.session = None
            group.member_silent(member.name)
            self._weigh(group)
            self._changes.mark((_GROUP, group.name))
            self._note("member gone", {"group": group.name, "member": member.name})

    def expire(self, now: float) -> None:
        """End every lease that is over."""
        for group in list(self._groups.values()):
            over = [member for member in group.members.values() if member.lease_end <= now]
            for member in over:
                self._remove(group, member)
        self._silent.forget(now)

    def forgive(self, seconds: float) -> None:
        """Lengthen every lease: this process stood still, and messages to it still wait."""
        for group in self._groups.values():
            for member in group.members.values():
                member.lease_end += seconds

    def next_deadline(self) -> float | None:
        """Return when the next lease ends; None without members."""
        return min(
            (
                member.lease_end
                for group in self._groups.values()
                for member in group.members.values()
            ),
            default=None,
        )

    @property
    def version(self) -> int:
        """Grows with every change that a watcher wants to see."""
        return self._changes.version

    def snapshot(self, names: Names = ()) -> list[RoutesReply]:
        """Return everything: a full reply and, when it is large, others that complete it."""
        topics = self._topics.living(names)
        groups = (self._route(self._groups[name]) for name in sorted(self._groups))
        return routes_in_parts(self._cluster, groups, topics, full=True)

    def all_at_once(self, names: Names, now: float) -> RoutesReply:
        """Return everything as one full reply, or what fits, and the members that are missing."""
        reply = routes_at_once(self.snapshot(names))
        for route in reply.groups:
            group = self._groups[route.group]
            route.claims.extend(group.claims())
            route.silent.extend(self._silent.of(group.name, group.configured, group.members, now))
        reply.silent_groups.extend(self._silent.groups(self._groups, now))
        return reply

    def changes_since(self, version: int, names: Names = ()) -> RoutesReply | None:
        """Return what changed after `version`; None when a snapshot is cheaper or needed."""
        keys = self._changes.since(version)
        if keys is None:
            return None
        reply = RoutesReply(cluster=self._cluster)
        sent: set[str] = set()
        size = 0
        for kind, key in keys:
            if kind == _GROUP:
                assert isinstance(key, str)
                group = self._groups.get(key)
                if group is None:
                    reply.removed_groups.append(key)
                else:
                    reply.groups.append(self._route(group))
            else:
                assert isinstance(key, bytes)
                topic = self._topics.newest_of(key)
                if topic is None or topic.name in sent or (names and topic.name not in names):
                    continue
                sent.add(topic.name)
                reply.topics.append(topic)
                size += topic.ByteSize() + 8
        return reply if size <= FRAME_SIZE_TARGET else None

    def _route(self, group: BrokerGroup) -> GroupRoute:
        route = group.route()
        route.control_group = group.name == self._topics.control
        return route

    def _check(self, stream: _Stream, registration: Registration) -> None:
        check_registration(registration)
        if self._cluster and registration.cluster != self._cluster:
            raise DledgerError(
                Code.WRONG_CLUSTER,
                f"this name server serves cluster {self._cluster!r}, not {registration.cluster!r}",
            )
        if stream.group and (stream.group, stream.member) != (
            registration.group,
            registration.member,
        ):
            raise invalid(
                f"member: {registration.group}/{registration.member}, but one stream registers one "
                f"member, this one {stream.group}/{stream.member}"
            )
        room = TOPICS_MAX - len(self._topics)
        if len(registration.topics) > room and self._topics.unknown(registration.topics) > room:
            raise DledgerError(Code.BUSY, f"the limit of {TOPICS_MAX} topics is reached")

    def _add_group(self, name: str) -> BrokerGroup:
        if len(self._groups) >= GROUPS_MAX:
            raise DledgerError(Code.BUSY, f"the limit of {GROUPS_MAX} groups is reached")
        group = BrokerGroup(name)
        self._groups[name] = group
        self._changes.mark((_GROUP, name))
        return group

    def _renew(
        self,
        group: BrokerGroup,
        session: Session,
        stream: _Stream,
        registration: Registration,
        now: float,
    ) -> Member:
        """Move the lease; a new member, address or stream is a change."""
        member = group.members.get(registration.member)
        if member is None:
            if len(group.members) >= MEMBERS_PER_GROUP_MAX:
                raise DledgerError(
                    Code.BUSY,
                    f"group {group.name}: the limit of {MEMBERS_PER_GROUP_MAX} members is reached",
                )
            member = Member(
                registration.member, registration.address, registration.peer_address, now, None
            )
            group.members[member.name] = member
            # When a lease ended on an open stream, the topics may be gone with the group.
            stream.needs_full = True
        if member.session != session:
            if member.session is not None:
                if member.session > session:
                    raise DledgerError(Code.NOT_FOUND, "a newer stream of this member exists")
                self._streams.pop(member.session, None)
            member.session = session
            stream.group, stream.member = group.name, member.name
            self._changes.mark((_GROUP, group.name))
            self._note(
                "member registered",
                {"group": group.name, "member": member.name, "address": registration.address},
            )
        told = registration.address, registration.peer_address
        if (member.address, member.peer_address) != told:
            member.address, member.peer_address = told
            self._changes.mark((_GROUP, group.name))
        member.lease_end = now + self.lease
        member.term, member.leader = registration.term, registration.leader
        member.configured = tuple(registration.configured_members) or member.configured
        member.control_group = registration.control_group
        return member

    def _take_group_fields(
        self, group: BrokerGroup, member: Member, registration: Registration
    ) -> None:
        self._count(group)
        if registration.term < group.term and group.reborn():
            self._note("group formed anew", {"group": group.name, "old_term": group.term})
            group.forget_history()
            self._forget_topics(group)
            self._changes.mark((_GROUP, group.name))
        if group.take_claim(member.name, self._newest_session):
            self._leader_changed(group)

    def _count(self, group: BrokerGroup) -> None:
        """Count the members of a group again. Nothing is known yet of an entirely new list."""
        before = group.configured
        if group.count():
            self._changes.mark((_GROUP, group.name))
        if group.control_group and not self._topics.control:
            self._topics.control = group.name
        if before and before != group.configured:
            self._note("configuration", {"group": group.name, "members": list(group.configured)})
            if set(before).isdisjoint(group.configured):
                group.forget_history()
                self._forget_topics(group)
            self._weigh(group)

    def _weigh(self, group: BrokerGroup) -> None:
        if group.weigh(self._newest_session):
            self._leader_changed(group)

    def _leader_changed(self, group: BrokerGroup) -> None:
        self._changes.mark((_GROUP, group.name))
        self._note("leader", {"group": group.name, "leader": group.leader, "term": group.term})

    def _forget_topics(self, group: BrokerGroup) -> None:
        self._drop_topics(group.name)
        for member in group.members.values():
            if member.session is not None:
                self._streams[member.session].needs_full = True

    def _remove(self, group: BrokerGroup, member: Member) -> None:
        del group.members[member.name]
        last = Last(member.address, member.peer_address, member.lease_end - self.lease)
        self._silent.left(
            group.name, group.configured, member.name, last, control=group.control_group
        )
        group.member_silent(member.name)
        self._count(group)
        self._weigh(group)
        self._changes.mark((_GROUP, group.name))
        self._note("lease ended", {"group": group.name, "member": member.name})
        if not group.members:
            del self._groups[group.name]
            self._drop_topics(group.name)
            if not self._groups:
                self._cluster, self._topics.control = self._named_cluster, ""

    def _drop_topics(self, group: str) -> None:
        for topic_id, is_told in self._topics.drop_group(group):
            if is_told:
                self._changes.mark((_TOPIC, topic_id))
            else:
                self._changes.forget((_TOPIC, topic_id))
