"""What this machine gives at best, measured in the same run as our own figures.

- three plain writers that share the disk, fdatasync after each write;
- a bare gRPC echo: unary calls, single messages on a stream, chunks on a stream;
- one fdatasync.

Every function returns a rate or a time and touches only the folder it is given or loopback.
"""

import asyncio
import multiprocessing
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
import grpc.aio
import uvloop

METHOD_UNARY = "/floor.Echo/Unary"
METHOD_STREAM = "/floor.Echo/Stream"
METHOD_CHUNKS = "/floor.Echo/Chunks"
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]

RawStream = grpc.aio.StreamStreamMultiCallable[bytes, bytes]


def _write_until(folder: str, seconds: float, size: int, result: Connection) -> None:
    data = os.urandom(size)
    path = os.path.join(folder, f"writer-{os.getpid()}")
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 2 << 30)
    position = 0
    end = time.perf_counter() + seconds
    start = time.perf_counter()
    while time.perf_counter() < end:
        os.pwrite(fd, data, position)
        os.fdatasync(fd)
        position = (position + size) % (2 << 30)
        if position == 0:
            start = time.perf_counter()  # overwriting is cheaper than what we compare with
    rate = position / (time.perf_counter() - start)
    os.close(fd)
    os.unlink(path)
    result.send(rate)


def three_writers(folder: Path, seconds: float = 3.0, size: int = 256 << 10) -> float:
    """Return the bytes per second of each of three processes that write and fdatasync."""
    pipes: list[Connection] = []
    writers: list[multiprocessing.Process] = []
    for _ in range(3):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        writer = multiprocessing.Process(
            target=_write_until, args=(str(folder), seconds, size, sender)
        )
        writer.start()
        writers.append(writer)
        pipes.append(receiver)
    rates = [float(pipe.recv()) for pipe in pipes]
    for writer in writers:
        writer.join()
    return statistics.mean(rates)


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


def _serve(ready: Connection) -> None:
    async def unary(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:  # noqa: ARG001
        return b"12345678"

    async def stream(
        requests: AsyncIterator[bytes],
        context: grpc.aio.ServicerContext[bytes, bytes],  # noqa: ARG001
    ) -> AsyncIterator[bytes]:
        async for _ in requests:
            yield b"12345678"

    async def chunks(
        request: bytes,
        context: grpc.aio.ServicerContext[bytes, bytes],  # noqa: ARG001
    ) -> AsyncIterator[bytes]:
        count, size = (int(word) for word in request.split())
        chunk = os.urandom(size)
        for _ in range(count):
            yield chunk

    async def main() -> None:
        server = grpc.aio.server(options=OPTIONS)
        handlers = {
            "Unary": grpc.unary_unary_rpc_method_handler(unary),
            "Stream": grpc.stream_stream_rpc_method_handler(stream),
            "Chunks": grpc.unary_stream_rpc_method_handler(chunks),
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("floor.Echo", handlers),)
        )
        ready.send(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        await server.wait_for_termination()

    uvloop.run(main())


def with_echo(measure: Callable[[grpc.aio.Channel], Awaitable[float]]) -> float:
    """Run `measure` against a bare echo server in a process of its own."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    server = multiprocessing.Process(target=_serve, args=(sender,), daemon=True)
    server.start()
    port: int = receiver.recv()

    async def run() -> float:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=OPTIONS) as channel:
            await channel.channel_ready()
            return await measure(channel)

    try:
        return uvloop.run(run())
    finally:
        server.terminate()
        server.join()


async def echo_round_trip(channel: grpc.aio.Channel, size: int = 1100, count: int = 2000) -> float:
    """Return the median seconds of one message to and fro on a stream."""
    call = channel.stream_stream(METHOD_STREAM)()
    message = os.urandom(size)
    times: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        await call.write(message)
        await call.read()
        times.append(time.perf_counter() - start)
    call.cancel()
    return statistics.median(times)


async def echo_stream_rate(
    channel: grpc.aio.Channel, size: int = 1100, window: int = 256, seconds: float = 3.0
) -> float:
    """Return messages per second of single messages on one stream, `window` of them in flight."""
    call = channel.stream_stream(METHOD_STREAM)()
    message = os.urandom(size)
    permits = asyncio.Semaphore(window)
    answered = 0
    end = time.perf_counter() + seconds

    async def read() -> None:
        nonlocal answered
        while await call.read() is not grpc.aio.EOF:
            answered += 1
            permits.release()

    reader = asyncio.create_task(read())
    start = time.perf_counter()
    while time.perf_counter() < end:
        await permits.acquire()
        await call.write(message)
    await call.done_writing()
    await reader
    return answered / (time.perf_counter() - start)


async def echo_unary_rate(
    channel: grpc.aio.Channel, size: int = 1100, callers: int = 64, seconds: float = 3.0
) -> float:
    """Return unary calls per second of `callers` concurrent callers."""
    call = channel.unary_unary(METHOD_UNARY)
    message = os.urandom(size)
    done = 0
    end = time.perf_counter() + seconds

    async def one() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await call(message)
            done += 1

    start = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(callers)))
    return done / (time.perf_counter() - start)


async def chunk_rate(channel: grpc.aio.Channel, size: int = 1 << 20, total: int = 1 << 30) -> float:
    """Return bytes per second of a server stream of chunks of `size` bytes."""
    call = channel.unary_stream(METHOD_CHUNKS)(f"{total // size} {size}".encode())
    got = 0
    start = time.perf_counter()
    while (chunk := await call.read()) is not grpc.aio.EOF:
        got += len(chunk)
    return got / (time.perf_counter() - start)
