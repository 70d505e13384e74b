"""Raw methods and error status over loopback, with both kinds of client."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import grpc.aio
import pytest

from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import FRAME_SIZE_MAX
from dledger_proto.rpc.raw import (
    APPEND,
    APPEND_ONE,
    BROKER_SERVICE,
    FETCH,
    MESSAGE_SIZE_OPTIONS,
    RawContext,
    RawMethod,
    ReadMethod,
    StreamMethod,
    UnaryMethod,
    raw_handlers,
    raw_read,
    raw_stream,
    raw_unary,
    read_frame,
    sync_read,
    sync_unary,
)
from dledger_proto.rpc.status import CODE_KEY, STATUS, abort, from_rpc_error, trailing_metadata
from dledger_proto.v1 import broker_pb2, broker_pb2_grpc


class Broker(broker_pb2_grpc.BrokerServicer):
    """One generated method beside the raw ones; the others answer UNIMPLEMENTED by themselves."""

    async def LookupMessage(
        self,
        request: broker_pb2.LookupMessageRequest,
        context: grpc.aio.ServicerContext[broker_pb2.LookupMessageRequest, broker_pb2.LookupReply],
    ) -> broker_pb2.LookupReply:
        code = Code(int.from_bytes(request.message_id, "big"))
        if code is Code.OK:
            return broker_pb2.LookupReply(records=[broker_pb2.FoundRecord(offset=5)])
        return await abort(context, DledgerError(code, "führt nicht", hint="127.0.0.1:9000"))


async def append_one(request: bytes, _: RawContext) -> bytes:
    return b"answer to " + request


async def append(requests: AsyncIterator[bytes], _: RawContext) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request[::-1]


async def fetch(request: bytes, context: RawContext) -> None:
    await context.write(request)
    await context.write(b"")
    await abort(context, DledgerError(Code.HEAD_TRIMMED, "gone"))


async def hang(_: bytes, context: RawContext) -> bytes:
    await asyncio.Event().wait()
    raise AssertionError(f"{context} was ended by the client")


async def serve() -> tuple[grpc.aio.Server, str]:
    server = grpc.aio.server(options=MESSAGE_SIZE_OPTIONS)
    broker_pb2_grpc.add_BrokerServicer_to_server(Broker(), server)  # type: ignore[abstract]
    methods: dict[str, RawMethod] = {
        "AppendOne": UnaryMethod(append_one),
        "Hang": UnaryMethod(hang),
        "Append": StreamMethod(append),
        "Fetch": ReadMethod(fetch),
    }
    server.add_generic_rpc_handlers((raw_handlers(BROKER_SERVICE, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


def with_channel(scenario: Callable[[grpc.aio.Channel, str], Awaitable[None]]) -> None:
    async def run() -> None:
        server, address = await serve()
        try:
            async with grpc.aio.insecure_channel(address, options=MESSAGE_SIZE_OPTIONS) as channel:
                await asyncio.wait_for(scenario(channel, address), timeout=30)
        finally:
            await server.stop(None)

    asyncio.run(run())


def test_raw_and_generated_methods_of_one_service() -> None:
    async def scenario(channel: grpc.aio.Channel, _: str) -> None:
        assert await raw_unary(channel, APPEND_ONE)(b"one") == b"answer to one"
        large = bytes(FRAME_SIZE_MAX)
        assert await raw_unary(channel, APPEND_ONE)(large) == b"answer to " + large
        stub = broker_pb2_grpc.BrokerStub(channel)
        reply = await stub.LookupMessage(broker_pb2.LookupMessageRequest())
        assert reply.records[0].offset == 5

        call = raw_stream(channel, APPEND)()
        for request in (b"abc", b"xyz"):
            await call.write(request)
        assert [await read_frame(call), await read_frame(call)] == [b"cba", b"zyx"]
        await call.done_writing()
        assert await read_frame(call) is None

        reading = raw_read(channel, FETCH)(b"request")
        assert [await read_frame(reading), await read_frame(reading)] == [b"request", b""]
        with pytest.raises(grpc.RpcError) as caught:
            await read_frame(reading)
        assert from_rpc_error(caught.value).code is Code.HEAD_TRIMMED

    with_channel(scenario)


def test_raw_methods_of_a_blocking_client() -> None:
    def client(address: str) -> None:
        with grpc.insecure_channel(address, options=MESSAGE_SIZE_OPTIONS) as channel:
            assert sync_unary(channel, APPEND_ONE)(b"one", timeout=20) == b"answer to one"
            reading = sync_read(channel, FETCH)(b"request", timeout=20)
            assert [next(reading), next(reading)] == [b"request", b""]
            with pytest.raises(grpc.RpcError) as caught:
                next(reading)
            error = from_rpc_error(caught.value)
            assert (error.code, error.detail) == (Code.HEAD_TRIMMED, "gone")

    async def scenario(_: grpc.aio.Channel, address: str) -> None:
        await asyncio.to_thread(client, address)

    with_channel(scenario)


def test_every_error_travels_with_code_detail_and_hint() -> None:
    async def scenario(channel: grpc.aio.Channel, _: str) -> None:
        stub = broker_pb2_grpc.BrokerStub(channel)
        for code in Code:
            if code is Code.OK:
                continue
            request = broker_pb2.LookupMessageRequest(message_id=code.to_bytes(2, "big"))
            with pytest.raises(grpc.RpcError) as caught:
                await stub.LookupMessage(request)
            assert caught.value.code() is STATUS[code]
            error = from_rpc_error(caught.value)
            assert (error.code, error.detail, error.hint) == (
                code, "führt nicht", "127.0.0.1:9000",
            )  # fmt: skip

    with_channel(scenario)


def test_what_grpc_itself_answers_is_not_taken_for_our_word() -> None:
    async def scenario(channel: grpc.aio.Channel, _: str) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            await raw_unary(channel, "/dledger.v1.Broker/NoSuchMethod")(b"")
        assert from_rpc_error(caught.value).code is Code.UNIMPLEMENTED
        with pytest.raises(grpc.RpcError) as caught:
            await raw_unary(channel, f"/{BROKER_SERVICE}/Hang")(b"x", timeout=0.05)
        error = from_rpc_error(caught.value)
        assert error.code is Code.UNKNOWN_OUTCOME
        assert error.detail.startswith("DEADLINE_EXCEEDED: ")
        assert from_rpc_error(caught.value, write=False).code is Code.UNAVAILABLE

    with_channel(scenario)


def failure(code: grpc.StatusCode, *metadata: tuple[str, str]) -> grpc.RpcError:
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), "details", None
    )


@pytest.mark.parametrize("number", ["999", "0", "-1", "x", ""])
def test_a_code_that_is_not_known_is_an_unknown_outcome(number: str) -> None:
    error = failure(grpc.StatusCode.NOT_FOUND, (CODE_KEY, number))
    assert from_rpc_error(error).code is Code.UNKNOWN_OUTCOME
    assert from_rpc_error(error, write=False).code is Code.UNAVAILABLE


def test_an_error_without_a_status_is_an_unknown_outcome() -> None:
    assert from_rpc_error(grpc.RpcError("broken")).code is Code.UNKNOWN_OUTCOME


def test_a_hint_is_fit_for_metadata() -> None:
    metadata = trailing_metadata(DledgerError(Code.NOT_LEADER, hint="hö\nst:1"))
    assert metadata == (("dledger-code", "100"), ("dledger-hint", "h??st:1"))
    assert trailing_metadata(DledgerError(Code.BUSY)) == (("dledger-code", "103"),)


def test_ok_is_no_error() -> None:
    class Context:
        async def abort(self, *_: object) -> None:
            raise AssertionError("the call must not end")

    with pytest.raises(ValueError, match="OK"):
        asyncio.run(abort(Context(), DledgerError(Code.OK)))  # type: ignore[arg-type]
