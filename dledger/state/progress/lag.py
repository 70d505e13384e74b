"""How far names and consumer groups are behind in the queues of this broker group: for metrics.

Owns: a walk over all rows of progress, a page at a time, and what counts as lag. Not: the rows
(`table.py`, `dledger/state/offsets.py`), their values (`row.py`).

A row costs its decoding, and a seek when something waits. A queue in which nobody has got anywhere
costs nothing.
"""

from typing import Final, NamedTuple

from dledger.state.offsets import OFFSET_VALUE
from dledger.state.progress.group import existing_group, first_queue_of
from dledger.state.progress.row import Progress, decode_progress
from dledger.state.progress.table import GROUP_AT
from dledger.state.state import State
from dledger.state.tables import KEY_U32, PREFIX, Table, after
from dledger.state.values import Topic
from dledger_proto.names import RETRY_TOPIC_PREFIX

_START: Final = PREFIX[Table.GROUP_OFFSET]
_STOP: Final = after(PREFIX[Table.PROGRESS])
_NAME_AT: Final = 21
"""Where the name lies in a key of table 40."""

assert after(_START) == PREFIX[Table.PROGRESS], "one walk reads both tables"


class Lag(NamedTuple):
    """What waits for a name or a consumer group in one queue."""

    name: str
    """Of the consumer group, or the name under which offsets were stored."""
    topic: Topic
    queue: int
    waiting: int
    """Records that are not done."""
    suspended: int
    """Of them: records that failed, and wait until they may be handed out again."""
    oldest_ms: int
    """Store time of the first one; 0: none waits."""
    lost: int
    """Records that were deleted before the group was done with them."""


class Lags:
    """The lags in one group's state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def page(self, after_key: bytes, limit: int, now_ms: int) -> tuple[list[Lag], bytes]:
        """Return the lags of up to `limit` rows, and where the next page begins (empty: nowhere).

        Rows of deleted topics and groups are left out.
        """
        start = after_key + b"\0" if after_key else _START
        rows = self._state.store.scan(start, _STOP, limit)
        lags = [self._lag(key, value, now_ms) for key, value in rows]
        return [lag for lag in lags if lag], rows[-1][0] if len(rows) == limit else b""

    def dead_letters(self, consumer_group: str) -> tuple[int, int]:
        """Return how many dead letters a consumer group ever had here, and how many it has now.

        CONSUMER_GROUP_NOT_FOUND, QUEUE_NOT_FOUND, TOPIC_NOT_FOUND.
        """
        state = self._state
        group = existing_group(state.topics, consumer_group)
        topic_id = group.settings.dead_letter_topic_id
        queue = state.queues.find(first_queue_of(state.topics, topic_id, state.group))
        row = state.progress.read(group.id, group.name_bytes, queue.id) or Progress(queue.minimum)
        return queue.maximum, row.waiting(queue.minimum, queue.maximum)

    def _lag(self, key: bytes, value: bytes, now_ms: int) -> Lag | None:
        state = self._state
        topic = state.topics.find(key[1:17])
        if topic is None or topic.deleted:
            return None
        if key[:1] == _START:
            name = key[_NAME_AT:].decode()
            offset, committed_ms = OFFSET_VALUE.unpack_from(value)
            row = Progress(offset, committed_ms)
        else:
            group = state.topics.find(key[GROUP_AT])
            if group is None or group.deleted:
                return None
            name = group.name.removeprefix(RETRY_TOPIC_PREFIX)
            row = decode_progress(value)
        number: int = KEY_U32.unpack(key[17:21])[0]
        queue = state.queues.find((topic.topic_id, number))
        first = row.first_waiting(queue.minimum)
        oldest_ms = state.queues.row_at(queue, first).store_time_ms if first < queue.maximum else 0
        suspended = sum(each.until_ms > now_ms for each in row.suspended.values())
        return Lag(
            name, topic, number, row.waiting(queue.minimum, queue.maximum), suspended, oldest_ms,
            row.lost(queue.minimum),
        )  # fmt: skip
