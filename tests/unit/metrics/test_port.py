"""The HTTP port: what it answers, and what it does not wait for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from unittest.mock import patch

import pytest

from dledger_monitoring import port as module
from dledger_monitoring.exposition import Exposition
from dledger_monitoring.port import CONNECTIONS_MAX, REQUEST_SIZE_MAX, Answer, Port, watched_pages
from tests.http_page import ask, ask_raw
from tests.ports import free_port
from tests.waiting import until


class Stage:
    """A port whose process is ready or not, and whose pages may fail."""

    def __init__(self) -> None:
        self.number = free_port()
        self.why = ""
        self.error: Exception | None = None
        exposition = Exposition({"node_id": "n1"}, [], lambda: 0.0)
        self.port = Port({**watched_pages(exposition, lambda: self.why), "/fails": self.fails})

    async def fails(self) -> Answer:
        raise ValueError("a bug")


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    here = Stage()
    await here.port.listen(f"127.0.0.1:{here.number}")
    try:
        yield here
    finally:
        here.port.close()


def test_the_pages() -> None:
    async def run() -> None:
        async with stage() as here:
            assert await ask(here.number, "/healthz") == (200, "ok\n")
            assert await ask(here.number, "/readyz") == (200, "ready\n")
            here.why = "g: no leader is known in term 3"
            assert await ask(here.number, "/readyz") == (503, f"{here.why}\n")
            assert await ask(here.number, "/healthz") == (200, "ok\n")
            status, text = await ask(here.number, "/metrics?name=x")
            assert status == 200
            assert "process_resident_memory_bytes" in text

    asyncio.run(run())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", HTTPStatus.NOT_FOUND),
        (b"GET /metrics/ HTTP/1.1\r\n\r\n", HTTPStatus.NOT_FOUND),
        (b"POST /metrics HTTP/1.1\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"PRI * HTTP/2.0\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"\x16\x03\x01\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /metrics\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET /fails HTTP/1.1\r\n\r\n", HTTPStatus.INTERNAL_SERVER_ERROR),
    ],
)
def test_other_requests_are_refused_and_the_port_goes_on(
    request_bytes: bytes, status: HTTPStatus
) -> None:
    async def run() -> None:
        async with stage() as here:
            assert (await ask_raw(here.number, request_bytes))[0] == status
            assert await ask(here.number, "/healthz") == (200, "ok\n")

    asyncio.run(run())


def test_who_sends_nothing_is_left_and_takes_no_place() -> None:
    async def run() -> None:
        async with stage() as here:
            with patch.object(module, "REQUEST_SECONDS", 0.01):
                reader, writer = await asyncio.open_connection("127.0.0.1", here.number)
                writer.write(b"GET /metr")
                assert await reader.read() == b""
                writer.close()
            assert await ask(here.number, "/healthz") == (200, "ok\n")

    asyncio.run(run())


async def said(port: int, request: bytes) -> bytes:
    """Return all bytes that the port answers; none when it only ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_a_request_without_end_is_not_read() -> None:
    async def run() -> None:
        async with stage() as here:
            request = b"GET /healthz HTTP/1.1\r\n" + b"x: y\r\n" * REQUEST_SIZE_MAX
            assert await said(here.number, request) == b""
            assert await ask(here.number, "/healthz") == (200, "ok\n")

    asyncio.run(run())


def test_connections_are_bounded() -> None:
    async def run() -> None:
        async with stage() as here:
            silent = [
                await asyncio.open_connection("127.0.0.1", here.number)
                for _ in range(CONNECTIONS_MAX)
            ]
            await until(lambda: len(here.port.connections) == CONNECTIONS_MAX, "all are open")
            assert await said(here.number, b"GET /healthz HTTP/1.1\r\n\r\n") == b""
            for _, writer in silent:
                writer.close()
            await until(lambda: not here.port.connections, "the places are free")
            assert await ask(here.number, "/healthz") == (200, "ok\n")

    asyncio.run(run())
