"""Raw gRPC methods: byte strings in, byte strings out, registered by hand (D12).

Owns: the names of these methods, the identity serializers, the types around `grpc.aio` and `grpc`,
how services are registered. Does not own: what the bytes mean (`frames.py`, the peers' own
messages). The service of a raw method may also have generated methods; gRPC asks all registered
handlers in turn.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar, cast

import grpc
import grpc.aio

from dledger_proto.limits import FRAME_SIZE_MAX, KIB
from dledger_proto.network.tls import TlsFolder

BROKER_SERVICE: Final = "dledger.v1.Broker"
PEERS_SERVICE: Final = "dledger.v1.Peers"
APPEND: Final = f"/{BROKER_SERVICE}/Append"
APPEND_ONE: Final = f"/{BROKER_SERVICE}/AppendOne"
FETCH: Final = f"/{BROKER_SERVICE}/Fetch"
READ_LOG: Final = f"/{PEERS_SERVICE}/ReadLog"
READ_STATE: Final = f"/{PEERS_SERVICE}/ReadState"
READ_ENTRIES: Final = f"/{PEERS_SERVICE}/ReadEntries"

MESSAGE_SIZE_OPTIONS: Final = (
    ("grpc.max_send_message_length", FRAME_SIZE_MAX + 64 * KIB),
    ("grpc.max_receive_message_length", FRAME_SIZE_MAX + 64 * KIB),
)
"""Options of every channel and server that carries frames; gRPC's own limit is 4 MiB."""
CHANNEL_OPTIONS: Final = (*MESSAGE_SIZE_OPTIONS, ("grpc.enable_http_proxy", 0))
"""Options of every channel. A proxy that the environment names is meant for the web: no process of
a cluster uses it, or processes would see different clusters."""

Metadata = Sequence[tuple[str, str]]
RawHandler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"
RawService: TypeAlias = "grpc.GenericRpcHandler[bytes, bytes]"
RawContext: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
RawStreamCall: TypeAlias = "grpc.aio.StreamStreamCall[bytes, bytes]"
RawReadCall: TypeAlias = "grpc.aio.UnaryStreamCall[bytes, bytes]"
RawUnaryCall: TypeAlias = "grpc.aio.UnaryUnaryCall[bytes, bytes]"

UnaryBehaviour = Callable[[bytes, RawContext], Awaitable[bytes]]
ReadBehaviour = Callable[[bytes, RawContext], AsyncIterator[bytes]]
StreamBehaviour = Callable[[AsyncIterator[bytes], RawContext], AsyncIterator[bytes]]
StreamFunction = Callable[[AsyncIterator[bytes], RawContext], Awaitable[None]]
"""Reads and writes through the context instead of being a generator."""
ReadFunction = Callable[[bytes, RawContext], Awaitable[None]]
Call_co = TypeVar("Call_co", covariant=True)


class RawStream(Protocol):
    """Opens a stream of messages in both directions; `write` and `read` on the result."""

    def __call__(
        self,
        request_iterator: AsyncIterator[bytes] | None = None,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        *,
        wait_for_ready: bool | None = None,
    ) -> RawStreamCall:
        """Open the stream; `timeout` in seconds."""
        ...


class OneRequest(Protocol[Call_co]):
    """Sends one message; the result reads the answers, or is the answer itself."""

    def __call__(
        self,
        request: bytes,
        timeout: float | None = None,
        metadata: Metadata | None = None,
        *,
        wait_for_ready: bool | None = None,
    ) -> Call_co:
        """Start the call; `timeout` in seconds."""
        ...


RawRead = OneRequest[RawReadCall]
RawUnary = OneRequest[RawUnaryCall]


class Readable(Protocol):
    """A stream of messages to read: a call of a client, or a server's context."""

    async def read(self) -> object:
        """Wait for the next message."""
        ...


class SyncCall(Protocol):
    """A call of the blocking API that yields answers; raises grpc.RpcError when it breaks."""

    def __iter__(self) -> Iterator[bytes]: ...

    def __next__(self) -> bytes: ...

    def cancel(self) -> bool:
        """End the call from this side."""
        ...


SyncRead = OneRequest[SyncCall]
SyncUnary = OneRequest[bytes]


