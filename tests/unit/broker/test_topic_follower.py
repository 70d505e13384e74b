"""A group that missed the control group's decisions fetches them itself."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc.aio
import pytest

from dledger.raft.api import Role
from dledger.state.commands.command import Command
from dledger.state.results import TopicChanged
from dledger.state.topics.commands import ImportTopic
from dledger.state.values import Topic, TopicType
from dledger_broker.cluster import topic_follower
from dledger_broker.cluster.channels import Channels
from dledger_broker.cluster.topic_follower import TopicFollower
from dledger_broker.cluster.topic_pages import CURSOR
from dledger_broker.cluster.view import ClusterView
from dledger_broker.group.group_view import GroupView
from dledger_broker.usecases.messaging import Messaging
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.raw import RawContext, UnaryMethod, raw_handlers
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import routes_pb2
from tests.ports import free_port
from tests.unit.broker.fakes import ME, NAMES, OTHER, FakeCommands, FakeHost, ManualClock
from tests.unit.broker.test_topic_pages import decided, page
from tests.waiting import until

Answer = Callable[[pb.ListTopicsRequest], bytes]


class TakingCommands(FakeCommands):
    """Takes commands; refuses as a test says."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.refusals: list[DledgerError] = []
        self.known: dict[bytes, int] = {}

    async def propose(self, command: Command[Any]) -> Any:
        assert isinstance(command, ImportTopic)
        if self.refusals:
            raise self.refusals.pop(0)
        self.taken.append(command.topic.name)
        self.known[command.topic.topic_id] = command.topic.control_index
        return TopicChanged(command.topic)


class FakeQueries:
    """Knows topics as of a control index."""

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
        self.forgotten_index = self.newest_control_index = 0
        self.control_id = b""
        self.users_revision = 0

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        index = self.known.get(topic_id)
        if index is None:
            return None
        return Topic(topic_id, "t", TopicType.NORMAL, 1, (), 1, 1, 6, index)


class Follower:
    """A group's leader that follows the control group at some address."""

    def __init__(self, port: int) -> None:
        self.host = FakeHost()
        self.commands = TakingCommands()
        self.queries = FakeQueries()
        self.machine = self
        self.commands.known = self.queries.known
        self.names = NAMES
        self.clock = ManualClock()
        self.view = cast("GroupView", self)
        cluster_view = ClusterView("c", {})
        member = routes_pb2.MemberRoute(
            member="x", address="published.invalid:1", peer_address=f"127.0.0.1:{port}"
        )
        route = routes_pb2.GroupRoute(group="control", term=1, leader="x", members=[member])
        cluster_view.merge(routes_pb2.RoutesReply(cluster="c", groups=[route]))
        self.channels = Channels()
        self.follower = TopicFollower(
            cast("Messaging", self), "control", cluster_view, self.channels
        )

    @property
    def leads(self) -> bool:
        return self.host.leadership.role is Role.LEADER

    def not_leader(self) -> DledgerError:
        return DledgerError(Code.NOT_LEADER)


@asynccontextmanager
async def control_group(port: int, answers: list[Answer]) -> AsyncGenerator[list[int], None]:
    """Serve ListTopics by the answers in turn, the last one for good; yields what was asked."""
    asked: list[int] = []

    async def list_topics(data: bytes, _context: RawContext) -> bytes:
        request = pb.ListTopicsRequest.FromString(data)
        asked.append(request.since_control_index)
        return (answers.pop(0) if len(answers) > 1 else answers[0])(request)

    server = grpc.aio.server()  # pyright: ignore[reportUnknownMemberType]
    handlers = raw_handlers("dledger.v1.Admin", {"ListTopics": UnaryMethod(list_topics)})
    server.add_generic_rpc_handlers((handlers,))  # pyright: ignore[reportUnknownMemberType]
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield asked
    finally:
        await server.stop(None)


def all_topics(request: pb.ListTopicsRequest) -> bytes:
    known = [
        pb.Topic(
            id=bytes([number]) * 16, name=f"t{number}", layout_version=1, write_queues=1,
            read_queues=1, permission=6, control_index=number,
            layout=[pb.LayoutPart(group="g", queues=1)],
        )
        for number in (1, 2)
    ]  # fmt: skip
    newer = [each for each in known if each.control_index > request.since_control_index]
    return page(newer, control_index=2)


def garbage(_request: pb.ListTopicsRequest) -> bytes:
    return b"\xff\xff\xff"


def broken(_request: pb.ListTopicsRequest) -> bytes:
    raise ZeroDivisionError


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_follower, "PULL_SECONDS", 0.01)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(40):
            await scenario()

    asyncio.run(whole())


def test_what_was_missed_is_fetched_through_errors_and_once() -> None:
    async def scenario() -> None:
        port = free_port()
        group = Follower(port)
        group.commands.refusals = [DledgerError(Code.NO_LEADER)] * 2
        group.follower.start()
        async with control_group(port, [broken, garbage, all_topics]) as asked:
            await until(lambda: 2 in asked, "what is known is not fetched again")
            assert sorted(group.commands.taken) == ["t1", "t2"]
            assert set(asked[: asked.index(2)]) == {0}
        await group.follower.stop()
        await group.channels.close()

    run(scenario)


