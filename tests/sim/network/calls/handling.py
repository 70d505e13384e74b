"""One call at its server: the context that its handler gets, and how the handler's end is told.

The rules are grpc.aio's: what a handler raises, which operations fail after the end, and that a
client that went away first ends what the handler waits for, then cancels the handler.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import grpc
import grpc.aio
from grpc._cython import cygrpc

from tests.sim.network.wire import (
    HEADERS,
    RESET,
    STATUS,
    BatchFailed,
    Pairs,
    StreamEnd,
)

if TYPE_CHECKING:
    from tests.sim.network.calls.server import SimServer

_S: Final = grpc.StatusCode
FINISHED: Final = "RPC already finished."
STOPPED: Final = "Server already stopped."
USER_AGENT: Final = "grpc-python-asyncio/simulated"


class Metadatum(NamedTuple):
    """A pair of a call's metadata."""

    key: str
    value: str | bytes


class CallDetails(NamedTuple):
    """What a service is asked for the handler of a call."""

    method: str
    invocation_metadata: tuple[Metadatum, ...]


class ServerCall:
    """One call; it is its handler's context too (`grpc.aio.ServicerContext`)."""

    def __init__(
        self,
        server: "SimServer",
        end: StreamEnd,
        method: str,
        metadata: Pairs,
        timeout: float | None,
        request: bytes | None,
    ) -> None:
        self.method = method
        self.metadata = tuple(
            Metadatum(key, value) for key, value in (("user-agent", USER_AGENT), *metadata)
        )
        self._server = server
        self._end = end
        self._loop = server.loop
        self._request = request
        self._deadline = None if timeout is None else self._loop.time() + timeout
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._abort_error: Exception | None = None
        self._metadata_sent = False
        self._status_sent = False
        self._client_closed = False
        self._code = _S.OK
        self._details = ""
        self._trailing: Pairs = ()
        self._callbacks: list[Callable[[Any], object]] = []

    # The handler's task.

    def run(self, handler: Any) -> None:
        """Begin to handle the call; `handler`: None for an unknown method."""
        if self._deadline is not None:
            self._timer = self._loop.call_at(self._deadline, self._expired)
        self._task = self._loop.create_task(self._handle(handler), name=f"rpc {self.method}")
        self._task.add_done_callback(self._handled)

    async def _handle(self, handler: Any) -> None:
        try:
            await self._dispatch(handler)
        except cygrpc.AbortError:
            return
        except (cygrpc._ServerStoppedError, BatchFailed):
            return  # nobody is there to be told
        except Exception as error:
            self._loop.call_exception_handler(
                {"exception": error, "message": f"the handler of {self.method}"}
            )
            code = _S.UNKNOWN if self._code is _S.OK else self._code
            await self._send_error(code, f"Unexpected {type(error)}: {error}", self._trailing)

    async def _dispatch(self, handler: Any) -> None:
        if handler is None:
            await self._send_error(_S.UNIMPLEMENTED, "Method not found!", ())
            return
        request: Any
        if handler.request_streaming:
            request = self._requests()
        else:
            request = self._request if self._request is not None else await self._end.read()
            if request is None:
                return
            if len(request) > self._end.receive_max:
                self.too_large(len(request))
                return
        if handler.response_streaming:
            await self._answer_stream(handler.unary_stream or handler.stream_stream, request)
            response = None
        else:
            response = await (handler.unary_unary or handler.stream_unary)(request, self)
        self._check()
        await self._send_status(self._code, self._details, self._trailing, response)

    async def _answer_stream(self, behaviour: Any, request: Any) -> None:
        if inspect.isasyncgenfunction(behaviour):
            async for message in behaviour(request, self):
                self._check()
                await self.write(message)
        else:
            await behaviour(request, self)

    async def _requests(self) -> AsyncIterator[bytes]:
        while isinstance(message := await self.read(), bytes):
            yield message

    def _handled(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"exception": error, "message": self.method})
        for callback in self._callbacks:
            callback(self)
        if self._timer is not None:
            self._timer.cancel()
        self._server.ended(self)

    # What ends the call from outside.

    def came(self, kind: int, payload: Any) -> None:
        """Learn that the client ended the call."""
        assert kind == RESET, f"a client sent {kind}"
        self.lost("")

    def lost(self, reason: str) -> None:
        """End the call: what the handler waits for fails, then the handler is cancelled."""
        self._end.close()
        self._loop.call_soon(self._cancel)

    def _cancel(self) -> None:
        self._client_closed = True
        if self._task is not None and not self._task.done() and not self._status_sent:
            self._task.cancel()

    def too_large(self, size: int) -> None:
        """Refuse a message over the limit."""
        self._refuse(
            _S.RESOURCE_EXHAUSTED,
            f"SERVER: Received message larger than max ({size} vs. {self._end.receive_max})",
        )

    def cancel_by_server(self, reason: str) -> None:
        """End the call: the server stops."""
        self._refuse(_S.UNAVAILABLE, reason)

    def _expired(self) -> None:
        self._refuse(_S.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def _refuse(self, code: grpc.StatusCode, details: str) -> None:
        if not self._end.is_closed:
            self._end.send(RESET, (code, details))
            self.lost(details)

    # The context.

    async def read(self) -> object:
        """Return the next message, or grpc.aio.EOF."""
        self._check()
        message = await self._end.read()
        self._check()
        return cygrpc.EOF if message is None else message

    async def write(self, message: bytes) -> None:
        """Send a message; wait until it fits into the window."""
        self._check()
        end = self._end
        if end.is_closed:
            raise BatchFailed("the client has gone")
        if len(message) > self._server.options.send_max:
            self._sent_too_large(len(message))
        if not self._metadata_sent:
            self._send_metadata(())
        end.send_message(message)
        await end.wait_for_room()

    def _sent_too_large(self, size: int) -> NoReturn:
        limit = self._server.options.send_max
        self._refuse(
            _S.RESOURCE_EXHAUSTED, f"SERVER: Sent message larger than max ({size} vs. {limit})"
        )
        raise BatchFailed("the message is too large")

    async def send_initial_metadata(self, metadata: Pairs) -> None:
        """Send the metadata that comes before all messages."""
        self._check()
        if self._metadata_sent:
            raise cygrpc.UsageError("Send initial metadata failed: already sent")
        if self._end.is_closed:
            raise BatchFailed("the client has gone")
        self._send_metadata(metadata)

    def _send_metadata(self, metadata: Pairs) -> None:
        self._metadata_sent = True
        self._end.send(HEADERS, tuple(metadata))

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Pairs = ()
    ) -> NoReturn:
        """End the call with an error."""
        if self._abort_error is not None:
            raise cygrpc.UsageError("Abort already called!")
        assert code is not _S.OK, "abort with OK"
        self._abort_error = cygrpc.AbortError("Locally aborted.")
        self._trailing = trailing_metadata or self._trailing
        await self._send_error(code, details or self._details, self._trailing)
        raise self._abort_error

    async def _send_error(self, code: grpc.StatusCode, details: str, trailing: Pairs) -> None:
        if not self._status_sent and not self._server.is_stopped:
            await self._send_status(code, details, trailing, None)

    async def _send_status(
        self, code: grpc.StatusCode, details: str, trailing: Pairs, response: bytes | None
    ) -> None:
        self._code = code
        self._status_sent = True
        end = self._end
        if end.is_closed:
            raise BatchFailed("the client has gone")
        await end.wait_for_room()
        end.send(STATUS, (code, details, tuple(trailing), response))
        end.close()

    def _check(self) -> None:
        """Refuse what is asked after the end."""
        if self._abort_error is not None:
            raise self._abort_error
        if self._status_sent:
            raise cygrpc.UsageError(FINISHED)
        if self._server.is_stopped:
            raise cygrpc._ServerStoppedError(STOPPED)

    def auth_context(self) -> dict[str, list[bytes]]:
        """Nothing is proved: there is no TLS here."""
        return {}

    def invocation_metadata(self) -> tuple[Metadatum, ...]:
        return self.metadata

    def time_remaining(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - self._loop.time())

    def peer(self) -> str:
        socket = self._end.socket
        return f"ipv4:{socket.peer.host}:{20_000 + socket.number}"

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def set_details(self, details: str) -> None:
        self._details = details

    def details(self) -> str:
        return self._details

    def set_trailing_metadata(self, metadata: Pairs) -> None:
        self._trailing = tuple(metadata)

    def trailing_metadata(self) -> Pairs:
        return self._trailing

    def cancelled(self) -> bool:
        return self._code is _S.CANCELLED

    def done(self) -> bool:
        return self._status_sent

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        self._callbacks.append(callback)
