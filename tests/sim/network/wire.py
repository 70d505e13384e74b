"""Connections between two processes, and the streams of calls on them.

Owns: what one process knows of a connection (`Socket`) and of one call on it (`StreamEnd`); flow
control; what a lost connection does. Not owned: when something arrives (`path.py`), what a call
does with it (`calls/`).

What is sent on one stream in one direction arrives in order. Between streams the order is drawn:
TCP keeps one, but gRPC hands its calls to the application in any order.

A stream has a window in each direction. A write is over when all that was written but not yet read
fits into the window; so it waits for a peer that reads nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from grpc._cython import cygrpc

from tests.sim.network.options import Options
from tests.sim.process.loop import ProcessLoop
from tests.sim.world.clock import Timer

if TYPE_CHECKING:
    from tests.sim.network.network import Network
    from tests.sim.network.path import Path

WINDOW: Final = 64 << 10
"""Bytes of a stream that may be under way or unread, in each direction."""
MESSAGE_OVERHEAD: Final = 32
"""Bytes of the window that a message takes besides its own."""
BatchFailed: Final[type[Exception]] = cygrpc.ExecuteBatchError
CONTROL: Final = 0
"""The number of the stream that carries what concerns the whole connection."""

Pairs: TypeAlias = tuple[tuple[str, str | bytes], ...]
"""Metadata on the wire."""


# What travels on a stream.
MESSAGE: Final = 0
WINDOW_UPDATE: Final = 1
"""The receiver has read so many bytes."""
HEADERS: Final = 2
"""Opens a call; on the way back: the initial metadata."""
HALF_CLOSE: Final = 3
"""The client writes nothing more."""
STATUS: Final = 4
RESET: Final = 5
"""Ends a call at once, from either side. What was not read is lost."""
GOAWAY: Final = 6
CLOSE: Final = 7


class StreamOwner(Protocol):
    """A call, at its client or at its server."""

    def came(self, kind: int, payload: Any) -> None:
        """Learn of headers, a status or a reset."""
        ...

    def too_large(self, size: int) -> None:
        """Learn of a message over the limit."""
        ...

    def lost(self, reason: str) -> None:
        """Learn that the connection is lost; the stream is closed."""
        ...


class SocketOwner(Protocol):
    """A channel or a server."""

    def opened(self, end: "StreamEnd", payload: Any) -> None:
        """Take a call that the peer opened."""
        ...

    def going_away(self, socket: "Socket") -> None:
        """Learn that the peer takes no new calls."""
        ...

    def disconnected(self, socket: "Socket") -> None:
        """Learn that the connection is lost."""
        ...


class Listener(SocketOwner, Protocol):
    """Who listens on a port."""

    loop: ProcessLoop
    options: Options

    @property
    def answers(self) -> bool:
        """True when a handshake would be finished now."""
        ...

    def accepted(self, socket: "Socket") -> None:
        """Take a connection."""
        ...


@coroutine
def turn() -> Generator[None, None, None]:
    """Let the other callbacks of this turn run first."""
    yield


class StreamEnd:
    """One process's end of a stream."""

    __slots__ = (
        "_consumed", "_writers", "blocked_until", "carries_frames", "half_closed", "inbox",
        "is_closed", "last_arrival", "number", "on_message", "outstanding", "owner", "peer",
        "reader", "receive_max", "socket",
    )  # fmt: skip
    peer: "StreamEnd"

    def __init__(self, socket: "Socket", number: int) -> None:
        self.socket = socket
        self.number = number
        self.owner: StreamOwner | None = None
        self.receive_max = socket.options.receive_max
        self.carries_frames = False
        """It is the dialler's end of a Raft link: weather may spoil what it sends."""
        self.is_closed = False
        self.half_closed = False
        """The peer writes nothing more."""
        self.inbox: deque[tuple[bytes, int]] = deque()
        """Messages that came and were not read, each with what it takes of the window."""
        self.reader: asyncio.Future[bytes | None] | None = None
        self.on_message: Callable[[bytes], None] | None = None
        """Takes each message as it comes; nobody reads then."""
        self.outstanding = 0
        """Bytes that were sent and are not known to be read."""
        self.last_arrival = 0.0
        """Nothing arrives at this end before."""
        self.blocked_until = 0.0
        """TCP delivers what a cut lost at this time; all that follows waits for it."""
        self._consumed = 0
        self._writers: list[asyncio.Future[bool]] = []

    @property
    def stands(self) -> bool:
        """True when the process takes part in the call, and its connection is not lost."""
        return self.owner is not None and not self.is_closed and self.socket.is_open

    # Sending.

    def send(self, kind: int, payload: object = None) -> None:
        """Send something that takes nothing of the window."""
        if not self.is_closed and self.socket.is_open:
            self.socket.out.carry(self.peer, kind, payload, 0)

    def send_message(self, message: bytes) -> None:
        """Send a message; `wait_for_room` comes next."""
        socket = self.socket
        if not socket.is_open:
            return
        if self.carries_frames:
            socket.network.send_frame(self, message)
            return
        size = len(message) + MESSAGE_OVERHEAD
        self.outstanding += size
        socket.out.carry(self.peer, MESSAGE, message, size)

    async def wait_for_room(self) -> None:
        """Wait until what was sent fits into the window; BatchFailed when the stream closes."""
        await turn()
        if not await self.has_room():
            raise BatchFailed("the stream is closed")

    @property
    def is_full(self) -> bool:
        """True when what was sent does not fit into the window."""
        return self.outstanding > WINDOW

    async def has_room(self) -> bool:
        """Wait until what was sent fits into the window; False when the stream closes."""
        if self.is_closed or not self.is_full:
            return not self.is_closed
        future: asyncio.Future[bool] = self.socket.loop.create_future()
        self._writers.append(future)
        return await future

    def credit(self, size: int) -> None:
        """Learn that the peer has read so many bytes."""
        self.outstanding -= size
        if self._writers and self.outstanding <= WINDOW:
            self._wake_writers(has_room=True)

    def _wake_writers(self, *, has_room: bool) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            if not writer.done():
                writer.set_result(has_room)

    # Receiving.

    def take(self, kind: int, payload: Any, size: int) -> None:
        """Take what arrived, on the loop of its process."""
        if self.is_closed:
            return
        if kind == MESSAGE:
            self._take_message(payload, size)
        elif kind == WINDOW_UPDATE:
            self.credit(payload)
        elif kind == HALF_CLOSE:
            self.half_closed = True
            self._end_read()
        elif self.number == CONTROL:
            self.socket.take_control(kind)
        elif self.owner is None:
            if kind == HEADERS and self.socket.is_open:
                self.socket.streams[self.number] = self
                self.socket.owner.opened(self, payload)
        else:
            self.owner.came(kind, payload)

    def _take_message(self, message: bytes, size: int) -> None:
        owner = self.owner
        if owner is None:
            return
        self.socket.network.delivered += 1
        if len(message) > self.receive_max:
            self._consume(size)  # the transport has read it
            owner.too_large(len(message))
            return
        reader = self.reader
        if self.on_message is not None:
            self._consume(size)
            self.on_message(message)
        elif reader is not None and not reader.done():
            self.reader = None
            self._consume(size)
            reader.set_result(message)
        else:
            self.inbox.append((message, size))

    def _consume(self, size: int) -> None:
        consumed = self._consumed + size
        if consumed >= WINDOW // 2:
            self._consumed = 0
            self.send(WINDOW_UPDATE, consumed)
        else:
            self._consumed = consumed

    async def read(self) -> bytes | None:
        """Return the next message; None at the end of the stream."""
        if self.inbox:
            await turn()
            if self.inbox:
                message, size = self.inbox.popleft()
                self._consume(size)
                return message
        if self.half_closed or self.is_closed:
            return None
        reader: asyncio.Future[bytes | None] = self.socket.loop.create_future()
        self.reader = reader
        return await reader

    def _end_read(self) -> None:
        reader, self.reader = self.reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)

    # The end.

    def close(self) -> None:
        """Forget the stream: nothing of it is sent or taken any more."""
        if not self.is_closed:
            self.is_closed = True
            self.inbox.clear()
            self.socket.streams.pop(self.number, None)
            self._end_read()
            self._wake_writers(has_room=False)
            self.socket.stream_closed()


