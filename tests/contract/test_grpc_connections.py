"""gRPC in memory behaves as gRPC does: channels, servers that stop, flow control, limits."""

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import make_server
from tests.contract.grpc_service import (
    EOF,
    SERVER,
    Recorder,
    Run,
    Service,
    State,
    Status,
    echo,
    echo_all,
    error_of,
    write_on,
)
from tests.waiting import until


def test_closed_channel(run: Run) -> None:
    """Closing cancels the calls; nothing can be started or waited for any more."""
    recorder = Recorder()

    async def case() -> None:
        async with Service(hear=raw.StreamMethod(recorder.handle)) as service:
            call = service.stream("hear")
            await call.initial_metadata()
            reader = asyncio.ensure_future(call.read())
            await asyncio.wait({reader}, timeout=0.01)
            await service.channel.close(None)
            with pytest.raises(asyncio.CancelledError):
                await reader
            assert call.cancelled()
            assert service.channel.get_state() is State.SHUTDOWN
            with pytest.raises(grpc.aio.UsageError):
                service.stream("hear")
            with pytest.raises(grpc.aio.UsageError):
                await service.channel.wait_for_state_change(State.SHUTDOWN)
            with pytest.raises(grpc.aio.UsageError):
                await service.channel.channel_ready()
            await until(lambda: recorder.ended != "", "the handler's end")

    run(case)


def test_idle_channel_closes(run: Run) -> None:
    """Whoever waits for another state learns of the end."""

    async def case() -> None:
        async with Service() as service:
            other = service.dial()
            watcher = asyncio.ensure_future(other.wait_for_state_change(State.IDLE))
            await asyncio.wait({watcher}, timeout=0.01)
            await other.close(None)
            await watcher
            assert other.get_state() is State.SHUTDOWN

    run(case)


def test_server_gone(run: Run) -> None:
    """A dial is refused; calls that wait for a connection wait; the channel tries by itself."""

    async def case() -> None:
        async with Service(echo=raw.UnaryMethod(echo)) as service:
            await service.server.stop(None)
            error = await error_of(service.unary("echo"))
            assert error.code() is Status.UNAVAILABLE
            assert service.channel.get_state() is State.TRANSIENT_FAILURE
            waiting = asyncio.ensure_future(service.unary("echo", b"1", wait_for_ready=True))
            short = service.unary("echo", b"1", wait_for_ready=True, timeout=0.1)
            assert (await error_of(short)).code() is Status.DEADLINE_EXCEEDED
            assert not waiting.done()
            await service.serve()
            assert await waiting == b"1"
            assert service.channel.get_state() is State.READY

    run(case)


def test_states(run: Run) -> None:
    """A channel is idle until somebody needs it, and after its connection broke."""

    async def case() -> None:
        async with Service(echo=raw.UnaryMethod(echo)) as service:
            channel = service.channel
            assert channel.get_state() is State.IDLE
            watcher = asyncio.ensure_future(channel.wait_for_state_change(State.IDLE))
            assert channel.get_state(try_to_connect=True) in (State.IDLE, State.CONNECTING)
            await watcher
            await channel.channel_ready()
            assert channel.get_state() is State.READY
            await service.server.stop(None)
            await channel.wait_for_state_change(State.READY)
            assert channel.get_state() is State.IDLE
            assert (await error_of(service.unary("echo"))).code() is Status.UNAVAILABLE
            assert channel.get_state() is State.TRANSIENT_FAILURE
            await service.serve()
            await channel.channel_ready()

    run(case)


def test_stop_ends_streams(run: Run) -> None:
    """In the grace streams go on and new calls are refused; then the rest is cancelled."""
    recorder = Recorder()

    async def case() -> None:
        async with Service(
            hear=raw.StreamMethod(recorder.handle), echo=raw.UnaryMethod(echo)
        ) as service:
            call = service.stream("hear")
            await call.initial_metadata()
            stop = asyncio.ensure_future(service.server.stop(0.3))
            await service.channel.wait_for_state_change(State.READY)
            await call.write(b"late")
            await until(lambda: recorder.got == [b"late"], "the message")
            assert (await error_of(service.unary("echo"))).code() is Status.UNAVAILABLE
            assert not call.done()
            error = await error_of(call.read())
            assert error.code() is Status.UNAVAILABLE
            await until(lambda: recorder.ended == "CancelledError", "the handler's end")
            await stop
            await service.server.stop(None)

    run(case)


def test_stop_waits_for_calls(run: Run) -> None:
    """A stop is over as soon as the last call has ended."""
    go = asyncio.Event()

    async def wait(message: bytes, _context: raw.RawContext) -> bytes:
        await go.wait()
        return message

    async def case() -> None:
        async with Service(wait=raw.UnaryMethod(wait)) as service:
            await service.channel.channel_ready()
            call = asyncio.ensure_future(service.unary("wait", b"1"))
            await asyncio.wait({call}, timeout=0.05)
            stop = asyncio.ensure_future(service.server.stop(1_000.0))
            await asyncio.wait({stop}, timeout=0.05)
            assert not stop.done()
            go.set()
            assert await call == b"1"
            await stop

    run(case)


def test_port_taken(run: Run) -> None:
    async def case() -> None:
        async with Service() as service:
            other = make_server(SERVER)
            with pytest.raises(RuntimeError):
                other.add_insecure_port(f"127.0.0.1:{service.port}")

    run(case)


