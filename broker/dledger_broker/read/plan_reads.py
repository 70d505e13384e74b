"""One call for many queues: bounds and samples to plan reads by, and holds.

Owns: which queues get how many samples, and what is refused for one queue alone. Not owned: how
many queues a call may name (`rpc.table`), the rules of a hold (`usecases.messaging`, the state).

Without these calls a job over a thousand queues would make thousands of calls, and a member answers
some thousands in a second. A queue that cannot be served is refused alone: the others are answered.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from dledger.state.queries import Queries
from dledger_broker.usecases.messaging import Messaging, Queue
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import LOOKS_PER_CALL_MAX
from dledger_proto.v1 import broker_pb2 as pb

LOOKS_AT_ONCE: Final = 128
"""Reads of the state between two turns of the loop."""
OF_ONE_QUEUE: Final = frozenset(
    (Code.TOPIC_NOT_FOUND, Code.QUEUE_NOT_FOUND, Code.WRONG_GROUP, Code.NO_PERMISSION)
)


async def plan_reads(messaging: Messaging, request: pb.PlanReadsRequest) -> pb.PlanReadsReply:
    """Answer from one applied index, behind a read barrier; INVALID_ARGUMENT for too many times."""
    times = sum(len(wanted.times_ms) for wanted in request.queues)
    if times > LOOKS_PER_CALL_MAX:
        raise DledgerError(
            Code.INVALID_ARGUMENT, f"{times} times_ms, at most {LOOKS_PER_CALL_MAX} in all"
        )
    found = await _resolve_all(messaging, [wanted.queue for wanted in request.queues])
    await messaging.view.confirm()
    machine = messaging.view.machine
    reply = pb.PlanReadsReply(applied_index=machine.applied_index)
    # All bounds are read in one turn of the loop, so they are of one moment.
    for queue in found:
        _add_bounds(machine.queries, reply, queue)
    samples = min(request.samples, (LOOKS_PER_CALL_MAX - times) // len(request.queues))
    looks = 0
    for wanted, queue, row in zip(request.queues, found, reply.queues, strict=True):
        if isinstance(queue, DledgerError) or row.code:
            continue
        if looks >= LOOKS_AT_ONCE:
            await asyncio.sleep(0)
            looks = 0
        looks += samples + len(wanted.times_ms)
        try:
            _look(machine.queries, queue, row, wanted.times_ms, samples)
        except DledgerError as error:  # deleted, or trimmed, since the loop's last turn
            row.Clear()
            row.code, row.detail = int(error.code), error.detail
    return reply


async def _resolve_all(
    messaging: Messaging, refs: Sequence[pb.QueueRef]
) -> list[Queue | DledgerError]:
    """Return each queue or its refusal; an unknown topic is asked for once."""
    refused: dict[tuple[str, bytes], DledgerError] = {}
    found: list[Queue | DledgerError] = []
    for ref in refs:
        topic = (ref.topic, ref.topic_id)
        try:
            known = refused.get(topic) or await messaging.resolve(*topic, ref.queue)
        except DledgerError as error:
            if error.code not in OF_ONE_QUEUE:
                raise
            known = error
            if error.code is Code.TOPIC_NOT_FOUND:
                refused[topic] = error
        found.append(known)
    return found


def _add_bounds(queries: Queries, reply: pb.PlanReadsReply, queue: Queue | DledgerError) -> None:
    row = reply.queues.add()
    try:
        if isinstance(queue, DledgerError):
            raise queue
        row.minimum, row.maximum = queries.queue_bounds(queue.topic_id, queue.number)
    except DledgerError as error:
        row.code, row.detail = int(error.code), error.detail


def _look(
    queries: Queries,
    queue: Queue,
    row: pb.PlanReadsReply.Queue,
    times_ms: Sequence[int],
    samples: int,
) -> None:
    """Add offsets by time and samples, all within the bounds of the row."""
    for time_ms in times_ms:
        offset = queries.offset_by_time(queue.topic_id, queue.number, time_ms)
        row.offsets.append(min(offset, row.maximum))
    for offset in sample_offsets(row.minimum, row.maximum, samples):
        span = queries.lookup_offset(queue.topic_id, queue.number, offset)
        if not row.samples or row.samples[-1].offset < span.base_offset:
            row.samples.add(offset=span.base_offset, record_count=span.record_count, size=span.size)


def sample_offsets(minimum: int, maximum: int, samples: int) -> list[int]:
    """Return up to `samples` offsets spread evenly over minimum..maximum - 1."""
    count = maximum - minimum
    number = min(samples, count)
    return [minimum + (2 * k + 1) * count // (2 * number) for k in range(number)]


async def hold_all(messaging: Messaging, request: pb.HoldAllRequest) -> pb.HoldAllReply:
    """Hold queues, or release them with a TTL of zero; all are proposed in the same turn.

    A refusal of the member, not of one queue, is raised, so that the caller repeats the whole call
    elsewhere. It is raised as UNKNOWN_OUTCOME when some queues are done, or may be done.
    """

    async def hold(wanted: pb.HoldAllRequest.Wanted) -> int | DledgerError:
        ref = wanted.queue
        try:
            queue = await messaging.resolve(ref.topic, ref.topic_id, ref.queue)
            return await messaging.hold(wanted.owner, queue, wanted.offset, request.ttl_ms)
        except DledgerError as error:
            return error

    results = await asyncio.gather(*map(hold, request.queues))
    errors = [each for each in results if isinstance(each, DledgerError)]
    for error in errors:
        if error.code not in OF_ONE_QUEUE and (error.retriable or not error.definite):
            if len(errors) == len(results) and all(each.definite for each in errors):
                raise error
            raise DledgerError(
                Code.UNKNOWN_OUTCOME, f"some queues may be done, but not all: {error}"
            )
    reply = pb.HoldAllReply()
    for held in results:
        if isinstance(held, DledgerError):
            reply.codes.append(int(held.code))
            reply.details.append(held.detail)
        else:
            reply.codes.append(int(Code.OK))
            reply.details.append("")
            reply.until_ms = max(reply.until_ms, held)
    return reply
