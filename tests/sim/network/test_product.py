"""The product's own name server and clients on the network in memory."""

from concurrent.futures import Executor
from random import Random
from typing import cast

import pytest

from dledger.log.commit_log import CommitLog
from dledger.raft.links.greeting import LinkIdentity
from dledger.raft.links.peer_link import LinkSettings, PeerLink
from dledger.raft.links.peer_listener import LinkTarget, PeerListener
from dledger.raft.wire.messages import Message, TermNotice
from dledger.types import MemberId
from dledger_client._shell.wire import Channels, Method
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError
from dledger_namesrv.service import NameServer, NameServerSettings
from dledger_proto.rpc.aio import open_channel
from dledger_proto.rpc.raw import raw_stream
from dledger_proto.v1.routes_pb2 import Registration, RoutesReply, RoutesRequest
from tests.list_trace import ListTrace
from tests.sim.network.calls.patching import simulated_grpc
from tests.sim.network.machines import Machines
from tests.sim.process.loop import ProcessLoop

A, B = MemberId("a"), MemberId("b")
GET = Method("Routes", RoutesRequest, RoutesReply, write=False, name="Get")


def test_name_server_answers_a_client() -> None:
    """A client on another machine calls the name server; after its death, the call is refused."""
    machines = Machines()
    home, away = machines.start("ns"), machines.start("c1")
    registration = Registration(
        cluster="c", group="g", member="a", address="a:1", peer_address="a:2", sequence=1,
        full=True, term=1, leader="a", configured_members=["a"],
    )  # fmt: skip
    ready: list[tuple[str, bool]] = []

    async def ask() -> list[str]:
        stream = raw_stream(open_channel("ns:9876"), "/dledger.v1.Registry/Register")()
        await stream.write(registration.SerializeToString())
        assert isinstance(await stream.read(), bytes)
        channels = Channels(ConnectionConfig(), lambda *each: ready.append(each))
        channels.keep_warm(["ns:9876"])
        await channels.connected("ns:9876")
        reply = await channels.call("ns:9876", GET, RoutesRequest(), group="", timeout=5.0)
        stream.cancel()
        await channels.close()
        return [group.group for group in reply.groups]

    async def ask_the_dead() -> None:
        channels = Channels(ConnectionConfig())
        await channels.call("ns:9876", GET, RoutesRequest(), group="", timeout=5.0)

    with simulated_grpc():
        server = machines.spawn(home, NameServer(NameServerSettings()).start)
        machines.run(1.0)
        server[0].result()
        asked = machines.spawn(away, ask)
        machines.run(5.0)
        assert asked[0].result() == ["g"]
        assert ready == [("ns:9876", True)]
        machines.end(home)
        refused = machines.spawn(away, ask_the_dead)
        machines.run(5.0)
        with pytest.raises(ClientError, match="Connection refused"):
            refused[0].result()
    assert machines.errors == []
    machines.end(away)
    home.discard()
    away.discard()


def test_name_server_stops() -> None:
    """A watcher learns of the stop within the grace."""
    machines = Machines()
    home, away = machines.start("ns"), machines.start("c1")
    name_server = NameServer(NameServerSettings())

    async def watch() -> None:
        stream = raw_stream(open_channel("ns:9876"), "/dledger.v1.Routes/Watch")()
        await stream.write(RoutesRequest().SerializeToString())
        await stream.done_writing()
        async for _ in stream:
            pass

    with simulated_grpc():
        machines.spawn(home, name_server.start)
        machines.run(1.0)
        watching = machines.spawn(away, watch)
        machines.run(1.0)
        assert not watching[0].done()
        stopping = machines.spawn(home, name_server.stop)
        machines.run(0.5)
        stopping[0].result()
        assert watching[0].exception().details() == "Cancelling all calls"
    machines.end(home)
    machines.end(away)
    assert machines.errors == []


class LinkLog:
    """Keeps what a peer link told, each with its time."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self.seen: list[tuple[str, float]] = []
        self.terms: list[int] = []

    def _note(self, what: str) -> None:
        self.seen.append((what, self._machines.scheduler.now))

    def link_up(self, peer: MemberId) -> None:
        self._note("up")

    def link_down(self, peer: MemberId) -> None:
        self._note("down")

    def dial_failed(self, peer: MemberId) -> None:
        self._note("failed")

    def received(self, peer: MemberId, message: Message) -> None:
        assert isinstance(message, TermNotice)
        self.terms.append(message.term)

    def failed(self, error: BaseException) -> None:
        raise AssertionError("a link read its log") from error


def linked(machines: Machines, *, end: str) -> tuple[LinkLog, LinkLog, ProcessLoop]:
    """Link a to b, send 20 notices, then let b end: "kill" or "pause"."""
    home, away = machines.start("b"), machines.start("a")
    events, heard = LinkLog(machines), LinkLog(machines)
    link = PeerLink(
        LinkIdentity("c", "g", A, bytes(16)), B, "b:5", events, cast("CommitLog", None),
        cast("Executor", None), Random(1), ListTrace(), LinkSettings(),
    )  # fmt: skip

    async def listen() -> PeerListener:
        listener = PeerListener("c", ListTrace())
        listener.add_group("g", LinkTarget(B, frozenset({A}), heard, {}))
        await listener.listen("0.0.0.0:5")
        return listener

    def send() -> None:
        for term in range(1, 21):
            link.send(TermNotice(term, session=1, sequence=term))

    machines.spawn(home, listen)
    machines.run(0.1)
    away.run_now(link.start)
    machines.run(0.5)
    away.run_now(send)
    machines.run(0.5)
    if end == "kill":
        machines.end(home)
    else:
        home.pause()
        machines.network.break_connections("a", "b")
    return events, heard, away


def test_peer_link_to_a_killed_member() -> None:
    """The link is down at once, and so is the news that the redial was refused (D17)."""
    machines = Machines()
    with simulated_grpc():
        events, heard, _ = linked(machines, end="kill")
        killed = machines.scheduler.now
        machines.run(0.1)
    assert heard.terms == list(range(1, 21))
    assert [what for what, _ in events.seen] == ["up", "down", "failed"]
    assert events.seen[-1][1] - killed < 0.02


def test_peer_link_to_a_member_that_stands_still() -> None:
    """The redial is given up after its own short time, and back-off goes on without news."""
    machines = Machines()
    with simulated_grpc():
        events, _, away = linked(machines, end="pause")
        broken = machines.scheduler.now
        machines.run(5.0)
        assert [what for what, _ in events.seen] == ["up", "down", "failed"]
        assert 0.05 < events.seen[-1][1] - broken < 0.07
        machines.end(away)
    assert machines.errors == []
