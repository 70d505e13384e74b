"""The commands that create, change, widen and delete consumer groups, in the control group (D20).

Owns: their verdicts. Not: what settings there are (`settings.py`), how other broker groups take the
decisions over (`dledger/state/topics/commands.py`), who consumes (`membership.py`).

A consumer group is two topics: `%RETRY%name`, whose row has the settings, and `%DLQ%name`. One
command creates both, one changes both, one deletes both. All that holds for topics holds for them:
a late copy of a creation creates nothing, and deletion frees the rows.
"""

from dataclasses import dataclass, fields, replace
from typing import ClassVar, Final

from dledger.state.commands.codec import UInt64
from dledger.state.commands.command import Command
from dledger.state.consumers.settings import GroupSettings, StartFrom
from dledger.state.results import ConsumerGroupChanged, Refused
from dledger.state.state import State
from dledger.state.topics.layout import check_topic, grown, queues_of
from dledger.state.topics.table import TopicTable
from dledger.state.values import PERMISSION_READ, LayoutPart, Topic, TopicType
from dledger.types import Entry
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import QUEUES_PER_TOPIC_MAX
from dledger_proto.names import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX, check_group_name

FIXED: Final = ("coordinator", "dead_letter_topic_id")
"""Settings that a creation decides for good."""
CHANGEABLE: Final = tuple(field.name for field in fields(GroupSettings) if field.name not in FIXED)


@dataclass(frozen=True, slots=True)
class CreateConsumerGroup(Command[ConsumerGroupChanged]):
    """Create a consumer group. The caller draws both ids at random."""

    NUMBER: ClassVar = 30

    group_id: bytes
    """Of the group and of its retry topic."""
    name: str
    layout: tuple[LayoutPart, ...]
    """Of both topics: one queue in each broker group."""
    settings: GroupSettings
    known_index: UInt64 = 0
    """As that of CreateTopic."""

    def apply(self, state: State, entry: Entry) -> ConsumerGroupChanged | Refused:
        """Create, or find the same: the same call twice has the same answer."""
        check_group_name("consumer group name", self.name)
        _check_one_each(self.layout)
        self._check_coordinator()
        retry, dead = self._topics(entry.ref.index)
        check_topic(retry)
        check_topic(dead)
        topics = state.topics
        known = topics.by_name(retry.name) or topics.find(retry.topic_id)
        if known is not None:
            differences = _differences(known, retry)
            if differences:
                return Refused(
                    Code.CONSUMER_GROUP_EXISTS, f"consumer group {self.name} exists {differences}"
                )
            return changed(topics, known)
        taken = topics.by_name(dead.name) or topics.find(dead.topic_id)
        if taken is not None:
            return Refused(
                Code.TOPIC_EXISTS,
                f"consumer group {self.name}: its topic of dead letters, {dead.name} of id "
                f"{dead.topic_id.hex()}, exists as {taken.name} of id {taken.topic_id.hex()}",
            )
        if self.known_index < topics.floor:
            return Refused(
                Code.STALE_CREATION,
                f"consumer group {self.name}: its creation knew the control log up to "
                f"{self.known_index}, deletions up to {topics.floor} are forgotten",
            )
        topics.check_room(2)
        if self.settings.start is StartFrom.LAST:
            # `last` misses nothing of a queue that is younger than the group (progress/start.py).
            settings = replace(self.settings, start_time_ms=entry.time_ms)
            retry = replace(retry, settings=(settings,))
        topics.store(dead)
        topics.store(retry)
        return ConsumerGroupChanged(retry, dead)

    def _check_coordinator(self) -> None:
        groups = [part.group for part in self.layout]
        if self.settings.coordinator not in groups:
            raise invalid(
                f"coordinator {self.settings.coordinator!r}: must be one of {', '.join(groups)}"
            )

    def _topics(self, index: int) -> tuple[Topic, Topic]:
        """Return the retry topic and the topic of dead letters."""
        queues = queues_of(self.layout)
        retry = Topic(
            self.group_id, RETRY_TOPIC_PREFIX + self.name, TopicType.NORMAL, 1, self.layout,
            queues, queues, PERMISSION_READ, index, settings=(self.settings,),
        )  # fmt: skip
        if self.settings.dead_letter_topic_id == self.group_id:
            raise invalid(f"dead_letter_topic_id {self.group_id.hex()}: is the group's own id")
        return retry, replace(
            retry,
            topic_id=self.settings.dead_letter_topic_id,
            name=DEAD_LETTER_TOPIC_PREFIX + self.name,
            settings=(),
        )


