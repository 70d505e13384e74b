"""`dledger.v1.Broker`: the native API for messages. Thin: wire in, use case, wire out.

Owns the streams' place in admission and the translation of protobuf. Not owned: what calls do
(`messaging`, `append_session`, `fetch`), who executes them (`calls`).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, cast

import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from dledger.state.results import Taken
from dledger.types import QueueOffset
from dledger_broker.append.intake import AppendIntake
from dledger_broker.append.router import AppendRouter
from dledger_broker.append.stream import AppendSession
from dledger_broker.append.unary import append_unary
from dledger_broker.cluster.channels import FORWARDED_KEY, GROUP_KEY
from dledger_broker.process.logs import Quiet
from dledger_broker.read.fetch import Assignment, FetchOptions, FetchSession
from dledger_broker.read.lookups import Found, KeyQuestion
from dledger_broker.read.plan_reads import plan_reads
from dledger_broker.rpc.calls import BUGS, Call, Calls, Method, said_by
from dledger_broker.usecases.messaging import Messaging, Queue
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import DETAIL_SIZE_MAX, FETCH_ASSIGNMENTS_MAX, QUEUES_PER_CALL_MAX
from dledger_proto.rpc import raw, status
from dledger_proto.rpc.stall import within_stall_limit
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import broker_pb2_grpc

REGISTER: Final = Method[pb.RegisterProducerRequest, pb.RegisterProducerReply](
    "Broker", "RegisterProducer", pb.RegisterProducerReply
)
COMMIT: Final = Method[pb.CommitOffsetsRequest, pb.CommitOffsetsReply](
    "Broker", "CommitOffsets", pb.CommitOffsetsReply
)

OF_ONE_ASSIGNMENT: Final = frozenset(
    (Code.TOPIC_NOT_FOUND, Code.QUEUE_NOT_FOUND, Code.WRONG_GROUP, Code.NO_PERMISSION)
)
"""Refusals that say something about one queue and nothing about this member."""


class NativeService(broker_pb2_grpc.BrokerServicer):
    """The generated methods; `raw_service` holds the streams."""

    def __init__(
        self,
        calls: Calls,
        routers: dict[str, AppendRouter],
        on_damage: Callable[[Exception], None],
    ) -> None:
        self._calls = calls
        self._routers = routers
        self._intakes: dict[tuple[str, bool], AppendIntake] = {}
        """By group, and whether members forward to it."""
        self._on_damage = on_damage
        self._log = structlog.get_logger()
        self._quiet = Quiet(calls.clock)

    def raw_service(self) -> raw.RawService:
        """Return the handlers of the raw methods."""
        return raw.raw_handlers(
            raw.BROKER_SERVICE,
            {
                "Append": raw.StreamMethod(self._append),
                "AppendOne": raw.UnaryMethod(self._append_one),
                "Fetch": raw.ReadMethod(self._fetch),
            },
        )

    # Streams.

    def _intake(self, context: raw.RawContext) -> AppendIntake:
        said = said_by(context)
        calls = self._calls
        messaging = calls.group_named(said.get(GROUP_KEY, ""))
        where = messaging.view.names.group, FORWARDED_KEY in said
        intake = self._intakes.get(where)
        if intake is None:
            group, forwarded = where
            intake = self._intakes[where] = AppendIntake(
                self._routers[group], messaging.gate, calls.admission, calls.clock,
                forwarded=forwarded,
            )  # fmt: skip
        return intake

    async def _append(self, _requests: object, context: raw.RawContext) -> None:
        try:
            self._calls.admission.check_open()
            session = AppendSession(self._intake(context), self._calls.admission)
            with self._calls.admission.append_streams.held():
                # Tells the caller that the stream is taken: what it writes now has arrived.
                await context.send_initial_metadata(())
                receive = cast("Callable[[], Awaitable[object]]", context.read)
                answer = within_stall_limit(context.write, "what is unanswered is unknown")
                await session.run(receive, answer)
        except DledgerError as error:
            left_out = self._quiet.admit(error.code)
            if left_out is not None:
                self._log.info(
                    "append stream ended",
                    reason=str(error),
                    address=context.peer(),
                    others_since=left_out,
                )
            await status.abort(context, error)
        except BUGS as error:
            await self._calls.fail(context, error)

    async def _append_one(self, frame: bytes, context: raw.RawContext) -> bytes:
        try:
            self._calls.admission.check_open()
            return await append_unary(self._intake(context), frame)
        except DledgerError as error:
            await status.abort(context, error)
        except BUGS as error:
            await self._calls.fail(context, error)

    async def _fetch(self, request_bytes: bytes, context: raw.RawContext) -> None:
        calls = self._calls
        try:
            calls.admission.check_open()
            messaging = calls.group_of(Call(context, calls.clock))
            try:
                request = pb.FetchRequest.FromString(request_bytes)
            except DecodeError as error:
                raise DledgerError(Code.INVALID_ARGUMENT, f"FetchRequest: {error}") from None
            with calls.admission.fetch_streams.held():
                sources = await fetch_sources(messaging, request)
                view = messaging.view
                session = FetchSession(
                    view.machine.queries,
                    view.log,
                    view.pool,
                    view.long_poll,
                    calls.admission,
                    view,
                    self._on_damage,
                )
                wanted = FetchOptions.of(
                    request.max_bytes,
                    request.wait_ms,
                    once=request.once,
                    with_positions=request.with_positions,
                )
                await session.run(sources, wanted, context.write)
        except DledgerError as error:
            await status.abort(context, error)
        except BUGS as error:
            await calls.fail(context, error)

    # Unary calls.

    async def RegisterProducer(  # noqa: N802 - the wire's name
        self,
        request: pb.RegisterProducerRequest,
        context: "grpc.aio.ServicerContext[pb.RegisterProducerRequest, pb.RegisterProducerReply]",
    ) -> pb.RegisterProducerReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.RegisterProducerReply:
            messaging = self._calls.group_of(call)

            async def execute() -> pb.RegisterProducerReply:
                registered = await messaging.register_producer(
                    request.producer_id, request.life_id, request.epoch
                )
                if isinstance(registered, Taken):
                    return pb.RegisterProducerReply(epoch=registered.epoch, taken=True)
                rows = [
                    pb.QueueSequence(
                        topic_id=row.topic_id, queue=row.queue, last_sequence=row.last_sequence
                    )
                    for row in registered.last
                ]
                return pb.RegisterProducerReply(epoch=registered.epoch, last=rows)

            return await self._calls.on_leader(call, messaging, REGISTER, request, execute)

        return await self._calls.answer(context, self._calls.admission.queries, run)

    async def QueueOffsets(  # noqa: N802
        self,
        request: pb.QueueOffsetsRequest,
        context: "grpc.aio.ServicerContext[pb.QueueOffsetsRequest, pb.QueueOffsetsReply]",
    ) -> pb.QueueOffsetsReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.QueueOffsetsReply:
            messaging = self._calls.group_of(call)
            queues = await _resolve_all(messaging, request.queues)
            bounds = await messaging.queue_offsets(queues, linearizable=request.linearizable)
            return pb.QueueOffsetsReply(
                rows=[
                    pb.QueueOffsetsReply.Row(minimum=minimum, maximum=maximum)
                    for minimum, maximum in bounds
                ]
            )

        return await self._calls.answer(context, self._calls.admission.queries, run)

    async def OffsetByTime(  # noqa: N802
        self,
        request: pb.OffsetByTimeRequest,
        context: "grpc.aio.ServicerContext[pb.OffsetByTimeRequest, pb.OffsetByTimeReply]",
    ) -> pb.OffsetByTimeReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.OffsetByTimeReply:
            messaging = self._calls.group_of(call)
            queue = await _resolve(messaging, request.queue)
            offset = await messaging.offset_by_time(queue, request.time_ms)
            return pb.OffsetByTimeReply(offset=offset)

        return await self._calls.answer(context, self._calls.admission.queries, run)

    async def CommitOffsets(  # noqa: N802
        self,
        request: pb.CommitOffsetsRequest,
        context: "grpc.aio.ServicerContext[pb.CommitOffsetsRequest, pb.CommitOffsetsReply]",
    ) -> pb.CommitOffsetsReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.CommitOffsetsReply:
            messaging = self._calls.group_of(call)

            async def execute() -> pb.CommitOffsetsReply:
                queues = await _resolve_all(messaging, [row.queue for row in request.offsets])
                committed = await messaging.commit_offsets(
                    request.consumer_group,
                    [
                        (queue, row.offset, row.metadata)
                        for queue, row in zip(queues, request.offsets, strict=True)
                    ],
                    reset=request.reset,
                    member_id=request.member_id,
                    generation=request.generation,
                )
                return pb.CommitOffsetsReply(
                    codes=[int(code) for code in committed.codes],
                    stored_offsets=committed.stored_offsets,
                )

            return await self._calls.on_leader(call, messaging, COMMIT, request, execute)

        return await self._calls.answer(context, self._calls.admission.queries, run)

    async def ReadOffsets(  # noqa: N802
        self,
        request: pb.ReadOffsetsRequest,
        context: "grpc.aio.ServicerContext[pb.ReadOffsetsRequest, pb.ReadOffsetsReply]",
    ) -> pb.ReadOffsetsReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.ReadOffsetsReply:
            messaging = self._calls.group_of(call)
            queues = await _resolve_all(messaging, request.queues)
            stored = await messaging.read_offsets(request.consumer_group, queues)
            return pb.ReadOffsetsReply(
                offsets=[
                    pb.GroupOffset(queue=ref, offset=offset, metadata=metadata)
                    for ref, (offset, metadata) in zip(request.queues, stored, strict=True)
                ]
            )

        return await self._calls.answer(context, self._calls.admission.queries, run)

    async def LookupKey(  # noqa: N802
        self,
        request: pb.LookupKeyRequest,
        context: "grpc.aio.ServicerContext[pb.LookupKeyRequest, pb.LookupReply]",
    ) -> pb.LookupReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.LookupReply:
            messaging = self._calls.group_of(call)
            queue = await messaging.resolve(request.queue.topic, request.queue.topic_id, 0)
            question = KeyQuestion(
                queue.topic_id,
                request.key,
                request.begin_time_ms,
                request.end_time_ms,
                request.limit,
                request.cursor,
                request.places_only,
            )
            found, cursor = await messaging.lookups.by_key(question)
            return _lookup_reply(found, cursor)

        return await self._calls.answer(context, self._calls.admission.lookups, run)

    async def LookupMessage(  # noqa: N802
        self,
        request: pb.LookupMessageRequest,
        context: "grpc.aio.ServicerContext[pb.LookupMessageRequest, pb.LookupReply]",
    ) -> pb.LookupReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.LookupReply:
            messaging = self._calls.group_of(call)
            found = await messaging.lookups.by_message_id(request.message_id)
            return _lookup_reply([found] if found is not None else [])

        return await self._calls.answer(context, self._calls.admission.lookups, run)

    async def LookupOffset(  # noqa: N802
        self,
        request: pb.LookupOffsetRequest,
        context: "grpc.aio.ServicerContext[pb.LookupOffsetRequest, pb.LookupReply]",
    ) -> pb.LookupReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.LookupReply:
            messaging = self._calls.group_of(call)
            queue = await _resolve(messaging, request.queue)
            return _lookup_reply([await messaging.lookup_offset(queue, request.offset)])

        return await self._calls.answer(context, self._calls.admission.lookups, run)

    async def PlanReads(  # noqa: N802
        self,
        request: pb.PlanReadsRequest,
        context: "grpc.aio.ServicerContext[pb.PlanReadsRequest, pb.PlanReadsReply]",
    ) -> pb.PlanReadsReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.PlanReadsReply:
            return await plan_reads(self._calls.group_of(call), request)

        return await self._calls.answer(context, self._calls.admission.queries, run)


async def fetch_sources(messaging: Messaging, request: pb.FetchRequest) -> list[Assignment]:
    """Return what each assignment of a fetch reads; DledgerError when none can be served now.

    A queue that is not here, or may not be read, is refused by itself: the others are served.
    """
    if not 1 <= len(request.assignments) <= FETCH_ASSIGNMENTS_MAX:
        raise DledgerError(
            Code.INVALID_ARGUMENT,
            f"{len(request.assignments)} assignments, must be 1 to {FETCH_ASSIGNMENTS_MAX}",
        )
    sources: list[Assignment] = []
    gone: dict[tuple[str, bytes], DledgerError] = {}
    for number, assignment in enumerate(request.assignments):
        ref = assignment.queue
        source = Assignment(number, ref.topic_id, ref.queue, QueueOffset(assignment.offset))
        sources.append(source)
        source.refusal = gone.get((ref.topic, ref.topic_id))
        if source.refusal is not None:
            continue  # a quorum was asked about this topic already
        try:
            queue = await _resolve(messaging, ref)
            await messaging.bounds(queue)
            source.topic_id = queue.topic_id
        except DledgerError as error:
            if error.code not in OF_ONE_ASSIGNMENT:
                raise
            source.refusal = error
            if error.code is Code.TOPIC_NOT_FOUND:
                gone[ref.topic, ref.topic_id] = error
    return sources


async def _resolve(messaging: Messaging, ref: pb.QueueRef) -> Queue:
    return await messaging.resolve(ref.topic, ref.topic_id, ref.queue)


async def _resolve_all(messaging: Messaging, refs: Sequence[pb.QueueRef]) -> list[Queue]:
    if len(refs) > QUEUES_PER_CALL_MAX:
        raise DledgerError(
            Code.INVALID_ARGUMENT, f"{len(refs)} queues in one call, at most {QUEUES_PER_CALL_MAX}"
        )
    return [await _resolve(messaging, ref) for ref in refs]


def _lookup_reply(found: Sequence[Found], cursor: bytes = b"") -> pb.LookupReply:
    reply = pb.LookupReply(cursor=cursor)
    for each in found:
        row = reply.records.add(
            topic_id=each.topic_id,
            queue=each.queue,
            offset=each.offset,
            store_time_ms=each.store_time_ms,
            batch=each.batch,
        )
        if each.problem is not None:
            row.code, row.detail = int(each.problem.code), each.problem.detail[:DETAIL_SIZE_MAX]
    return reply
