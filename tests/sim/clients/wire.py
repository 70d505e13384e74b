"""What simulated clients ask of members, as real calls over the simulated network.

Owns: one process for each client; each request's method, and how its reply or its error is told: as
an `Answer`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc.aio
from google.protobuf.message import Message

from dledger_proto.batch.codec import BatchView
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc import raw
from dledger_proto.rpc.frames import FetchFrame, encode_append, parse_answers, parse_fetches
from dledger_proto.rpc.status import from_rpc_error
from dledger_proto.v1 import broker_pb2 as pb
from tests.sim.clients import requests as ask
from tests.sim.clients.lookups import Found, LookupId, LookupKey, LookupOffset, LookupTime
from tests.sim.clients.process import ClientProcess
from tests.sim.invariants.delivery.queue_contents import QueueKey
from tests.sim.member.config import member_at

if TYPE_CHECKING:
    from tests.sim.world.world import World

Reply = TypeVar("Reply", bound=Message)
DUPLICATE: Final = "duplicate"
LONG_POLL_MIN: Final = 0.1
"""A fetch that is answered with batches after so long, in virtual seconds, has waited for them."""
BROKER, ADMIN = "Broker", "Admin"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call returned. `hint` names the leader when the code says NOT_LEADER."""

    code: Code
    value: object = None
    hint: str = ""
    detail: str = ""


Respond = Callable[[Answer], None]


class Calls:
    """The calls of all clients of a world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._clients: dict[str, ClientProcess] = {}
        self._lives: dict[str, int] = {}

    def client(self, name: str) -> ClientProcess:
        """Return the process of a client, which starts at its first call."""
        client = self._clients.get(name)
        if client is None:
            self._lives[name] = self._lives.get(name, 0) + 1
            client = self._clients[name] = ClientProcess(self._world, name, self._lives[name])
        return client

    def crash(self, name: str) -> None:
        """End a client's process; its next call is that of another one."""
        client = self._clients.pop(name, None)
        if client is not None:
            client.end()

    def close(self) -> None:
        """End all processes."""
        for name in list(self._clients):
            self.crash(name)

    def call(
        self, client: str, member: str, request: object, timeout: float, done: Respond
    ) -> None:
        """Send a request; `done` is called exactly once, unless the client ends."""
        process = self.client(client)
        process.spawn(self._call(process, member, request, timeout, done), "a call")

    async def _call(
        self, client: ClientProcess, member: str, request: object, timeout: float, done: Respond
    ) -> None:
        is_write = isinstance(request, _WRITES)
        began = self._world.scheduler.now
        try:
            answer = await _ask(client.channel(member), request, timeout)
        except grpc.aio.AioRpcError as error:
            answer = _refused(from_rpc_error(error, write=is_write))
        except DledgerError as error:
            answer = _refused(error)
        waited = self._world.scheduler.now - began
        if (
            waited > LONG_POLL_MIN
            and isinstance(answer.value, ask.Fetched)
            and answer.value.batches
        ):
            self._world.counts["long polls woken"] += 1
        done(answer)


_WRITES: Final = (
    ask.Append,
    ask.AppendTogether,
    ask.Register,
    ask.CommitOffset,
    ask.CreateTopic,
    ask.TrimQueue,
    ask.HoldQueue,
)


def _refused(error: DledgerError) -> Answer:
    hint = member_at(error.hint) if error.hint else ""
    return Answer(error.code, hint=hint, detail=error.detail)


def _queue(queue: QueueKey) -> pb.QueueRef:
    return pb.QueueRef(topic_id=queue[0], queue=queue[1])


async def _unary(
    channel: grpc.aio.Channel, service: str, request: Message, reply: type[Reply], timeout: float
) -> Reply:
    name = request.DESCRIPTOR.name.removesuffix("Request")
    unary = raw.raw_unary(channel, f"/dledger.v1.{service}/{name}")
    return reply.FromString(await unary(request.SerializeToString(), timeout=timeout))


