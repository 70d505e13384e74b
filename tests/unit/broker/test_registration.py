"""What members tell name servers and watchers: through restarts, outages, garbage, late topics."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import grpc.aio
import pytest

from dledger.log.commit_log import CommitLog
from dledger.raft.api import Role
from dledger.raft.group import RaftGroup
from dledger.state.events import Applied
from dledger.state.queries import Queries
from dledger.state.values import LayoutPart, Topic, TopicType
from dledger.types import Entry, EntryKind, EntryRef, LogIndex, Position, Term
from dledger_broker.cluster import channels as channels_module
from dledger_broker.cluster import registration
from dledger_broker.cluster.channels import Channels
from dledger_broker.cluster.registration import Registrar
from dledger_broker.cluster.view import ClusterView
from dledger_broker.group import topic_watch
from dledger_broker.group.commands import Commands
from dledger_broker.group.group_view import GroupView
from dledger_broker.group.leases import Leases
from dledger_broker.group.long_poll import LongPoll
from dledger_broker.group.topic_watch import TopicWatch
from dledger_broker.process import tasks
from dledger_broker.process.tasks import keep_running
from dledger_broker.rpc.routes import RouteWatch, group_route
from dledger_broker.security.authority import Authority, Wanted
from dledger_broker.security.gate import EVERYBODY, open_gate
from dledger_namesrv.service import NameServer, NameServerSettings
from dledger_proto.errors import Code, DledgerError
from dledger_proto.network.ports import free_ports
from dledger_proto.network.tls import TlsFolder, member_name, name_server_name
from dledger_proto.rpc.raw import RawContext, StreamFunction, StreamMethod, raw_handlers
from dledger_proto.rpc.status import abort
from tests.ports import free_port
from tests.unit.broker.fakes import ME, NAMES, OTHER, FakeHost, FakeMachine, ManualClock, admission
from tests.waiting import until


class FakeQueries(Queries):
    """Topics that a test changes."""

    def __init__(self) -> None:
        self.known: dict[bytes, Topic] = {}
        self.is_broken = False
        self.asked: list[int] = []

    def break_topics(self) -> list[int]:
        """Raise whenever all topics are asked for; the list grows with each time."""
        self.is_broken = True
        return self.asked

    def topics(self, since_control_index: int = -1, *, with_deleted: bool = False) -> list[Topic]:
        if self.is_broken:
            self.asked.append(since_control_index)
            raise ZeroDivisionError("a bug of ours")
        newer = [each for each in self.known.values() if each.control_index > since_control_index]
        return sorted(newer, key=lambda topic: topic.control_index)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self.known.get(topic_id)


class Machine(FakeMachine):
    """Topics alone; a test decides what an entry changes."""

    queries: FakeQueries

    def __init__(self) -> None:
        super().__init__(FakeQueries())

    @property
    def applied_index(self) -> LogIndex:
        return LogIndex(len(self.queries.known))


def topic(number: int, control_index: int = 0) -> Topic:
    return Topic(
        bytes([number]) * 16, f"t{number}", TopicType.NORMAL, 1, (LayoutPart("g", 1),), 1, 1, 6,
        control_index or number, deleted=False,
    )  # fmt: skip


class Status:
    """Of a group without peers."""

    peers = ()


class Host(FakeHost):
    """See `FakeHost`; routes ask its group who is connected."""

    def __init__(self) -> None:
        super().__init__()
        self.group = cast("RaftGroup", self)

    def status(self) -> Status:
        return Status()


class Group:
    """A group whose leadership and topics a test changes."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.host = Host()
        self.told: list[Callable[[], None]] = []
        self.watch = TopicWatch(self.machine.queries, self.tell)
        self.view = GroupView(
            NAMES,
            self.host,
            self.machine,
            self.watch,
            cast("CommitLog", None),
            ThreadPoolExecutor(1),
            LongPoll(),
            cast("Commands", None),
            ManualClock(),
            cast("Leases", None),
        )

    def tell(self) -> None:
        for each in self.told:
            each()

    def change(self, *topics: Topic) -> None:
        """Apply an entry that changed these topics."""
        self.machine.queries.known.update({each.topic_id: each for each in topics})
        entry = Entry(
            EntryRef(LogIndex(1), Term(1), Position(0), 0, 0), EntryKind.COMMANDS, 0, (), ()
        )
        self.watch.applied(Applied(entry, (), (), topics))

    @asynccontextmanager
    async def registered(
        self, *addresses: str, tls: TlsFolder | None = None
    ) -> AsyncGenerator[None, None]:
        channels = Channels(tls)
        registrars = [
            Registrar(address, self.view, channels, heartbeat_seconds=0.02) for address in addresses
        ]
        self.told += [each.changed for each in registrars]
        self.host.watch_leadership(lambda _: self.tell())
        for each in registrars:
            each.start()
        try:
            yield
        finally:
            for each in registrars:
                await each.stop()
            await channels.close()


