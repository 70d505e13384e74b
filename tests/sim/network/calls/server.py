"""A server in memory: its ports, its methods, its calls, and how it stops."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import grpc
from grpc import _common
from grpc._cython import cygrpc

from tests.sim.network.calls.handling import CallDetails, ServerCall
from tests.sim.network.dialing import parse_address
from tests.sim.network.options import Options
from tests.sim.network.wire import GOAWAY, Socket, StreamEnd
from tests.sim.process.loop import ProcessLoop

if TYPE_CHECKING:
    from tests.sim.network.network import Network

CANCELLED_ALL: Final = "Cancelling all calls"


class SimServer:
    """Stands in for `grpc.aio.Server`."""

    def __init__(
        self, network: "Network", loop: ProcessLoop, options: Sequence[tuple[str, int]]
    ) -> None:
        self.loop = loop
        self.options = Options(options)
        self.is_stopped = False
        self._network = network
        self._handlers: list[Any] = []
        self._ports: list[int] = []
        self._is_serving = False
        self._is_stopping = False
        self._sockets: dict[int, Socket] = {}
        self._calls: dict[ServerCall, None] = {}
        self._ended = asyncio.Event()
        """All calls have ended after the stop."""

    @property
    def answers(self) -> bool:
        """True when a handshake would be finished now."""
        return self._is_serving and not self.loop.is_paused

    # What applications ask.

    def add_generic_rpc_handlers(self, handlers: Sequence[Any]) -> None:
        """Serve these methods."""
        self._handlers.extend(handlers)

    def add_insecure_port(self, address: str) -> int:
        """Listen; return the port; RuntimeError when it is taken."""
        port = self._network.listen(self.loop, parse_address(address)[1], self)
        if port:
            self._ports.append(port)
        return _common.validate_port_binding_result(address, port)

    async def start(self) -> None:
        """Answer from here on."""
        if self._is_stopping:
            raise cygrpc.UsageError("Server not in ready state")
        self._is_serving = True

    async def stop(self, grace: float | None) -> None:
        """Refuse new calls; end those that are left after the grace."""
        if not self._is_serving and not self._is_stopping:
            return
        if not self._is_stopping:
            self._begin_stop()
        if grace is not None:
            try:
                async with asyncio.timeout(grace):
                    await self._ended.wait()
            except TimeoutError:
                self._cancel_calls()
        else:
            self._cancel_calls()
        await self._ended.wait()
        self.is_stopped = True
        for socket in list(self._sockets.values()):
            socket.shut()

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Wait until the server has stopped; return True when the time is over before."""
        try:
            async with asyncio.timeout(timeout):
                await self._ended.wait()
        except TimeoutError:
            return True
        return False

    def _begin_stop(self) -> None:
        self._is_stopping, self._is_serving = True, False
        for port in self._ports:
            self._network.unlisten(self.loop, port)
        for socket in list(self._sockets.values()):
            socket.control.send(GOAWAY)
        self._note_end()

    def _cancel_calls(self) -> None:
        for call in list(self._calls):
            call.cancel_by_server(CANCELLED_ALL)

    # Connections and calls.

    def accepted(self, socket: Socket) -> None:
        """Take a connection."""
        self._sockets[socket.number] = socket

    def opened(self, end: StreamEnd, payload: Any) -> None:
        """Take a call."""
        method, metadata, timeout, request = payload
        call = ServerCall(self, end, method, metadata, timeout, request)
        end.owner = call
        self._network.delivered += request is not None
        if self._is_stopping:
            call.cancel_by_server(CANCELLED_ALL)
            return
        self._calls[call] = None
        call.run(self._handler_of(method, call.metadata))

    def _handler_of(self, method: str, metadata: Any) -> Any:
        details = cast("grpc.HandlerCallDetails", CallDetails(method, metadata))
        for each in self._handlers:
            handler = each.service(details)
            if handler is not None:
                return handler
        return None

    def ended(self, call: ServerCall) -> None:
        """Forget a call whose handler has ended."""
        self._calls.pop(call, None)
        self._note_end()

    def _note_end(self) -> None:
        if self._is_stopping and not self._calls:
            self._ended.set()

    def going_away(self, socket: Socket) -> None:
        """Never happens: a client just closes its connection."""
        raise AssertionError("a client sent GOAWAY")

    def disconnected(self, socket: Socket) -> None:
        """Forget a connection."""
        self._sockets.pop(socket.number, None)
