"""Calls about schedules: setting one, deleting one, listing them.

Owns the translation of protobuf, and what is checked before a schedule is proposed: the message as
any that is sent, the cron expression and the time zone. Not owned: what the commands do
(`dledger.state.timers.schedules`), when a schedule is due (`dledger_broker.timers`).
"""

import asyncio

from dledger.state.timers.schedules import DeleteSchedule, SetSchedule
from dledger.state.values import Schedule
from dledger_broker.group.group_view import GroupView
from dledger_broker.rpc.calls import Call
from dledger_broker.timers.cron import due_time
from dledger_proto.batch.codec import BATCH_HEADER_SIZE, BatchView, check_batch, parse_header
from dledger_proto.batch.header import ID_SIZE
from dledger_proto.errors import DledgerError, invalid
from dledger_proto.limits import SCHEDULE_TEXT_SIZE_MAX, SCHEDULES_PER_PAGE_MAX
from dledger_proto.names import check_name
from dledger_proto.v1 import delivery_pb2 as dpb

CURSOR_SIZE = 2 * ID_SIZE


async def set_schedule(call: Call, request: dpb.SetScheduleRequest) -> dpb.SetScheduleReply:
    """Send a message again and again; the schedule of the same topic and name is replaced."""
    view = call.messaging.view
    check_name("name", request.name, SCHEDULE_TEXT_SIZE_MAX)
    now_ms = view.now_ms
    due_time(request.cron, request.time_zone, now_ms, now_ms)
    header = check_batch(request.batch)
    time_ms = BatchView(request.batch).times[0]
    if header.header_size != BATCH_HEADER_SIZE or time_ms != header.base_time_ms:
        raise invalid("batch: a schedule sends at its own times, and the message must have none")
    await call.messaging.write_rule.check(header)
    command = SetSchedule(request.name, request.cron, request.time_zone, request.batch)
    result = await view.commands.propose(command)
    return dpb.SetScheduleReply(
        schedule_id=result.schedule_id,
        replaced=result.replaced,
        last_due_ms=result.last_due_ms,
        next_due_ms=due_time(
            request.cron, request.time_zone, result.last_due_ms, result.last_due_ms
        ),
    )


async def delete_schedule(
    call: Call, request: dpb.DeleteScheduleRequest
) -> dpb.DeleteScheduleReply:
    """Delete a schedule; NOT_FOUND when this group has none of this topic and name."""
    topic = await call.messaging.topic_now(request.topic)
    command = DeleteSchedule(topic.topic_id, request.name)
    deleted = await call.messaging.view.commands.propose(command)
    return dpb.DeleteScheduleReply(last_due_ms=deleted.last_due_ms)


async def list_schedules(call: Call, request: dpb.ListSchedulesRequest) -> dpb.ListSchedulesReply:
    """Return a page of the schedules of this group."""
    if len(request.cursor) not in (0, CURSOR_SIZE):
        raise invalid(
            f"cursor of {len(request.cursor)} bytes: must be the one of the answer before"
        )
    view = call.messaging.view
    await view.confirm()
    topic_id = b""
    if request.topic:
        topic_id = (await call.messaging.topic_named(request.topic)).topic_id
    limit = min(request.limit or SCHEDULES_PER_PAGE_MAX, SCHEDULES_PER_PAGE_MAX)
    schedules, cursor = view.machine.queries.schedules(topic_id, request.cursor, limit)
    rows: list[dpb.ListSchedulesReply.Schedule] = []
    for schedule in schedules:
        rows.append(_row(view, schedule))
        await asyncio.sleep(0)  # reading a cron expression may take a millisecond
    return dpb.ListSchedulesReply(schedules=[row for row in rows if row.topic], cursor=cursor)


def _row(view: GroupView, schedule: Schedule) -> dpb.ListSchedulesReply.Schedule:
    """Return a row; without the name of its topic when the topic is deleted."""
    topic = view.machine.queries.topic_by_id(schedule.topic_id)
    try:
        next_due_ms = due_time(schedule.cron, schedule.time_zone, schedule.last_due_ms, view.now_ms)
    except DledgerError:  # another member knows more time zones
        next_due_ms = 0
    return dpb.ListSchedulesReply.Schedule(
        topic_id=schedule.topic_id,
        topic="" if topic is None or topic.deleted else topic.name,
        queue=parse_header(schedule.batch).queue,
        name=schedule.name,
        cron=schedule.cron,
        time_zone=schedule.time_zone,
        last_due_ms=schedule.last_due_ms,
        next_due_ms=next_due_ms,
        schedule_id=schedule.schedule_id,
        batch=schedule.batch,
    )
