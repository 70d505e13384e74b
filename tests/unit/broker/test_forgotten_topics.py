"""Deleted topics are forgotten in all groups, and no group keeps one that the others forgot."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from dledger.raft.api import Role
from dledger.state.commands.command import Command
from dledger.state.counted_time import COUNTED_AT_ONCE_MAX_MS
from dledger.state.machine import StateMachine
from dledger.state.results import Refused, TopicChanged, TopicsForgotten
from dledger.state.topics.commands import CreateTopic, DeleteTopic, ForgetTopics, ImportTopic
from dledger.state.values import LayoutPart
from dledger_broker.cluster import topic_follower
from dledger_broker.cluster.channels import Channels
from dledger_broker.cluster.topic_follower import TopicFollower
from dledger_broker.cluster.topic_pages import topics_page
from dledger_broker.cluster.view import ClusterView
from dledger_broker.group.duty import EVERYTHING, Look
from dledger_broker.group.forgetting import LOOK_SECONDS, TopicForgetting
from dledger_broker.group.group_view import GroupView
from dledger_broker.usecases.messaging import Messaging
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import DELETED_TOPIC_KEPT_MS
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import routes_pb2
from tests.ports import free_port
from tests.unit.broker.fakes import ME, NAMES, OTHER, FakeCommands, FakeHost, ManualClock
from tests.unit.broker.test_topic_follower import control_group
from tests.unit.state.kit import Driven, create
from tests.waiting import until

LAYOUT = (LayoutPart("control", 1), LayoutPart(NAMES.group, 1))


class Log:
    """What is asked of a log here."""

    def __init__(self, group_id: bytes) -> None:
        self.group_id = group_id


class Control:
    """The control group: a state, and its lists, a topic a page."""

    def __init__(self, group_id: bytes = b"1" * 16) -> None:
        self.log = Log(group_id)
        self.state = Driven(group="control")
        self.machine = self.state.machine
        self.names = type("Names", (), {"cluster": NAMES.cluster, "group": "control"})

    def create(self, name: str) -> bytes:
        """Create a topic; return its id."""
        topic_id = name.encode().ljust(16, b".")
        made = create(topic_id, name, LAYOUT)
        known = CreateTopic(
            made.topic_id, made.name, made.type, made.layout, made.read_queues, made.permission,
            self.machine.applied_index,
        )  # fmt: skip
        assert isinstance(self.state.one(known), TopicChanged)
        return topic_id

    def delete(self, topic_id: bytes, *, forget: bool) -> None:
        """Delete a topic, and let its time pass."""
        assert isinstance(self.state.one(DeleteTopic(topic_id)), TopicChanged)
        if forget:
            self.state.count_time(DELETED_TOPIC_KEPT_MS + COUNTED_AT_ONCE_MAX_MS + 1)
            self.state.one(ForgetTopics(DELETED_TOPIC_KEPT_MS, EVERYTHING))

    def page(self, request: pb.ListTopicsRequest) -> bytes:
        """Answer ListTopics."""
        return topics_page(cast("GroupView", self), request, 1).SerializeToString()


class ApplyingCommands(FakeCommands):
    """Applies every command at once."""

    def __init__(self, state: Driven) -> None:
        self.state = state

    async def propose(self, command: Command[Any]) -> Any:
        result = self.state.one(command)
        if isinstance(result, Refused):
            raise DledgerError(result.code, result.detail)
        return result


class Group:
    """Another group's leader with a state of its own, that follows the control group."""

    def __init__(self, port: int) -> None:
        self.host = FakeHost()
        self.state = Driven(group=NAMES.group)
        self.machine: StateMachine = self.state.machine
        self.commands = ApplyingCommands(self.state)
        self.names = NAMES
        self.clock = ManualClock()
        self.view = cast("GroupView", self)
        cluster_view = ClusterView(NAMES.cluster, {})
        member = routes_pb2.MemberRoute(member="x", peer_address=f"127.0.0.1:{port}")
        route = routes_pb2.GroupRoute(group="control", term=1, leader="x", members=[member])
        cluster_view.merge(routes_pb2.RoutesReply(cluster=NAMES.cluster, groups=[route]))
        self.channels = Channels()
        self.follower = TopicFollower(
            cast("Messaging", self), "control", cluster_view, self.channels
        )

    @property
    def leads(self) -> bool:
        """True while it leads."""
        return self.host.leadership.role is Role.LEADER

    def not_leader(self) -> DledgerError:
        """What it says else."""
        return DledgerError(Code.NOT_LEADER)

    def live(self) -> list[str]:
        """The names of its topics that are not deleted."""
        return sorted(topic.name for topic in self.machine.queries.topics())


