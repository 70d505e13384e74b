"""Calls about the progress of consumer groups: claims, releases, what is known of queues, lag.

Owns the translation of protobuf. Not owned: what the calls do (`usecases.progress`), which member
executes them (`table`, `calls`).
"""

from collections.abc import Sequence

from dledger.state.progress.failures import FailedRecord
from dledger.state.progress.row import Progress
from dledger.state.progress.start import NewQueue
from dledger.state.results import Claimed
from dledger.state.values import QueueProgress
from dledger_broker.rpc.calls import Call
from dledger_broker.usecases import dead_letters, progress
from dledger_broker.usecases.queues import resolve_each
from dledger_proto.errors import Code, DledgerError
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2 as dpb


async def claim_queues(call: Call, request: dpb.ClaimQueuesRequest) -> dpb.ClaimQueuesReply:
    """Claim queues for a consumer, or renew its claims."""
    wanted = await _wanted(call, request.queues)
    begin: Sequence[NewQueue] = ()
    grants = call.group.grants
    if grants is not None:
        wanted, begin = await grants.checked(request.consumer_group, request.member_id, wanted)
    claimed = await progress.claim_queues(
        call.messaging, request.consumer_group, request.member_id, wanted, begin
    )
    return dpb.ClaimQueuesReply(
        rows=[_claim_row(each, claimed.time_ms) for each in claimed.rows],
        now_ms=claimed.time_ms,
        paused=claimed.paused,
    )


async def release_queues(call: Call, request: dpb.ReleaseQueuesRequest) -> dpb.ReleaseQueuesReply:
    """Give claims back."""
    wanted = await _wanted(call, request.queues)
    codes = await progress.release_queues(
        call.messaging, request.consumer_group, request.member_id, wanted
    )
    return dpb.ReleaseQueuesReply(codes=[int(code) for code in codes])


async def fail_records(call: Call, request: dpb.FailRecordsRequest) -> dpb.FailRecordsReply:
    """Note that records failed: they are tried again, or are dead."""
    queues = await resolve_each(call.messaging, [each.queue for each in request.records])
    failed = [
        (
            queue,
            FailedRecord(
                b"", 0, each.epoch, each.resets, each.offset, each.attempts, each.delay_ms,
                each.error,
            ),
        )
        for queue, each in zip(queues, request.records, strict=True)
    ]  # fmt: skip
    stored = await progress.fail_records(
        call.messaging, request.consumer_group, request.member_id, failed
    )
    rows = [
        dpb.FailRecordsReply.Row(
            code=int(row.code),
            detail=row.detail,
            attempts=row.attempts,
            dead=row.is_dead,
            due_ms=row.due_ms,
        )
        for row in stored.rows
    ]
    return dpb.FailRecordsReply(rows=rows, now_ms=stored.time_ms)


async def list_dead_letters(
    call: Call, request: dpb.ListDeadLettersRequest
) -> dpb.ListDeadLettersReply:
    """Return a page of the dead letters that are not settled."""
    limit = request.limit or dead_letters.LETTERS_DEFAULT
    page = await dead_letters.list_dead_letters(
        call.messaging, request.consumer_group, request.offset, limit
    )
    reply = dpb.ListDeadLettersReply(queue=page.queue, next=page.following)
    for letter, topic in page.letters:
        reply.letters.add(
            offset=letter.offset,
            died_ms=letter.died_ms,
            topic_id=letter.origin.topic_id,
            topic=topic,
            queue=letter.origin.queue,
            origin_offset=letter.origin.offset,
            attempts=letter.origin.attempts,
            resent=letter.origin.resent,
            error=letter.origin.error,
        )
    return reply


async def settle_dead_letters(
    call: Call, request: dpb.SettleDeadLettersRequest
) -> dpb.SettleDeadLettersReply:
    """Send dead letters to their group again, or drop them."""
    codes = await dead_letters.settle(
        call.messaging,
        request.consumer_group,
        request.queue,
        request.offsets,
        resend=request.resend,
        resent_max=request.resent_max,
    )
    return dpb.SettleDeadLettersReply(codes=[int(code) for code in codes])


async def read_progress(call: Call, request: dpb.ReadProgressRequest) -> dpb.ReadProgressReply:
    """Return what a consumer group has done in each queue, and what waits for it."""
    queues = await resolve_each(call.messaging, request.queues)
    found = await progress.read_progress(call.messaging, request.consumer_group, queues)
    reply = dpb.ReadProgressReply(
        rows=[_progress_row(each) for each in found.rows], now_ms=found.now_ms
    )
    if found.pause is not None:
        reply.paused, reply.paused_since_ms = found.pause.why, found.pause.since_ms
    return reply


async def resume_group(call: Call, request: dpb.ResumeGroupRequest) -> dpb.ResumeGroupReply:
    """End the pause that a wave of failures began."""
    return dpb.ResumeGroupReply(
        why=await progress.resume_group(call.messaging, request.consumer_group)
    )


async def _wanted(
    call: Call, wanted: Sequence[dpb.ClaimQueuesRequest.Wanted]
) -> list[progress.Wanted]:
    queues = await resolve_each(call.messaging, [each.queue for each in wanted])
    return [(queue, each.epoch) for queue, each in zip(queues, wanted, strict=True)]


def _claim_row(claimed: Claimed, time_ms: int) -> dpb.ClaimQueuesReply.Row:
    row = claimed.row
    if row is None:
        return dpb.ClaimQueuesReply.Row(code=int(claimed.code), detail=claimed.detail)
    if claimed.code is not Code.OK:
        return dpb.ClaimQueuesReply.Row(
            code=int(claimed.code),
            detail=claimed.detail,
            lease_left_ms=claimed.lease_left_ms,
            holder=row.consumer,
        )
    return dpb.ClaimQueuesReply.Row(
        floor=row.floor,
        done=_ranges(row),
        resets=row.resets,
        lease_left_ms=max(row.lease_until_ms - time_ms, 0),
        suspended=_suspended(row),
        holder=row.consumer,
    )


def _progress_row(found: QueueProgress | DledgerError) -> dpb.ReadProgressReply.Row:
    if isinstance(found, DledgerError):
        return dpb.ReadProgressReply.Row(code=int(found.code), detail=found.detail)
    reply = dpb.ReadProgressReply.Row(
        floor=-1,
        minimum=found.minimum,
        maximum=found.maximum,
        oldest_ms=found.oldest_ms,
        lag_bytes=found.lag_bytes,
        expires_ms=found.expires_ms,
    )
    row = found.row
    if row is not None:
        reply.floor, reply.committed_ms, reply.resets = row.floor, row.committed_ms, row.resets
        reply.done.extend(_ranges(row))
        reply.suspended.extend(_suspended(row))
        reply.epoch, reply.lease_until_ms = row.epoch, row.lease_until_ms
        reply.holder = row.holder
        reply.waiting = row.waiting(found.minimum, found.maximum)
        reply.lost = row.lost(found.minimum)
    return reply


def _ranges(row: Progress) -> list[pb.OffsetRange]:
    return [pb.OffsetRange(first=first, end=end) for first, end in row.done]


def _suspended(row: Progress) -> list[dpb.SuspendedRecord]:
    return [
        dpb.SuspendedRecord(offset=offset, attempts=each.attempts, until_ms=each.until_ms)
        for offset, each in sorted(row.suspended.items())
    ]
