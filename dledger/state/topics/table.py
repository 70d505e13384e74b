"""The topic table: every topic that a group knows, its row, and its place in memory.

Owns: the topic rows, their bounds, finding topics. Not: the rules of the commands that change them
(`commands.py`), nor queues and their rows.

    10 topic_id                     -> type u8, permission u8, deleted u8, 0 u8, layout_version u32,
                                       write_queues u32, read_queues u32, control_index u64,
                                       name size u8, name, parts u16, (group size u8, group,
                                       queues u32)*; nothing more, or the settings of the
                                       consumer group that the topic is: u16 count (0 or 1),
                                       then as in a command; nothing more, or the retention:
                                       time_ms u64, size u64

    11 deleted_ms u64, topic_id     -> empty: deleted topics in the order of counted time
    01 "forgotten"                  -> control_index u64: the floor (`commands.py`); absent: 0
    01 "control group"              -> control_id 16: whose decisions are taken over
"""

import struct
from collections.abc import Callable, Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import Final

from dledger.state.commands.codec import Body, codec_of
from dledger.state.consumers.settings import GroupSettings
from dledger.state.consumers.usage import UsageTable
from dledger.state.counted_time import CountedTime
from dledger.state.tables import KEY_U64, PREFIX, Table, Writer, after, rows_in
from dledger.state.values import AS_THE_CLUSTER, LayoutPart, Retention, Topic, TopicType
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import DELETED_TOPIC_KEPT_MS, DELETED_TOPICS_MAX, TOPICS_MAX

TOPIC_ROWS_MAX: Final = TOPICS_MAX + DELETED_TOPICS_MAX
IMPORTED_ROWS_MAX: Final = 2 * TOPIC_ROWS_MAX
"""Of a group that was away: what it knew, and all that came since."""
FORGOTTEN_AT_ONCE_MAX: Final = 256
"""Deleted topics that one ForgetTopics looks at."""
FLOOR_KEY: Final = PREFIX[Table.META] + b"forgotten"
CONTROL_KEY: Final = PREFIX[Table.META] + b"control group"
_HEAD: Final = struct.Struct("<BBBxIIIQ")
_QUEUES: Final = struct.Struct("<I")
_PARTS: Final = struct.Struct("<H")
_SETTINGS: Final = codec_of(tuple[GroupSettings, ...])
_RETENTION: Final = codec_of(Retention)
_change: Final[Callable[[Topic], tuple[int, bytes]]] = attrgetter("control_index", "topic_id")


def encode_topic(topic: Topic) -> bytes:
    """Return the value of a topic's row."""
    name = topic.name.encode()
    parts = [
        _HEAD.pack(
            topic.type, topic.permission, topic.deleted, topic.layout_version, topic.write_queues,
            topic.read_queues, topic.control_index,
        ),
        bytes((len(name),)), name, _PARTS.pack(len(topic.layout)),
    ]  # fmt: skip
    for part in topic.layout:
        group = part.group.encode()
        parts += (bytes((len(group),)), group, _QUEUES.pack(part.queues))
    has_retention = topic.retention != AS_THE_CLUSTER
    if topic.settings or has_retention:
        _SETTINGS.write(topic.settings, parts)
    if has_retention:
        _RETENTION.write(topic.retention, parts)
    return b"".join(parts)


def decode_topic(topic_id: bytes, value: bytes) -> Topic:
    """Return the topic of a row."""
    kind, permission, deleted, version, written, read, control_index = _HEAD.unpack_from(value)
    at = _HEAD.size
    name = value[at + 1 : at + 1 + value[at]].decode()
    at += 1 + value[at]
    (count,) = _PARTS.unpack_from(value, at)
    at += _PARTS.size
    layout: list[LayoutPart] = []
    for _ in range(count):
        group = value[at + 1 : at + 1 + value[at]].decode()
        at += 1 + value[at]
        layout.append(LayoutPart(group, _QUEUES.unpack_from(value, at)[0]))
        at += _QUEUES.size
    body = Body(value, at)
    settings = _SETTINGS.read(body) if at < len(value) else ()
    retention = _RETENTION.read(body) if body.at < len(value) else AS_THE_CLUSTER
    return Topic(
        topic_id, name, TopicType(kind), version, tuple(layout), written, read, permission,
        control_index, bool(deleted), settings, retention,
    )  # fmt: skip


