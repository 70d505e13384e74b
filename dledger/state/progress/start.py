"""Where a consumer group begins in a queue that it has no floor of (S103, S104).

start      begins at
---------  ---------------------------------------------------------------------------------
first      the queue's minimum, also when its head is trimmed
time       the first record stored at `start_time_ms` or later, by leader stamps
last       the queue's end; but at 0 when the first record of the queue was stored after the
           group was created: no group misses what comes into a topic or queue that is younger
any        the minimum, in the group's own retry topic
"""

from dledger.state.consumers.settings import GroupSettings, StartFrom
from dledger.state.queues.table import Queue, QueueTable


def start_offset(
    settings: GroupSettings, queues: QueueTable, queue: Queue, *, is_retry: bool
) -> int:
    """Return the first offset to consume."""
    if is_retry or settings.start is StartFrom.FIRST:
        return queue.minimum
    if settings.start is StartFrom.TIME:
        return queues.offset_by_time(queue, settings.start_time_ms)
    if queue.minimum == 0 < queue.maximum:
        created_ms = settings.start_time_ms
        if created_ms and queues.row_at(queue, 0).store_time_ms >= created_ms:
            return 0
    return queue.maximum