def test_oversized_messages(run: Run) -> None:
    """A message over the limit ends the call, whoever sent it; the limit is the receiver's."""
    large = bytes(5 << 20)

    async def answer_large(_message: bytes, _context: raw.RawContext) -> bytes:
        return large

    async def stream_large(_message: bytes, context: raw.RawContext) -> None:
        await context.write(b"small")
        await context.write(large)

    async def case() -> None:
        async with Service(
            echo=raw.UnaryMethod(echo),
            all=raw.StreamMethod(echo_all),
            large=raw.UnaryMethod(answer_large),
            stream=raw.ReadMethod(stream_large),
        ) as service:
            error = await error_of(service.unary("echo", large))
            assert error.code() is Status.RESOURCE_EXHAUSTED
            assert "SERVER: Received message larger than max (5242880 vs. 4194304)" in str(error)
            error = await error_of(service.unary("large"))
            assert error.code() is Status.RESOURCE_EXHAUSTED
            assert "CLIENT: Received message larger than max (5242880 vs. 4194304)" in str(error)
            call = service.read("stream")
            assert await call.read() == b"small"
            assert (await error_of(call.read())).code() is Status.RESOURCE_EXHAUSTED
            stream = service.stream("all")
            await stream.write(large)
            assert (await error_of(stream.read())).code() is Status.RESOURCE_EXHAUSTED

    run(case)


def test_client_does_not_read(run: Run) -> None:
    """The server's writer stops; it goes on as the client reads."""
    written: list[int] = []

    async def flood(_request: bytes, context: raw.RawContext) -> None:
        for number in range(64):
            await context.write(bytes(1 << 20))
            written.append(number)

    async def case() -> None:
        async with Service(flood=raw.ReadMethod(flood)) as service:
            call = service.read("flood")
            assert len(await call.read()) == 1 << 20
            await asyncio.wait({asyncio.ensure_future(call.code())}, timeout=0.2)
            stopped = len(written)
            assert stopped < 32
            for _ in range(63):
                assert len(await call.read()) == 1 << 20
            assert await call.read() is EOF
            assert len(written) == 64

    run(case)


def test_server_does_not_read(run: Run) -> None:
    """The client's writer stops; a write that is given up cancels the call."""
    go = asyncio.Event()
    got: list[int] = []

    async def slow(_requests: object, context: raw.RawContext) -> None:
        receive: Any = context.read
        await context.send_initial_metadata(())
        await go.wait()
        while isinstance(message := await receive(), bytes):
            got.append(len(message))

    async def case() -> None:
        async with Service(slow=raw.StreamMethod(slow)) as service:
            call = service.stream("slow")

            async def write() -> None:
                for _ in range(64):
                    await call.write(bytes(1 << 20))
                await call.done_writing()

            writer = asyncio.ensure_future(write())
            await asyncio.wait({writer}, timeout=0.2)
            assert not writer.done()
            go.set()
            await writer
            assert await call.read() is EOF
            assert got == [1 << 20] * 64

    run(case)


def test_given_up_write(run: Run) -> None:
    """A client's write that is given up cancels the call; a server's leaves it as it is."""
    errors: list[str] = []

    async def stalled(_request: bytes, context: raw.RawContext) -> None:
        try:
            async with asyncio.timeout(0.2):
                while True:
                    await context.write(bytes(1 << 20))
        except TimeoutError:
            errors.append("stalled")
            await context.abort(Status.RESOURCE_EXHAUSTED, "read faster")

    async def deaf(_requests: object, context: raw.RawContext) -> None:
        await context.send_initial_metadata(())
        await asyncio.Event().wait()

    async def case() -> None:
        async with Service(stalled=raw.ReadMethod(stalled), deaf=raw.StreamMethod(deaf)) as service:
            call = service.read("stalled")
            await until(lambda: bool(errors), "the writer's timeout")
            error = None
            while error is None:
                try:
                    assert await call.read() is not EOF
                except grpc.aio.AioRpcError as caught:
                    error = caught
            assert (error.code(), error.details()) == (Status.RESOURCE_EXHAUSTED, "read faster")
            stream = service.stream("deaf")
            writer = asyncio.ensure_future(write_on(stream))
            await asyncio.wait({writer}, timeout=0.2)
            writer.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writer
            assert stream.cancelled()

    run(case)


def test_stalled_write_when_the_call_ends(run: Run) -> None:
    """A client's write that waits hides the status with which the server ends the call."""
    go = asyncio.Event()

    async def refuse(_requests: object, context: raw.RawContext) -> None:
        await context.send_initial_metadata(())
        await go.wait()
        await context.abort(Status.ABORTED, "enough")

    async def case() -> None:
        async with Service(refuse=raw.StreamMethod(refuse)) as service:
            call = service.stream("refuse")
            writer = asyncio.ensure_future(write_on(call))
            await asyncio.wait({writer}, timeout=0.2)
            assert not writer.done()
            go.set()
            await asyncio.wait({writer})
            error = writer.exception()
            if isinstance(error, grpc.aio.AioRpcError):
                assert error.code() is Status.INTERNAL
            else:  # the write began when the status was there
                assert isinstance(error, asyncio.InvalidStateError)
            assert call.done()

    run(case)