@asynccontextmanager
async def cluster() -> AsyncGenerator[tuple[Control, Group]]:
    """A control group that answers, and a group that follows it."""
    port = free_port()
    control, group = Control(), Group(port)
    async with control_group(port, [control.page]):
        group.follower.start()
        yield control, group
        await group.follower.stop()
        await group.channels.close()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_follower, "PULL_SECONDS", 0.01)


def caught_up(control: Control, group: Group) -> bool:
    newest = max(
        control.machine.queries.newest_control_index, control.machine.queries.forgotten_index
    )
    return group.follower.complete_up_to() >= newest


@pytest.mark.parametrize("is_new_leader", [False, True])
def test_a_group_that_missed_a_deletion_learns_of_it_though_it_is_forgotten(
    is_new_leader: bool,
) -> None:
    async def scenario() -> None:
        async with cluster() as (control, group):
            gone, kept = control.create("gone"), control.create("kept")
            await until(lambda: group.live() == ["gone", "kept"], "both are taken over")
            group.host.become(Role.FOLLOWER, OTHER)
            if not is_new_leader:
                group.follower._complete_up_to = 2  # it goes on where it was
            control.delete(gone, forget=True)
            control.create("later")
            assert control.machine.queries.topic_by_id(gone) is None
            group.host.become(Role.LEADER, ME)
            await until(lambda: group.live() == ["kept", "later"], "it is deleted here, too")
            await until(lambda: caught_up(control, group), "it knows all")
            known = group.machine.queries.topic_by_id(gone)
            assert known is not None
            assert known.deleted
            assert group.machine.queries.topic_by_id(kept) == control.machine.queries.topic_by_id(
                kept
            )

    asyncio.run(scenario())


def test_both_groups_forget_and_a_late_decision_changes_nothing() -> None:
    async def scenario() -> None:
        async with cluster() as (control, group):
            gone = control.create("gone")
            old = control.machine.queries.topic_by_id(gone)
            assert old is not None
            await until(lambda: group.live() == ["gone"], "it is taken over")
            control.delete(gone, forget=False)
            await until(lambda: group.live() == [], "its deletion is taken over")
            await until(lambda: caught_up(control, group), "it knows all")
            group.state.count_time(DELETED_TOPIC_KEPT_MS + COUNTED_AT_ONCE_MAX_MS + 1)
            known_index = group.follower.complete_up_to()
            due = TopicForgetting().due(Look(3, known_index, group.machine.queries, 0.0))
            assert due == ForgetTopics(DELETED_TOPIC_KEPT_MS, known_index)
            group.state.one(due)
            assert group.machine.queries.topics(with_deleted=True) == []
            late = group.state.one(ImportTopic(old, control.log.group_id))
            assert isinstance(late, Refused)
            assert late.code is Code.STALE_LAYOUT
            before = group.machine.applied_index
            group.host.become(Role.FOLLOWER, OTHER)
            group.host.become(Role.LEADER, ME)
            await until(lambda: caught_up(control, group), "a new leader has asked for all")
            assert group.machine.applied_index == before, "what is forgotten is not taken again"
            await group.follower.pull(gone, old.control_index, 20)

    asyncio.run(scenario())


