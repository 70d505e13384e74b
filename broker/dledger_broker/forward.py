"""From member to member: warm channels, and the append streams that carry forwarded batches.

Owns the connections this process opens as a caller of other members, and the rule of D10 that a
forwarded batch is sent once: when its stream breaks behind it, its outcome is unknown. Peer links
of the Raft groups are not here (`dledger.raft.transport`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, cast

import grpc
import grpc.aio
import structlog

from dledger.clock import Clock
from dledger_broker.append import Item
from dledger_proto import raw
from dledger_proto.errors import Code, DledgerError
from dledger_proto.frames import encode_append, parse_answers
from dledger_proto.limits import (
    FRAME_ROWS_MAX,
    FRAME_SIZE_TARGET,
    RECONNECT_BACKOFF_MAX_MS,
    RECONNECT_BACKOFF_MIN_MS,
)

GROUP_KEY: Final = "dledger-group"
"""Call metadata: which group of the process is meant."""
FORWARDED_KEY: Final = "dledger-forwarded"
"""Call metadata: a member forwarded this call; it is not forwarded again."""
KEEPALIVE_MS: Final = 2_000
CONNECT_SECONDS: Final = 1.0
"""A leader that cannot be reached for this long: what was not sent yet is routed again."""


def client_options() -> list[tuple[str, int]]:
    """Return the options of a channel to another member or a name server (D10)."""
    return [
        ("grpc.use_local_subchannel_pool", 1),
        *raw.MESSAGE_SIZE_OPTIONS,
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", RECONNECT_BACKOFF_MIN_MS),
        ("grpc.min_reconnect_backoff_ms", RECONNECT_BACKOFF_MIN_MS),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_BACKOFF_MAX_MS),
        ("grpc.enable_http_proxy", 0),
    ]


class Channels:
    """One channel per address, opened at first use and kept."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}

    def to(self, address: str) -> grpc.aio.Channel:
        """Return the channel to "host:port"."""
        channel = self._channels.get(address)
        if channel is None:
            channel = grpc.aio.insecure_channel(address, options=client_options())
            self._channels[address] = channel
        return channel

    async def close(self) -> None:
        """Close all."""
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.close(None) for channel in channels.values()))


class AppendForwarder:
    """Forwards the batches of one group to whoever leads it."""

    def __init__(
        self,
        group: str,
        channels: Channels,
        clock: Clock,
        reroute: Callable[[Sequence[Item]], None],
    ) -> None:
        self._group = group
        self._channels = channels
        self._clock = clock
        self._reroute = reroute
        self._stream: _ForwardStream | None = None

    def send(self, address: str, items: Sequence[Item]) -> None:
        """See `append.Forwarder`. A change of leader begins a new stream, the old one drains."""
        stream = self._stream
        if stream is None or stream.address != address or stream.is_over:
            if stream is not None:
                stream.finish()
            call: raw.RawStreamCall = raw.raw_stream(self._channels.to(address), raw.APPEND)(
                metadata=((GROUP_KEY, self._group), (FORWARDED_KEY, "1")), wait_for_ready=False
            )
            stream = self._stream = _ForwardStream(address, call, self._clock, self._reroute)
        stream.send(items)

    async def stop(self) -> None:
        """End the stream once its answers are in, or at once when it hangs."""
        if self._stream is not None:
            await self._stream.stop()


class _ForwardStream:
    """One append stream to one leader."""

    def __init__(
        self,
        address: str,
        call: raw.RawStreamCall,
        clock: Clock,
        reroute: Callable[[Sequence[Item]], None],
    ) -> None:
        self.address = address
        self.is_over = False
        self._call = call
        self._clock = clock
        self._reroute = reroute
        self._unsent: deque[Item] = deque()
        self._sent: deque[Item] = deque()
        self._next_number = 1
        self._wake = asyncio.Event()
        self._finishing = False
        loop = asyncio.get_running_loop()
        self._writer = loop.create_task(self._write(), name=f"forward to {address}")
        self._reader = loop.create_task(self._read(), name=f"forwarded answers of {address}")
        self._log = structlog.get_logger().bind(address=address)

    def send(self, items: Sequence[Item]) -> None:
        self._unsent.extend(items)
        self._wake.set()

    def finish(self) -> None:
        """Send no more than is queued; close when all is answered."""
        self._finishing = True
        self._wake.set()

    async def stop(self) -> None:
        self.finish()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.gather(self._reader, return_exceptions=True)
        except TimeoutError:
            self._call.cancel()

    async def _write(self) -> None:
        try:
            # Nothing counts as sent before the leader has taken the stream.
            await self._call.initial_metadata()
            while not self._call.done():
                if self._unsent:
                    await self._call.write(self._take_frame())
                elif self._finishing:
                    await self._call.done_writing()
                    return
                else:
                    self._wake.clear()
                    await self._wake.wait()
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            self._call.cancel()  # the reader settles what was sent

    def _take_frame(self) -> bytes:
        """Return a frame of what waits. From here on these batches count as sent."""
        batches: list[memoryview] = []
        size = 0
        now = self._clock.monotonic()
        timeout_ms = 1
        while self._unsent and len(batches) < FRAME_ROWS_MAX:
            item = self._unsent[0]
            if batches and size + item.size > FRAME_SIZE_TARGET:
                break
            self._unsent.popleft()
            self._sent.append(item)
            batches.append(item.batch)
            size += item.size
            timeout_ms = max(timeout_ms, int((item.deadline - now) * 1000))
        number = self._next_number
        self._next_number += len(batches)
        return encode_append(batches, first_number=number, timeout_ms=timeout_ms, one_way=False)

    async def _read(self) -> None:
        reason = "the stream to the leader ended"
        try:
            read = cast("Callable[[], Awaitable[object]]", self._call.read)  # bytes, or EOF
            while isinstance(frame := await read(), bytes):
                self._take_answers(frame)
        except (grpc.aio.AioRpcError, asyncio.CancelledError, DledgerError) as error:
            reason = f"the stream to the leader broke: {type(error).__name__}"
        self.is_over = True
        self._writer.cancel()
        sent, self._sent = self._sent, deque()
        if sent:
            self._log.warning("forwarded batches of unknown outcome", count=len(sent))
        for item in sent:
            item.refuse(Code.UNKNOWN_OUTCOME, reason)
        unsent, self._unsent = self._unsent, deque()
        if unsent:
            self._reroute(list(unsent))

    def _take_answers(self, frame: bytes) -> None:
        for row in parse_answers(frame):
            item = self._sent.popleft()
            item.answer(replace(row, number=item.number))
