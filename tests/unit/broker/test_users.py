"""Users of the whole cluster: what the control group's leader does, how a group follows it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import grpc.aio
import pytest

from dledger.raft.api import Role
from dledger.state.commands.command import Command
from dledger.state.results import Refused
from dledger.state.topics.commands import ImportTopic
from dledger.state.users.commands import DeleteUser, ImportUsers, PutMode, PutUser
from dledger.state.users.values import User
from dledger_broker.cluster.channels import GROUP_KEY, Channels
from dledger_broker.cluster.topic_follower import TopicFollower
from dledger_broker.cluster.topic_pages import topics_page
from dledger_broker.cluster.view import ClusterView
from dledger_broker.group.group_view import GroupView
from dledger_broker.usecases.messaging import Messaging
from dledger_broker.users import authority
from dledger_broker.users.authority import UserAuthority
from dledger_broker.users.user_proto import user_to_proto
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.raw import RawContext, UnaryMethod, raw_handlers
from dledger_proto.v1 import broker_pb2, routes_pb2
from dledger_proto.v1 import users_pb2 as pb
from tests.ports import free_port
from tests.unit.broker.fakes import NAMES, FakeCommands, FakeHost, ManualClock
from tests.unit.security.users import user_of
from tests.unit.state.kit import Driven, create

GROUP_ID = b"C" * 16
ALICE = user_of("alice", is_admin=True)
BOB, CAROL = user_of("bob"), user_of("carol")


class Applied(FakeCommands):
    """Applies each command at once."""

    def __init__(self, driven: Driven) -> None:
        self.driven = driven
        self.proposed: list[Command[Any]] = []

    async def propose(self, command: Command[Any]) -> Any:
        self.proposed.append(command)
        result = self.driven.one(command)
        if isinstance(result, Refused):
            raise DledgerError(result.code, result.detail)
        return result


class Group:
    """One group's leader, as a view."""

    def __init__(self, name: str) -> None:
        self.driven = Driven(group=name)
        self.machine = self.driven.machine
        self.host = FakeHost()
        self.commands = Applied(self.driven)
        self.names = replace(NAMES, group=name)
        self.clock = ManualClock()
        self.log = SimpleNamespace(group_id=GROUP_ID)
        self.view = cast("GroupView", self)

    @property
    def leads(self) -> bool:
        return self.host.leadership.role is Role.LEADER

    def not_leader(self) -> DledgerError:
        return DledgerError(Code.NOT_LEADER)

    async def confirm(self, timeout: float = 0) -> None:
        """Be confirmed at once."""

    def users(self) -> list[User]:
        return self.machine.queries.users("", 1_000)

    @property
    def revision(self) -> int:
        return self.machine.queries.users_revision


class Cluster:
    """A control group, and another group that follows it over a real connection."""

    def __init__(self) -> None:
        self.port = free_port()
        self.control, self.other = Group("control"), Group("other")
        view = ClusterView("c", {})
        for group in ("control", "other"):
            member = routes_pb2.MemberRoute(
                member="x", address="published.invalid:1", peer_address=f"127.0.0.1:{self.port}"
            )
            route = routes_pb2.GroupRoute(group=group, term=1, leader="x", members=[member])
            view.merge(routes_pb2.RoutesReply(cluster="c", groups=[route]))
        self.channels = Channels()
        self.authority = UserAuthority(self.control.view, view, self.channels)
        self.follower = TopicFollower(cast("Messaging", self.other), "control", view, self.channels)
        self.asked: list[str] = []
        self.between: Callable[[], None] = lambda: None
        """Happens before each answer about users."""
        self.changed: Callable[[pb.FollowUsersReply], object] = lambda _reply: None
        """What a wrong control group does to its answers."""
        self.is_old = False
        self.server = grpc.aio.server()  # pyright: ignore[reportUnknownMemberType]

    async def __aenter__(self) -> "Cluster":
        for service, methods in (
            ("Users", {"Follow": self.follow, "Pull": self.pull}),
            ("Admin", {"ListTopics": self.list_topics}),
        ):
            handlers = {name: UnaryMethod(method) for name, method in methods.items()}
            self.server.add_generic_rpc_handlers(  # pyright: ignore[reportUnknownMemberType]
                (raw_handlers(f"dledger.v1.{service}", handlers),)
            )
        self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self.server.start()
        self.follower.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.follower.stop()
        await self.server.stop(None)
        await self.channels.close()

    async def follow(self, data: bytes, context: RawContext) -> bytes:
        self.asked.append("users")
        metadata = dict(cast("tuple[tuple[str, str], ...]", context.invocation_metadata()))
        assert metadata[GROUP_KEY] == "control"
        if self.is_old:
            await cast("Any", context).abort(grpc.StatusCode.UNIMPLEMENTED)
        self.between()
        reply = await self.authority.follow(pb.FollowUsersRequest.FromString(data))
        self.changed(reply)
        return reply.SerializeToString()

    async def pull(self, data: bytes, _context: RawContext) -> bytes:
        await self.follower.pull_users(pb.PullUsersRequest.FromString(data).revision, 5)
        return b""

    async def list_topics(self, data: bytes, _context: RawContext) -> bytes:
        self.asked.append("topics")
        request = broker_pb2.ListTopicsRequest.FromString(data)
        return topics_page(self.control.view, request).SerializeToString()

    def decide(self, *commands: Command[Any]) -> None:
        """Decide something in the control group, and tell nobody."""
        self.control.driven.run(*commands)

    async def pulls(self) -> str:
        """Let the other group pull; return why that failed."""
        try:
            await self.follower._pulled(10)
        except DledgerError as error:
            return error.detail
        return ""


