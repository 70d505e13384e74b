"""The commands of schedules: setting one, deleting one.

Owns: their rules. Not: rows (`schedule_table.py`), whether a cron expression or a time zone can be
read: the leader looks at them before it proposes, for members may know other time zones.
"""

from dataclasses import dataclass
from typing import ClassVar

from dledger.state.commands.codec import Blob
from dledger.state.commands.command import Command
from dledger.state.results import Refused, ScheduleDeleted, ScheduleSet
from dledger.state.state import State
from dledger.state.timers.schedule_table import schedule_id_of
from dledger.state.values import Schedule
from dledger.types import Entry
from dledger_proto.batch.codec import parse_header
from dledger_proto.errors import Code, invalid
from dledger_proto.limits import (
    SCHEDULE_SIZE_MAX,
    SCHEDULE_TEXT_SIZE_MAX,
    SCHEDULES_PER_TOPIC_MAX,
)


@dataclass(frozen=True, slots=True)
class SetSchedule(Command[ScheduleSet]):
    """Send a message again and again; a schedule of the same topic and name is replaced."""

    NUMBER: ClassVar = 22
    ROWS_READ_MAX: ClassVar = SCHEDULES_PER_TOPIC_MAX

    name: str
    cron: str
    time_zone: str
    batch: Blob
    """One record for one queue, without a producer: what is sent at each time."""

    def apply(self, state: State, entry: Entry) -> ScheduleSet | Refused:
        """Add or replace it; the first occurrence is later than the entry's stamp."""
        for field in ("name", "cron", "time_zone"):
            size = len(getattr(self, field).encode())
            if not 1 <= size <= SCHEDULE_TEXT_SIZE_MAX:
                raise invalid(f"{field} of {size} bytes, must have 1 to {SCHEDULE_TEXT_SIZE_MAX}")
        if len(self.batch) > SCHEDULE_SIZE_MAX:
            raise invalid(f"batch of {len(self.batch)} bytes, at most {SCHEDULE_SIZE_MAX}")
        header = parse_header(self.batch)
        if header.size != len(self.batch) or header.record_count != 1 or header.stamp is not None:
            raise invalid("batch: must be one record without a producer")
        if header.compression:
            raise invalid("batch: its body must not be compressed")
        queue = state.queue(header.topic_id, header.queue)
        topic_id = queue.id[0]
        topic = state.topics.known(topic_id)
        if topic.is_compacted:
            raise invalid(f"topic {topic.name} is compacted: it takes no messages of a schedule")
        schedule_id = schedule_id_of(state.group, topic_id, self.name)
        known = state.schedules.find(topic_id, schedule_id)
        if known is None and state.schedules.is_full(topic_id):
            return Refused(
                Code.TOO_MANY_TIMERS,
                f"the topic has {SCHEDULES_PER_TOPIC_MAX} schedules in this broker group, "
                "which is the most",
            )
        last_due_ms = max(entry.time_ms, known.last_due_ms if known is not None else 0)
        state.schedules.put(
            Schedule(
                topic_id, schedule_id, self.name, self.cron, self.time_zone, self.batch,
                last_due_ms,
            )
        )  # fmt: skip
        return ScheduleSet(schedule_id, last_due_ms, replaced=known is not None)


@dataclass(frozen=True, slots=True)
class DeleteSchedule(Command[ScheduleDeleted]):
    """Send a message no more."""

    NUMBER: ClassVar = 23
    FREES_SPACE: ClassVar = True

    topic_id: bytes
    name: str

    def apply(self, state: State, entry: Entry) -> ScheduleDeleted | Refused:
        """Take it out; nothing that was sent changes."""
        schedule_id = schedule_id_of(state.group, self.topic_id, self.name)
        known = state.schedules.find(self.topic_id, schedule_id)
        if known is None:
            return Refused(Code.NOT_FOUND, f"the topic has no schedule {self.name!r} here")
        state.schedules.delete(known)
        return ScheduleDeleted(known.schedule_id, known.last_due_ms)
