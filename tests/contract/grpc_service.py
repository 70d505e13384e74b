"""What the comparison of gRPC with gRPC in memory runs on: a service, a channel to it, handlers.

Every case runs twice: over loopback on grpc.aio itself, and on the simulation's network in virtual
time. The cases say only what the product relies on. Where both differ, gRPC is right.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest

from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import make_server, open_channel
from tests.sim.network.calls.patching import simulated_grpc
from tests.sim.network.network import Network
from tests.sim.process.loop import ProcessLoop
from tests.sim.world.clock import Scheduler

SERVICE = "test.Service"
CHANNEL = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
)
SERVER = (("grpc.so_reuseport", 0),)
VIRTUAL_SECONDS = 120.0
IGNORED = (asyncio.CancelledError, grpc.aio.AioRpcError)
EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
State = grpc.ChannelConnectivity
Status = grpc.StatusCode
Case = Callable[[], Awaitable[None]]
Run = Callable[[Case], None]


def run_real(case: Case) -> None:
    """Run a case on grpc.aio."""

    async def run() -> None:
        await case()

    asyncio.run(run())


def run_in_memory(case: Case) -> None:
    """Run a case on one simulated process, which is client and server."""
    scheduler = Scheduler()
    loop = ProcessLoop(  # type: ignore[abstract]  # simulated processes have no sockets
        scheduler, Random(1), "a", lambda: scheduler.now, lambda *_: None
    )
    network = Network(scheduler, Random(2), (0.0001, 0.001), lambda _: None)
    loop.network = network
    network.process_started("a", loop)
    tasks: list[asyncio.Task[None]] = []

    async def run() -> None:
        await case()

    with simulated_grpc():
        loop.run_now(lambda: tasks.append(loop.create_task(run())))
        scheduler.run_until(VIRTUAL_SECONDS, lambda: None)
    loop.end()
    network.process_ended("a", silent=False)
    assert tasks[0].done(), "the case hangs"
    tasks[0].result()
    loop.discard()


class Service:
    """A server with these methods, and a channel to it."""

    def __init__(self, **methods: raw.RawMethod) -> None:
        self.methods = methods
        self.port = 0
        self.server: Any = None
        self.channel: Any = None

    async def __aenter__(self) -> "Service":
        await self.serve()
        self.channel = self.dial()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close(None)
        await self.server.stop(None)

    async def serve(self) -> None:
        """Listen, at the port of before if there was one."""
        self.server = make_server(SERVER)
        self.server.add_generic_rpc_handlers((raw.raw_handlers(SERVICE, self.methods),))
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self.server.start()

    def dial(self) -> grpc.aio.Channel:
        return open_channel(f"127.0.0.1:{self.port}", CHANNEL)

    def unary(self, method: str, message: bytes = b"", **options: Any) -> Any:
        return raw.raw_unary(self.channel, f"/{SERVICE}/{method}")(message, **options)

    def read(self, method: str, message: bytes = b"", **options: Any) -> Any:
        return raw.raw_read(self.channel, f"/{SERVICE}/{method}")(message, **options)

    def stream(self, method: str, **options: Any) -> Any:
        return raw.raw_stream(self.channel, f"/{SERVICE}/{method}")(**options)


class Recorder:
    """A handler that greets, then reads until the end, and notes how it ended."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.began = False
        self.ended = ""

    async def handle(self, _requests: object, context: raw.RawContext) -> None:
        receive: Any = context.read
        self.began = True
        try:
            await context.send_initial_metadata((("greeting", "hello"),))
            while isinstance(message := await receive(), bytes):
                self.got.append(message)
            await asyncio.Event().wait()
        except BaseException as error:
            self.ended = type(error).__name__
            raise


async def echo(message: bytes, _context: raw.RawContext) -> bytes:
    return message


async def echo_all(
    messages: AsyncIterator[bytes], _context: raw.RawContext
) -> AsyncIterator[bytes]:
    async for message in messages:
        yield message


async def three_then_abort(_request: bytes, context: raw.RawContext) -> None:
    for number in range(3):
        await context.write(b"%d" % number)
    await context.abort(Status.NOT_FOUND, "gone", (("key", "value"),))


async def fail(_request: bytes, _context: raw.RawContext) -> bytes:
    raise ValueError("no")


async def return_at_once(_requests: object, _context: raw.RawContext) -> None:
    return


async def write_on(call: Any) -> None:
    """Write large messages until the call ends."""
    while True:
        await call.write(bytes(1 << 20))


async def error_of(awaitable: Awaitable[object]) -> grpc.aio.AioRpcError:
    """Return how a call failed."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return caught.value
