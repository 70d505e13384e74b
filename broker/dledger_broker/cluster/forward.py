"""The append streams that carry batches from a member that does not lead to the leader.

Owns the rule of D10 that a member sends a forwarded batch once: when the stream breaks after that,
the batch's outcome is unknown. Not owned: the connections (`channels`), which member is the leader
(`append.router`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, cast

import grpc
import grpc.aio
import structlog

from dledger.clock import Clock
from dledger_broker.append.router import PendingBatch
from dledger_broker.cluster.channels import FORWARDED_KEY, GROUP_KEY, LAST_HOP, Channels
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import FRAME_ROWS_MAX, FRAME_SIZE_TARGET
from dledger_proto.network.tls import Callee
from dledger_proto.rpc import raw
from dledger_proto.rpc.frames import encode_append, parse_answers

CONNECT_SECONDS: Final = 1.0
"""When the leader cannot be reached for this long, batches that were not sent are routed again."""


class AppendForwarder:
    """Forwards the batches of one group to its leader."""

    def __init__(
        self,
        group: str,
        channels: Channels,
        clock: Clock,
        reroute: Callable[[Sequence[PendingBatch]], None],
    ) -> None:
        self._group = group
        self._channels = channels
        self._clock = clock
        self._reroute = reroute
        self._stream: _ForwardStream | None = None
        self._streams: dict[_ForwardStream, None] = {}
        """All streams, the oldest first, also those that were replaced and still drain."""

    def send(self, leader: Callee, items: Sequence[PendingBatch]) -> None:
        """See `router.Forward`. A change of leader begins a new stream; the old one drains."""
        stream = self._stream
        if stream is None or stream.leader != leader or stream.is_over:
            if stream is not None:
                stream.finish()
            try:
                stream = self._open(leader)
            except grpc.aio.UsageError as error:  # the channels are closed: the process ends
                for item in items:
                    item.refuse(Code.NOT_PROPOSED, f"not forwarded to {leader}: {error}")
                return
            self._stream = stream
        stream.send(items)

    def _open(self, leader: Callee) -> "_ForwardStream":
        call: raw.RawStreamCall = raw.raw_stream(self._channels.to(leader), raw.APPEND)(
            metadata=((GROUP_KEY, self._group), (FORWARDED_KEY, LAST_HOP)), wait_for_ready=False
        )
        stream = _ForwardStream(leader, call, self._clock, self._reroute, self._forget)
        self._streams[stream] = None
        return stream

    def _forget(self, stream: "_ForwardStream") -> None:
        self._streams.pop(stream, None)

    async def stop(self) -> None:
        """End the streams once their answers are in; a stream that hangs is cancelled."""
        await asyncio.gather(*(stream.stop() for stream in list(self._streams)))


class _ForwardStream:
    """One append stream to one leader.

    A writer task and a reader task move the frames. Callbacks run when the tasks end, however they
    end, and give every batch that is left its outcome. A batch that was handed to the call has an
    unknown outcome. A batch that was not handed over is routed again; when a bug ended the stream,
    it is refused instead, so that the bug is not repeated.
    """

    def __init__(
        self,
        leader: Callee,
        call: raw.RawStreamCall,
        clock: Clock,
        reroute: Callable[[Sequence[PendingBatch]], None],
        ended: Callable[["_ForwardStream"], None],
    ) -> None:
        self.leader = leader
        self.is_over = False
        self._call = call
        self._clock = clock
        self._reroute = reroute
        self._ended = ended
        self._unsent: deque[PendingBatch] = deque()
        self._sent: deque[PendingBatch] = deque()
        self._next_number = 1
        self._wake = asyncio.Event()
        self._finishing = False
        self._reason = _ENDED
        self._bug: BaseException | None = None
        self._log = structlog.get_logger().bind(address=leader.address)
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._writer = loop.create_task(self._write(), name=f"forward to {leader}")
        self._reader = loop.create_task(self._read(), name=f"forwarded answers of {leader}")
        self._writer.add_done_callback(self._writer_ended)
        self._reader.add_done_callback(self._reader_ended)

    def send(self, items: Sequence[PendingBatch]) -> None:
        self._unsent.extend(items)
        self._wake.set()

    def finish(self) -> None:
        """Send what is queued and nothing else; close when all is answered."""
        self._finishing = True
        self._wake.set()

    async def stop(self) -> None:
        self.finish()
        for limit in (CONNECT_SECONDS, CONNECT_SECONDS):
            await asyncio.wait([self._reader], timeout=limit)
            if self.is_over:
                return
            self._call.cancel()
            self._reader.cancel()

    async def _write(self) -> None:
        # No batch counts as sent before the leader has taken the stream.
        async with asyncio.timeout(CONNECT_SECONDS):
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

    def _take_frame(self) -> bytes:
        """Return a frame of the next batches. From now on these batches count as sent."""
        batches: list[memoryview] = []
        size = 0
        now = self._clock.monotonic()
        timeout_ms = 1
        for item in islice(self._unsent, FRAME_ROWS_MAX):
            if batches and size + item.size > FRAME_SIZE_TARGET:
                break
            batches.append(item.batch)
            size += item.size
            timeout_ms = max(timeout_ms, int((item.deadline - now) * 1000))
        number = self._next_number
        frame = encode_append(batches, first_number=number, timeout_ms=timeout_ms, one_way=False)
        self._next_number += len(batches)
        self._sent.extend(self._unsent.popleft() for _ in batches)
        return frame

    async def _read(self) -> None:
        read = cast("Callable[[], Awaitable[object]]", self._call.read)  # bytes, or EOF
        while isinstance(frame := await read(), bytes):
            self._take_answers(frame)

    def _take_answers(self, frame: bytes) -> None:
        rows = parse_answers(frame)
        if len(rows) > len(self._sent):
            raise invalid(f"{len(rows)} answers came for {len(self._sent)} forwarded batches")
        for row in rows:
            expected = self._next_number - len(self._sent)
            if row.number != expected:
                raise invalid(f"answer {row.number} came, answer {expected} is the next")
            item = self._sent.popleft()
            item.answer(replace(row, number=item.number))

    def _writer_ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or task.exception() is not None:
            self._note_end(task)
            self._call.cancel()
            # gRPC may swallow a cancellation of the call; the reader must end in any case.
            self._reader.cancel()

    def _reader_ended(self, task: "asyncio.Task[None]") -> None:
        self._note_end(task)
        self.is_over = True
        self._writer.cancel()
        self._call.cancel()
        self._ended(self)
        if self._bug is not None:
            self._log.error("forwarding failed because of a bug in dledger", exc_info=self._bug)
        if self._sent:
            self._log.warning("the outcome of forwarded batches is unknown", count=len(self._sent))
        self._settle()

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        """Remember why the stream broke: the first reason caused the others."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None or self._reason != _ENDED:
            return
        self._reason = f"the stream to the leader broke: {type(error).__name__}"
        if not isinstance(error, _BREAKS):
            self._bug = error

    def _settle(self) -> None:
        """Give every batch that is left its outcome, also when a receiver raises."""
        try:
            while self._sent:
                self._sent.popleft().refuse(Code.UNKNOWN_OUTCOME, self._reason)
            if self._bug is not None:
                while self._unsent:
                    self._unsent.popleft().refuse(Code.NOT_PROPOSED, self._reason)
            unsent = list(self._unsent)
            self._unsent.clear()
            if unsent:
                self._reroute(unsent)
        finally:
            if self._sent or self._unsent:
                self._loop.call_soon(self._settle)


_ENDED: Final = "the stream to the leader ended"
_BREAKS: Final = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
    asyncio.CancelledError,
    TimeoutError,
    DledgerError,
)
"""What ends a stream that the network or the leader broke; every other error is a bug."""