@dataclass(frozen=True, slots=True)
class UpdateConsumerGroup(Command[ConsumerGroupChanged]):
    """Change settings of a consumer group."""

    NUMBER: ClassVar = 31

    group_id: bytes
    fields: tuple[str, ...]
    """Names of the settings that are taken from `settings`; the others stay as they are."""
    settings: GroupSettings

    def apply(self, state: State, entry: Entry) -> ConsumerGroupChanged | Refused:
        """Change the settings that are named."""
        retry, settings = live_group(state.topics, self.group_id)
        check_fields(self.fields)
        settings = replace(
            settings, **{field: getattr(self.settings, field) for field in self.fields}
        )
        if settings.start is StartFrom.LAST and "start" in self.fields:
            settings = replace(settings, start_time_ms=entry.time_ms)
        retry = replace(retry, settings=(settings,), control_index=entry.ref.index)
        check_topic(retry)
        state.topics.store(retry)
        return changed(state.topics, retry)


@dataclass(frozen=True, slots=True)
class WidenConsumerGroup(Command[ConsumerGroupChanged]):
    """Give both topics of a consumer group a queue in each broker group that joined since."""

    NUMBER: ClassVar = 33

    group_id: bytes
    layout: tuple[LayoutPart, ...]
    """Of both topics from now on."""

    def apply(self, state: State, entry: Entry) -> ConsumerGroupChanged | Refused:
        """Let both layouts grow."""
        topics = state.topics
        _check_one_each(self.layout)
        retry, settings = live_group(topics, self.group_id)
        dead = topics.live(settings.dead_letter_topic_id)
        widened = [_widened(topic, self.layout, entry.ref.index) for topic in (dead, retry)]
        for topic in widened:
            check_topic(topic)
        for topic in widened:
            topics.store(topic)
        return ConsumerGroupChanged(widened[1], widened[0])


@dataclass(frozen=True, slots=True)
class DeleteConsumerGroup(Command[ConsumerGroupChanged]):
    """Delete a consumer group, with its retries and its dead letters."""

    NUMBER: ClassVar = 32
    FREES_SPACE: ClassVar = True
    ROWS_READ_MAX: ClassVar = 2 * QUEUES_PER_TOPIC_MAX

    group_id: bytes

    def apply(self, state: State, entry: Entry) -> ConsumerGroupChanged | Refused:
        """Mark both topics as deleted; the name is free again."""
        topics = state.topics
        retry, settings = live_group(topics, self.group_id)
        dead = topics.live(settings.dead_letter_topic_id)
        for topic in (dead, retry):
            topics.store(replace(topic, deleted=True, control_index=entry.ref.index))
        state.free_deleted_topics()
        return changed(topics, retry)


def live_group(topics: TopicTable, group_id: bytes) -> tuple[Topic, GroupSettings]:
    """Return the retry topic and the settings of a consumer group; CONSUMER_GROUP_NOT_FOUND."""
    topic = topics.find(group_id)
    if topic is None or topic.deleted or topic.consumer_group is None:
        raise DledgerError(
            Code.CONSUMER_GROUP_NOT_FOUND, f"no consumer group has the id {group_id.hex()}"
        )
    return topic, topic.consumer_group


def changed(topics: TopicTable, retry: Topic) -> ConsumerGroupChanged:
    """Return the result for a consumer group: its topics as they are in the table now."""
    retry = topics.known(retry.topic_id)
    (settings,) = retry.settings
    return ConsumerGroupChanged(retry, topics.known(settings.dead_letter_topic_id))


def check_fields(names: tuple[str, ...]) -> None:
    """Raise INVALID_ARGUMENT unless each name is that of a setting that may change."""
    for name in names:
        if name not in CHANGEABLE:
            raise invalid(f"fields {name!r}: must be of {', '.join(CHANGEABLE)}")


def _differences(known: Topic, wanted: Topic) -> str:
    """Say how an existing group is another than the wanted one; empty when it is the same."""
    if known.deleted:
        return f"as {known.name} of id {known.topic_id.hex()}, which is deleted"
    if known.name != wanted.name:
        return f"by the id {known.topic_id.hex()} as {known.name}"
    has, (asked,) = known.consumer_group, wanted.settings
    if has is None:
        return f"as a plain topic {known.name}"
    different = [
        f"{field} {_word(getattr(has, field))}, not {_word(getattr(asked, field))}"
        for field in CHANGEABLE
        if getattr(has, field) != getattr(asked, field)
        if field != "start_time_ms" or has.start is not StartFrom.LAST
    ]
    return f"with {'; '.join(different)}" if different else ""


def _widened(topic: Topic, layout: tuple[LayoutPart, ...], index: int) -> Topic:
    layout = grown(topic.layout, layout)
    if layout == topic.layout:
        return topic
    queues = queues_of(layout)
    return replace(
        topic, layout=layout, write_queues=queues, read_queues=queues,
        layout_version=topic.layout_version + 1, control_index=index,
    )  # fmt: skip


def _check_one_each(layout: tuple[LayoutPart, ...]) -> None:
    if len({part.group for part in layout}) != queues_of(layout):
        words = ",".join(part.describe() for part in layout)
        raise invalid(f"layout {words}: must have one queue in each broker group")


def _word(value: object) -> str:
    return getattr(value, "name", None) or str(value)
