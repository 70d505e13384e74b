"""One session of a consumer: the stream between it and the leader of its coordinator.

Owns the order of a stream's messages, and what each side may say. A consumer says Join first. From
then on it hears of every change the newest state, whole: what it did not read in time is not kept
for it, so a stream holds one message at most. A refused Join, a lost leadership and a draining
member end the stream with a status; a session that is over is told by Ended. Not: admission and the
wire (`rpc.streams`), what follows from what is said (`led_group.py`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

from dledger.state.consumers.membership import Session
from dledger.state.consumers.table import QueueKey
from dledger_broker.delivery.group_proto import assignment_message, joined_message
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import QUEUES_PER_CALL_MAX
from dledger_proto.rpc import status
from dledger_proto.v1 import delivery_pb2 as pb

if TYPE_CHECKING:
    from dledger_broker.delivery.coordinator import Coordinator
    from dledger_broker.delivery.led_group import LedGroup

JOIN_SECONDS: Final = 10.0
"""How long a stream may be open before it says who it is."""
END_SECONDS: Final = 1.0
"""How long the end of a stream waits for its tasks; gRPC may swallow a cancellation."""
ID_SIZE: Final = 16

Send = Callable[[bytes], Awaitable[None]]
Receive = Callable[[], Awaitable[object]]
"""Returns the next message, or gRPC's end mark, which is not bytes."""


class SessionStream:
    """The state of one stream."""

    consumer: str = ""
    joined: int = 0
    """Names the session: see `state.consumers.membership`."""

    def __init__(self, coordinator: "Coordinator") -> None:
        self._coordinator = coordinator
        self._group: LedGroup | None = None
        self._instance = ""
        self._order = 0
        self._joining = False
        self._told_settings = -1
        self._told_epoch = -1
        self._nudged = False
        self._broken: DledgerError | None = None
        self._event = asyncio.Event()

    @property
    def session(self) -> Session:
        """What the log knows of it."""
        return Session(self.consumer, self.joined)

    def wake(self) -> None:
        """Look whether there is something to tell."""
        self._event.set()

    def nudge(self) -> None:
        """Tell the consumer to claim its queues again."""
        self._nudged = True
        self._event.set()

    def end(self, error: DledgerError) -> None:
        """End the stream with a status."""
        self._broken = error
        self._event.set()

    async def run(self, receive: Receive, send: Send) -> None:
        """Serve until the session or the stream ends."""
        try:
            async with asyncio.timeout(JOIN_SECONDS):
                first = await self._next(receive)
        except TimeoutError:
            raise invalid(f"a session says join within {JOIN_SECONDS:.0f} s") from None
        if first is None:
            return
        if first.WhichOneof("what") != "join":
            raise invalid(f"a session begins with join, not {first.WhichOneof('what')}")
        try:
            await self._join(first.join)
            await self._serve(receive, send)
        finally:
            if self._group is not None:
                self._group.closed(self, is_static=bool(self._instance))

    async def _serve(self, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        reader = loop.create_task(self._read(receive), name="what a consumer says")
        writer = loop.create_task(self._write(send), name="what a consumer is told")
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            for task in (writer, reader):
                if task.done():
                    await task
        finally:
            for task in (reader, writer):
                task.cancel()
            ended, _ = await asyncio.wait((reader, writer), timeout=END_SECONDS)
            for task in ended:
                if not task.cancelled():
                    task.exception()  # the first error is raised; the second follows from it

    async def _next(self, receive: Receive) -> pb.SessionRequest | None:
        message = await receive()
        return status.parsed(pb.SessionRequest, message) if isinstance(message, bytes) else None

    async def _join(self, request: pb.Join) -> None:
        self._joining = True
        try:
            group, joined = await self._coordinator.join(request)
        finally:
            self._joining = False
        self.consumer, self.joined = request.member_id, joined.joined
        self._instance = request.instance
        self._order = request.order
        self._group = group
        self._told_settings = self._told_epoch = -1
        group.opened(self)
        self._event.set()

    async def _read(self, receive: Receive) -> None:
        while (request := await self._next(receive)) is not None:
            assert self._group is not None
            self._group.spoke(self)
            match request.WhichOneof("what"):
                case "join":
                    self._check_same(request.join)
                    await self._join(request.join)
                case "give_back":
                    self._group.gave_back(self.session, _given_back(request.give_back))
                case "leave":
                    self._group.leaves(self.session)
                case _:
                    continue

    def _check_same(self, request: pb.Join) -> None:
        assert self._group is not None
        name = self._coordinator.name_of(self._group)
        if (request.consumer_group, request.member_id) != (name, self.consumer):
            raise invalid(
                f"this stream is of consumer {self.consumer} in {name}, not of "
                f"{request.member_id!r} in {request.consumer_group!r}"
            )

    async def _write(self, send: Send) -> None:
        while True:
            self._event.clear()
            if self._broken is not None:
                raise self._broken
            for reply in self._news():
                await send(reply.SerializeToString())
                if reply.WhichOneof("what") == "ended":
                    return
            await self._event.wait()

    def _news(self) -> Iterator[pb.SessionReply]:
        """Yield what the consumer does not know, as it is at that moment."""
        group = self._group
        assert group is not None
        if self._joining:
            return
        ended = self._ended(group)
        if ended is not None:
            yield ended
            return
        if self._told_settings != group.retry.control_index:
            self._told_settings = group.retry.control_index
            yield joined_message(group, self.joined)
        consumer = group.rows.consumers.get(self.consumer)
        if consumer is not None and self._told_epoch != consumer.epoch:
            self._told_epoch = consumer.epoch
            yield assignment_message(self._coordinator.queries, group.rows, self.consumer)
        if self._nudged:
            self._nudged = False
            yield pb.SessionReply(nudge=pb.Nudge())

    def _ended(self, group: "LedGroup") -> pb.SessionReply | None:
        code, detail = Code.OK, ""
        consumer = group.rows.consumers.get(self.consumer)
        if group.retry.deleted:
            code, detail = Code.CONSUMER_GROUP_NOT_FOUND, "the consumer group was deleted"
        elif self._order != group.settings.order:
            code, detail = Code.ORDER_CONFLICT, "the order of the consumer group was changed"
        elif consumer is None and self._is_replaced(group):
            code = Code.FENCED
            detail = f"another consumer has the instance name {self._instance}: it took the place"
        elif consumer is None:
            code, detail = Code.SESSION_ENDED, "the consumer left, or was silent"
        elif consumer.joined != self.joined:
            code, detail = Code.SESSION_ENDED, "the consumer joined by another stream"
        if code is Code.OK:
            return None
        return pb.SessionReply(ended=pb.Ended(code=int(code), detail=detail))

    def _is_replaced(self, group: "LedGroup") -> bool:
        """Return whether another consumer goes by this one's instance name."""
        others = group.rows.consumers.values()
        return bool(self._instance) and any(each.instance == self._instance for each in others)


def _given_back(request: pb.GiveBack) -> dict[QueueKey, int]:
    if len(request.queues) > QUEUES_PER_CALL_MAX:
        raise invalid(f"{len(request.queues)} queues given back, at most {QUEUES_PER_CALL_MAX}")
    for queue in request.queues:
        if len(queue.topic_id) != ID_SIZE:
            raise invalid(f"topic_id of {len(queue.topic_id)} bytes: must be {ID_SIZE}")
    return {QueueKey(each.topic_id, each.queue): each.epoch for each in request.queues}