async def _ask(channel: grpc.aio.Channel, request: object, timeout: float) -> Answer:
    handler: Callable[[grpc.aio.Channel, Any, float], Awaitable[Answer]] = _HANDLERS[type(request)]
    return await handler(channel, request, timeout)


async def _append(channel: grpc.aio.Channel, request: ask.Append, timeout: float) -> Answer:
    return await _append_together(channel, ask.AppendTogether((request.batch,)), timeout)


async def _append_together(
    channel: grpc.aio.Channel, request: ask.AppendTogether, timeout: float
) -> Answer:
    frame = encode_append(request.batches, 1, int(1_000 * timeout))
    answer = await raw.raw_unary(channel, raw.APPEND_ONE)(frame, timeout=timeout)
    row = parse_answers(answer)[0]
    if row.code is Code.OK:
        return Answer(Code.OK, row.base_offset, detail=DUPLICATE if row.duplicate else "")
    return Answer(row.code, hint=member_at(row.hint) if row.hint else "", detail=row.detail)


async def _register(channel: grpc.aio.Channel, request: ask.Register, timeout: float) -> Answer:
    message = pb.RegisterProducerRequest(
        producer_id=request.producer_id, life_id=request.life_id, epoch=request.epoch
    )
    reply = await _unary(channel, BROKER, message, pb.RegisterProducerReply, timeout)
    if reply.taken:
        return Answer(Code.OK, ask.Taken(reply.epoch))
    last = {(row.topic_id, row.queue): row.last_sequence for row in reply.last}
    return Answer(Code.OK, ask.Registered(reply.epoch, last))


async def _commit(channel: grpc.aio.Channel, request: ask.CommitOffset, timeout: float) -> Answer:
    message = pb.CommitOffsetsRequest(
        consumer_group=request.group,
        offsets=[pb.GroupOffset(queue=_queue(request.queue), offset=request.offset)],
        reset=request.reset,
    )
    reply = await _unary(channel, BROKER, message, pb.CommitOffsetsReply, timeout)
    return Answer(Code(reply.codes[0]), reply.stored_offsets[0])


async def _read_offset(
    channel: grpc.aio.Channel, request: ask.ReadOffset, timeout: float
) -> Answer:
    message = pb.ReadOffsetsRequest(consumer_group=request.group, queues=[_queue(request.queue)])
    reply = await _unary(channel, BROKER, message, pb.ReadOffsetsReply, timeout)
    return Answer(Code.OK, reply.offsets[0].offset)


async def _bounds(channel: grpc.aio.Channel, request: ask.ReadBounds, timeout: float) -> Answer:
    message = pb.QueueOffsetsRequest(queues=[_queue(request.queue)], linearizable=True)
    reply = await _unary(channel, BROKER, message, pb.QueueOffsetsReply, timeout)
    return Answer(Code.OK, (reply.rows[0].minimum, reply.rows[0].maximum))


async def _fetch(channel: grpc.aio.Channel, request: ask.Fetch, timeout: float) -> Answer:
    message = pb.FetchRequest(
        assignments=[
            pb.FetchRequest.Assignment(queue=_queue(request.queue), offset=request.offset)
        ],
        max_bytes=request.max_bytes,
        wait_ms=int(1_000 * request.wait),
        once=True,
    )
    call = raw.raw_read(channel, raw.FETCH)(message.SerializeToString(), timeout=timeout)
    try:
        data = await raw.read_frame(call)
    finally:
        call.cancel()
    if data is None:
        return Answer(Code.UNAVAILABLE, detail="the stream ended without a frame")
    (frame,) = parse_fetches(data)
    return Answer(frame.code, _fetched(frame), detail=frame.detail)


def _fetched(frame: FetchFrame) -> ask.Fetched:
    batches = tuple(
        ask.FetchedBatch(
            row.base_offset - row.first_record, row.first_record, row.record_count, bytes(data)
        )
        for row, data in zip(frame.rows, frame.batches, strict=True)
    )
    return ask.Fetched(frame.min_offset, frame.max_offset, batches)