class Socket:
    """One process's end of a connection."""

    peer: "Socket"

    def __init__(
        self,
        network: "Network",
        number: int,
        loop: ProcessLoop,
        out: "Path",
        owner: SocketOwner,
        options: Options,
    ) -> None:
        self.network = network
        self.number = number
        self.loop = loop
        self.out = out
        self.owner = owner
        self.options = options
        self.is_dialler = False
        self.is_open = True
        self.is_severed = False
        """Nothing that is under way arrives any more."""
        self.is_answered = False
        """This end is closed, and its kernel has said so to the peer."""
        self.is_draining = False
        """No new calls; the connection ends with its last call."""
        self.last_arrival = 0.0
        """The latest time at which something that was sent to this end arrives."""
        self.streams: dict[int, StreamEnd] = {}
        self.control = StreamEnd(self, CONTROL)
        self.keepalive_check: Timer | None = None
        self._next_number = 1

    @property
    def host(self) -> str:
        """Where this end is."""
        return self.loop.host

    def open_stream(self, owner: StreamOwner) -> StreamEnd:
        """Make both ends of a new stream; the peer's end takes part when the headers arrive."""
        number = self._next_number
        self._next_number += 2
        near, far = StreamEnd(self, number), StreamEnd(self.peer, number)
        near.peer, far.peer = far, near
        near.owner = owner
        self.streams[number] = near
        return near

    def take_control(self, kind: int) -> None:
        """Take what concerns the whole connection."""
        if kind == GOAWAY:
            self.drain()
            self.owner.going_away(self)
        else:
            self.lose("Socket closed")

    def drain(self) -> None:
        """Take no new calls; close when the last one has ended."""
        self.is_draining = True
        self.stream_closed()

    def stream_closed(self) -> None:
        """Close a draining connection that has no calls left."""
        if self.is_draining and self.is_open and not self.streams:
            self.shut()

    def shut(self) -> None:
        """Close the connection from this side; what was sent still arrives."""
        if self.is_open:
            self.control.send(CLOSE)
            self.forget()

    def lose_soon(self, reason: str) -> None:
        """Let the process learn that the connection is lost."""
        self.loop.call_soon(self.lose, reason)

    def lose(self, reason: str) -> None:
        """Learn that the connection is lost, on the loop of its process."""
        if self.is_open and not self.loop.is_ended:
            self.forget()
            streams, self.streams = self.streams, {}
            for end in streams.values():
                end.close()
                if end.owner is not None:
                    end.owner.lost(reason)
            self.owner.disconnected(self)

    def forget(self) -> None:
        """Take no part any more, without a word."""
        self.is_open = False
        self.network.forget(self)