@pytest.mark.parametrize("code", [Code.STALE_LAYOUT, Code.TOPIC_NOT_FOUND, Code.INVALID_ARGUMENT])
def test_a_topic_that_is_never_taken_over_does_not_keep_the_others_back(code: Code) -> None:
    async def scenario() -> None:
        port = free_port()
        group = Follower(port)
        group.commands.refusals = [DledgerError(code, "it is gone here")]
        group.follower.start()
        async with control_group(port, [all_topics]) as asked:
            await until(lambda: 2 in asked, "what is known is not fetched again")
            assert group.commands.taken == ["t2"]
            assert set(asked[: asked.index(2)]) == {0}
        await group.follower.stop()
        await group.channels.close()

    run(scenario)


def test_what_is_known_is_not_stored_again() -> None:
    """A new leader asks for everything, again and again while its disk is too low to take news."""

    async def scenario() -> None:
        port = free_port()
        group = Follower(port)
        group.queries.known = {bytes([1]) * 16: 1, bytes([2]) * 16: 1}
        group.follower.start()
        async with control_group(port, [all_topics]) as asked:
            await until(lambda: 2 in asked, "everything is known")
            assert group.commands.taken == ["t2"], "t1 is as known, t2 has changed since"
        await group.follower.stop()
        await group.channels.close()

    run(scenario)


def test_a_new_leader_begins_at_the_beginning() -> None:
    """What the old leader had fetched may not have been committed."""

    async def scenario() -> None:
        port = free_port()
        group = Follower(port)
        group.host.become(Role.FOLLOWER, OTHER)
        group.follower.start()
        async with control_group(port, [all_topics]) as asked:
            group.host.become(Role.LEADER, ME)
            await until(lambda: 2 in asked, "everything")
            before = len(asked)
            group.host.become(Role.FOLLOWER, OTHER)
            group.host.become(Role.LEADER, ME)
            await until(lambda: 0 in asked[before:], "everything, again")
        await group.follower.stop()
        await group.channels.close()

    run(scenario)


def test_all_pages_are_followed() -> None:
    async def scenario() -> None:
        port = free_port()
        group = Follower(port)
        group.follower.start()
        first, second = decided(3), decided(5)

        def pages(request: pb.ListTopicsRequest) -> bytes:
            if request.cursor:
                assert request.cursor == CURSOR.pack(3, first.id)
                return page([second], 5)
            if request.since_control_index >= 5:
                return page([], 5)
            return page([first], 2, cursor=CURSOR.pack(3, first.id))

        async with control_group(port, [pages]) as asked:
            await until(lambda: 5 in asked, "everything is known")
            assert group.commands.taken == ["t3", "t5"]
            assert not group.follower.problem
        await group.follower.stop()
        await group.channels.close()

    run(scenario)


def test_what_the_control_group_cannot_have_decided_is_not_taken_over() -> None:
    """One index far ahead would make the group refuse every later decision about that topic."""

    async def scenario() -> None:
        port = free_port()
        group = Follower(port)
        group.follower.start()
        ahead = page([decided(3), decided(1 << 40)], 5)
        async with control_group(port, [lambda _: ahead]) as asked:
            await until(lambda: len(asked) > 2, "it asks again and again")
            assert group.commands.taken == []
            assert set(asked) == {0}
            assert "above what the control group has confirmed, 9" in group.follower.problem
        await group.follower.stop()
        await group.channels.close()

    run(scenario)


def test_a_follower_that_cannot_follow_says_so_until_it_can(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def scenario() -> None:
        port = free_port()
        group = Follower(port)
        group.follower.start()
        await until(lambda: f"127.0.0.1:{port}" in group.follower.problem, "nobody answers")
        group.host.become(Role.FOLLOWER, OTHER)
        assert not group.follower.problem, "another member leads and follows"
        group.host.become(Role.LEADER, ME)
        async with control_group(port, [all_topics]):
            await until(lambda: bool(group.commands.taken), "it follows")
            await until(lambda: not group.follower.problem, "it says no more")
        await group.follower.stop()
        await group.channels.close()

    run(scenario)
    assert capsys.readouterr().out.count("cannot follow the control group") == 1


def test_who_says_that_something_was_decided_makes_the_group_ask_and_no_more() -> None:
    async def scenario() -> None:
        port = free_port()
        group = Follower(port)
        topic = decided(7)

        def once(request: pb.ListTopicsRequest) -> bytes:
            return page([] if request.since_control_index else [topic], 7)

        async with control_group(port, [once]):
            group.follower.start()
            await group.follower.pull(topic.id, 7, 20)
            assert group.commands.taken == ["t7"]
            with pytest.raises(DledgerError) as raised:
                await group.follower.pull(topic.id, 1 << 40, 20)
            assert raised.value.code is Code.INVALID_ARGUMENT
            assert "control has not decided so" in raised.value.detail
            assert group.commands.taken == ["t7"]
            assert group.queries.known[topic.id] == 7
        with pytest.raises(DledgerError) as raised:
            await group.follower.pull(topic.id, 8, 20)
        assert raised.value.code is Code.UNAVAILABLE
        await group.follower.stop()
        await group.channels.close()

    run(scenario)
