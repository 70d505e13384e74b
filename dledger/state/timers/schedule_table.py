"""The rows of schedules: messages that are sent again and again, by a cron expression (D23).

Owns: the rows, and which occurrence is stored. Not: the commands that set and delete schedules
(`schedules.py`), when one is due (the leader reads cron expressions, `dledger_broker.timers`).

    75 topic_id, schedule_id        -> name, cron, time_zone (each u16 size, UTF-8), batch
    76 topic_id, schedule_id        -> last_due_ms i64

The leader sends each occurrence as a batch of its own. The batch has the schedule's id as producer
id, EPOCH_OF_SCHEDULES as epoch, and its time as sequence and number. Apply stores it when its time
is later than that of the last occurrence, and not later than the entry's stamp. So an occurrence is
stored once and never early, whoever proposes it, and however often.
"""

import hashlib
import struct
from typing import Final

from dledger.state.results import Refused
from dledger.state.tables import PREFIX, Table, Writer, after
from dledger.state.values import Schedule
from dledger_proto.batch.header import ID_SIZE, BatchHeader
from dledger_proto.errors import Code
from dledger_proto.limits import SCHEDULES_PER_TOPIC_MAX

LAST_DUE: Final = struct.Struct("<q")
_TEXT_SIZE: Final = struct.Struct("<H")


class ScheduleTable:
    """The schedules of one group's queues."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._store = writer.store
        self.changes = 0
        """How often a schedule was set or deleted since this member began."""

    def find(self, topic_id: bytes, schedule_id: bytes) -> Schedule | None:
        """Return a schedule, or None."""
        at = topic_id + schedule_id
        value = self._store.get(PREFIX[Table.SCHEDULE] + at)
        return None if value is None else decode_schedule(at, value, self._last_due_ms(at))

    def _last_due_ms(self, at: bytes) -> int:
        value = self._store.get(PREFIX[Table.SCHEDULE_DUE] + at)
        assert value is not None, f"schedule {at.hex()} has no last time"
        last_due_ms: int = LAST_DUE.unpack(value)[0]
        return last_due_ms

    def put(self, schedule: Schedule) -> None:
        """Add or replace a schedule. What it sent before, or another of its name, stays sent."""
        at = schedule.topic_id + schedule.schedule_id
        texts = (schedule.name.encode(), schedule.cron.encode(), schedule.time_zone.encode())
        sized = b"".join(_TEXT_SIZE.pack(len(text)) + text for text in texts)
        self._writer.put(PREFIX[Table.SCHEDULE] + at, sized + schedule.batch)
        self._put_last_due(at, schedule.last_due_ms)
        self.changes += 1

    def _put_last_due(self, at: bytes, last_due_ms: int) -> None:
        self._writer.put(PREFIX[Table.SCHEDULE_DUE] + at, LAST_DUE.pack(last_due_ms))

    def delete(self, schedule: Schedule) -> None:
        """Take a schedule out."""
        at = schedule.topic_id + schedule.schedule_id
        self._writer.delete(PREFIX[Table.SCHEDULE] + at)
        self._writer.delete(PREFIX[Table.SCHEDULE_DUE] + at)
        self.changes += 1

    def is_full(self, topic_id: bytes) -> bool:
        """Return whether a topic has as many schedules in this broker group as it may have."""
        prefix = PREFIX[Table.SCHEDULE_DUE] + topic_id
        rows = self._store.scan(prefix, after(prefix), SCHEDULES_PER_TOPIC_MAX)
        return len(rows) == SCHEDULES_PER_TOPIC_MAX

    def listed(self, topic_id: bytes, after_key: bytes, limit: int) -> tuple[list[Schedule], bytes]:
        """Return up to `limit` schedules, and where the next page begins.

        Of one topic, or of all (no id). `after_key`: empty, or what the last answer returned, which
        is empty at the end. Rows of deleted topics are among them until they are removed.
        """
        prefix = PREFIX[Table.SCHEDULE] + topic_id
        start = PREFIX[Table.SCHEDULE] + after_key + b"\0" if after_key else prefix
        stop = after(prefix)
        rows = self._store.scan(max(start, prefix), stop, limit) if start < stop else []
        found = [decode_schedule(key[1:], value, self._last_due_ms(key[1:])) for key, value in rows]
        return found, rows[-1][0][1:] if len(rows) == limit else b""

    def take(self, header: BatchHeader, time_ms: int) -> Refused | None:
        """Note an occurrence as stored; or return why it is not to be."""
        at = header.topic_id + header.producer_id
        due_ms = header.base_sequence
        value = self._store.get(PREFIX[Table.SCHEDULE_DUE] + at)
        if value is None:
            return Refused(Code.NOT_FOUND, f"there is no schedule {header.producer_id.hex()}")
        (last_due_ms,) = LAST_DUE.unpack(value)
        if due_ms <= last_due_ms:
            return Refused(Code.DUPLICATE, f"due at {due_ms}, the last was due at {last_due_ms}")
        if due_ms > time_ms:
            return Refused(Code.MESSAGE_ILLEGAL, f"due at {due_ms}, it is {time_ms} only")
        self._put_last_due(at, due_ms)
        return None


def schedule_id_of(group: str, topic_id: bytes, name: str) -> bytes:
    """Return the id of a topic's schedule in a broker group: a name has the same for good."""
    text = topic_id + group.encode() + b"\0" + name.encode()
    return hashlib.blake2b(text, digest_size=ID_SIZE).digest()


def decode_schedule(at: bytes, value: bytes, last_due_ms: int) -> Schedule:
    """Return the schedule of a row; `at` is its key without the table."""
    name, batch = _text(value)
    cron, batch = _text(batch)
    time_zone, batch = _text(batch)
    return Schedule(at[:ID_SIZE], at[ID_SIZE:], name, cron, time_zone, batch, last_due_ms)


def _text(value: bytes) -> tuple[str, bytes]:
    """Return the text that a value begins with, and the rest."""
    (size,) = _TEXT_SIZE.unpack_from(value)
    end = _TEXT_SIZE.size + size
    return value[_TEXT_SIZE.size : end].decode(), value[end:]
