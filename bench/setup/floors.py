"""What this machine gives at best, measured in the same run as our own figures.

- three plain writers that share the disk, fdatasync after each write;
- a bare gRPC echo: unary calls, single messages on a stream, chunks on a stream;
- one fdatasync.

Every function returns a rate or a time and touches only the folder it is given or loopback.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio

from bench.setup import echo, writer
from bench.setup.callers import call_rate
from dledger_proto.rpc import raw

WRITE_SIZE = 256 << 10


def three_writers(folder: Path, seconds: float, size: int = WRITE_SIZE) -> float:
    """Return the bytes per second of each of three processes that write and fdatasync."""
    command = [sys.executable, writer.__file__, str(folder), str(seconds), str(size)]
    writers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        time.sleep(0.3)  # until all have reserved their files
        for each in writers:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        return statistics.mean(float(each.communicate()[0]) for each in writers)
    finally:
        for each in writers:
            each.kill()
            each.wait()


def one_fdatasync(folder: Path, size: int = 1024, count: int = 500) -> float:
    """Return the median seconds of a write of `size` bytes and its fdatasync."""
    path = folder / "fdatasync"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, size * count)
    data = os.urandom(size)
    times: list[float] = []
    for number in range(count):
        start = time.perf_counter()
        os.pwrite(fd, data, number * size)
        os.fdatasync(fd)
        times.append(time.perf_counter() - start)
    os.close(fd)
    path.unlink()
    return statistics.median(times)


@asynccontextmanager
async def echo_server() -> AsyncGenerator[grpc.aio.Channel]:
    """Run a bare echo server; yield a channel to it."""
    with echo.serving(echo.__name__) as port:
        async with echo.connected(port) as channel:
            yield channel


async def echo_round_trip(channel: grpc.aio.Channel, size: int = 1200, count: int = 1000) -> float:
    """Return the median seconds of one message to and fro on a stream."""
    call = raw.raw_stream(channel, echo.STREAM)()
    message = os.urandom(size)
    times: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        await call.write(message)
        await raw.read_frame(call)
        times.append(time.perf_counter() - start)
    call.cancel()
    return statistics.median(times)


async def echo_stream_rate(
    channel: grpc.aio.Channel, seconds: float, size: int = 1200, window: int = 256
) -> float:
    """Return messages per second of single messages on one stream, `window` of them in flight."""
    call = raw.raw_stream(channel, echo.STREAM)()
    message = os.urandom(size)
    permits = asyncio.Semaphore(window)
    answered = 0

    async def read() -> None:
        nonlocal answered
        while await raw.read_frame(call) is not None:
            answered += 1
            permits.release()

    reader = asyncio.create_task(read())
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        await permits.acquire()
        await call.write(message)
    await call.done_writing()
    await reader
    return answered / (time.perf_counter() - start)


async def echo_unary_rate(
    channel: grpc.aio.Channel, seconds: float, size: int = 1200, callers: int = 64
) -> float:
    """Return unary calls per second of `callers` concurrent callers."""
    call = raw.raw_unary(channel, echo.UNARY)
    message = os.urandom(size)

    async def once() -> None:
        await call(message)

    return await call_rate([once] * callers, seconds)


async def chunk_rate(channel: grpc.aio.Channel, size: int = 1 << 20, total: int = 1 << 30) -> float:
    """Return bytes per second of a server stream of chunks of `size` bytes."""
    call = raw.raw_read(channel, echo.CHUNKS)(f"{total // size} {size}".encode())
    got = 0
    start = time.perf_counter()
    while (chunk := await raw.read_frame(call)) is not None:
        got += len(chunk)
    return got / (time.perf_counter() - start)
