"""A bare gRPC server in a process of its own: what loopback, HTTP/2 and grpc.aio cost.

`python -m bench.setup.echo` prints its port and serves until its standard input is closed.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager

import grpc.aio
import uvloop

from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import make_server, open_channel

SERVICE = "floor.Echo"
UNARY = f"/{SERVICE}/Unary"
STREAM = f"/{SERVICE}/Stream"
CHUNKS = f"/{SERVICE}/Chunks"
ANSWER = b"12345678"


async def _unary(_request: bytes, _context: raw.RawContext) -> bytes:
    return ANSWER


async def _stream(requests: AsyncIterator[bytes], _context: raw.RawContext) -> AsyncIterator[bytes]:
    async for _ in requests:
        yield ANSWER


async def _chunks(request: bytes, _context: raw.RawContext) -> AsyncIterator[bytes]:
    count, size = (int(word) for word in request.split())
    chunk = os.urandom(size)
    for _ in range(count):
        yield chunk


async def serve(methods: Mapping[str, raw.RawMethod]) -> None:
    """Serve on a free port, which it prints, until standard input ends."""
    server = make_server(options=raw.MESSAGE_SIZE_OPTIONS)
    server.add_generic_rpc_handlers((raw.raw_handlers(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    await server.stop(None)


@contextmanager
def serving(module: str, *arguments: str) -> Generator[str]:
    """Run a module that calls `serve` in a process of its own; yield its port."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield str(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def connected(port: str) -> AsyncGenerator[grpc.aio.Channel]:
    """Yield a channel to such a process that is ready."""
    async with open_channel(f"127.0.0.1:{port}", options=raw.MESSAGE_SIZE_OPTIONS) as channel:
        await channel.channel_ready()
        yield channel


if __name__ == "__main__":
    uvloop.run(
        serve(
            {
                "Unary": raw.UnaryMethod(_unary),
                "Stream": raw.StreamMethod(_stream),
                "Chunks": raw.ReadMethod(_chunks),
            }
        )
    )
