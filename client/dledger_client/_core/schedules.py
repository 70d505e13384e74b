"""Schedules as users of the client see them, and the message of one, checked. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dledger_client._core.arguments import check_integer
from dledger_client._core.message_checks import make_record
from dledger_client._core.routes import TopicRoute
from dledger_client.errors import error_of, illegal, invalid
from dledger_proto.batch.codec import BatchView, Record, encode_batch, parse_header
from dledger_proto.errors import Code, DledgerError
from dledger_proto.keyhash import queue_of_key
from dledger_proto.limits import QUEUES_PER_TOPIC_MAX, SCHEDULE_SIZE_MAX, SCHEDULE_TEXT_SIZE_MAX
from dledger_proto.names import check_name
from dledger_proto.v1 import delivery_pb2 as dpb


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message that the cluster sends again and again, at the times of a cron expression."""

    topic: str
    name: str
    """One of the topic's."""
    cron: str
    """Five fields, or six with seconds first."""
    time_zone: str
    """In which the expression is read: an IANA name."""
    group: str
    queue: int
    record: Record
    """What is sent. Each message that is sent has the time when it was due as `time_ms`."""
    last_due_ms: int
    """When the last message was due; before the first: when the schedule was set."""
    next_due_ms: int
    """When the next message is due; 0: the member that was asked does not know the time zone."""
    schedule_id: bytes
    """16 bytes: the producer's part of the ids of all messages that the schedule sends."""


def check_schedule(name: str, cron: str = "", time_zone: str = "") -> None:
    """Refuse a name that no schedule can have, and what is no text. Members check the rest."""
    for field, text in (("name", name), ("cron", cron), ("time_zone", time_zone)):
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise illegal(f"{field}: {type(text).__name__}, must be str")
        if not text.isascii():
            raise illegal(f"{field} {text!r}: only ASCII is allowed")
    try:
        check_name("name", name, SCHEDULE_TEXT_SIZE_MAX)
    except DledgerError as error:
        raise illegal(error.detail) from None


def schedule_batch(
    route: TopicRoute,
    body: bytes,
    *,
    ordering_key: str | bytes | None,
    queue: int | None,
    tag: str,
    keys: Sequence[str],
    properties: Mapping[str, str] | None,
) -> tuple[bytes, int]:
    """Return the batch of a schedule's message, and its queue.

    Raises MessageIllegal, MessageTooLarge, QueueNotFound.
    """
    if ordering_key is not None and queue is not None:
        raise invalid("ordering_key and queue: both are given, one of them decides the queue")
    if not route.write_queues:
        raise error_of(Code.QUEUE_NOT_FOUND, f"topic {route.name} has no queue that takes messages")
    record, _ = make_record(body, tag, keys=keys, properties=properties, ordering_key=ordering_key)
    number = queue or 0
    if ordering_key is not None:
        key = ordering_key.encode() if isinstance(ordering_key, str) else ordering_key
        number = queue_of_key(key, route.write_queues)
    check_integer("queue", number, QUEUES_PER_TOPIC_MAX - 1)
    batch = encode_batch(
        [record], topic_id=route.id, queue=number, stamp=None, base_number=0, base_time_ms=0,
        keyed=ordering_key is not None,
    )  # fmt: skip
    if len(batch) > SCHEDULE_SIZE_MAX:
        raise illegal(f"message: {len(batch)} bytes, a schedule holds {SCHEDULE_SIZE_MAX} at most")
    return batch, number


def schedule_set(
    topic: str, group: str, asked: dpb.SetScheduleRequest, reply: dpb.SetScheduleReply
) -> Schedule:
    """Return a schedule that a broker group has set."""
    row = dpb.ListSchedulesReply.Schedule(
        topic=topic,
        queue=parse_header(asked.batch).queue,
        name=asked.name,
        cron=asked.cron,
        time_zone=asked.time_zone,
        last_due_ms=reply.last_due_ms,
        next_due_ms=reply.next_due_ms,
        schedule_id=reply.schedule_id,
        batch=asked.batch,
    )
    return schedule_of(row, group)


def schedule_of(row: dpb.ListSchedulesReply.Schedule, group: str) -> Schedule:
    """Return a schedule as a broker group tells it."""
    return Schedule(
        topic=row.topic,
        name=row.name,
        cron=row.cron,
        time_zone=row.time_zone,
        group=group,
        queue=row.queue,
        record=BatchView(row.batch).record(0)._replace(time_ms=0),
        last_due_ms=row.last_due_ms,
        next_due_ms=row.next_due_ms,
        schedule_id=row.schedule_id,
    )