@pytest.mark.parametrize("way", ["formed anew", "restored"])
@pytest.mark.parametrize("name", ["orders", "other"])
def test_a_control_group_with_another_past_deletes_no_topic(way: str, name: str) -> None:
    """It forgot a deletion, and gives a name away, above all that this group knows."""

    async def scenario() -> None:
        port = free_port()
        group = Group(port)
        first = Control()
        first.state.idle(40)
        first.create("orders")
        control = Control(b"2" * 16) if way == "formed anew" else Control()
        control.delete(control.create("gone"), forget=True)
        control.create(name)
        if way == "formed anew":
            control.state.idle(80)
            control.delete(control.create("gone2"), forget=True)
        group.follower.start()
        async with control_group(port, [first.page]):
            await until(lambda: group.live() == ["orders"], "it is taken over")
            assert group.machine.queries.control_id == b"1" * 16
            before = group.machine.queries.topics()
        async with control_group(port, [control.page]) as asked:
            await until(lambda: len(asked) > 3, "it asks again and again")
            group.host.become(Role.FOLLOWER, OTHER)
            group.host.become(Role.LEADER, ME)
            told = "another control group" if way == "formed anew" else "restored from an old copy"
            await until(lambda: told in group.follower.problem, "it says why it does not follow")
            assert group.machine.queries.topics() == before
        async with control_group(port, [first.page]):
            await until(lambda: not group.follower.problem, "it follows again")
            later = first.create("later")
            await group.follower.pull(later, first.machine.queries.newest_control_index, 20)
            assert not group.follower.problem
        await group.follower.stop()
        await group.channels.close()

    asyncio.run(scenario())


def test_what_is_forgotten_while_pages_are_read_is_noticed() -> None:
    """It was told on the first page, and is deleted and forgotten before the last."""

    async def scenario() -> None:
        port = free_port()
        control, group = Control(), Group(port)
        gone = control.create("gone")
        control.create("kept")
        pages = 0

        def page(request: pb.ListTopicsRequest) -> bytes:
            nonlocal pages
            pages += 1
            if pages == 2:
                control.delete(gone, forget=True)
            return control.page(request)

        async with control_group(port, [page]):
            group.follower.start()
            await until(lambda: caught_up(control, group), "it knows all")
            assert group.live() == ["kept"]
            await group.follower.stop()
            await group.channels.close()

    asyncio.run(scenario())


def test_the_duty_asks_when_something_is_due_and_only_while_it_leads() -> None:
    control = Control()
    duty = TopicForgetting()

    def look(leads_term: int | None, now: float, known_index: int = EVERYTHING) -> Look:
        return Look(leads_term, known_index, control.machine.queries, now)

    assert duty.due(look(3, 0.0)) is None, "nothing is deleted"
    control.delete(control.create("gone"), forget=False)
    control.state.count_time(DELETED_TOPIC_KEPT_MS + COUNTED_AT_ONCE_MAX_MS + 1)
    assert duty.due(look(3, LOOK_SECONDS - 1)) is None, "it has just looked"
    assert duty.due(look(None, LOOK_SECONDS)) is None
    due = duty.due(look(3, LOOK_SECONDS))
    assert due == ForgetTopics(DELETED_TOPIC_KEPT_MS, EVERYTHING)
    assert TopicForgetting().due(look(3, 0.0, known_index=0)) is None, "it may not know of all"
    assert duty.rest(TopicsForgotten((), more=True)) == due
    assert duty.rest(TopicsForgotten((), more=False)) is None


def test_a_page_tells_what_is_forgotten() -> None:
    control = Control()
    control.delete(control.create("gone"), forget=True)
    reply = pb.ListTopicsReply.FromString(control.page(pb.ListTopicsRequest()))
    assert reply.forgotten_index == control.machine.queries.forgotten_index > 0
    assert reply.control_index >= reply.forgotten_index, "else it would be asked for ever"
