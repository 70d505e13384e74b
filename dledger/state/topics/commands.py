"""The commands that change topics, and their verdicts (D1, D14).

Owns: the rules of create, update, delete, forget and import. Not: rows (`table.py`), what a topic
may look like (`layout.py`), the rows that a deleted topic leaves in other tables (`state.py`).

The control group decides about topics; other groups import its decisions. A deleted topic's row
stays for a while, so that late callers are told and other groups hear of the deletion. Then
ForgetTopics frees the row, FORGOTTEN_AT_ONCE_MAX with each command, and none while rows of queues
wait to be deleted. A still later command finds the *floor*: the highest control index of a deletion
that is forgotten. Such a command changes nothing, however late it comes:

    what comes                                             verdict
    -----------------------------------------------------  ---------------------------------------
    a creation of an unknown id, whose caller knew the     STALE_CREATION: its topic may have been
    control log only below the floor                       created, deleted and forgotten since
    ... at the floor or above                              created: every forgotten topic was
                                                           deleted before the caller drew the id
    an import of an unknown id, with a control index at    STALE_LAYOUT: all decisions up to the
    the floor or below                                     floor are known here, so this one is of
                                                           a topic that is deleted and forgotten
    ... above the floor                                    taken over
    any other command about an unknown id                  TOPIC_NOT_FOUND

So the floor of a group rises only to what the group knows without a gap: the control group by
itself, the others by the `known_index` of the command. How long rows are kept decides no right or
wrong: it is why no creation is called stale within its caller's time (`dledger_proto/limits.py`).

Control indexes belong to one log. A control group that is formed anew counts from 1 and knows no
topic; its lists would delete all topics of the other groups. So the first import says whose
decisions are taken over, and imports of any other control group are refused.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from dledger.state.commands.codec import Int64, UInt8, UInt32, UInt64
from dledger.state.commands.command import Command
from dledger.state.results import Refused, TopicChanged, TopicsForgotten
from dledger.state.state import State
from dledger.state.topics.layout import (
    check_layout,
    check_topic,
    first_queues,
    grown,
    queues_of,
    with_read,
)
from dledger.state.topics.table import IMPORTED_ROWS_MAX, TopicTable
from dledger.state.values import AS_THE_CLUSTER, LayoutPart, Retention, Topic, TopicType
from dledger.types import Entry
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import QUEUES_PER_TOPIC_MAX
from dledger_proto.names import DEAD_LETTER_TOPIC_PREFIX, GROUP_TOPIC_PREFIXES, RETRY_TOPIC_PREFIX


@dataclass(frozen=True, slots=True)
class CreateTopic(Command[TopicChanged]):
    """Create a topic, in the control group. The caller draws the id at random."""

    NUMBER: ClassVar = 58

    topic_id: bytes
    name: str
    type: TopicType
    layout: tuple[LayoutPart, ...]
    read_queues: UInt32
    permission: UInt8
    known_index: UInt64 = 0
    """An index of this log that was applied before anybody was told the id."""
    retention: Retention = AS_THE_CLUSTER

    def apply(self, state: State, entry: Entry) -> TopicChanged | Refused:
        """Create, or find the same: the same call twice has the same answer."""
        topics = state.topics
        check_layout(self.layout)
        layout = with_read(self.layout, self.read_queues)
        topic = Topic(
            self.topic_id, self.name, self.type, 1, layout, queues_of(self.layout),
            self.read_queues, self.permission, entry.ref.index, retention=self.retention,
        )  # fmt: skip
        check_topic(topic)
        check_not_reserved(topic.name)
        known = topics.by_name(topic.name) or topics.find(topic.topic_id)
        if known is not None:
            differences = _differences(known, topic)
            if differences:
                return Refused(
                    Code.TOPIC_EXISTS,
                    f"topic {known.name} exists as {known.topic_id.hex()} {differences}",
                )
            return TopicChanged(known)
        if self.known_index < topics.floor:
            return Refused(
                Code.STALE_CREATION,
                f"topic {topic.name}: its creation knew the control log up to "
                f"{self.known_index}, deletions up to {topics.floor} are forgotten",
            )
        topics.check_room()
        topics.store(topic)
        return TopicChanged(topic)


@dataclass(frozen=True, slots=True)
class UpdateTopic(Command[TopicChanged]):
    """Change a topic, in the control group. Empty or 0 leaves a field as it is."""

    NUMBER: ClassVar = 59

    topic_id: bytes
    layout: tuple[LayoutPart, ...] = ()
    """Of the queues that take messages from now on; the topic keeps the queues behind them."""
    read_queues: UInt32 = 0
    """0: every queue that is read goes on being read."""
    permission: UInt8 = 0
    retention_time_ms: tuple[UInt64, ...] = ()
    """Empty, or one value."""
    retention_size: tuple[UInt64, ...] = ()

    def apply(self, state: State, entry: Entry) -> TopicChanged | Refused:
        """Change the fields that are given."""
        topic = state.topics.live(self.topic_id)
        _check_plain(state.topics, topic)
        layout, write_queues, read_queues = topic.layout, topic.write_queues, topic.read_queues
        if self.layout:
            check_layout(self.layout)
            layout, write_queues = grown(layout, self.layout), queues_of(self.layout)
            read_queues = max(read_queues, topic.write_queues, write_queues)
        read_queues = self.read_queues or read_queues
        changed = replace(
            topic,
            layout=layout,
            write_queues=write_queues,
            read_queues=read_queues,
            permission=self.permission or topic.permission,
            control_index=entry.ref.index,
            retention=Retention(
                *(self.retention_time_ms[:1] or (topic.retention.time_ms,)),
                *(self.retention_size[:1] or (topic.retention.size,)),
            ),
        )
        if (layout, write_queues) != (topic.layout, topic.write_queues):
            changed = replace(changed, layout_version=topic.layout_version + 1)
        check_topic(changed)
        state.topics.store(changed)
        return TopicChanged(changed)


@dataclass(frozen=True, slots=True)
class DeleteTopic(Command[TopicChanged]):
    """Delete a topic, in the control group."""

    NUMBER: ClassVar = 6
    FREES_SPACE: ClassVar = True
    ROWS_READ_MAX: ClassVar = QUEUES_PER_TOPIC_MAX

    topic_id: bytes

    def apply(self, state: State, entry: Entry) -> TopicChanged | Refused:
        """Mark as deleted; the name is free again."""
        known = state.topics.live(self.topic_id)
        _check_plain(state.topics, known)
        topic = replace(known, deleted=True, control_index=entry.ref.index)
        state.topics.store(topic)
        state.free_deleted_topics()
        return TopicChanged(topic)


@dataclass(frozen=True, slots=True)
class ForgetTopics(Command[TopicsForgotten]):
    """Free the rows of topics that were deleted long ago, some at a time."""

    NUMBER: ClassVar = 57
    FREES_SPACE: ClassVar = True

    kept_ms: Int64
    """Counted time for which a deleted topic is remembered."""
    known_index: UInt64
    """All that the control group decided up to this index of its log is known here."""
    waits_for_all: bool = True
    """False: the command of an older dledger, which waited for the sweep of timers alone."""

    def is_due(self, topics: TopicTable) -> bool:
        """Tell whether the command would free anything now."""
        return bool(topics.forgettable(self.kept_ms, self.known_index)[0])

    def apply(self, state: State, entry: Entry) -> TopicsForgotten | Refused:
        """Free rows, oldest first."""
        # An id that is forgotten may be given anew. While ranges of rows wait to be deleted, one
        # of them may be that of the old topic: it would take the new one's rows. An old topic's
        # timer would fire into the new one; sequences of its producers and progress of its
        # consumers would be taken for those of the new one.
        sweeps = state.sweeps if self.waits_for_all else (state.timer_sweep,)
        if not state.garbage.is_empty or not all(sweep.is_over for sweep in sweeps):
            return TopicsForgotten((), more=False)
        due, more = state.topics.forgettable(self.kept_ms, self.known_index)
        state.topics.forget(due)
        return TopicsForgotten(tuple(topic.topic_id for _, topic in due), more)


@dataclass(frozen=True, slots=True)
class ImportTopic(Command[TopicChanged]):
    """Take over a decision of the control group, in another group."""

    NUMBER: ClassVar = 60
    ROWS_READ_MAX: ClassVar = QUEUES_PER_TOPIC_MAX

    topic: Topic
    control_id: bytes = bytes(16)
    """Drawn at random when the control group formed: its indexes compare with each other only."""

    @property
    def frees_space(self) -> bool:
        return self.topic.deleted

    def apply(self, state: State, entry: Entry) -> TopicChanged | Refused:
        """Take over the topic unless a newer decision is known (D1)."""
        topic, topics = self.topic, state.topics
        check_topic(topic)
        foreign = topics.foreign(self.control_id)
        if foreign:
            return Refused(Code.WRONG_GROUP, f"topic {topic.name}: {foreign}")
        known = topics.find(topic.topic_id)
        if known is not None and topic.control_index == known.control_index:
            return TopicChanged(known)
        refused = _not_imported(topic, known, topics)
        if refused is not None:
            return refused
        namesake = topics.by_name(topic.name)
        if namesake is not None and namesake.topic_id != topic.topic_id and not topic.deleted:
            if topic.control_index < namesake.control_index:
                return Refused(
                    Code.STALE_LAYOUT,
                    f"topic {topic.name} is {namesake.topic_id.hex()} since control index "
                    f"{namesake.control_index}",
                )
            # The control group gave the name away, so the old topic is deleted there.
            topics.store(replace(namesake, deleted=True, control_index=topic.control_index))
        topics.follow(self.control_id)
        topics.store(topic)
        state.free_deleted_topics()
        return TopicChanged(topic)


def _not_imported(topic: Topic, known: Topic | None, topics: TopicTable) -> Refused | None:
    """Return why a decision about a topic is not taken over, as far as its id tells."""
    if known is None:
        if topic.control_index <= topics.floor:
            return Refused(
                Code.STALE_LAYOUT,
                f"topic {topic.name}: control index {topic.control_index}, all up to "
                f"{topics.floor} are known, and it is none of these: it is deleted and forgotten",
            )
        if topics.count >= IMPORTED_ROWS_MAX:
            raise DledgerError(
                Code.TOO_MANY_TOPICS,
                f"{topics.count} topics are known here, at most {IMPORTED_ROWS_MAX}",
            )
        return None
    if topic.control_index < known.control_index:
        return Refused(
            Code.STALE_LAYOUT,
            f"topic {topic.name}: control index {topic.control_index}, known is "
            f"{known.control_index}",
        )
    if known.deleted and not topic.deleted:
        # Its rows are being freed; what was written there again would be freed with them.
        return Refused(Code.TOPIC_NOT_FOUND, f"topic {topic.name} is deleted for good")
    if topic.name != known.name:  # the control group never renames a topic
        return Refused(
            Code.INVALID_ARGUMENT,
            f"topic {topic.topic_id.hex()} is called {known.name}, not {topic.name}",
        )
    return None


def check_not_reserved(name: str) -> None:
    """Raise INVALID_ARGUMENT for a name that only a topic of a consumer group may have."""
    for prefix in GROUP_TOPIC_PREFIXES:
        if name.startswith(prefix):
            raise invalid(f"topic name {name}: only a consumer group has topics named {prefix}")


def _check_plain(topics: TopicTable, topic: Topic) -> None:
    """Raise INVALID_ARGUMENT for a topic that is part of a consumer group."""
    group = topic.consumer_group
    name = topic.name.removeprefix(RETRY_TOPIC_PREFIX)
    if group is None and topic.name.startswith(DEAD_LETTER_TOPIC_PREFIX):
        name = topic.name.removeprefix(DEAD_LETTER_TOPIC_PREFIX)
        retry = topics.by_name(RETRY_TOPIC_PREFIX + name)
        group = None if retry is None else retry.consumer_group
        if group is not None and group.dead_letter_topic_id != topic.topic_id:
            group = None
    if group is not None:
        raise invalid(
            f"topic name {topic.name}: the topic is part of the consumer group {name}; change or "
            "delete the group"
        )


def _differences(known: Topic, wanted: Topic) -> str:
    """Say how an existing topic is another than the wanted one; empty when it is the same."""
    rows: list[tuple[str, object, object]] = [
        ("deleted", known.deleted, False),
        ("name", known.name, wanted.name),
        ("type", known.type, wanted.type),
        ("layout", _layout_text(known), _layout_text(wanted)),
        ("read queues", known.read_queues, wanted.read_queues),
        ("permission", known.permission, wanted.permission),
        ("retention", known.retention.describe(), wanted.retention.describe()),
    ]
    different = [f"{field} {has}, not {asked}" for field, has, asked in rows if has != asked]
    return f"with {'; '.join(different)}" if different else ""


def _layout_text(topic: Topic) -> str:
    written = first_queues(topic.layout, topic.write_queues)
    return ",".join(part.describe() for part in written)
