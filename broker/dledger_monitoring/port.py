"""A small HTTP port: three pages, every wait and size bounded.

Owns: requests and answers of HTTP as far as Prometheus and health checks need it: GET, one request
for each connection. Not: what the pages say. The port has no TLS and asks for no password: listen
where only those who watch can reach it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import structlog
from prometheus_client import CONTENT_TYPE_LATEST

from dledger_monitoring.exposition import Exposition
from dledger_proto.network.addresses import split_address

CONNECTIONS_MAX: Final = 32
"""At once; the port closes others."""
REQUEST_SIZE_MAX: Final = 8_192
"""Bytes of a request with its headers; the port answers no longer one."""
REQUEST_SECONDS: Final = 5.0
"""How long a request may take to arrive."""
ANSWER_SECONDS: Final = 30.0
"""How long an answer may take to be made and read."""
PLAIN: Final = "text/plain; charset=utf-8"
_END: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page says."""

    status: HTTPStatus
    body: bytes
    kind: str = PLAIN


Page = Callable[[], Awaitable[Answer]]


def watched_pages(exposition: Exposition, not_ready: Callable[[], str]) -> Mapping[str, Page]:
    """Return the pages by their paths. `not_ready` says why the process does not serve, or ""."""

    async def metrics() -> Answer:
        return Answer(HTTPStatus.OK, await exposition.text(), CONTENT_TYPE_LATEST)

    async def alive() -> Answer:
        return Answer(HTTPStatus.OK, b"ok\n")

    async def ready() -> Answer:
        why = not_ready()
        if why:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{why}\n".encode(errors="replace"))
        return Answer(HTTPStatus.OK, b"ready\n")

    return {"/metrics": metrics, "/healthz": alive, "/readyz": ready}


class Port:
    """A listening port on the running loop."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self.connections: set[asyncio.StreamWriter] = set()
        """That are open now."""
        self._log = structlog.get_logger()

    async def listen(self, address: str) -> None:
        """Take the port; OSError when it is not free."""
        host, port = split_address(address)
        self._server = await asyncio.start_server(
            self._connected, host.strip("[]"), port, limit=REQUEST_SIZE_MAX
        )

    def close(self) -> None:
        """Take no connections any more, and end those that are open."""
        if self._server is not None:
            self._server.close()
        for writer in self.connections:
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self.connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self.connections.add(writer)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await reader.readuntil(_END)
            async with asyncio.timeout(ANSWER_SECONDS):
                await _write(writer, await self._answer(request))
                writer.close()
                await writer.wait_closed()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            return  # the one who asked is gone, is too slow, or says too much
        finally:
            self.connections.discard(writer)
            writer.transport.abort()

    async def _answer(self, request: bytes) -> Answer:
        words = request.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return Answer(HTTPStatus.BAD_REQUEST, b"not a request of HTTP/1\n")
        method, target, _ = words
        page = self._pages.get(target.split(b"?", 1)[0].decode("latin-1"))
        if page is None:
            return Answer(HTTPStatus.NOT_FOUND, f"{', '.join(self._pages)}\n".encode())
        if method != b"GET":
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"GET alone\n")
        try:
            return await page()
        except Exception as error:  # noqa: BLE001 - a page that fails must not end the process
            self._log.error("a page of the metrics port failed", page=target, exc_info=error)
            said = f"{type(error).__name__}: {error}\n".encode(errors="replace")
            return Answer(HTTPStatus.INTERNAL_SERVER_ERROR, said)


async def _write(writer: asyncio.StreamWriter, answer: Answer) -> None:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.kind}\r\nContent-Length: {len(answer.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    writer.write(head.encode("latin-1") + answer.body)
    await writer.drain()
