"""Frames on a connection between two members: one TCP connection, frames in both directions.

Owns: cutting the bytes into frames, the bound of a frame, the socket's options, and when a writer
has to wait. Does not own what a frame means (`peer_link.py`, `peer_listener.py`, `wire/`).

    size u32, little-endian; then so many bytes: a frame

Small frames are read together into one buffer and copied out of it. A frame that is larger than
the buffer is read into memory of its own, so its entries are not copied again.
"""

import asyncio
import socket
import struct
from typing import Any, Final, Protocol, cast

from dledger.types import Buffer
from dledger_proto.limits import FRAME_SIZE_TARGET, KIB
from dledger_proto.network.tls import names_in

BUFFER_BYTES: Final = 64 * KIB
WRITE_BUFFER_BYTES: Final = FRAME_SIZE_TARGET
"""With more than this unsent, the writer waits until a quarter is left."""
SILENT_SECONDS: Final = 10
"""The kernel asks a peer that has sent nothing for so long whether it is there..."""
UNANSWERED_SECONDS: Final = 1
"""...and gives the connection up after so long without an answer; sent data, too. Retransmission
timers, of minutes, would keep a connection to a machine that is gone. A peer that stands still with
a full receive buffer is given up so, too."""
SIZE: Final = struct.Struct("<I")
TLS_MASK: Final = 0xFFFF
TLS_BEGINS: Final = 0x0316
"""What a size looks like, in these bits, that is the beginning of TLS: it is above any bound."""


class FrameOwner(Protocol):
    """Whom a stream tells; all calls come on the loop's thread."""

    def opened(self, stream: "FrameStream") -> None:
        """The connection stands."""
        ...

    def frame_came(self, frame: Buffer) -> None:
        """A whole frame arrived; its memory never changes."""
        ...

    def too_large(self, reason: str) -> None:
        """The peer announces a frame above the bound. The stream closes the connection."""
        ...

    def writable(self) -> None:
        """What was written has left: more may be written."""
        ...

    def closed(self, reason: str) -> None:
        """The connection has ended, perhaps before it was `opened`; nothing comes after."""
        ...


class FrameStream(asyncio.BufferedProtocol):
    """One end of a connection."""

    def __init__(self, owner: FrameOwner, frame_size_max: int) -> None:
        """`frame_size_max`: a peer that announces a larger frame is cut off."""
        self.frame_size_max = frame_size_max
        self.is_full = False
        """True: the writer waits for `FrameOwner.writable`."""
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(BUFFER_BYTES)
        self._filled = 0
        self._large = bytearray()
        """A frame that the buffer cannot hold, as far as it came."""
        self._large_filled = 0
        self._reason = ""

    # Writing.

    def write(self, frame: list[Buffer]) -> None:
        """Send a frame, given in pieces, which must not change any more."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.writelines([SIZE.pack(sum(len(piece) for piece in frame)), *frame])

    def close(self, reason: str, *, at_once: bool = True) -> None:
        """End the connection; not `at_once`: after what was written has left."""
        self._reason = self._reason or reason
        transport = self._transport
        if transport is None:
            return
        if at_once:
            transport.abort()
        else:
            transport.close()

    @property
    def peer_address(self) -> str:
        """Return where the other end is, for people."""
        transport = self._transport
        said: tuple[object, ...] = () if transport is None else transport.get_extra_info("peername")
        return ":".join(str(part) for part in said[:2])

    @property
    def peer_names(self) -> frozenset[str]:
        """Return what the certificate of the other end says it is; nothing without TLS."""
        transport = self._transport
        return names_in(None if transport is None else transport.get_extra_info("peercert"))

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        try:
            set_options(transport.get_extra_info("socket"))
        except OSError as error:  # it was reset before it was taken from the backlog
            self.close(str(error))
            return
        self._owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self._transport = None
        self._owner.closed(self._reason or (str(exc) if exc else "closed by the peer"))

    def pause_writing(self) -> None:
        """Much is unsent."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Little is unsent."""
        self.is_full = False
        self._owner.writable()

    def eof_received(self) -> bool:
        """The peer sends no more: close."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # asyncio's name
        """Return where the next bytes go."""
        if self._large:
            return memoryview(self._large)[self._large_filled :]
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes came."""
        if not self._large:
            self._filled += nbytes
            self._cut_out()
            return
        self._large_filled += nbytes
        if self._large_filled == len(self._large):
            frame, self._large = self._large, bytearray()
            self._owner.frame_came(memoryview(frame).toreadonly())

    def _cut_out(self) -> None:
        """Hand over the frames that are whole, and keep the rest."""
        at, end, buffer = 0, self._filled, self._buffer
        self._filled = 0
        while end - at >= SIZE.size:
            (size,) = SIZE.unpack_from(buffer, at)
            if size > self.frame_size_max:
                reason = f"a frame of {size} bytes, at most {self.frame_size_max}"
                if size & TLS_MASK == TLS_BEGINS:
                    reason = "it speaks TLS, and this side plain text"
                self._owner.too_large(reason)
                self.close(reason)
                return
            start = at + SIZE.size
            if start + size > end:
                break
            at = start + size
            self._owner.frame_came(bytes(memoryview(buffer)[start:at]))
            if self._transport is None or self._transport.is_closing():
                return
        self._keep(at, end)

    def _keep(self, at: int, end: int) -> None:
        """Keep the beginning of a frame; in memory of its own, when it is a large one."""
        rest = end - at
        if rest >= SIZE.size:
            (size,) = SIZE.unpack_from(self._buffer, at)
            if SIZE.size + size > BUFFER_BYTES:
                self._large = bytearray(size)
                self._large_filled = rest - SIZE.size
                self._large[: self._large_filled] = self._buffer[at + SIZE.size : end]
                return
        self._buffer[:rest] = self._buffer[at:end]
        self._filled = rest


def set_options(sock: Any) -> None:  # uvloop has a class of its own for sockets
    """Send at once, and notice a peer that is gone (see `SILENT_SECONDS`)."""
    if sock is None:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", SILENT_SECONDS),
        ("TCP_KEEPINTVL", UNANSWERED_SECONDS),
        ("TCP_KEEPCNT", 1),
        ("TCP_USER_TIMEOUT", 1_000 * UNANSWERED_SECONDS),
    ):
        option = getattr(socket, name, None)  # some are Linux's own
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