def put(user: User, mode: PutMode = PutMode.CREATE) -> PutUser:
    return PutUser(mode, user)


def run(scenario: Callable[[Cluster], Any]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(40), Cluster() as cluster:
            await scenario(cluster)

    asyncio.run(whole())


def test_a_change_waits_for_the_other_groups() -> None:
    async def scenario(cluster: Cluster) -> None:
        reply = await cluster.authority.put(
            pb.PutUserRequest(user=user_to_proto(ALICE, with_credentials=True), create=True)
        )
        assert not reply.missing_groups
        assert not reply.user.HasField("credentials")
        assert (cluster.other.users(), cluster.other.revision) == ([ALICE], reply.revision)

    run(scenario)


def test_a_group_that_cannot_be_reached_is_named() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.server.stop(None)
        request = pb.PutUserRequest(user=user_to_proto(ALICE, with_credentials=True), create=True)
        assert (await cluster.authority.put(request)).missing_groups == ["other"]
        assert cluster.control.users() == [ALICE]

    run(scenario)


def test_a_late_copy_of_a_creation_brings_back_nobody() -> None:
    """A creation that names the list is of that list; who was deleted meanwhile stays deleted."""

    async def scenario(cluster: Cluster) -> None:
        cluster.decide(put(BOB))
        wire = user_to_proto(CAROL, with_credentials=True)
        revision = cluster.control.revision
        request = pb.PutUserRequest(user=wire, create=True, known_revision=revision)
        for _ in range(2):
            assert (await cluster.authority.put(request)).revision == revision + 1
        cluster.decide(DeleteUser("carol"))
        with pytest.raises(DledgerError, match=r"USER_EXISTS.*look again"):
            await cluster.authority.put(request)
        assert cluster.control.users() == [BOB]

    run(scenario)


def test_a_change_without_credentials_keeps_them() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.decide(put(ALICE), put(BOB))
        wire = user_to_proto(replace(BOB, is_enabled=False))
        await cluster.authority.put(pb.PutUserRequest(user=wire))
        assert cluster.control.users() == [ALICE, replace(BOB, is_enabled=False)]

    run(scenario)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (pb.PutUserRequest(user=pb.User(name="x"), create=True), Code.INVALID_ARGUMENT),
        (pb.PutUserRequest(user=pb.User(name="x")), Code.USER_NOT_FOUND),
        (pb.PutUserRequest(known_revision=9), Code.INVALID_ARGUMENT),
        (
            pb.PutUserRequest(
                user=pb.User(name="alice", policies=[pb.Policy(kind=9, actions=1)])  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            ),
            Code.INVALID_ARGUMENT,
        ),
        (pb.PutUserRequest(user=pb.User(name="alice", is_admin=True), known_revision=1),
         Code.USER_EXISTS),
    ],
)  # fmt: skip
def test_what_is_refused(request_: pb.PutUserRequest, code: Code) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.decide(put(replace(ALICE, is_enabled=False)))
        cluster.decide(put(BOB))
        with pytest.raises(DledgerError) as caught:
            await cluster.authority.put(request_)
        assert caught.value.code is code
        for call in (
            cluster.authority.delete(pb.DeleteUserRequest(name="nobody")),
            cluster.authority.describe(pb.DescribeUserRequest(name="nobody")),
        ):
            with pytest.raises(DledgerError) as caught:
                await call
            assert caught.value.code is Code.USER_NOT_FOUND

    run(scenario)


def test_lists_come_in_pages_and_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.decide(put(ALICE), put(BOB), put(CAROL))
        ask = cluster.authority.list_all
        first = await ask(pb.ListUsersRequest(limit=2))
        assert [user.name for user in first.users] == ["alice", "bob"]
        assert first.more
        rest = await ask(pb.ListUsersRequest(after="bob"))
        assert ([user.name for user in rest.users], rest.more) == (["carol"], False)
        monkeypatch.setattr(authority, "TOPICS_PAGE_SIZE", 1)
        assert len((await ask(pb.ListUsersRequest())).users) == 1, "one at least"
        described = await cluster.authority.describe(pb.DescribeUserRequest(name="bob"))
        assert not any(
            user.HasField("credentials") for user in (*first.users, *rest.users, described.user)
        )

    run(scenario)