async def serving(port: int, register: StreamFunction) -> grpc.aio.Server:
    """Return a name server that does something of its own with registrations."""
    server = grpc.aio.server()  # pyright: ignore[reportUnknownMemberType]
    handlers = raw_handlers("dledger.v1.Registry", {"Register": StreamMethod(register)})
    server.add_generic_rpc_handlers((handlers,))  # pyright: ignore[reportUnknownMemberType]
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server


@asynccontextmanager
async def name_server(port: int, tls_folder: str = "") -> AsyncGenerator[NameServer, None]:
    settings = NameServerSettings(f"127.0.0.1:{port}", lease_seconds=60, tls_folder=tls_folder)
    server = NameServer(settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def leader_at(server: NameServer) -> str:
    groups = server.registry.all_at_once((), 0.0).groups
    return groups[0].leader if groups else ""


def topics_at(server: NameServer) -> list[str]:
    return sorted(each.name for each in server.registry.all_at_once((), 0.0).topics)


def has(server: NameServer, count: int) -> bool:
    return len(topics_at(server)) == count


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "RECONNECT_BACKOFF_MAX_MS", 20)
    monkeypatch.setattr(channels_module, "CONNECT_SECONDS", 0.1)
    monkeypatch.setattr(tasks, "AGAIN_SECONDS", 0.0)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(40):
            await scenario()

    asyncio.run(whole())


def test_a_name_server_that_restarts_is_told_everything_again() -> None:
    async def scenario() -> None:
        group, port = Group(), free_port()
        group.change(topic(1))
        async with group.registered(f"127.0.0.1:{port}"):
            async with name_server(port) as first:
                await until(lambda: topics_at(first) == ["t1"], "registered")
                group.change(topic(2))
                await until(lambda: topics_at(first) == ["t1", "t2"], "the change")
            group.change(topic(3))
            group.host.become(Role.FOLLOWER, OTHER)
            async with name_server(port) as second:
                await until(lambda: topics_at(second) == ["t1", "t2", "t3"], "all again")
                group.host.become(Role.LEADER, ME)
                await until(lambda: leader_at(second) == ME, "the leader")

    run(scenario)


def test_both_addresses_are_told() -> None:
    async def scenario() -> None:
        group, port = Group(), free_port()
        async with name_server(port) as server, group.registered(f"127.0.0.1:{port}"):
            await until(lambda: bool(server.registry.all_at_once((), 0.0).groups), "registered")
            (route,) = server.registry.all_at_once((), 0.0).groups
            (member,) = route.members
            assert (member.address, member.peer_address) == ("published-1:1", "n1:1")

    run(scenario)


def test_clients_are_told_where_members_are_published() -> None:
    async def scenario() -> None:
        group = Group()
        group.host.become(Role.FOLLOWER, OTHER)
        members = group_route(group.view).members
        assert {(each.member, each.address, each.peer_address) for each in members} == {
            (ME, "published-1:1", "n1:1"),
            (OTHER, "published-2:1", "n2:1"),
        }
        assert group.view.not_leader().hint == "published-2:1"

    run(scenario)


def test_one_of_two_name_servers_may_be_away_or_hang() -> None:
    """Each has a stream of its own; what one does not read holds up nobody."""

    async def scenario() -> None:
        group, (good, away, hanging) = Group(), free_ports(3)
        taken = asyncio.Event()

        async def never_read(_stream: object, _context: RawContext) -> None:
            taken.set()
            await asyncio.Event().wait()

        server = await serving(hanging, never_read)
        addresses = [f"127.0.0.1:{port}" for port in (hanging, away, good)]
        async with name_server(good) as alive, group.registered(*addresses):
            await taken.wait()
            for number in range(1, 50):
                group.change(topic(number))
                await until(partial(has, alive, number), "each change")
            group.host.become(Role.LEADER, ME)
            await until(lambda: leader_at(alive) == ME, "the leader")
            async with name_server(away) as late:
                await until(lambda: len(topics_at(late)) == 49, "the one that came up")
        await server.stop(None)

    run(scenario)


def test_a_garbled_answer_or_a_bug_does_not_end_the_registration() -> None:
    async def scenario() -> None:
        group, port = Group(), free_port()
        streams = 0

        async def garble(stream: AsyncIterator[bytes], context: RawContext) -> None:
            nonlocal streams
            streams += 1
            async for _ in stream:
                await context.write(b"\xff\xff\xff")

        server = await serving(port, garble)
        async with group.registered(f"127.0.0.1:{port}"):
            await until(lambda: streams >= 3, "it tries again")
            await server.stop(None)
            asked = group.machine.queries.break_topics()
            async with name_server(port) as real:
                await until(lambda: len(asked) >= 2, "the bug strikes, twice")
                group.machine.queries.is_broken = False
                group.change(topic(1))
                await until(lambda: topics_at(real) == ["t1"], "registered")

    run(scenario)


