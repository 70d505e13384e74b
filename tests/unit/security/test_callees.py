"""Calls between members: nothing of them leaves before the certificate has named the callee."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import grpc.aio
import pytest

from dledger.types import MemberId
from dledger_broker.append.router import PendingBatch
from dledger_broker.cluster.channels import Channels
from dledger_broker.cluster.forward import AppendForwarder
from dledger_broker.cluster.view import ClusterView
from dledger_broker.group.group_view import GroupNames
from dledger_broker.security.authority import Authority, Wanted, held
from dledger_proto.network.tls import (
    Callee,
    TlsFolder,
    client_name,
    is_proof_host,
    member_name,
    name_server_name,
    proof_host,
)
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import make_server, take_port
from dledger_proto.v1 import routes_pb2
from tests.unit.broker.fakes import AnswerList, ManualClock, batch
from tests.waiting import until

A, B = MemberId("a"), MemberId("b")
HOST = "127.0.0.1"
WANTED = member_name("c", "g", "b")
STRANGERS = {
    "another member": [member_name("c", "g", "a")],
    "a member of another group": [member_name("c", "g2", "b")],
    "a member of another cluster": [member_name("d", "g", "b")],
    "a client": [client_name("c", "b")],
    "a name server": [name_server_name("c")],
    "nobody of dledger": [],
}


class Server:
    """A server with a certificate that keeps what reaches it."""

    def __init__(self) -> None:
        self.callee = Callee("", "")
        self.calls = 0
        self.got: list[bytes] = []

    async def take(self, requests: AsyncIterator[bytes], _: raw.RawContext) -> AsyncIterator[bytes]:
        self.calls += 1
        yield b""
        async for request in requests:
            self.got.append(request)


@asynccontextmanager
async def serving(made: Path) -> AsyncIterator[Server]:
    told, server = Server(), make_server()
    handlers = raw.raw_handlers("dledger.v1.Broker", {"Append": raw.StreamMethod(told.take)})
    server.add_generic_rpc_handlers((handlers,))  # pyright: ignore[reportUnknownMemberType]
    port = take_port(server, f"{HOST}:0", TlsFolder(str(made)))
    told.callee = Callee(f"{HOST}:{port}", WANTED)
    await server.start()
    try:
        yield told
    finally:
        await server.stop(None)


def folders(root: Path, names: Sequence[str]) -> tuple[Path, TlsFolder]:
    """Return the folder of a server with these names, and that of a member that calls it."""
    authority = Authority.make("c")
    caller = authority.issue(root, Wanted("a", [member_name("c", "g", "a")], [HOST]))
    return authority.issue(root, Wanted("other", names, [HOST])), TlsFolder(str(caller))


@pytest.mark.parametrize("who", STRANGERS)
def test_another_process_of_the_authority_gets_no_bytes(who: str) -> None:
    """It has a certificate for the host, and not the name: batches go back to the router."""
    with TemporaryDirectory() as root:
        gets_no_bytes(*folders(Path(root), STRANGERS[who]))


def gets_no_bytes(made: Path, tls: TlsFolder) -> None:
    async def scenario() -> None:
        back: list[PendingBatch] = []
        channels = Channels(tls)
        async with serving(made) as server:
            forwarder = AppendForwarder("g", channels, ManualClock(), back.extend)
            item = PendingBatch(memoryview(batch(b"secret")), 1, 200.0, AnswerList())
            forwarder.send(server.callee, [item])
            await until(lambda: back == [item], "it was not sent")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await raw.raw_unary(channels.to(server.callee), "/dledger.v1.Admin/Status")(b"")
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert (server.calls, server.got) == (0, [])
            await forwarder.stop()
        await channels.close()

    asyncio.run(scenario())


def test_the_member_itself_is_reached(tmp_path: Path) -> None:
    """By an address that its certificate does not name, too: the name counts alone."""
    names = [member_name("c", "other", "b"), WANTED]
    authority = Authority.make("c")
    made = authority.issue(tmp_path, Wanted("b", names, ["elsewhere.example"]))
    caller = authority.issue(tmp_path, Wanted("a", [member_name("c", "g", "a")], [HOST]))

    async def scenario() -> None:
        channels = Channels(TlsFolder(str(caller)))
        async with serving(made) as server:
            stream = raw.raw_stream(channels.to(server.callee), raw.APPEND)()
            await stream.write(b"x")
            assert await raw.read_frame(stream) == b""
            await until(lambda: server.got == [b"x"], "it came")
            stream.cancel()
        await channels.close()

    asyncio.run(scenario())


def test_a_certificate_proves_each_of_its_names(tmp_path: Path) -> None:
    """By one host name each, for servers alone; people are shown the hosts alone."""
    names = [member_name("c", "a-very-long-name-of-a-group" * 3, "b"), WANTED]
    authority = Authority.make("c")
    said = held(authority.issue(tmp_path, Wanted("b", names, [HOST, "host-1"])))
    assert said.proofs == {proof_host(name) for name in names}
    assert (said.names, sorted(said.hosts)) == (tuple(names), [HOST, "host-1"])
    client = held(authority.issue(tmp_path, Wanted("app", [client_name("c", "app")])))
    assert not client.proofs
    assert len(proof_host(names[0]).partition(".")[0]) <= 63
    for host in ("x" + proof_host(WANTED), proof_host(WANTED).upper(), proof_host(WANTED) + "."):
        assert is_proof_host(host)
    assert not is_proof_host("name.dledger.example")


def test_whom_a_member_calls_has_the_name_of_its_group() -> None:
    """Of its own groups, and of those that name servers tell it of."""
    names = GroupNames("c", "g", A, {A: "a:1", B: "b:1"}, {}, is_control=True)
    assert names.callee(B) == Callee("b:1", WANTED)
    view = ClusterView("c", {"g": {"a": "a:1", "b": "b:1"}})
    route = routes_pb2.GroupRoute(group="g2", leader="y", term=1)
    for member in ("x", "y"):
        route.members.add(member=member, address=f"{member}:1")
    view.merge(routes_pb2.RoutesReply(cluster="c", groups=[route]))
    assert view.members("g2") == [
        Callee("y:1", member_name("c", "g2", "y")), Callee("x:1", member_name("c", "g2", "x"))
    ]  # fmt: skip
    assert view.members("unknown") == []
