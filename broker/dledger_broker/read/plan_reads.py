"""Plans of reads: bounds and samples of many queues in one call.

Owns: which queues get how many samples. Not owned: how many queues a call may name (`rpc.table`).

Without this call a job over a thousand queues would make thousands of calls, and a member answers
some thousands in a second. A queue that cannot be served is refused alone: the others are answered.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from dledger.state.queries import Queries
from dledger_broker.usecases.messaging import Messaging, Queue
from dledger_broker.usecases.queues import resolve_each
from dledger_proto.errors import DledgerError, invalid
from dledger_proto.limits import LOOKS_PER_CALL_MAX
from dledger_proto.v1 import broker_pb2 as pb

LOOKS_AT_ONCE: Final = 128
"""Reads of the state between two turns of the loop."""


async def plan_reads(messaging: Messaging, request: pb.PlanReadsRequest) -> pb.PlanReadsReply:
    """Answer from one applied index, behind a read barrier; INVALID_ARGUMENT for too many times."""
    times = sum(len(wanted.times_ms) for wanted in request.queues)
    if times > LOOKS_PER_CALL_MAX:
        raise invalid(
            f"times_ms: {times} times, at most {LOOKS_PER_CALL_MAX} over all queues of a call"
        )
    found = await resolve_each(messaging, [wanted.queue for wanted in request.queues])
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
        span = queries.row_at(queue.topic_id, queue.number, offset)
        if not row.samples or row.samples[-1].offset < span.base_offset:
            row.samples.add(offset=span.base_offset, record_count=span.record_count, size=span.size)


def sample_offsets(minimum: int, maximum: int, samples: int) -> list[int]:
    """Return up to `samples` offsets spread evenly over minimum..maximum - 1."""
    count = maximum - minimum
    number = min(samples, count)
    return [minimum + (2 * k + 1) * count // (2 * number) for k in range(number)]
