"""gRPC in memory behaves as gRPC does: calls, their streams, their ends."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dledger_proto.rpc import raw
from tests.contract.grpc_service import (
    EOF,
    Recorder,
    Run,
    Service,
    State,
    Status,
    echo,
    echo_all,
    error_of,
    fail,
    return_at_once,
    three_then_abort,
)
from tests.waiting import until


def test_unary(run: Run) -> None:
    """A call knows its metadata, its deadline and its peer; its answer comes back."""
    seen: list[object] = []

    async def look(message: bytes, context: raw.RawContext) -> bytes:
        pairs: Any = context.invocation_metadata()
        left = context.time_remaining()
        assert left is not None
        is_left = 0.0 < left < 21.0  # the wire rounds it up
        seen.extend((dict(pairs)["name"], is_left, context.peer().split(":")[0]))
        return message[::-1]

    async def case() -> None:
        async with Service(look=raw.UnaryMethod(look)) as service:
            assert service.channel.get_state() is State.IDLE
            call = service.unary("look", b"abc", metadata=(("name", "x"),), timeout=20.0)
            assert not call.done()
            assert await call == b"cba"
            assert await call.code() is Status.OK
            assert call.done()
            assert not call.cancelled()
            assert service.channel.get_state() is State.READY
            assert seen == ["x", True, "ipv4"]

    run(case)


def test_no_deadline(run: Run) -> None:
    """Without a timeout the server knows of no deadline."""
    seen: list[float | None] = []

    async def look(message: bytes, context: raw.RawContext) -> bytes:
        seen.append(context.time_remaining())
        return message

    async def case() -> None:
        async with Service(look=raw.UnaryMethod(look)) as service:
            assert await service.unary("look") == b""
            assert seen == [None]

    run(case)


def test_streams_both_ways(run: Run) -> None:
    """Messages come back in order; the half-close ends the stream with OK."""

    async def case() -> None:
        async with Service(echo=raw.StreamMethod(echo_all)) as service:
            call = service.stream("echo")
            for number in range(50):
                await call.write(b"%d" % number)
            assert [await call.read() for _ in range(50)] == [b"%d" % n for n in range(50)]
            await call.done_writing()
            assert await call.read() is EOF
            assert await call.read() is EOF
            assert await call.code() is Status.OK
            await call.done_writing()

    run(case)


def test_nothing_to_say(run: Run) -> None:
    """A half-close may come before the connection stands."""

    async def case() -> None:
        async with Service(echo=raw.StreamMethod(echo_all)) as service:
            call = service.stream("echo")
            await call.done_writing()
            assert await call.read() is EOF

    run(case)


def test_iteration(run: Run) -> None:
    """A call may be iterated over, and takes its requests from an iterator."""

    async def requests() -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"

    async def case() -> None:
        async with Service(
            echo=raw.StreamMethod(echo_all), three=raw.ReadMethod(three_then_abort)
        ) as service:
            call = service.stream("echo", request_iterator=requests())
            assert [message async for message in call] == [b"1", b"2"]
            answers = aiter(service.read("three"))
            assert [await anext(answers) for _ in range(3)] == [b"0", b"1", b"2"]
            assert (await error_of(anext(answers))).code() is Status.NOT_FOUND

    run(case)


def test_write_after_half_close(run: Run) -> None:
    async def case() -> None:
        async with Service(echo=raw.StreamMethod(echo_all)) as service:
            call = service.stream("echo")
            await call.write(b"1")
            await call.done_writing()
            with pytest.raises(asyncio.InvalidStateError):
                await call.write(b"2")

    run(case)


def test_abort(run: Run) -> None:
    """The messages before an abort are read first; the call is not done until then."""

    async def case() -> None:
        async with Service(three=raw.ReadMethod(three_then_abort)) as service:
            call = service.read("three")
            await call.initial_metadata()
            assert not call.done()
            assert [await call.read() for _ in range(3)] == [b"0", b"1", b"2"]
            for _ in range(2):
                error = await error_of(call.read())
                assert error.code() is Status.NOT_FOUND
                assert error.details() == "gone"
                trailing: Any = error.trailing_metadata()
                assert list(trailing) == [("key", "value")]
            assert call.done()
            assert await call.code() is Status.NOT_FOUND
            assert await call.details() == "gone"
            assert list(await call.trailing_metadata()) == [("key", "value")]

    run(case)


def test_after_abort(run: Run) -> None:
    """A handler that goes on after its abort can do nothing more."""
    errors: list[str] = []

    async def stubborn(message: bytes, context: raw.RawContext) -> bytes:
        write: Any = context.write
        for action in (
            context.abort(Status.ABORTED, "first"),
            context.abort(Status.ABORTED, "second"),
            write(b""),
        ):
            try:
                await action
            except Exception as error:
                errors.append(type(error).__name__)
        return message

    async def case() -> None:
        async with Service(stubborn=raw.UnaryMethod(stubborn)) as service:
            error = await error_of(service.unary("stubborn"))
            assert (error.code(), error.details()) == (Status.ABORTED, "first")
            await until(lambda: len(errors) == 3, "the handler's end")
            assert errors == ["AbortError", "UsageError", "AbortError"]

    run(case)


def test_handler_that_raises(run: Run) -> None:
    async def case() -> None:
        async with Service(fail=raw.UnaryMethod(fail)) as service:
            error = await error_of(service.unary("fail"))
            assert error.code() is Status.UNKNOWN
            assert error.details() == "Unexpected <class 'ValueError'>: no"

    run(case)


def test_unknown_method(run: Run) -> None:
    async def case() -> None:
        async with Service(echo=raw.UnaryMethod(echo)) as service:
            error = await error_of(service.unary("nothing"))
            assert (error.code(), error.details()) == (Status.UNIMPLEMENTED, "Method not found!")

    run(case)


def test_initial_metadata_first(run: Run) -> None:
    """It comes before the first message; a second one is refused."""
    recorder = Recorder()

    async def case() -> None:
        async with Service(hear=raw.StreamMethod(recorder.handle)) as service:
            call = service.stream("hear")
            assert list(await call.initial_metadata()) == [("greeting", "hello")]
            assert recorder.began
            call.cancel()

    run(case)


def test_cancel_by_client(run: Run) -> None:
    """What waits at the client is cancelled. At the server a read ends, then the handler."""
    recorder = Recorder()
    told: list[bool] = []

    async def case() -> None:
        async with Service(hear=raw.StreamMethod(recorder.handle)) as service:
            call = service.stream("hear")
            call.add_done_callback(lambda ended: told.append(ended is call))
            await call.write(b"1")
            await until(lambda: recorder.got == [b"1"], "the message")
            reader = asyncio.ensure_future(call.read())
            await asyncio.wait({reader}, timeout=0.01)
            assert call.cancel()
            assert not call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            assert told == [True]
            assert call.done()
            assert call.cancelled()
            assert await call.code() is Status.CANCELLED
            with pytest.raises(asyncio.InvalidStateError):
                await call.write(b"2")
            await until(lambda: recorder.ended != "", "the handler's end")
            assert recorder.ended == "CancelledError"

    run(case)


def test_cancelled_reader_ends_the_call(run: Run) -> None:
    """A read that is given up cancels its call."""
    recorder = Recorder()

    async def case() -> None:
        async with Service(hear=raw.StreamMethod(recorder.handle)) as service:
            call = service.stream("hear")
            await call.initial_metadata()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await call.read()
            assert call.cancelled()
            await until(lambda: recorder.ended != "", "the handler's end")

    run(case)


def test_deadline(run: Run) -> None:
    """The client learns it itself, again and again; the handler is cancelled."""
    recorder = Recorder()

    async def case() -> None:
        async with Service(hear=raw.StreamMethod(recorder.handle)) as service:
            call = service.stream("hear", timeout=0.2)
            for _ in range(2):
                error = await error_of(call.read())
                assert error.code() is Status.DEADLINE_EXCEEDED
            await until(lambda: recorder.ended != "", "the handler's end")
            assert recorder.ended == "CancelledError"

    run(case)


def test_write_after_the_end(run: Run) -> None:
    async def case() -> None:
        async with Service(end=raw.StreamMethod(return_at_once)) as service:
            call = service.stream("end")
            assert await call.code() is Status.OK
            assert await call.read() is EOF
            with pytest.raises(asyncio.InvalidStateError):
                await call.write(b"1")

    run(case)
