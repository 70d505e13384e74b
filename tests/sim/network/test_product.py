"""The product's own name server and clients on the network in memory."""

import pytest

from dledger_client._shell.wire import Channels, Method
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError
from dledger_namesrv.service import NameServer, NameServerSettings
from dledger_proto.rpc.aio import open_channel
from dledger_proto.rpc.raw import raw_stream
from dledger_proto.v1.routes_pb2 import Registration, RoutesReply, RoutesRequest
from tests.sim.network.calls.patching import simulated_grpc
from tests.sim.network.machines import Machines

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
        server = machines.spawn(home, NameServer(NameServerSettings("0.0.0.0:9876")).start)
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
    name_server = NameServer(NameServerSettings("0.0.0.0:9876"))

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