def test_a_refusal_is_told_in_full_and_once(capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        group, port = Group(), free_port()
        refusals = 0
        reason = "address: 'x', must be y"

        async def refuse(_stream: object, context: RawContext) -> None:
            nonlocal refusals
            refusals += 1
            await abort(context, DledgerError(Code.INVALID_ARGUMENT, reason))

        server = await serving(port, refuse)
        async with group.registered(f"127.0.0.1:{port}"):
            await until(lambda: refusals >= 5, "it tries again")
            reason = "this name server serves cluster 'd'"
            seen = refusals
            await until(lambda: refusals >= seen + 3, "another reason")
        await server.stop(None)

    run(scenario)
    shown = capfd.readouterr()
    told = [line for line in (shown.out + shown.err).splitlines() if "cannot register" in line]
    assert len(told) == 2, told
    assert "warning" in told[0]
    assert "address: 'x', must be y" in told[0]
    assert "this name server serves cluster 'd'" in told[1]


def test_a_name_server_of_another_authority_is_named(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Registration and routes say once why nothing comes, and go on once the files are new."""
    ours, others = Authority.make("c"), Authority.make("c")
    server_wanted = Wanted("namesrv", [name_server_name("c")], ["127.0.0.1"])
    wanted = Wanted("n1", [member_name("c", "g", ME)], ["127.0.0.1"])
    server_folder = str(ours.issue(tmp_path / "ours", server_wanted))
    own = others.issue(tmp_path / "others", wanted)
    tls = TlsFolder(str(own))

    async def scenario() -> None:
        group, port = Group(), free_port()
        address = f"127.0.0.1:{port}"
        channels, view = Channels(tls), ClusterView("c", {})
        async with name_server(port, server_folder) as server, group.registered(address, tls=tls):
            view.start((address,), channels)
            log = Captured(capfd)
            await until(
                lambda: log.has("cannot register", "another authority"),
                "it is told",
            )
            await until(
                lambda: log.has("no routes of", "another authority"),
                "of routes too",
            )
            for each in ours.issue(tmp_path / "new", wanted).iterdir():
                shutil.copy(each, own)
            await until(lambda: bool(server.registry.all_at_once((), 0.0).groups), "registered")
        await view.stop()
        await channels.close()

    run(scenario)


class Captured:
    """What a test has printed so far."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd, self._text = capfd, ""

    def has(self, *parts: str) -> bool:
        shown = self._capfd.readouterr()
        self._text += shown.out + shown.err
        return any(all(part in line for part in parts) for line in self._text.splitlines())


def test_an_older_decision_behind_a_newer_one_is_told_too() -> None:
    """A group may take over topic 1 (control index 1) after topic 2: both must be pushed."""

    async def scenario() -> None:
        group, port = Group(), free_port()
        routes = RouteWatch({"g": group.view}, admission().route_watchers, open_gate(ManualClock()))
        group.told.append(routes.changed)
        pushed = routes._follow(frozenset(), EVERYBODY)  # pyright: ignore[reportPrivateUsage]
        assert (await anext(pushed)).full
        async with name_server(port) as server, group.registered(f"127.0.0.1:{port}"):
            await until(lambda: bool(server.registry.snapshot()[0].groups), "registered")
            for number in (2, 1):
                group.change(topic(number))
                reply = await anext(pushed)
                assert [each.name for each in reply.topics] == [f"t{number}"]
                await until(partial(has, server, 3 - number), "told")

    run(scenario)


def test_changes_since_a_version() -> None:
    group = Group()
    start = group.watch.version
    group.change(topic(2), topic(1))
    middle = group.watch.version
    group.change(replace(topic(1), read_queues=9))
    assert [each.name for each in group.watch.changed_since(start)] == ["t2", "t1"]
    assert [each.read_queues for each in group.watch.changed_since(middle)] == [9]
    assert group.watch.changed_since(group.watch.version) == []
    assert len(group.watch.changed_since(-1)) == 2


def test_who_is_too_far_behind_is_told_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_watch, "CHANGES_MAX", 2)
    group = Group()
    start = group.watch.version
    group.change(*(topic(number) for number in range(1, 4)))
    assert len(group.watch.changed_since(start)) == 3
    assert [each.name for each in group.watch.changed_since(start + 1)] == ["t2", "t3"]


def test_a_task_that_fails_is_told_once_and_begins_again(capfd: pytest.CaptureFixture[str]) -> None:
    async def scenario() -> None:
        runs = 0

        async def work() -> None:
            nonlocal runs
            runs += 1
            if runs < 5:
                raise ZeroDivisionError("always the same")

        await keep_running(work, "some work")
        assert runs == 5

    run(scenario)
    shown = capfd.readouterr()
    assert (shown.out + shown.err).count("restarting it") == 1
