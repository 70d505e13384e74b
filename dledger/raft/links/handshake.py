"""TLS on connections that somebody dialled, before anything else of them is read.

A connection counts among the strangers from its first moment on, for a handshake may never end. A
server of asyncio would tell of a connection only once TLS stands, so this module takes connections
from the port itself. It looks at the first record, without taking it, before it begins TLS: until
the record has come whole, a connection costs nothing but its place. After the handshake the stream
of frames is told, as without TLS.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final, Protocol

from dledger.raft.links.frame_stream import FrameStream
from dledger_proto.network.tls import TlsFolder

BACKLOG: Final = 100
ACCEPT_PAUSE_SECONDS: Final = 1.0
"""After the machine had no room for another connection, as asyncio's own servers wait."""
RECORD_HEAD: Final = struct.Struct(">cBBH")
"""Of a record of TLS (RFC 8446, 5.1): its type, its version in two bytes, the size behind."""
HANDSHAKE: Final = b"\x16"
TLS_MAJOR: Final = 3
RECORD_SIZE_MAX: Final = 1 << 14


class Newcomer(Protocol):
    """Whom a connection tells; all calls come on the loop's thread."""

    stream: FrameStream
    """It is told when TLS stands."""

    def dialled(self, end: Callable[[], object], address: str, *, has_begun: bool) -> None:
        """The bare connection stands; `end` closes it before TLS does.

        `has_begun`: what TLS begins with has come whole.
        """
        ...

    def began(self, address: str) -> None:
        """What TLS begins with has come whole."""
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
            try:
                has_begun = not _bytes_to_wait_for(bare)
            except (OSError, NoTls):  # its own task says so
                has_begun = False
            proving = self._start(self._prove(bare, shown, newcomer, has_begun=has_begun))
            newcomer.dialled(partial(_end, bare, proving), shown, has_begun=has_begun)
            # `sock_accept` does not wait while somebody is in the backlog. Without this a flood
            # would push out those whose task has not run yet.
            await asyncio.sleep(0)

    async def _prove(
        self, bare: socket.socket, address: str, newcomer: Newcomer, *, has_begun: bool
    ) -> None:
        """Agree on TLS, within bounds; the stream is told when it stands."""
        try:
            if not has_begun:
                async with asyncio.timeout(self._handshake_seconds):
                    await _first_record(bare)
                newcomer.began(address)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: newcomer.stream,
                bare,
                ssl=self._tls.current().listening,
                ssl_handshake_timeout=self._handshake_seconds,
            )
        except Exception as error:  # noqa: BLE001 - reading a strange certificate may raise anything
            bare.close()
            reason = str(error) if isinstance(error, NoTls) else f"{type(error).__name__}: {error}"
            newcomer.refused(reason, address)
            newcomer.closed("no TLS")
        except asyncio.CancelledError:
            bare.close()
            newcomer.closed("no TLS in time")
            raise


class NoTls(Exception):
    """What comes is no TLS, or nothing comes any more; the message says which."""


def record_size(head: bytes) -> int:
    """Return the size of the record that begins so, 0 while that is not known. NoTls. Pure."""
    if head[:1] not in {b"", HANDSHAKE}:
        raise NoTls("it speaks plain text, and this port TLS")
    if len(head) < RECORD_HEAD.size:
        return 0
    _, version, _, size = RECORD_HEAD.unpack(head[: RECORD_HEAD.size])
    if version != TLS_MAJOR or size > RECORD_SIZE_MAX:
        raise NoTls("it speaks neither TLS nor anything that is known")
    return RECORD_HEAD.size + int(size)


def _bytes_to_wait_for(bare: socket.socket) -> int:
    """Return how many bytes must be there before TLS begins; 0: they are. NoTls, OSError."""
    try:
        head = bare.recv(RECORD_HEAD.size, socket.MSG_PEEK)
    except BlockingIOError:
        return RECORD_HEAD.size
    if not head:
        raise NoTls("closed by the peer")
    wanted = record_size(head)
    if not wanted:
        return RECORD_HEAD.size
    return 0 if len(bare.recv(wanted, socket.MSG_PEEK)) == wanted else wanted


async def _first_record(bare: socket.socket) -> None:
    """Wait until the first record is there, without taking it. NoTls, OSError."""
    waited_for = 0
    while wanted := _bytes_to_wait_for(bare):
        if wanted == waited_for:  # the kernel wakes us below its mark when no more comes
            raise NoTls("closed by the peer")
        waited_for = wanted
        # Without a mark the bytes that are there would wake us again and again.
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
        await _readable(bare)
    bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def _readable(bare: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(bare, wake)
    try:
        await ready
    finally:
        if bare.fileno() >= 0:  # or `_end` has closed it
            loop.remove_reader(bare)


def _end(bare: socket.socket, proving: "asyncio.Task[None]") -> None:
    """Close a connection before TLS stands; its task may not have begun."""
    proving.cancel()
    if bare.fileno() >= 0:
        asyncio.get_running_loop().remove_reader(bare)  # before another connection has its number
    bare.close()
