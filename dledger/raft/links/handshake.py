"""TLS on connections that somebody dialled, before anything else of them is read.

A connection counts among the strangers from its first moment on, for a handshake may never end. A
server of asyncio would tell of a connection only once TLS stands, so this module takes connections
from the port itself. After the handshake the stream of frames is told, as without TLS.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, Protocol

from dledger.raft.links.frame_stream import FrameStream
from dledger_proto.network.tls import TlsFolder

BACKLOG: Final = 100
ACCEPT_PAUSE_SECONDS: Final = 1.0
"""After the machine had no room for another connection, as asyncio's own servers wait."""


class Newcomer(Protocol):
    """Whom a connection tells; all calls come on the loop's thread."""

    stream: FrameStream
    """It is told when TLS stands."""

    def dialled(self, end: Callable[[], object]) -> None:
        """The bare connection stands; `end` closes it before TLS does."""
        ...

    def refused(self, reason: str, address: str) -> None:
        """It is no TLS, or its certificate does not hold."""
        ...

    def closed(self, reason: str) -> None:
        """The connection has ended; nothing comes after."""
        ...


class SecureServer:
    """A port whose connections begin with TLS."""

    def __init__(
        self, tls: TlsFolder, make_newcomer: Callable[[], Newcomer], handshake_seconds: float
    ) -> None:
        self._tls = tls
        self._make_newcomer = make_newcomer
        self._handshake_seconds = handshake_seconds
        self._port: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self, host: str | None, port: int) -> None:
        """Take the port, without a host on every address of the machine; OSError."""
        family = socket.AF_INET6 if host is None or ":" in host else socket.AF_INET
        taken = socket.create_server(
            (host or "", port), family=family, backlog=BACKLOG, dualstack_ipv6=host is None
        )
        taken.setblocking(False)
        self._port = taken
        self._start(self._accept(taken))

    def close(self) -> None:
        """Take no more connections; end handshakes."""
        for task in self._tasks:
            task.cancel()
        if self._port is not None:
            self._port.close()

    def _start(self, work: Coroutine[object, object, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work, name="links by TLS")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self, taken: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                bare, address = await loop.sock_accept(taken)
            except OSError:
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            newcomer = self._make_newcomer()
            shown = ":".join(str(part) for part in address[:2])
            newcomer.dialled(partial(_end, bare, self._start(self._prove(bare, shown, newcomer))))

    async def _prove(self, bare: socket.socket, address: str, newcomer: Newcomer) -> None:
        """Agree on TLS, within bounds; the stream is told when it stands."""
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: newcomer.stream,
                bare,
                ssl=self._tls.current().listening,
                ssl_handshake_timeout=self._handshake_seconds,
            )
        except Exception as error:  # noqa: BLE001 - reading a strange certificate may raise anything
            bare.close()
            newcomer.refused(f"{type(error).__name__}: {error}", address)
            newcomer.closed("no TLS")
        except asyncio.CancelledError:
            bare.close()
            newcomer.closed("no TLS in time")
            raise


def _end(bare: socket.socket, proving: "asyncio.Task[None]") -> None:
    """Close a connection before TLS stands; its task may not have begun."""
    proving.cancel()
    bare.close()