class _RawChannel(Protocol):
    """The untyped edge: what a channel's factories return when no serializer is given."""

    def stream_stream(self, method: str, to_bytes: None, from_bytes: None, /) -> RawStream: ...

    def unary_stream(self, method: str, to_bytes: None, from_bytes: None, /) -> RawRead: ...

    def unary_unary(self, method: str, to_bytes: None, from_bytes: None, /) -> RawUnary: ...


class _SyncChannel(Protocol):
    """The untyped edge: what a channel's factories return when no serializer is given."""

    def unary_stream(self, method: str, to_bytes: None, from_bytes: None, /) -> SyncRead: ...

    def unary_unary(self, method: str, to_bytes: None, from_bytes: None, /) -> SyncUnary: ...


class _Handlers(Protocol):
    """The untyped edge: the functions of the grpc module that make handlers."""

    def unary_unary_rpc_method_handler(self, behavior: UnaryBehaviour) -> RawHandler: ...

    def unary_stream_rpc_method_handler(
        self, behavior: ReadBehaviour | ReadFunction
    ) -> RawHandler: ...

    def stream_stream_rpc_method_handler(
        self, behavior: StreamBehaviour | StreamFunction
    ) -> RawHandler: ...

    def method_handlers_generic_handler(
        self, service: str, method_handlers: dict[str, RawHandler]
    ) -> RawService: ...


def raw_stream(channel: grpc.aio.Channel, method: str) -> RawStream:
    """Return the stream-stream method `method` ("/package.Service/Name") of a channel."""
    return cast("_RawChannel", channel).stream_stream(method, None, None)


def raw_read(channel: grpc.aio.Channel, method: str) -> RawRead:
    """Return the unary-stream method `method` of a channel."""
    return cast("_RawChannel", channel).unary_stream(method, None, None)


def raw_unary(channel: grpc.aio.Channel, method: str) -> RawUnary:
    """Return the unary-unary method `method` of a channel."""
    return cast("_RawChannel", channel).unary_unary(method, None, None)


async def read_frame(stream: Readable) -> bytes | None:
    """Return the next message of a stream, None at its end; grpc.RpcError when it breaks."""
    # At the end gRPC returns an object of its own (grpc.aio.EOF).
    message = await stream.read()
    return message if isinstance(message, bytes) else None


def sync_read(channel: grpc.Channel, method: str) -> SyncRead:
    """Return the unary-stream method `method` of a blocking channel."""
    return cast("_SyncChannel", channel).unary_stream(method, None, None)


def open_sync_channel(
    address: str, options: Sequence[tuple[str, int]], tls: TlsFolder | None
) -> grpc.Channel:
    """Return a blocking channel to "host:port", by TLS with the files of a folder if given."""
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, tls.current().for_channel(), options=options)


def sync_unary(channel: grpc.Channel, method: str) -> SyncUnary:
    """Return the unary-unary method `method` of a blocking channel."""
    return cast("_SyncChannel", channel).unary_unary(method, None, None)


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    """Server side: one message in, one out."""

    behaviour: UnaryBehaviour


@dataclass(frozen=True, slots=True)
class ReadMethod:
    """Server side: one message in, a stream out."""

    behaviour: ReadBehaviour | ReadFunction


@dataclass(frozen=True, slots=True)
class StreamMethod:
    """Server side: a stream in, a stream out."""

    behaviour: StreamBehaviour | StreamFunction


RawMethod = UnaryMethod | ReadMethod | StreamMethod


def raw_handlers(service: str, methods: Mapping[str, RawMethod]) -> RawService:
    """Return the handler of a service's methods, by short name, for a `grpc.aio` server.

    Register it with `server.add_generic_rpc_handlers((handler,))`. The generated functions register
    every method twice. For each of the second kind `grpc.aio` keeps a future, and puts all of them
    into one `asyncio.wait` at every call: with forty methods a tenth of what a unary call costs.
    """
    make = cast("_Handlers", grpc)
    handlers: dict[str, RawHandler] = {}
    for name, method in methods.items():
        match method:
            case UnaryMethod(behaviour):
                handlers[name] = make.unary_unary_rpc_method_handler(behaviour)
            case ReadMethod(behaviour):
                handlers[name] = make.unary_stream_rpc_method_handler(behaviour)
            case StreamMethod(behaviour):
                handlers[name] = make.stream_stream_rpc_method_handler(behaviour)
    return make.method_handlers_generic_handler(service, handlers)
