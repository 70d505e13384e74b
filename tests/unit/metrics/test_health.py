"""gRPC's health service, asked by a gRPC client with the bytes of the public protocol."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest.mock import patch

import grpc
import pytest

from dledger_monitoring import health as module
from dledger_monitoring.health import SERVICE, Health
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import make_server, open_channel

WHOLE = b""
BROKER = b"\x0a\x05a.One"
"""The field 1 of grpc.health.v1.HealthCheckRequest: the service."""
UNKNOWN = b"\x0a\x05a.Two"
SERVING, NOT_SERVING, SERVICE_UNKNOWN = b"\x08\x01", b"\x08\x02", b"\x08\x03"
"""The field 1 of grpc.health.v1.HealthCheckResponse: the status."""


class Stage:
    def __init__(self) -> None:
        self.why = ""
        self.health = Health(["a.One"], lambda: self.why)


@asynccontextmanager
async def stage() -> AsyncIterator[tuple[Stage, grpc.aio.Channel]]:
    here, server = Stage(), make_server()
    server.add_generic_rpc_handlers((here.health.handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = open_channel(f"127.0.0.1:{port}")
    try:
        yield here, channel
    finally:
        await channel.close(None)
        await server.stop(0)


def test_check() -> None:
    async def run() -> None:
        async with stage() as (here, channel):
            check = raw.raw_unary(channel, f"/{SERVICE}/Check")
            assert await check(WHOLE, timeout=5) == SERVING
            assert await check(BROKER, timeout=5) == SERVING
            here.why = "no leader"
            assert await check(BROKER, timeout=5) == NOT_SERVING
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await check(UNKNOWN, timeout=5)
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
            with pytest.raises(grpc.aio.AioRpcError) as garbled:
                await check(b"\xff\xff", timeout=5)
            assert garbled.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    asyncio.run(run())


def test_a_watch_tells_the_first_status_and_each_change() -> None:
    async def run() -> None:
        async with stage() as (here, channel):
            with patch.object(module, "LOOK_SECONDS", 0.01):
                call = raw.raw_read(channel, f"/{SERVICE}/Watch")(BROKER, timeout=20)
                assert await call.read() == SERVING
                here.why = "no leader"
                assert await call.read() == NOT_SERVING
                here.why = ""
                assert await call.read() == SERVING
                call.cancel()
                other = raw.raw_read(channel, f"/{SERVICE}/Watch")(UNKNOWN, timeout=20)
                assert await other.read() == SERVICE_UNKNOWN
                other.cancel()

    asyncio.run(run())


def test_watches_are_bounded() -> None:
    async def run() -> None:
        async with stage() as (_, channel):
            watch = raw.raw_read(channel, f"/{SERVICE}/Watch")
            with patch.object(module, "WATCHES_MAX", 1):
                first = watch(WHOLE, timeout=20)
                assert await first.read() == SERVING
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await watch(WHOLE, timeout=20).read()
                assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                first.cancel()

    asyncio.run(run())
