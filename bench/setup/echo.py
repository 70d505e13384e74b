"""A bare gRPC server in a process of its own: what loopback, HTTP/2 and grpc.aio cost.

`python -m bench.setup.echo` prints its port and serves until its standard input is closed.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import uvloop

from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import make_server

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


async def serve() -> None:
    """Serve on a free port until standard input ends."""
    server = make_server(options=raw.MESSAGE_SIZE_OPTIONS)
    methods: dict[str, raw.RawMethod] = {
        "Unary": raw.UnaryMethod(_unary),
        "Stream": raw.StreamMethod(_stream),
        "Chunks": raw.ReadMethod(_chunks),
    }
    server.add_generic_rpc_handlers((raw.raw_handlers(SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    await server.stop(None)


if __name__ == "__main__":
    uvloop.run(serve())
