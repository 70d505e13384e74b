"""A channel in memory: at most one connection to an address, made when it is needed.

Owns: the states that gRPC documents, when a call may start, the back-off between attempts. The
upper layer is grpc.aio's own: `SimChannel` is a `grpc.aio.Channel`, its calls are grpc.aio's calls.
After a failed attempt a channel stays in TRANSIENT_FAILURE and tries again by itself. A channel
whose connection broke is IDLE until somebody needs it.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

import grpc
import grpc.aio
from grpc._cython import cygrpc
from grpc.aio import _call, _channel

from tests.sim.network.calls.call import CoreCall
from tests.sim.network.dialing import Dial
from tests.sim.network.options import Options
from tests.sim.network.wire import Pairs, Socket, StreamEnd
from tests.sim.process.loop import ProcessLoop

if TYPE_CHECKING:
    from tests.sim.network.network import Network

State = grpc.ChannelConnectivity
CLOSED: Final = "Channel is closed."
BACKOFF_FACTOR: Final = 1.6
BACKOFF_JITTER: Final = 0.2
UNREACHABLE: Final = "failed to connect to all addresses; last error: UNKNOWN: "


class CoreChannel:
    """What grpc.aio's channel uses of gRPC's core."""

    def __init__(self, network: "Network", loop: ProcessLoop, address: str, options: Options):
        self.loop = loop
        self.options = options
        self._network = network
        self._address = address
        self._random = Random(network.random.getrandbits(64))
        self._state = State.IDLE
        self._is_closed = False
        self._socket: Socket | None = None
        self._dial: Dial | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._backoff = 0.0
        self._next_attempt = 0.0
        self._reason = ""
        """Why the last attempt failed."""
        self._waiting: dict[CoreCall, None] = {}
        self._watchers: list[asyncio.Future[None]] = []

    # What grpc.aio asks.

    def closed(self) -> bool:
        return self._is_closed

    def closing(self) -> None:
        self._is_closed = True

    def close(self) -> None:
        """Close the connection."""
        self._is_closed = True
        if self.loop.is_ended:
            return
        if self._dial is not None:
            self._dial.cancel()
        if self._retry is not None:
            self._retry.cancel()
        if self._socket is not None:
            self._socket.shut()
        self._set_state(State.SHUTDOWN)

    def call(
        self, method: bytes, deadline: float | None, credentials: None, wait_for_ready: bool | None,
        handle: int,
    ) -> CoreCall:  # fmt: skip
        self._check_open()
        return CoreCall(self, method.decode(), deadline, waits=bool(wait_for_ready))

    def check_connectivity_state(self, try_to_connect: bool) -> int:
        if try_to_connect and not self._is_closed:
            self._connect()
        return int(self._state.value[0])

    async def watch_connectivity_state(self, seen: int, deadline: None) -> bool:
        self._check_open()
        if self._state.value[0] == seen:
            future: asyncio.Future[None] = self.loop.create_future()
            self._watchers.append(future)
            await future
        return True

    def _check_open(self) -> None:
        if self._is_closed:
            raise cygrpc.UsageError(CLOSED)

    # Calls.

    def start(self, call: CoreCall) -> None:
        """Open a call now, or as soon as there is a connection."""
        if self._state is State.READY and self._socket is not None:
            call.connected(self._socket)
        elif self._state is State.TRANSIENT_FAILURE and not call.waits:
            call.failed(UNREACHABLE + self._reason)
        else:
            self._waiting[call] = None
            self._connect()

    def ended(self, call: CoreCall) -> None:
        """Forget a call that ended."""
        self._waiting.pop(call, None)

    # The connection.

    def _connect(self) -> None:
        if self._state is State.IDLE:
            self._set_state(State.CONNECTING)
            self._attempt()

    def _attempt(self) -> None:
        self._retry = None
        options, random = self.options, self._random
        self._backoff = min(
            self._backoff * BACKOFF_FACTOR if self._backoff else options.backoff_min,
            options.backoff_max,
        )
        pause = self._backoff * random.uniform(1.0 - BACKOFF_JITTER, 1.0 + BACKOFF_JITTER)
        self._next_attempt = self.loop.time() + pause
        self._dial = Dial(
            self._network, self.loop, self._address, self, options,
            max(pause, options.connect_timeout), self._answered,
        )  # fmt: skip

    def _answered(self, socket: Socket | None, reason: str) -> None:
        self._dial = None
        if self._is_closed:
            if socket is not None:
                socket.shut()
            return
        if socket is None or not socket.is_open:
            self._failed(reason or "Socket closed")
            return
        self._socket = socket
        self._backoff = 0.0
        self._set_state(State.READY)
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            self.start(call)

    def _failed(self, reason: str) -> None:
        self._reason = reason
        self._set_state(State.TRANSIENT_FAILURE)
        self._retry = self.loop.call_at(max(self._next_attempt, self.loop.time()), self._attempt)
        for call in [each for each in self._waiting if not each.waits]:
            call.failed(UNREACHABLE + reason)

    def disconnected(self, socket: Socket) -> None:
        """Learn that the connection is lost."""
        if socket is self._socket:
            self._socket = None
            if not self._is_closed:
                self._set_state(State.IDLE)

    def going_away(self, socket: Socket) -> None:
        """Learn that the server takes no new calls."""
        self.disconnected(socket)

    def opened(self, end: StreamEnd, payload: object) -> None:
        """Never happens: a server opens no calls."""
        raise AssertionError("a server opened a call")

    def _set_state(self, state: grpc.ChannelConnectivity) -> None:
        if state is not self._state:
            self._state = state
            watchers, self._watchers = self._watchers, []
            for watcher in watchers:
                if not watcher.done():
                    watcher.set_result(None)


class ActiveCalls:
    """The calls of a channel, in the order of their start; grpc.aio keeps a set without order."""

    def __init__(self) -> None:
        self._calls: dict[Any, None] = {}

    def add(self, call: object) -> None:
        self._calls[call] = None

    def discard(self, call: object) -> None:
        self._calls.pop(call, None)

    def clear(self) -> None:
        self._calls.clear()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._calls)


class SimChannel(_channel.Channel):
    """A channel of a simulated process, with the upper layer of grpc.aio."""

    def __init__(
        self, network: "Network", loop: ProcessLoop, address: str,
        options: Sequence[tuple[str, int]],
    ) -> None:  # fmt: skip
        self._loop = loop
        self._channel = CoreChannel(network, loop, address, Options(options))
        self._active_calls: Any = ActiveCalls()

    def __del__(self) -> None:
        """Do nothing: the collector must not decide when a connection ends."""

    # grpc.aio's own take the deadline from the machine's clock.

    def unary_unary(self, method: str, *serializers: Any) -> Any:
        """Return a function that starts calls with one message in each direction."""
        return self._starter(method, _call.UnaryUnaryCall)

    def unary_stream(self, method: str, *serializers: Any) -> Any:
        """Return a function that starts calls with one message, answered by many."""
        return self._starter(method, _call.UnaryStreamCall)

    def stream_stream(self, method: str, *serializers: Any) -> Any:
        """Return a function that starts calls with many messages in both directions."""
        return self._starter(method, _call.StreamStreamCall)

    def _starter(self, method: str, kind: Any) -> Callable[..., Any]:
        core, loop, name = self._channel, self._loop, method.encode()
        calls = self._active_calls

        def start(
            request_iterator: object = None,  # or the only request
            timeout: float | None = None,
            metadata: Sequence[tuple[str, str]] | None = None,
            *,
            wait_for_ready: bool | None = None,
        ) -> Any:
            deadline = None if timeout is None else loop.time() + timeout
            pairs = cast("Pairs", tuple(metadata or ()))
            call = kind(
                request_iterator,
                deadline,
                pairs,
                None,
                wait_for_ready,
                core,
                name,
                None,
                None,
                loop,
            )
            calls.add(call)
            call.add_done_callback(calls.discard)
            return call

        return start