async def _create(channel: grpc.aio.Channel, request: ask.CreateTopic, timeout: float) -> Answer:
    message = pb.CreateTopicRequest(
        name=request.name,
        topic_id=request.topic_id,
        write_queues_per_group=request.queues,
        groups=request.groups,
        retention_ms=request.retention_ms,
    )
    reply = await _unary(channel, ADMIN, message, pb.CreateTopicReply, timeout)
    if not reply.topic.id:  # it tells what to say, and has created nothing
        message.known_index = reply.known_index
        reply = await _unary(channel, ADMIN, message, pb.CreateTopicReply, timeout)
    return Answer(Code.OK, reply.topic.id)


async def _trim(channel: grpc.aio.Channel, request: ask.TrimQueue, timeout: float) -> Answer:
    message = pb.TrimRequest(queue=_queue(request.queue), offset=request.offset)
    reply = await _unary(channel, ADMIN, message, pb.TrimReply, timeout)
    return Answer(Code.OK, ask.Trimmed(reply.minimum, reply.held_by))


async def _hold(channel: grpc.aio.Channel, request: ask.HoldQueue, timeout: float) -> Answer:
    message = pb.HoldRequest(
        owner=request.owner,
        queue=_queue(request.queue),
        offset=request.offset,
        ttl_ms=int(1_000 * request.seconds),
    )
    reply = await _unary(channel, ADMIN, message, pb.HoldReply, timeout)
    return Answer(Code.OK, reply.until_ms)


def _found(reply: pb.LookupReply) -> list[Found]:
    return [
        Found((row.topic_id, row.queue), row.offset, BatchView(row.batch).record(0))
        for row in reply.records
    ]


async def _look_up_key(channel: grpc.aio.Channel, request: LookupKey, timeout: float) -> Answer:
    found: list[Found] = []
    cursor = b""
    while True:
        message = pb.LookupKeyRequest(
            queue=_queue((request.topic_id, 0)),
            key=request.key.encode(),
            begin_time_ms=request.begin_ms,
            end_time_ms=request.end_ms,
            limit=request.limit,
            cursor=cursor,
        )
        reply = await _unary(channel, BROKER, message, pb.LookupReply, timeout)
        found += _found(reply)
        cursor = reply.cursor
        if not cursor:
            return Answer(Code.OK, tuple(found))


async def _look_up_id(channel: grpc.aio.Channel, request: LookupId, timeout: float) -> Answer:
    message = pb.LookupMessageRequest(
        message_id=request.producer_id + request.number.to_bytes(8, "big")
    )
    reply = await _unary(channel, BROKER, message, pb.LookupReply, timeout)
    return Answer(Code.OK, tuple(_found(reply)))


async def _look_up_time(channel: grpc.aio.Channel, request: LookupTime, timeout: float) -> Answer:
    message = pb.OffsetByTimeRequest(queue=_queue(request.queue), time_ms=request.time_ms)
    reply = await _unary(channel, BROKER, message, pb.OffsetByTimeReply, timeout)
    return Answer(Code.OK, reply.offset)


async def _look_up_offset(
    channel: grpc.aio.Channel, request: LookupOffset, timeout: float
) -> Answer:
    message = pb.LookupOffsetRequest(queue=_queue(request.queue), offset=request.offset)
    reply = await _unary(channel, BROKER, message, pb.LookupReply, timeout)
    return Answer(Code.OK, tuple(_found(reply)))


_HANDLERS: Final[Mapping[type, Any]] = {
    ask.Append: _append,
    ask.AppendTogether: _append_together,
    ask.Register: _register,
    ask.CommitOffset: _commit,
    ask.ReadOffset: _read_offset,
    ask.ReadBounds: _bounds,
    ask.Fetch: _fetch,
    ask.CreateTopic: _create,
    ask.TrimQueue: _trim,
    ask.HoldQueue: _hold,
    LookupKey: _look_up_key,
    LookupId: _look_up_id,
    LookupTime: _look_up_time,
    LookupOffset: _look_up_offset,
}
