"""All tables of one group's state, opened over one store.

Owns: how the tables are wired to each other, what happens at the end of every entry, which rows go
with a deleted topic. Not: rows and rules, which are the tables' own; nor the applied index
(`machine.py`).
"""

from collections.abc import Sequence

from dledger.state.consumers.settings import GroupSettings
from dledger.state.consumers.table import ConsumerTable
from dledger.state.consumers.usage import UsageTable
from dledger.state.counted_time import CountedTime
from dledger.state.format_level import FormatLevel
from dledger.state.lookup.key_index import KeyIndex
from dledger.state.lookup.message_ids import MessageIdIndex
from dledger.state.offsets import OffsetTable
from dledger.state.producers.table import TOPIC_AT, ProducerTable
from dledger.state.progress.table import GROUP_AT, ProgressTable
from dledger.state.progress.wave import Waves
from dledger.state.queues.copies import Copies
from dledger.state.queues.garbage import Garbage
from dledger.state.queues.holds import HoldTable
from dledger.state.queues.references import References
from dledger.state.queues.table import Queue, QueueTable
from dledger.state.tables import PREFIX, Table, Writer, after
from dledger.state.timers.schedule_table import ScheduleTable
from dledger.state.timers.table import TARGET_AT, TimerTable
from dledger.state.topics.sweep import TopicSweep
from dledger.state.topics.table import TopicTable
from dledger.state.users.table import UserTable
from dledger.state.values import Topic
from dledger.store.store import StateStore
from dledger_proto.errors import Code, DledgerError
from dledger_proto.names import RETRY_TOPIC_PREFIX

TOPIC_FIRST_TABLES = (
    Table.QUEUE, Table.QUEUE_ROWS, Table.GROUP_OFFSET, Table.PROGRESS, Table.FAILURE_WAVE,
    Table.HOLD, Table.ORIGIN, Table.REFERENCE_AT, Table.SCHEDULE, Table.SCHEDULE_DUE,
    Table.COMPACTED,
)  # fmt: skip
"""Tables whose keys begin with the topic's id."""
CONSUMER_TABLES = (Table.CONSUMER, Table.GRANT, Table.GROUP_EPOCHS)
"""Of them: the tables that only the topic of a consumer group has rows in."""


class State:
    """The tables of one group."""

    def __init__(self, store: StateStore, group: str) -> None:
        self.group = group
        self.store = store
        self.writer = writer = Writer(store)
        self.format_level = FormatLevel(writer)
        self.time = CountedTime(writer)
        self.usage = UsageTable(writer, self.time)
        self.topics = TopicTable(writer, self.time, self.usage)
        self.users = UserTable(writer)
        self.garbage = Garbage(writer)
        self.copies = Copies(writer, self.garbage)
        self.queues = QueueTable(writer, self.topics.live_ids(), self.copies)
        if self.topics.was_deleted:
            self.queues.was_trimmed = True
        self.references = References(writer, self.queues, self.garbage)
        self.timers = TimerTable(writer, self.references)
        self.schedules = ScheduleTable(writer)
        self.offsets = OffsetTable(writer)
        self.progress = ProgressTable(writer, self.offsets, self.usage)
        self.waves = Waves(writer)
        self.consumers = ConsumerTable(writer)
        self.holds = HoldTable(writer)
        self.producers = ProducerTable(writer, self.time)
        self.timer_sweep = TopicSweep(
            writer, self.topics, b"timer sweep", Table.TIMER, TARGET_AT, self.timers.drop_row
        )
        self.sweeps = (
            TopicSweep(
                writer, self.topics, b"producers", Table.PRODUCER_QUEUE, TOPIC_AT,
                self.producers.delete_queue,
            ),
            TopicSweep(
                writer, self.topics, b"progress", Table.PROGRESS, GROUP_AT,
                self.progress.delete_row,
            ),
            self.timer_sweep,
        )  # fmt: skip
        self.message_ids = MessageIdIndex(writer, self.topics, self.queues)
        self.keys = KeyIndex(writer, self.queues, self.garbage, self.references)

    def queue(self, topic_id: bytes, number: int) -> Queue:
        """Return a queue of this group.

        Raises TOPIC_NOT_FOUND, QUEUE_NOT_FOUND, or WRONG_GROUP when another group holds it. A
        closed queue stays readable (S24).
        """
        topic = self.topics.live(topic_id)
        owner = topic.owner_of(number)
        if not owner:
            raise DledgerError(
                Code.QUEUE_NOT_FOUND,
                f"topic {topic.name} has no queue {number}: {topic.write_queues} queues take "
                f"messages, {topic.read_queues} are read",
            )
        if owner != self.group:
            raise DledgerError(
                Code.WRONG_GROUP, f"topic {topic.name}: queue {number} is held by group {owner}"
            )
        return self.queues.find((topic_id, number))

    def finished_retries(self, topic: Topic, queue: Queue) -> int:
        """Return up to which offset a consumer group is done with a queue of its retry topic."""
        name = topic.name.removeprefix(RETRY_TOPIC_PREFIX)
        row = self.progress.read(topic.topic_id, name.encode(), queue.id)
        return queue.minimum if row is None or topic.consumer_group is None else row.floor

    def coordinated(self, group_id: bytes) -> GroupSettings:
        """Return the settings of a consumer group that this broker group coordinates.

        Raises CONSUMER_GROUP_NOT_FOUND, or WRONG_GROUP when another broker group coordinates it.
        """
        topic = self.topics.find(group_id)
        if topic is None or topic.deleted or topic.consumer_group is None:
            raise DledgerError(
                Code.CONSUMER_GROUP_NOT_FOUND, f"no consumer group has the id {group_id.hex()}"
            )
        coordinator = topic.consumer_group.coordinator
        if coordinator != self.group:
            raise DledgerError(
                Code.WRONG_GROUP, f"topic {topic.name}: group {coordinator} has its consumers"
            )
        return topic.consumer_group

    def free_deleted_topics(self) -> None:
        """Begin to delete what the tables hold of topics that the command deleted."""
        for topic_id in self.topics.take_deleted():
            self.queues.forget_topic(topic_id)
            self.keys.forget_topic(topic_id)
            self.usage.forget(topic_id)
            for sweep in self.sweeps:
                sweep.start()
            self.message_ids.start_sweeping()
            had_consumers = self.consumers.forget(topic_id)
            for table in TOPIC_FIRST_TABLES + (CONSUMER_TABLES if had_consumers else ()):
                prefix = PREFIX[table] + topic_id
                self.garbage.add(prefix, after(prefix))

    def end_entry(self, payloads: int) -> Sequence[Queue]:
        """Write what an entry left in memory, and delete some garbage; return changed queues."""
        self.keys.write_changed()
        self.garbage.collect(payloads)
        self.producers.write_changed()
        for sweep in self.sweeps:
            sweep.step(payloads)
        self.references.write_changed()
        self.timers.write_changed()
        return self.queues.write_changed()
