"""When each consumer group was last used in this broker group, by counted time.

Owns: the row, and which uses it notes. Not: what else keeps a group (`unused.py`), who deletes a
group that nobody uses (`dledger_broker.cluster.group_expiry`), counting (`counted_time.py`).

    46 consumer group id            -> step u64, retry_ms u64

A step is USE_STEP_MS of counted time, which never runs ahead of true time. `retry_ms`, a time of
the leaders: the last retry of the group here is due by then. Both are noted coarsely: a group that
is busy pays a look into a dictionary, and a row in ten minutes.

what                                                              is a use
----------------------------------------------------------------  --------------------------------
progress is written: claim, commit, reset, release, failure       in the home group of the queue
dead letters are settled, a first floor is decided                in the home group of the queue
a consumer joins, or its session ends                             at the coordinator
the group is created, changed or widened                          wherever that is taken over

A group without a row is older than this table. Nobody knows when it was used, so it counts as used
until a use writes the row.
"""

import struct
from typing import Final, NamedTuple

from dledger.state.counted_time import COUNTED_AT_ONCE_MAX_MS, CountedTime
from dledger.state.tables import PREFIX, Table, Writer, after, rows_in

USE_STEP_MS: Final = COUNTED_AT_ONCE_MAX_MS
_VALUE: Final = struct.Struct("<QQ")


class Use(NamedTuple):
    """The row."""

    step: int
    retry_ms: int = 0


class UsageTable:
    """The last use of each consumer group here. All rows are in memory: a group has one."""

    def __init__(self, writer: Writer, time: CountedTime) -> None:
        self._writer = writer
        self._time = time
        prefix = PREFIX[Table.GROUP_USE]
        rows = rows_in(writer.store, prefix, after(prefix))
        self._uses = {key[1:]: decode_use(value) for key, value in rows}

    def find(self, group_id: bytes) -> Use | None:
        """Return the last use; None when none was noted."""
        return self._uses.get(group_id)

    def silent(self, unused_ms: int) -> list[bytes]:
        """Return the consumer groups whose last use was certainly so much counted time ago."""
        stop_step = self._stop_step(unused_ms)
        return [group_id for group_id, use in self._uses.items() if use.step < stop_step]

    def is_silent(self, group_id: bytes, unused_ms: int) -> bool:
        """Tell whether `silent` returns a group."""
        known = self._uses.get(group_id)
        return known is not None and known.step < self._stop_step(unused_ms)

    def _stop_step(self, unused_ms: int) -> int:
        """Return the first step that may hold a use of `unused_ms` ago, or less."""
        return self._time.certainly_before(unused_ms) // USE_STEP_MS

    def touch(self, group_id: bytes) -> None:
        """Note a use; a row is written when the last one was in another step."""
        step = self._time.ms // USE_STEP_MS
        known = self._uses.get(group_id)
        if known is None or known.step != step:
            self._put(group_id, Use(step, 0 if known is None else known.retry_ms))

    def retried(self, group_id: bytes, due_ms: int) -> None:
        """Note a failure that is tried again at a time of the leaders; it is a use, too."""
        self.touch(group_id)
        known = self._uses[group_id]
        if due_ms > known.retry_ms:
            retry_ms = (due_ms // USE_STEP_MS + 1) * USE_STEP_MS
            self._put(group_id, known._replace(retry_ms=retry_ms))

    def forget(self, group_id: bytes) -> None:
        """Delete the row of a deleted topic; no effect unless it is a consumer group's."""
        if self._uses.pop(group_id, None) is not None:
            self._writer.delete(_key(group_id))

    def _put(self, group_id: bytes, use: Use) -> None:
        self._uses[group_id] = use
        self._writer.put(_key(group_id), _VALUE.pack(*use))


def decode_use(value: bytes) -> Use:
    """Return the values of a row."""
    return Use(*_VALUE.unpack(value))


def _key(group_id: bytes) -> bytes:
    return PREFIX[Table.GROUP_USE] + group_id