def test_users_come_before_topics() -> None:
    """A topic is not known before who may use it."""

    async def scenario(cluster: Cluster) -> None:
        cluster.decide(put(ALICE), create())
        assert not await cluster.pulls()
        kinds = [type(command) for command in cluster.other.commands.proposed]
        assert kinds == [ImportUsers, ImportTopic]

    run(scenario)


def test_no_topic_is_taken_over_while_users_cannot_be() -> None:
    async def scenario(cluster: Cluster) -> None:
        def damage(reply: pb.FollowUsersReply) -> None:
            reply.confirmed_index = 1

        cluster.changed = damage
        cluster.decide(create())
        cluster.decide(put(ALICE))
        assert "revision 2 of the users, confirmed is 1" in await cluster.pulls()
        assert not cluster.other.commands.proposed

    run(scenario)


def test_all_pages_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authority, "USERS_PER_PAGE_MAX", 1)

    async def scenario(cluster: Cluster) -> None:
        cluster.decide(put(ALICE), put(BOB), put(CAROL))
        assert not await cluster.pulls()
        assert cluster.other.users() == [ALICE, BOB, CAROL]
        assert cluster.other.revision == 1
        cluster.decide(DeleteUser("bob"))
        assert not await cluster.pulls()
        assert (cluster.other.users(), cluster.other.revision) == ([ALICE, CAROL], 2)
        count = len(cluster.other.commands.proposed)
        assert not await cluster.pulls()
        assert len(cluster.other.commands.proposed) == count, "what is known is not stored again"

    run(scenario)


def test_a_list_that_changes_while_it_is_read_is_read_again() -> None:
    """Else a user that moved behind the cursor would be lost, and its list called whole."""

    async def scenario(cluster: Cluster) -> None:
        cluster.decide(put(ALICE), put(CAROL))
        pages: list[int] = []
        changes: list[Command[Any]] = [
            put(BOB), put(user_of("aaron")), DeleteUser("carol"),
        ]  # fmt: skip

        def change() -> None:
            pages.append(1)
            if len(pages) % 2 == 0 and changes:
                cluster.decide(changes.pop())

        assert not await cluster.pulls()
        cluster.decide(put(user_of("dave")))
        cluster.between = change
        assert not await cluster.pulls()
        assert not changes
        assert cluster.other.users() == cluster.control.users()
        assert cluster.other.revision == cluster.control.revision

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(authority, "USERS_PER_PAGE_MAX", 1)
        run(scenario)


def test_a_list_that_never_rests_is_left_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authority, "USERS_PER_PAGE_MAX", 1)

    async def scenario(cluster: Cluster) -> None:
        cluster.decide(put(ALICE), put(BOB))

        def change() -> None:
            known = cluster.control.machine.queries.user("bob")
            assert known is not None
            other = replace(known, is_enabled=not known.is_enabled)
            cluster.decide(put(other, PutMode.CHANGE))

        cluster.between = change
        assert "changed 10 times while it was read" in await cluster.pulls()

    run(scenario)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"cluster": "d"}, "cluster 'd', group 'control' answers"),
        ({"group": "g"}, "cluster 'c', group 'g' answers"),
        ({"group_id": b"x"}, "group id of 1 bytes"),
        ({"group_id": b"x" * 16}, "another control group answers"),
        ({"confirmed_index": 0}, "was restored from an old copy"),
        ({"revision": 1}, "revision 1 of the users, known is 2"),
        ({"users": [pb.User(name="b"), pb.User(name="a")]}, "user 'a' is out of order"),
        ({"users": [], "more": True}, "a page without users"),
    ],
)
def test_what_the_control_group_cannot_have_said_is_not_believed(
    fields: dict[str, Any], problem: str
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.decide(create())
        cluster.decide(put(ALICE))
        assert not await cluster.pulls()

        def damage(reply: pb.FollowUsersReply) -> None:
            for name, value in fields.items():
                if name == "users":
                    del reply.users[:]
                    reply.users.extend(value)
                else:
                    setattr(reply, name, value)

        cluster.decide(put(BOB))
        cluster.changed = damage
        assert problem in await cluster.pulls()
        assert cluster.other.users() == [ALICE]

    run(scenario)


def test_a_control_group_that_knows_no_users_is_followed() -> None:
    """It is of an older dledger."""

    async def scenario(cluster: Cluster) -> None:
        cluster.is_old = True
        cluster.decide(create())
        assert not await cluster.pulls()
        assert cluster.other.machine.queries.topic_by_name("orders") is not None

    run(scenario)


def test_whoever_says_that_something_was_decided_makes_the_group_ask_and_no_more() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.decide(put(ALICE))
        await cluster.follower.pull_users(1, 5)
        with pytest.raises(DledgerError) as caught:
            await cluster.follower.pull_users(9, 5)
        assert caught.value.code is Code.INVALID_ARGUMENT
        assert cluster.other.users() == [ALICE]

    run(scenario)
