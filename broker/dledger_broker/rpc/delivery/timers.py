"""Calls about timers: recalling a delayed message, listing what waits.

Owns the translation of protobuf. Not owned: what a recall does (`dledger.state.timers`), which
member executes the calls (`table`, `calls`).
"""

from dledger.state.timers.commands import RecallTimer, no_timer
from dledger.state.timers.table import timer_key
from dledger.state.users.values import Action
from dledger.state.values import Timer
from dledger_broker.group.group_view import GroupView
from dledger_broker.rpc.calls import Call
from dledger_broker.security import deciding
from dledger_proto.batch.codec import NO_ID, message_id, parse_message_id
from dledger_proto.errors import DledgerError, invalid
from dledger_proto.limits import (
    LOOKS_PER_CALL_MAX,
    TIME_MS_MAX,
    TIMERS_PER_PAGE_DEFAULT,
    TIMERS_PER_PAGE_MAX,
)
from dledger_proto.v1 import delivery_pb2 as dpb

CURSOR_SIZE = len(timer_key(0, 0)) - 1


async def recall(call: Call, request: dpb.RecallTimerRequest) -> dpb.RecallTimerReply:
    """Take a delayed message back; NOT_FOUND when this group has no timer for it."""
    producer_id, number = parse_message_id(request.message_id)
    timer = call.messaging.view.machine.queries.timer_of(producer_id, number)
    topic = None if timer is None else call.find_topic(timer.topic_id)
    if topic is not None and not call.caller.may(Action.PUBLISH, deciding.topic(topic.name)):
        refused = no_timer(producer_id, number)
        error = DledgerError(refused.code, refused.detail)
        call.caller.was_refused(error, "RecallTimer")
        raise error
    recalled = await call.messaging.view.commands.propose(RecallTimer(producer_id, number))
    return dpb.RecallTimerReply(due_ms=recalled.due_ms)


async def list_timers(call: Call, request: dpb.ListTimersRequest) -> dpb.ListTimersReply:
    """Return a page of the timers that wait in this group, by time."""
    for field in ("from_ms", "to_ms"):
        if not 0 <= getattr(request, field) <= TIME_MS_MAX:
            raise invalid(f"{field} {getattr(request, field)}, must be 0 to {TIME_MS_MAX}")
    if request.limit > TIMERS_PER_PAGE_MAX:
        raise invalid(f"limit {request.limit}, at most {TIMERS_PER_PAGE_MAX}")
    if len(request.cursor) not in (0, CURSOR_SIZE):
        raise invalid(
            f"cursor of {len(request.cursor)} bytes: must be the one of the answer before"
        )
    view = call.messaging.view
    await view.confirm()
    topic_id = b""
    if request.topic:
        topic_id = (await call.messaging.topic_named(request.topic)).topic_id
    wanted = request.limit or TIMERS_PER_PAGE_DEFAULT
    looked_at, cursor = view.machine.queries.timers(
        request.from_ms,
        request.to_ms or TIME_MS_MAX,
        request.cursor,
        LOOKS_PER_CALL_MAX if topic_id else wanted,
    )
    timers: list[Timer] = []
    for timer in looked_at:
        if not topic_id or timer.topic_id == topic_id:
            timers.append(timer)
            if len(timers) == wanted:
                cursor = timer_key(timer.due_ms, timer.number)[1:]
                break
    return dpb.ListTimersReply(
        timers=[_row(view, timer) for timer in timers],
        cursor=cursor,
        now_ms=view.clock.wall_ms(),
        waiting=view.machine.queries.timers_waiting,
    )


def _row(view: GroupView, timer: Timer) -> dpb.ListTimersReply.Timer:
    topic = view.machine.queries.topic_by_id(timer.topic_id)
    has_id = timer.producer_id != NO_ID
    return dpb.ListTimersReply.Timer(
        due_ms=timer.due_ms,
        topic_id=timer.topic_id,
        topic="" if topic is None else topic.name,
        queue=timer.queue,
        record_count=timer.reference.record_count,
        message_id=message_id(timer.producer_id, timer.base_number) if has_id else b"",
        attempts=timer.origin.attempts if timer.origin is not None else 0,
    )
