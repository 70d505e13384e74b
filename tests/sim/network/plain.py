"""Plain TCP connections for asyncio's protocols: what links between members use.

Owns: transports in memory, on the streams of `wire.py`. What one write gives travels as one piece,
and arrives in pieces of any size. What the dialler sends after its first piece is a frame of a Raft
link for the weather (`path.py`). The kernel asks silent peers whether they are there; it answers
for a process that stands still. Linux, with TCP_USER_TIMEOUT, does not when such a process has full
buffers; the kernel here does.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from tests.sim.network.dialing import Dial
from tests.sim.network.options import Options
from tests.sim.network.wire import HEADERS, Socket, StreamEnd
from tests.sim.process.loop import P, ProcessLoop

if TYPE_CHECKING:
    from tests.sim.network.network import Network

CONNECT_SECONDS: Final = 60.0
"""The kernel gives an attempt to connect up after about so long; callers are less patient."""
SPLIT_SHARE: Final = 0.1
"""Of the pieces that arrive in two parts."""
OPTIONS: Final = Options(
    [
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 1_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.max_receive_message_length", -1),
    ],
    by_kernel=True,
)

Factory = Callable[[], asyncio.BaseProtocol]


class PlainTransport(asyncio.Transport):
    """One process's end of a connection. Owns the only stream on it."""

    def __init__(self, end: StreamEnd, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._end = end
        self._loop = end.socket.loop
        self._protocol = cast("asyncio.BufferedProtocol", protocol)
        self._is_closing = False
        self._is_paused = False
        end.owner = self
        end.on_message = self._arrived
        self._protocol.connection_made(self)

    # What the product asks.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._end.socket.peer.host, 0) if name == "peername" else default

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The window of the stream is the bound."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        end = self._end
        if self._is_closing or end.is_closed:
            return
        end.send_message(b"".join(list_of_data))
        if end.socket.is_dialler and not end.carries_frames:
            end.socket.network.link_opened(end)
        if end.is_full and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()
            self._loop.create_task(self._resume())

    async def _resume(self) -> None:
        if await self._end.has_room():
            self._is_paused = False
            self._protocol.resume_writing()

    def close(self) -> None:
        self._close(None)
        self._end.socket.shut()

    def abort(self) -> None:
        self.close()

    # What comes from the other end.

    def _arrived(self, data: bytes) -> None:
        random = self._loop.random
        cut = random.randrange(len(data)) if random.random() < SPLIT_SHARE else len(data)
        for part in (data[:cut], data[cut:]):
            self._feed(part)

    def _feed(self, part: bytes) -> None:
        at = 0
        while at < len(part) and not self._is_closing:
            buffer = cast("memoryview", self._protocol.get_buffer(-1))
            size = min(len(buffer), len(part) - at)
            buffer[:size] = part[at : at + size]
            at += size
            self._protocol.buffer_updated(size)

    def came(self, kind: int, payload: Any) -> None:
        """Nothing but data travels on the stream."""
        raise AssertionError(f"{kind} came: {payload}")

    def too_large(self, size: int) -> None:
        """TCP has no bound of a piece."""
        raise AssertionError(f"{size} bytes came")

    def lost(self, reason: str) -> None:
        """Learn that the connection is lost."""
        self._close(None if reason == "Socket closed" else ConnectionResetError(reason))

    def _close(self, error: Exception | None) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._protocol.connection_lost, error)


class PlainServer:
    """A port on which a process takes connections. Stands in for `asyncio.Server`."""

    answers = True
    """The kernel finishes a handshake also for a process that stands still."""

    def __init__(self, network: "Network", loop: ProcessLoop, factory: Factory, port: int) -> None:
        self.loop = loop
        self.options = OPTIONS
        self._network = network
        self._factory = factory
        self._port = network.listen(loop, port, self)
        if not self._port:
            raise OSError(f"port {port} is taken")

    def close(self) -> None:
        """Take no more connections."""
        self._network.unlisten(self.loop, self._port)

    def accepted(self, socket: Socket) -> None:
        """Take a connection; its stream opens it."""

    def opened(self, end: StreamEnd, _payload: object) -> None:
        """Let the application's protocol begin."""
        PlainTransport(end, self._factory())

    def going_away(self, socket: Socket) -> None:
        """Never happens: only gRPC says so."""
        raise AssertionError(f"{socket.host} heard GOAWAY")

    def disconnected(self, socket: Socket) -> None:
        """The transport has been told."""


class _Dialler:
    """Owns the dialler's end of a connection."""

    def opened(self, end: StreamEnd, payload: object) -> None:
        """Never happens: the dialler opens the only stream."""
        raise AssertionError(f"stream {end.number} was opened with {payload}")

    def going_away(self, socket: Socket) -> None:
        """Never happens: only gRPC says so."""
        raise AssertionError(f"{socket.host} heard GOAWAY")

    def disconnected(self, socket: Socket) -> None:
        """The transport has been told."""


async def connect(
    network: "Network", loop: ProcessLoop, factory: Callable[[], P], host: str, port: int
) -> tuple[asyncio.Transport, P]:
    """Dial; OSError when it is refused or not answered."""
    dialled: asyncio.Future[Socket] = loop.create_future()

    def answered(socket: Socket | None, reason: str) -> None:
        if dialled.done():
            if socket is not None:
                socket.shut()
        elif socket is None:
            dialled.set_exception(ConnectionRefusedError(reason))
        else:
            dialled.set_result(socket)

    dial = Dial(network, loop, f"{host}:{port}", _Dialler(), OPTIONS, CONNECT_SECONDS, answered)
    try:
        socket = await dialled
    finally:
        dial.cancel()
    if not socket.is_open:
        raise ConnectionResetError("reset at once")
    protocol = factory()
    end = socket.open_stream(cast("Any", None))
    end.send(HEADERS)
    return PlainTransport(end, protocol), protocol