class TopicTable:
    """All topics that this group knows. Every topic is in memory: they are few and hot."""

    def __init__(self, writer: Writer, time: CountedTime, usage: UsageTable) -> None:
        self._writer = writer
        self._time = time
        self._usage = usage
        floor = writer.store.get(FLOOR_KEY)
        self._floor: int = 0 if floor is None else KEY_U64.unpack(floor)[0]
        self._control_id = writer.store.get(CONTROL_KEY) or b""
        self._by_id: dict[bytes, Topic] = {}
        self._by_name: dict[str, bytes] = {}
        """Of topics that are not deleted."""
        self._deleted: list[bytes] = []
        self._changed: list[Topic] = []
        prefix = PREFIX[Table.TOPIC]
        for key, value in rows_in(writer.store, prefix, after(prefix)):
            topic = decode_topic(key[1:], value)
            self._by_id[topic.topic_id] = topic
            if not topic.deleted:
                self._by_name[topic.name] = topic.topic_id

    def live_ids(self) -> frozenset[bytes]:
        """Return the ids of the topics that are not deleted."""
        return frozenset(self._by_name.values())

    @property
    def was_deleted(self) -> bool:
        """True: a topic was deleted at some time, remembered or forgotten."""
        return bool(self._floor) or len(self._by_name) < len(self._by_id)

    @property
    def floor(self) -> int:
        """The highest control index of a deletion that is forgotten; 0: of none."""
        return self._floor

    @property
    def control_id(self) -> bytes:
        """Of the control group whose decisions were taken over; empty: of none yet."""
        return self._control_id

    @property
    def count(self) -> int:
        """How many topics have a row, deleted ones included."""
        return len(self._by_id)

    def find(self, topic_id: bytes) -> Topic | None:
        """Return the topic, also a deleted one; None when it is not known, or not any more."""
        return self._by_id.get(topic_id)

    def known(self, topic_id: bytes) -> Topic:
        """Return a topic that certainly has a row, deleted or not."""
        return self._by_id[topic_id]

    def live(self, topic_id: bytes) -> Topic:
        """Return the topic; TOPIC_NOT_FOUND when there is none or it is deleted."""
        topic = self._by_id.get(topic_id)
        if topic is None or topic.deleted:
            raise DledgerError(Code.TOPIC_NOT_FOUND, f"no topic has the id {topic_id.hex()}")
        return topic

    def by_name(self, name: str) -> Topic | None:
        """Return the topic of a name that is not deleted, or None."""
        topic_id = self._by_name.get(name)
        return None if topic_id is None else self._by_id[topic_id]

    def since(self, control_index: int, *, with_deleted: bool) -> list[Topic]:
        """Return the topics changed after `control_index`, in the order of their last change."""
        found = [
            topic
            for topic in self._by_id.values()
            if topic.control_index > control_index and (with_deleted or not topic.deleted)
        ]
        return sorted(found, key=_change)

    def after(self, place: tuple[int, bytes], count: int, *, with_deleted: bool) -> list[Topic]:
        """Return the first topics behind (control index, id), in the order of their last change."""
        found = (
            topic
            for topic in self._by_id.values()
            if _change(topic) > place and (with_deleted or not topic.deleted)
        )
        return nsmallest(count, found, key=_change)

    def consumer_groups(self) -> list[Topic]:
        """Return the topics that are consumer groups."""
        return [each for each in self._by_id.values() if each.settings and not each.deleted]

    @property
    def newest_change(self) -> int:
        """The control index of the last change of any topic that has a row; 0 without one."""
        return max((topic.control_index for topic in self._by_id.values()), default=0)

    def take_deleted(self) -> list[bytes]:
        """Return the topics deleted since the last call: their rows are to be freed."""
        deleted, self._deleted = self._deleted, []
        return deleted

    def take_changed(self) -> Sequence[Topic]:
        """Return the topics stored since the last call, each as often as it was."""
        if not self._changed:
            return ()
        changed, self._changed = self._changed, []
        return changed

    def check_room(self, count: int = 1) -> None:
        """Raise TOO_MANY_TOPICS unless there is room for so many other topics."""
        live, rows = len(self._by_name), len(self._by_id)
        if live > TOPICS_MAX - count:
            raise DledgerError(
                Code.TOO_MANY_TOPICS,
                f"{live} topics exist, at most {TOPICS_MAX}: delete some first",
            )
        if rows > TOPIC_ROWS_MAX - count:
            raise DledgerError(
                Code.TOO_MANY_TOPICS,
                f"{rows - live} deleted topics are remembered beside {live} others, at most "
                f"{TOPIC_ROWS_MAX} in all: the oldest is forgotten some "
                f"{DELETED_TOPIC_KEPT_MS // 60_000} minutes after its deletion",
            )

    def store(self, topic: Topic) -> None:
        """Write a topic as it is now."""
        topic_id = topic.topic_id
        known = self._by_id.get(topic_id)
        if topic.deleted and (known is None or not known.deleted):
            key = PREFIX[Table.TOPIC_DELETED] + KEY_U64.pack(self._time.ms) + topic_id
            self._writer.put(key, b"")
        if topic.deleted and known is not None and not known.deleted:
            self._deleted.append(topic_id)
            if self._by_name.get(known.name) == topic_id:
                del self._by_name[known.name]
        if not topic.deleted:
            self._by_name[topic.name] = topic_id
            if topic.settings:
                self._usage.touch(topic_id)
        self._by_id[topic_id] = topic
        self._changed.append(topic)
        self._writer.put(PREFIX[Table.TOPIC] + topic_id, encode_topic(topic))

    def foreign(self, control_id: bytes) -> str:
        """Say why nothing of this control group is taken over; empty when it is."""
        if self._control_id in (b"", control_id):
            return ""
        return (
            f"decided by control group {control_id.hex()}, topics here are those of "
            f"{self._control_id.hex()}"
        )

    def follow(self, control_id: bytes) -> None:
        """Take over decisions of this control group, and of no other from now on."""
        if not self._control_id:
            self._control_id = control_id
            self._writer.put(CONTROL_KEY, control_id)

    def forgettable(self, kept_ms: int, known_index: int) -> tuple[list[tuple[bytes, Topic]], bool]:
        """Return keys of table 11 with their topics, and whether others may be due behind them.

        Those that were certainly deleted `kept_ms` of counted time ago, by decisions up to
        `known_index`; oldest first.
        """
        start = PREFIX[Table.TOPIC_DELETED]
        stop = start + KEY_U64.pack(self._time.certainly_before(kept_ms))
        rows = self._writer.store.scan(start, stop, FORGOTTEN_AT_ONCE_MAX + 1)
        looked_at = [(key, self._by_id[key[9:]]) for key, _ in rows[:FORGOTTEN_AT_ONCE_MAX]]
        found = [each for each in looked_at if each[1].control_index <= known_index]
        return found, bool(found) and len(rows) > FORGOTTEN_AT_ONCE_MAX

    def forget(self, topics: list[tuple[bytes, Topic]]) -> None:
        """Free the rows of topics that `forgettable` returned."""
        for key, topic in topics:
            self._writer.delete(key)
            self._writer.delete(PREFIX[Table.TOPIC] + topic.topic_id)
            del self._by_id[topic.topic_id]
            self._floor = max(self._floor, topic.control_index)
        if topics:
            self._writer.put(FLOOR_KEY, KEY_U64.pack(self._floor))
