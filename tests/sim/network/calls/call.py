"""One call at its client: what grpc.aio's own call objects use of gRPC's core.

`grpc.aio._call` wraps this object: its methods and two of its attributes have the names that it
asks for.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
from grpc._cython import cygrpc

from tests.sim.network.wire import (
    HALF_CLOSE,
    HEADERS,
    RESET,
    STATUS,
    BatchFailed,
    Pairs,
    Socket,
    StreamEnd,
)

if TYPE_CHECKING:
    from tests.sim.network.calls.channel import CoreChannel

_S: Final = grpc.StatusCode
DEADLINE_EXCEEDED: Final = "Stream removed (Deadline Exceeded)"
COLLECTED: Final = "Cancelled upon garbage collection!"
"""grpc.aio's reason when it cancels a call that nobody refers to."""


class CoreCall:
    """The state of a call between its start and its status."""

    def __init__(
        self, channel: "CoreChannel", method: str, deadline: float | None, *, waits: bool
    ) -> None:
        """`deadline`: by the loop's time. `waits`: for a connection, however long it takes."""
        self.method = method
        self.waits = waits
        self._channel = channel
        self._loop = channel.loop
        self._deadline = deadline
        self._timer: asyncio.TimerHandle | None = None
        self._end: StreamEnd | None = None
        self._opening: tuple[Pairs, bytes | None] | None = None
        self._status: Any = None
        self._initial_metadata: Pairs | None = None
        self._trailers: Any = None
        """The status, which came while messages are unread."""
        self._response: bytes | None = None
        self._is_half_closed = False
        """The client writes nothing, and said so before there was a connection."""
        self._is_locally_cancelled = False
        self._done_callbacks: list[Callable[[], object]] = []
        self._waiters: dict[str, list[asyncio.Future[None]]] = {
            "start": [], "metadata": [], "status": []
        }  # fmt: skip

    # What grpc.aio asks.

    def done(self) -> bool:
        return self._status is not None

    def is_ok(self) -> bool:
        return self._status is not None and self._status.code() == 0

    def cancelled(self) -> bool:
        return self._status is not None and self._status.code() == _S.CANCELLED.value[0]

    def is_locally_cancelled(self) -> bool:
        return self._is_locally_cancelled

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        if self._status is not None:
            callback()
        else:
            self._done_callbacks.append(callback)

    def time_remaining(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - self._loop.time())

    async def initial_metadata(self) -> Pairs:
        if self._initial_metadata is None:
            await self._wait("metadata")
        return self._initial_metadata or ()

    async def status(self) -> Any:
        if self._status is None:
            await self._wait("status")
        return self._status

    def cancel(self, details: str) -> None:
        """End the call from this side."""
        if details == COLLECTED or self._loop.is_ended or self._status is not None:
            return
        self._is_locally_cancelled = True
        self._break(_S.CANCELLED, details)

    def set_internal_error(self, error: str) -> None:
        """Learn from grpc.aio that an operation failed; this hides the call's own status."""
        status = _status(_S.INTERNAL, "Internal error from Core", (), error)
        if self._status is None:
            self._finish(status)
        else:
            self._status = status

    async def unary_unary(self, request: bytes, metadata: Pairs, context: object) -> bytes | None:
        self._start(metadata, request)
        await self.status()
        return self._response

    async def initiate_unary_stream(self, request: bytes, metadata: Pairs, context: object) -> None:
        self._start(metadata, request)
        await self.initial_metadata()

    async def initiate_stream_stream(
        self, metadata: Pairs, metadata_sent: Callable[[], None], context: object
    ) -> None:
        self._start(metadata, None)
        if self._end is None and self._status is None:
            await self._wait("start")
        metadata_sent()
        await self.initial_metadata()

    async def receive_serialized_message(self) -> object:
        end = self._end
        if end is None:
            return cygrpc.EOF
        message = await end.read()
        if self._trailers is not None and not end.inbox:
            self._finish(self._trailers)
        return cygrpc.EOF if message is None else message

    async def send_serialized_message(self, message: bytes) -> None:
        end = self._end
        if end is None or end.is_closed:
            raise BatchFailed("the call has ended")
        if len(message) > self._channel.options.send_max:
            self._sent_too_large(len(message))
        else:
            end.send_message(message)
            await end.wait_for_room()

    async def send_receive_close(self) -> None:
        if self._end is not None:
            self._end.send(HALF_CLOSE)
        else:
            self._is_half_closed = True

    # The start.

    def _start(self, metadata: Pairs, request: bytes | None) -> None:
        """Begin the call; a request is its only one."""
        if self._status is not None:
            return
        self._opening = (metadata, request)
        if self._deadline is not None:
            self._timer = self._loop.call_at(
                self._deadline, self._break, _S.DEADLINE_EXCEEDED, DEADLINE_EXCEEDED
            )
        self._channel.start(self)

    def connected(self, socket: Socket) -> None:
        """Open the call's stream."""
        if self._status is not None:
            return
        assert self._opening is not None, f"{self.method} was not started"
        end = self._end = socket.open_stream(self)
        metadata, request = self._opening
        if request is not None and len(request) > self._channel.options.send_max:
            self._sent_too_large(len(request))
            return
        end.send(HEADERS, (self.method, metadata, self.time_remaining(), request))
        if self._is_half_closed:
            end.send(HALF_CLOSE)
        self._wake("start")

    def _sent_too_large(self, size: int) -> None:
        limit = self._channel.options.send_max
        self._break(
            _S.RESOURCE_EXHAUSTED, f"CLIENT: Sent message larger than max ({size} vs. {limit})"
        )

    # What comes from the server.

    def came(self, kind: int, payload: Any) -> None:
        """Learn of the initial metadata, the status or a reset."""
        if self._status is not None:
            return
        if kind == HEADERS:
            self._set_initial_metadata(payload)
        elif kind == STATUS:
            self._take_status(*payload)
        elif kind == RESET:
            code, details = payload
            self._finish(_status(code, details))

    def _take_status(
        self, code: grpc.StatusCode, details: str, trailing: Pairs, response: bytes | None
    ) -> None:
        end = self._end
        assert end is not None, "a status came without a stream"
        if response is not None:
            end.socket.network.delivered += 1
            if len(response) > end.receive_max:
                self.too_large(len(response))
                return
        self._response = response
        status = _status(code, details, trailing)
        if end.inbox:
            end.half_closed = True
            self._trailers = status
        else:
            self._finish(status)

    def too_large(self, size: int) -> None:
        """Refuse a message over the limit."""
        limit = self._channel.options.receive_max
        self._break(
            _S.RESOURCE_EXHAUSTED,
            f"Stream removed (CLIENT: Received message larger than max ({size} vs. {limit}))",
        )

    def lost(self, reason: str) -> None:
        """Learn that the connection is lost."""
        self.failed(reason)

    def failed(self, reason: str) -> None:
        """End as UNAVAILABLE: there is no connection."""
        if self._status is None:
            self._finish(_status(_S.UNAVAILABLE, reason))

    # The end.

    def _break(self, code: grpc.StatusCode, details: str) -> None:
        """End the call from this side."""
        if self._status is None:
            if self._end is not None:
                self._end.send(RESET)
            self._finish(_status(code, details))

    def _finish(self, status: Any) -> None:
        self._status = status
        self._trailers = None
        if self._timer is not None:
            self._timer.cancel()
        self._channel.ended(self)
        if self._end is not None:
            self._end.close()
        if self._initial_metadata is None:
            self._set_initial_metadata(())
        self._wake("start")
        self._wake("status")
        callbacks, self._done_callbacks = self._done_callbacks, []
        for callback in callbacks:
            callback()

    def _set_initial_metadata(self, metadata: Pairs) -> None:
        if self._initial_metadata is None:
            self._initial_metadata = metadata
            self._wake("metadata")

    async def _wait(self, what: str) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiters[what].append(future)
        await future

    def _wake(self, what: str) -> None:
        waiters, self._waiters[what] = self._waiters[what], []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _status(
    code: grpc.StatusCode, details: str, trailing: Pairs = (), error: str | None = None
) -> Any:
    said = error if error is not None else f"{code.name}:{details}"
    return cygrpc.AioRpcStatus(code.value[0], details, trailing, said)
