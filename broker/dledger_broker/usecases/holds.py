"""Holds: placed and released, of one queue or of many in one call, and listed in pages.

Not owned: the rules of holds (`dledger.state.queues.holds`).
"""

import asyncio
from typing import Final

from dledger.state.commands.command import Command
from dledger.state.queues.holds import Hold, ReleaseHold
from dledger.state.results import Held
from dledger_broker.usecases.messaging import ID_SIZE, Messaging
from dledger_broker.usecases.queues import OF_ONE_QUEUE, resolve
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import GROUP_NAME_LENGTH_MAX
from dledger_proto.names import check_group_name
from dledger_proto.v1 import broker_pb2 as pb

HOLDS_PER_PAGE_MAX: Final = 1_000
HOLD_TTL_MS_MAX: Final = 100 * 365 * 24 * 3_600 * 1_000
"""A hundred years: a hold for good is renewed, or it turns out to be forgotten."""
AFTER_SIZE_MAX: Final = ID_SIZE + 4 + GROUP_NAME_LENGTH_MAX


async def list_holds(messaging: Messaging, request: pb.ListHoldsRequest) -> pb.ListHoldsReply:
    """Return a page of the holds that have not ended, behind a read barrier.

    TOPIC_NOT_FOUND, QUEUE_NOT_FOUND, WRONG_GROUP; INVALID_ARGUMENT for a cursor that no page gave.
    """
    if len(request.after) > AFTER_SIZE_MAX:
        raise invalid(
            f"`after` has {len(request.after)} bytes, at most {AFTER_SIZE_MAX}; "
            "use what the last page returned"
        )
    queue = request.queue if request.HasField("queue") else None
    if queue is not None and not request.topic:
        raise invalid(f"queue {queue} is given without a topic")
    view = messaging.view
    queries = view.machine.queries
    await view.confirm()
    topic_id = (await messaging.topic_named(request.topic)).topic_id if request.topic else None
    if topic_id is not None and queue is not None:
        queries.queue_bounds(topic_id, queue)  # raises unless this group holds it
    limit = min(request.limit or HOLDS_PER_PAGE_MAX, HOLDS_PER_PAGE_MAX)
    found, following = queries.holds(topic_id, queue, request.after, limit)
    now_ms = view.now_ms
    reply = pb.ListHoldsReply(next=following, now_ms=now_ms)
    for each in found:
        topic = queries.topic_by_id(each.topic_id)
        # The rows of an ended hold and of a deleted topic are deleted some time later.
        if each.until_ms > now_ms and topic is not None and not topic.deleted:
            reply.holds.add(
                topic_id=each.topic_id,
                topic=topic.name,
                queue=each.queue,
                owner=each.owner,
                offset=each.offset,
                until_ms=each.until_ms,
            )
    return reply


async def hold(messaging: Messaging, request: pb.HoldRequest) -> pb.HoldReply:
    """Keep a queue from being trimmed from an offset up, or release it with a TTL of zero."""
    held = await messaging.view.commands.propose(await _command(messaging, request, request.ttl_ms))
    return pb.HoldReply(until_ms=held.until_ms)


async def hold_all(messaging: Messaging, request: pb.HoldAllRequest) -> pb.HoldAllReply:
    """Do for many queues what `hold` does for one; all are proposed in the same turn.

    A refusal of the member, not of one queue, is raised, so that the caller repeats the whole call
    elsewhere. It is raised as UNKNOWN_OUTCOME when some queues are done, or may be done.
    """

    async def judged(wanted: pb.HoldAllRequest.Wanted) -> Command[Held] | DledgerError:
        try:
            return await _command(messaging, wanted, request.ttl_ms)
        except DledgerError as error:
            return error

    wanted = await asyncio.gather(*map(judged, request.queues))
    answers = iter(
        await messaging.view.commands.propose_all(
            [each for each in wanted if not isinstance(each, DledgerError)]
        )
    )
    results = [each if isinstance(each, DledgerError) else next(answers) for each in wanted]
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
            reply.until_ms = max(reply.until_ms, held.until_ms)
    return reply


async def _command(
    messaging: Messaging, wanted: pb.HoldRequest | pb.HoldAllRequest.Wanted, ttl_ms: int
) -> Command[Held]:
    queue = await resolve(messaging, wanted.queue)
    check_group_name("owner", wanted.owner)
    if ttl_ms > HOLD_TTL_MS_MAX:
        raise invalid(f"ttl_ms {ttl_ms}, must be 0 (release) to {HOLD_TTL_MS_MAX}")
    if ttl_ms == 0:
        return ReleaseHold(wanted.owner, queue.topic_id, queue.number)
    now_ms = messaging.view.host.time_ms  # the stamps of entries end a hold (D8)
    if now_ms is None:
        raise DledgerError(
            Code.NO_LEADER, "the leader does not know the clocks of a majority yet; try again"
        )
    return Hold(wanted.owner, queue.topic_id, queue.number, wanted.offset, now_ms + ttl_ms)
