"""Progress of consumer groups: claims, releases, commits, failures, lag.

Not owned: the rules (`dledger.state.progress`), the wire (`rpc/delivery/progress.py`). A queue that
cannot be served is refused alone.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dledger.state.offsets import CommitOffset
from dledger.state.progress.claims import (
    ClaimQueues,
    GrantedQueue,
    ReleaseQueues,
    WantedQueue,
    check_consumer,
)
from dledger.state.progress.failures import FailedRecord, FailRecords
from dledger.state.progress.start import BeginQueues, NewQueue
from dledger.state.progress.wave import Pause, ResumeGroup
from dledger.state.queues.expire import effective
from dledger.state.queues.references import ORIGIN_ERROR_SIZE_MAX
from dledger.state.results import (
    Claimed,
    FailuresStored,
    FailureStored,
    OffsetsCommitted,
    QueuesClaimed,
)
from dledger.state.values import QueueProgress
from dledger_broker.group.group_view import GroupView
from dledger_broker.usecases.messaging import Messaging, Queue
from dledger_broker.usecases.queues import check_each_once
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import RETENTION_FOREVER
from dledger_proto.names import check_client_id, check_group_name

LEASE_LEFT_MS_MIN: Final = 10
"""What a refused claim is told at least: the lease may have ended since it was proposed."""

Wanted = tuple[Queue | DledgerError, int]
"""A queue, or why it cannot be served, and an epoch."""

Done = tuple[Queue | DledgerError, CommitOffset]
"""A queue, or why it cannot be served, and what is done in it."""

Failed = tuple[Queue | DledgerError, FailedRecord]
"""A queue, or why it cannot be served, and what failed in it."""


@dataclass(frozen=True, slots=True)
class ProgressRead:
    """What is known of each queue, or why nothing is."""

    rows: list[QueueProgress | DledgerError]
    pause: Pause | None
    now_ms: int


async def claim_queues(
    messaging: Messaging,
    consumer_group: str,
    member_id: str,
    wanted: Sequence[Wanted],
    begin: Sequence[NewQueue] = (),
) -> QueuesClaimed:
    """Claim queues for a consumer, or renew its claims; each is taken or refused on its own.

    In the queues of `begin` the group begins, unless it did before.
    """
    _check(consumer_group, member_id)
    check_each_once("queues", [_place(queue) for queue, _ in wanted])
    if begin:
        await messaging.view.commands.propose(BeginQueues(consumer_group, tuple(begin)))
    queues = tuple(
        WantedQueue(*each, over=_lease_over(messaging.view, consumer_group, member_id, each))
        for each in _granted(wanted)
    )
    command = ClaimQueues(consumer_group, member_id, queues)
    claimed = await messaging.view.commands.propose(command)
    rows = iter([_with_time_left(messaging.view, row) for row in claimed.rows])
    merged = tuple(
        Claimed(each.code, each.detail) if isinstance(each, DledgerError) else next(rows)
        for each, _ in wanted
    )
    return QueuesClaimed(merged, claimed.time_ms, claimed.paused)


async def release_queues(
    messaging: Messaging, consumer_group: str, member_id: str, wanted: Sequence[Wanted]
) -> list[Code]:
    """Give claims back; return OK or why not of each."""
    _check(consumer_group, member_id)
    check_each_once("queues", [_place(queue) for queue, _ in wanted])
    command = ReleaseQueues(consumer_group, member_id, _granted(wanted))
    released = await messaging.view.commands.propose(command)
    codes = iter(released.codes)
    return [each.code if isinstance(each, DledgerError) else next(codes) for each, _ in wanted]


async def commit_offsets(
    messaging: Messaging,
    consumer_group: str,
    done: Sequence[Done],
    *,
    reset: bool,
    member_id: str,
) -> OffsetsCommitted:
    """Store what is done in queues; each is taken or refused on its own (I14)."""
    check_each_once("offsets", [_place(queue) for queue, _ in done])
    offsets = [
        each._replace(topic_id=queue.topic_id, queue=queue.number)
        for queue, each in done
        if isinstance(queue, Queue)
    ]
    committed = await messaging.commit_offsets(
        consumer_group, offsets, reset=reset, member_id=member_id
    )
    answers = iter(zip(committed.codes, committed.stored_offsets, strict=True))
    rows = [
        (queue.code, -1) if isinstance(queue, DledgerError) else next(answers) for queue, _ in done
    ]
    return OffsetsCommitted(tuple(code for code, _ in rows), tuple(offset for _, offset in rows))


async def read_progress(
    messaging: Messaging, consumer_group: str, queues: Sequence[Queue | DledgerError]
) -> ProgressRead:
    """Return what a consumer group has done in each queue, behind a read barrier."""
    check_group_name("consumer_group", consumer_group)
    view = messaging.view
    await view.confirm()
    queries = view.machine.queries
    rows: list[QueueProgress | DledgerError] = []
    for queue in queues:
        if isinstance(queue, DledgerError):
            rows.append(queue)
            continue
        try:
            row = queries.progress(consumer_group, queue.topic_id, queue.number)
            rows.append(row._replace(expires_ms=_expires_ms(view, queue.topic_id, row)))
        except DledgerError as error:
            rows.append(error)
        await asyncio.sleep(0)  # one queue costs up to some milliseconds
    now_ms = view.now_ms
    return ProgressRead(rows, queries.pause_of(consumer_group), now_ms)


def _expires_ms(view: GroupView, topic_id: bytes, row: QueueProgress) -> int:
    topic = view.machine.queries.topic_by_id(topic_id)
    if topic is None or not row.oldest_ms:
        return 0
    bound_ms = effective(topic, view.retention).time_ms
    return 0 if bound_ms == RETENTION_FOREVER else row.oldest_ms + bound_ms


async def fail_records(
    messaging: Messaging, consumer_group: str, member_id: str, failed: Sequence[Failed]
) -> FailuresStored:
    """Note that records failed; each is taken or refused on its own."""
    _check(consumer_group, member_id)
    check_each_once("records", [_place(queue, each.offset) for queue, each in failed])
    records = tuple(
        each._replace(topic_id=queue.topic_id, queue=queue.number, error=_cut(each.error))
        for queue, each in failed
        if isinstance(queue, Queue)
    )
    stored = await messaging.view.commands.propose(FailRecords(consumer_group, member_id, records))
    rows = iter(stored.rows)
    merged = tuple(
        FailureStored(queue.code, queue.detail) if isinstance(queue, DledgerError) else next(rows)
        for queue, _ in failed
    )
    return FailuresStored(merged, stored.time_ms)


async def resume_group(messaging: Messaging, consumer_group: str) -> str:
    """End the pause of a wave of failures; return why the group was paused, or empty."""
    check_group_name("consumer_group", consumer_group)
    return (await messaging.view.commands.propose(ResumeGroup(consumer_group))).why


def _lease_over(view: GroupView, consumer_group: str, member_id: str, item: GrantedQueue) -> int:
    """Return the index that names another consumer's lease that is over; 0: none is."""
    row = view.machine.queries.claimed(consumer_group, item.topic_id, item.queue)
    if row is None or not row.leased_at or row.consumer == member_id:
        return 0
    return 0 if view.leases.left_ms(row) else row.leased_at


def _with_time_left(view: GroupView, claimed: Claimed) -> Claimed:
    """Say how long another consumer's lease lasts by this member's clock, not by stamps."""
    row = claimed.row
    if claimed.code is not Code.LEASED or row is None or not row.leased_at:
        return claimed
    return claimed._replace(lease_left_ms=max(view.leases.left_ms(row), LEASE_LEFT_MS_MIN))


def _place(queue: Queue | DledgerError, *more: int) -> tuple[object, ...] | None:
    """Return what a row names: its queue, or a record of it."""
    return (queue.topic_id, queue.number, *more) if isinstance(queue, Queue) else None


def _check(consumer_group: str, member_id: str) -> None:
    check_group_name("consumer_group", consumer_group)
    check_client_id("member_id", member_id)
    check_consumer(member_id)


def _cut(error: str) -> str:
    """Return an error text as long as an origin keeps it."""
    return error.encode(errors="replace")[:ORIGIN_ERROR_SIZE_MAX].decode(errors="ignore")


def _granted(wanted: Sequence[Wanted]) -> tuple[GrantedQueue, ...]:
    return tuple(
        GrantedQueue(queue.topic_id, queue.number, epoch)
        for queue, epoch in wanted
        if isinstance(queue, Queue)
    )
