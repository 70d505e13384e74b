"""What calls do whose login ended under them: those of clients, and of commands that watch."""

import asyncio
from pathlib import Path
from tempfile import NamedTemporaryFile

import grpc.aio
import pytest

from dledger_broker.cli.connect import FILE_VARIABLE, USER_VARIABLE, Cluster
from dledger_broker.security.logins import Logins
from dledger_client._shell.wire import Channels, Method
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc import raw, status
from dledger_proto.v1 import login_pb2 as pb
from dledger_proto.v1 import routes_pb2
from tests.unit.broker.fakes import ManualClock
from tests.unit.security.users import user_of

ROUTES = Method("Routes", routes_pb2.RoutesRequest, routes_pb2.RoutesReply, write=False, name="Get")


class Server:
    """Takes a call with a token of its own; `restart` forgets them all, as a member does."""

    def __init__(self) -> None:
        self.logins_made = 0
        self.refused = 0
        self.restart()

    def restart(self) -> None:
        self.logins = Logins({"alice": user_of("alice")}.get, ManualClock())

    async def begin(self, data: bytes, context: raw.RawContext) -> bytes:
        first = pb.BeginLoginRequest.FromString(data).client_first
        return pb.BeginLoginReply(
            server_first=self.logins.begin(first, context.peer())
        ).SerializeToString()

    async def finish(self, data: bytes, context: raw.RawContext) -> bytes:
        self.logins_made += 1
        final = pb.FinishLoginRequest.FromString(data).client_final
        server_final, token, _ = self.logins.finish(final, context.peer())
        return pb.FinishLoginReply(
            server_final=server_final, token=token, lifetime_ms=3_600_000
        ).SerializeToString()

    async def call(self, _data: bytes, context: raw.RawContext) -> bytes:
        metadata = {str(key): str(value) for key, value in context.invocation_metadata() or ()}
        try:
            self.logins.user_of(metadata.get("dledger-login", ""), context.peer())
        except DledgerError as error:
            self.refused += 1
            await status.abort(context, error)
        return b""

    async def start(self) -> tuple["grpc.aio.Server", str]:
        server = grpc.aio.server()  # pyright: ignore[reportUnknownMemberType]
        login = {"Begin": raw.UnaryMethod(self.begin), "Finish": raw.UnaryMethod(self.finish)}
        routes = {"Get": raw.UnaryMethod(self.call)}
        handlers = (
            raw.raw_handlers("dledger.v1.Login", login),
            raw.raw_handlers("dledger.v1.Routes", routes),
        )
        server.add_generic_rpc_handlers(handlers)  # pyright: ignore[reportUnknownMemberType]
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        return server, address


async def code_of(channels: Channels, address: str) -> Code:
    """Return how one try of a call ends."""
    try:
        await channels.call(address, ROUTES, routes_pb2.RoutesRequest(), group="", timeout=10)
    except ClientError as error:
        return error.code
    return Code.OK


@pytest.mark.parametrize("count", [1, 8])
def test_calls_whose_login_ended_are_tried_again_all_of_them(count: int) -> None:
    """Also those that come back when one of them has begun to log in again."""

    async def run(secret: Path) -> None:
        world = Server()
        server, address = await world.start()
        channels = Channels(ConnectionConfig(user="alice", secret_file=str(secret)))
        assert await code_of(channels, address) is Code.OK
        world.restart()
        codes = await asyncio.gather(*(code_of(channels, address) for _ in range(count)))
        assert codes == [Code.UNAVAILABLE] * count
        codes = await asyncio.gather(*(code_of(channels, address) for _ in range(count)))
        assert codes == [Code.OK] * count
        assert (world.refused, world.logins_made) == (count, 2)
        await channels.close()
        await server.stop(None)

    with NamedTemporaryFile("w") as file:
        file.write("secret")
        file.flush()
        asyncio.run(run(Path(file.name)))


def test_a_command_that_watches_logs_in_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else `dledger top` would show nothing from a member that was restarted, for an hour."""
    secret = tmp_path / "secret"
    secret.write_text("secret")

    async def run() -> None:
        world = Server()
        server, address = await world.start()

        def look(*, is_known: bool) -> None:
            for name, value in ((USER_VARIABLE, "alice"), (FILE_VARIABLE, str(secret))):
                monkeypatch.setenv(name, value if is_known else "")
            with Cluster(address, 10.0) as cluster:
                for _ in range(2):
                    cluster.routes(refresh=True)
                    world.restart()

        await asyncio.to_thread(look, is_known=True)
        assert (world.refused, world.logins_made) == (1, 2)
        with pytest.raises(DledgerError, match="UNAUTHENTICATED: the login has ended"):
            await asyncio.to_thread(look, is_known=False)
        await server.stop(None)

    asyncio.run(run())


def test_who_has_no_user_is_told_so() -> None:
    async def run() -> None:
        world = Server()
        server, address = await world.start()
        channels = Channels(ConnectionConfig())
        assert await code_of(channels, address) is Code.UNAUTHENTICATED
        await channels.close()
        await server.stop(None)

    asyncio.run(run())
