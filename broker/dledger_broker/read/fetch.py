"""One fetch stream: what is committed, from memory or disk, checked, with long polling.

Owns: the size of messages, and the wait for new data. Not owned: what may be asked (`assignments`),
the frames (`frames`) and their order (`portions`).

A portion of frames is read while the portion before it is sent. A message that the reader does not
take within STREAM_STALL_MS ends the stream. So what the stream holds is bounded in time and in
size.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from dledger_broker.group.group_view import GroupView
from dledger_broker.read.assignments import Assignment, FetchOptions
from dledger_broker.read.frames import Frames
from dledger_broker.read.portions import FRAME_COPIES, Portions
from dledger_broker.rpc.admission import AdmissionControl, Bound
from dledger_proto.rpc.stall import within_stall_limit


class _Message:
    """Frames that are sent together. They are counted until they are sent or given up."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._size = 0
        self._frames: list[bytes] = []

    def has_room(self, frame: bytes, size_max: int) -> bool:
        """Return whether the frame may join the others; the first frame always may."""
        return not self._frames or self._size + len(frame) <= size_max

    def add(self, frame: bytes) -> None:
        """Put a frame behind the others."""
        self._frames.append(frame)
        self._size += len(frame)
        self._bound.take_regardless(FRAME_COPIES * len(frame))

    def take(self) -> bytes:
        """Return all frames as one message, empty when there are none; `clear` follows."""
        frames, self._frames = self._frames, []
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def clear(self) -> None:
        """Begin the next message: taken frames are sent, the others are given up."""
        self._bound.give(FRAME_COPIES * self._size)
        self._frames, self._size = [], 0


Send = Callable[[bytes], Awaitable[None]]


class FetchSession:
    """One stream of frames."""

    def __init__(self, view: GroupView, admission: AdmissionControl) -> None:
        self._long_poll = view.long_poll
        self._frames = Frames(view)
        self._admission = admission

    async def run(
        self, assignments: Sequence[Assignment], options: FetchOptions, send: Send
    ) -> None:
        """Serve until the client leaves, every assignment failed, or `once` is done."""
        portions = Portions(assignments, options, self._frames, self._admission)
        try:
            waited = options.once and options.wait_ms == 0
            while any(not assignment.is_over for assignment in assignments):
                if await self._round(portions, options, send, with_empty=waited):
                    waited = False
                    continue
                if waited and options.once:
                    return
                waited = not await self._wait(assignments, options.wait_ms)
        finally:
            portions.close()

    async def _round(
        self, portions: Portions, options: FetchOptions, send: Send, *, with_empty: bool
    ) -> bool:
        """Send at most one frame for each assignment; True when one carried data or an error.

        Frames share a message, up to the size that a message may have now. A reader pays for each
        message, and a busy reader would fall behind if each queue sent a message of its own. With
        `once`, an empty frame is an answer. On a stream, one empty frame shows that it is alive.
        """
        any_sent = is_over = False
        message = _Message(self._admission.fetch_bytes)
        try:
            while not is_over:
                portion = await portions.next()
                portion.give_up()  # the message counts the frames
                is_over = portion.ends_round
                frames: list[bytes] = []
                for assignment, prepared in portion.frames:
                    if prepared is not None:
                        any_sent = True
                    elif with_empty:
                        prepared = self._frames.empty(assignment)
                        with_empty = options.once
                    else:
                        continue
                    assignment.offset = prepared.next_offset
                    assignment.is_over = prepared.is_error or options.once
                    frames.append(prepared.frame)
                if portion.was_cold:
                    portions.read_ahead()
                for frame in frames:
                    size_max = self._admission.fetch_frame_bytes(options.max_bytes)
                    if not message.has_room(frame, size_max):
                        await self._send(message, send)
                    message.add(frame)
            await self._send(message, send)
        finally:
            message.clear()
        return any_sent

    async def _send(self, message: "_Message", send: Send) -> None:
        if frames := message.take():
            await within_stall_limit(send, "fetch again")(frames)
        message.clear()

    async def _wait(self, assignments: Sequence[Assignment], wait_ms: int) -> bool:
        """Wait for an arrival on any queue; False when the time passed without one."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        live = [assignment for assignment in assignments if not assignment.is_over]
        ticket = self._long_poll.wait([(each.topic_id, each.queue) for each in live], wake)
        if any(self._frames.has_more(assignment) for assignment in live):
            wake()  # a batch arrived while the session looked at another assignment
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await woken
        except TimeoutError:
            return False
        finally:
            self._long_poll.cancel(ticket)
        return True
