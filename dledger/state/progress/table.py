"""The table of progress: reading and writing rows.

Owns: the key of a row, and how a group takes over what was committed under its name before it was
created (`dledger/state/offsets.py`). Not: the values (`row.py`), the rules (`commits.py`,
`claims.py`).

    41 topic_id, queue u32, consumer group id -> see `row.py`
    01 "progress"                             -> where the sweep goes on (`topics/sweep.py`)

The key begins with the topic, so a deleted topic's rows are one range of keys. Those of a deleted
consumer group lie all over the table; a sweep deletes them. They are invisible at once, because
another group of that name has another id.
"""

from typing import Final

from dledger.state.consumers.usage import UsageTable
from dledger.state.offsets import OffsetTable, check_consumer_group
from dledger.state.progress.group import group_named
from dledger.state.progress.row import Progress, decode_progress
from dledger.state.queues.table import QueueId
from dledger.state.tables import KEY_U32, PREFIX, Table, Writer, after
from dledger.state.topics.table import TopicTable
from dledger_proto.names import RETRY_TOPIC_PREFIX

GROUP_AT: Final = slice(21, 37)
"""Where the consumer group's id lies in a key."""
GROUPS_LOOKED_AT: Final = 256


class ProgressTable:
    """The progress of consumer groups in this broker group's queues."""

    def __init__(self, writer: Writer, offsets: OffsetTable, usage: UsageTable) -> None:
        self._writer = writer
        self._offsets = offsets
        self._usage = usage

    def read(self, group_id: bytes, name: bytes, queue_id: QueueId) -> Progress | None:
        """Return a row, or what was committed under the group's name before it was created."""
        value = self._writer.store.get(progress_key(group_id, queue_id))
        if value is not None:
            return decode_progress(value)
        return self._by_name(name, queue_id)

    def of_name(
        self, topics: TopicTable, consumer_group: str, queue_id: QueueId
    ) -> Progress | None:
        """Return the progress of a name, whether it is a consumer group's or not."""
        name = check_consumer_group(consumer_group)
        group = group_named(topics, consumer_group)
        if group is not None:
            return self.read(group.id, name, queue_id)
        return self._by_name(name, queue_id)

    def _by_name(self, name: bytes, queue_id: QueueId) -> Progress | None:
        stored = self._offsets.read(name, *queue_id)
        if stored is None:
            return None
        return Progress(stored.offset, stored.time_ms, stored.metadata)

    def groups_behind(
        self, topics: TopicTable, queue_id: QueueId, minimum: int, offset: int
    ) -> list[str]:
        """Return the consumer groups that have something below an offset of a queue to do.

        It looks at up to GROUPS_LOOKED_AT groups. A name without a consumer group is left out.
        """
        prefix = PREFIX[Table.PROGRESS] + queue_id[0] + KEY_U32.pack(queue_id[1])
        found: list[str] = []
        for key, value in self._writer.store.scan(prefix, after(prefix), GROUPS_LOOKED_AT):
            topic = topics.find(key[GROUP_AT])
            if topic is None or topic.deleted:
                continue  # its rows wait to be deleted
            if decode_progress(value).first_waiting(minimum) < offset:
                found.append(topic.name.removeprefix(RETRY_TOPIC_PREFIX))
        return found

    def write(self, group_id: bytes, name: bytes, queue_id: QueueId, row: Progress) -> None:
        """Write a row. What was committed under the name goes: it is in the row now.

        Whatever a consumer group does comes here, so this is where its use is noted.
        """
        self._usage.touch(group_id)
        key = progress_key(group_id, queue_id)
        if not self._writer.store.get(key):
            self._offsets.delete(name, *queue_id)
        self._writer.put(key, row.encode())

    def delete_row(self, key: bytes, _value: bytes) -> None:
        """Delete a row that the sweep found."""
        self._writer.delete(key)


def progress_key(group_id: bytes, queue_id: QueueId) -> bytes:
    """Return the key of a row."""
    return PREFIX[Table.PROGRESS] + queue_id[0] + KEY_U32.pack(queue_id[1]) + group_id
