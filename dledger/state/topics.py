"""Topics: what exists, its layout, and which of its queues this group holds (D1, D14).

Owns: the topic tables and the rules of create, import, update and delete. Not: queues and their
rows (`queues/table.py`), nor freeing a deleted topic's rows (`queues/trim.py`, told by the
machine).

    10 topic_id                     -> type u8, permission u8, deleted u8, 0 u8, layout_version u32,
                                       write_queues u32, read_queues u32, control_index u64,
                                       name size u8, name, parts u16, (group size u8, group,
                                       queues u32)*

    11 deleted_ms u64, topic_id     -> empty: deleted topics in the order of counted time
    01 "forgotten"                  -> control_index u64: the floor, see below; absent: 0
    01 "control group"              -> control_id 16: whose decisions are taken over

A layout keeps the queues that are closed: who opens one again finds the group that holds what is in
it. A deleted topic's row stays for a while, so that whoever asks late is told and other groups hear
of it; then ForgetTopics frees it, FORGOTTEN_AT_ONCE_MAX with each command, and none while rows of
queues wait to be deleted. What comes later still
finds the *floor*, the highest control index of a deletion that is forgotten, and changes nothing,
however late it comes:

    what comes                                             verdict
    -----------------------------------------------------  ---------------------------------------
    a creation of an id that is not known, whose caller    STALE_CREATION: its topic may have been
    knew the control log only below the floor              created, deleted and forgotten since
    ... at the floor or above                              created: whatever was forgotten was
                                                           deleted before the id was told to anybody
    an import of an id that is not known, with a control   STALE_LAYOUT: all decisions up to the
    index at the floor or below                            floor are known here, so this one is of
                                                           a topic that is deleted and forgotten
    ... above the floor                                    taken over
    all else about an id that is not known                 TOPIC_NOT_FOUND

So the floor of a group rises only to what it knows without a gap: the control group by itself, the
others by the `known_index` of the command. The time for which rows are kept decides no right or
wrong: it is why no creation is called stale within its caller's budget (`limits.py`).

Indexes are those of one log. A control group that was formed anew counts from 1 and knows nothing
of what lies here; by its lists all of that would be deleted. So the first import says whose
decisions are taken over, and those of any other group are refused.
"""

import struct
from collections.abc import Callable
from dataclasses import replace
from heapq import nsmallest
from itertools import groupby
from operator import attrgetter
from typing import Final

from dledger.state.commands.codec import (
    CreateTopic,
    DeleteTopic,
    ForgetTopics,
    ImportTopic,
    UpdateTopic,
)
from dledger.state.counted_time import CountedTime
from dledger.state.results import Refused, TopicChanged, TopicsForgotten
from dledger.state.tables import PREFIX, U64, Table, Writer, after
from dledger.state.values import (
    PERMISSION_READ,
    PERMISSION_WRITE,
    LayoutPart,
    Topic,
    TopicType,
)
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import (
    DELETED_TOPIC_KEPT_MS,
    DELETED_TOPICS_MAX,
    GROUP_NAME_LENGTH_MAX,
    QUEUES_PER_TOPIC_MAX,
    TOPICS_MAX,
)
from dledger_proto.names import check_name, check_topic_name

TOPIC_ROWS_MAX: Final = TOPICS_MAX + DELETED_TOPICS_MAX
IMPORTED_ROWS_MAX: Final = 2 * TOPIC_ROWS_MAX
"""Of a group that was away: what it knew, and all that came since."""
FORGOTTEN_AT_ONCE_MAX: Final = 256
"""Topics that one ForgetTopics looks at."""
FLOOR_KEY: Final = PREFIX[Table.META] + b"forgotten"
CONTROL_KEY: Final = PREFIX[Table.META] + b"control group"
_PAGE_ROWS: Final = 256
_HEAD: Final = struct.Struct("<BBBxIIIQ")
_QUEUES: Final = struct.Struct("<I")
_PARTS: Final = struct.Struct("<H")
_change: Final[Callable[[Topic], tuple[int, bytes]]] = attrgetter("control_index", "topic_id")


def check_layout(layout: tuple[LayoutPart, ...]) -> None:
    """Raise INVALID_ARGUMENT unless every part names a group and the queues keep their limit."""
    if not layout:
        raise _invalid("layout has no part")
    for part in layout:
        check_name("layout: group", part.group, GROUP_NAME_LENGTH_MAX)
        if part.queues < 1:
            raise _invalid(f"layout: group {part.group} has {part.queues} queues, at least 1")
    total = queues_of(layout)
    if total > QUEUES_PER_TOPIC_MAX:
        raise _invalid(f"layout has {total} queues, at most {QUEUES_PER_TOPIC_MAX}")


def check_topic(topic: Topic) -> None:
    """Raise INVALID_ARGUMENT naming the first field outside its limit."""
    check_topic_name(topic.name)
    check_layout(topic.layout)
    if topic.topic_id == bytes(16):
        raise _invalid("topic_id is all zero")
    total = queues_of(topic.layout)
    if not 1 <= topic.write_queues <= total:
        raise _invalid(f"write_queues {topic.write_queues}, 1 to {total}")
    if not 1 <= topic.read_queues <= total:
        raise _invalid(f"read_queues {topic.read_queues}, 1 to {total}")
    if not 0 < topic.permission <= PERMISSION_READ | PERMISSION_WRITE or topic.permission & 1:
        raise _invalid(f"permission {topic.permission}: 4 (read), 2 (write) or 6")


def queues_of(layout: tuple[LayoutPart, ...]) -> int:
    """Return how many queues a layout has, over all parts."""
    return sum(part.queues for part in layout)


def first_queues(layout: tuple[LayoutPart, ...], count: int) -> tuple[LayoutPart, ...]:
    """Return the layout of a layout's first queues, neighbours of one group as one part."""
    parts: list[LayoutPart] = []
    for group, same in groupby(layout, lambda part: part.group):
        queues = min(sum(part.queues for part in same), count)
        if queues > 0:
            parts.append(LayoutPart(group, queues))
        count -= queues
    return tuple(parts)


def grown(known: tuple[LayoutPart, ...], wanted: tuple[LayoutPart, ...]) -> tuple[LayoutPart, ...]:
    """Return the longer of two layouts; INVALID_ARGUMENT when they disagree about a queue.

    What was written to a queue lies with its group, and readers know offsets of it: were the number
    given to another group, they would go on there in another log, closed for a while or not.
    """
    ours, theirs = _owners(known), _owners(wanted)
    for queue, (old, new) in enumerate(zip(ours, theirs, strict=False)):
        if old != new:
            raise _invalid(
                f"layout moves queue {queue} from group {old} to {new}: a queue stays with its "
                f"group, also when it is closed; new ones are numbered from {len(ours)} on"
            )
    longer = max(known, wanted, key=queues_of)
    return first_queues(longer, queues_of(longer))


def _owners(layout: tuple[LayoutPart, ...]) -> list[str]:
    return [part.group for part in layout for _ in range(part.queues)]


def _with_read(layout: tuple[LayoutPart, ...], read_queues: int) -> tuple[LayoutPart, ...]:
    """Return a new topic's layout with all the queues that are read (S22).

    INVALID_ARGUMENT when it says not whose the missing ones are, or they would be too many.
    """
    total = queues_of(layout)
    if read_queues <= total:
        return layout
    if read_queues > QUEUES_PER_TOPIC_MAX:
        raise _invalid(f"read_queues {read_queues}, at most {QUEUES_PER_TOPIC_MAX}")
    groups = {part.group for part in layout}
    if len(groups) != 1:
        raise _invalid(
            f"read_queues {read_queues}, at most {total}: more than take messages has only a topic "
            "of one group"
        )
    return (LayoutPart(groups.pop(), read_queues),)


def _too_many(sentence: str) -> DledgerError:
    return DledgerError(Code.TOO_MANY_TOPICS, sentence)


def _invalid(sentence: str) -> DledgerError:
    return DledgerError(Code.INVALID_ARGUMENT, sentence)


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
    return Topic(
        topic_id, name, TopicType(kind), version, tuple(layout), written, read, permission,
        control_index, bool(deleted),
    )  # fmt: skip


class TopicTable:
    """All topics that this group knows. Every topic is in memory: they are few and hot."""

    def __init__(self, writer: Writer, time: CountedTime) -> None:
        self._writer = writer
        self._time = time
        floor = writer.store.get(FLOOR_KEY)
        self._floor: int = 0 if floor is None else U64.unpack(floor)[0]
        self._control_id = writer.store.get(CONTROL_KEY) or b""
        self._by_id: dict[bytes, Topic] = {}
        self._by_name: dict[str, bytes] = {}
        """Of topics that are not deleted."""
        self._deleted: list[bytes] = []
        start, stop = PREFIX[Table.TOPIC], after(PREFIX[Table.TOPIC])
        while rows := writer.store.scan(start, stop, _PAGE_ROWS):
            for key, value in rows:
                topic = decode_topic(key[1:], value)
                self._by_id[topic.topic_id] = topic
                if not topic.deleted:
                    self._by_name[topic.name] = topic.topic_id
            start = rows[-1][0] + b"\0"

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

    def find(self, topic_id: bytes) -> Topic | None:
        """Return the topic, also a deleted one; None when it is not known, or not any more."""
        return self._by_id.get(topic_id)

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

    @property
    def newest_change(self) -> int:
        """The control index of the last change of any topic that has a row; 0 without one."""
        return max((topic.control_index for topic in self._by_id.values()), default=0)

    def take_deleted(self) -> list[bytes]:
        """Return the topics deleted since the last call: their rows are to be freed."""
        deleted, self._deleted = self._deleted, []
        return deleted

    def create(self, command: CreateTopic, index: int) -> TopicChanged | Refused:
        """Create, or find the same: the same call twice has the same answer."""
        check_layout(command.layout)
        layout = _with_read(command.layout, command.read_queues)
        topic = Topic(
            command.topic_id, command.name, command.type, 1, layout, queues_of(command.layout),
            command.read_queues, command.permission, index,
        )  # fmt: skip
        check_topic(topic)
        known = self.by_name(topic.name) or self._by_id.get(topic.topic_id)
        if known is not None:
            differences = _differences(known, topic)
            if differences:
                return Refused(
                    Code.TOPIC_EXISTS,
                    f"topic {known.name} exists as {known.topic_id.hex()} {differences}",
                )
            return TopicChanged(known)
        if command.known_index < self._floor:
            return Refused(
                Code.STALE_CREATION,
                f"topic {topic.name}: its creation knew the control log up to "
                f"{command.known_index}, deletions up to {self._floor} are forgotten",
            )
        self._check_room()
        self._store(topic)
        return TopicChanged(topic)

    def import_(self, command: ImportTopic) -> TopicChanged | Refused:
        """Take over the control group's decision unless a newer one is known (D1)."""
        topic = command.topic
        check_topic(topic)
        if self._control_id not in (b"", command.control_id):
            return Refused(
                Code.WRONG_GROUP,
                f"topic {topic.name}: decided by control group {command.control_id.hex()}, topics "
                f"here are those of {self._control_id.hex()}",
            )
        known = self._by_id.get(topic.topic_id)
        if known is not None:
            if topic.control_index < known.control_index:
                return Refused(
                    Code.STALE_LAYOUT,
                    f"topic {topic.name}: control index {topic.control_index}, known is "
                    f"{known.control_index}",
                )
            if topic.control_index == known.control_index:
                return TopicChanged(known)
            if known.deleted and not topic.deleted:
                # Its rows are being freed; what was written there again would be freed with them.
                return Refused(Code.TOPIC_NOT_FOUND, f"topic {topic.name} is deleted for good")
            if topic.name != known.name:  # the control group never renames a topic
                return Refused(
                    Code.INVALID_ARGUMENT,
                    f"topic {topic.topic_id.hex()} is called {known.name}, not {topic.name}",
                )
        elif topic.control_index <= self._floor:
            return Refused(
                Code.STALE_LAYOUT,
                f"topic {topic.name}: control index {topic.control_index}, all up to "
                f"{self._floor} are known, and it is none of these: it is deleted and forgotten",
            )
        elif len(self._by_id) >= IMPORTED_ROWS_MAX:
            raise _too_many(
                f"{len(self._by_id)} topics are known here, at most {IMPORTED_ROWS_MAX}"
            )
        namesake = self.by_name(topic.name)
        if namesake is not None and namesake.topic_id != topic.topic_id and not topic.deleted:
            if topic.control_index < namesake.control_index:
                return Refused(
                    Code.STALE_LAYOUT,
                    f"topic {topic.name} is {namesake.topic_id.hex()} since control index "
                    f"{namesake.control_index}",
                )
            # The control group gave the name away, so the old topic is deleted there.
            self._store(replace(namesake, deleted=True, control_index=topic.control_index))
        if not self._control_id:
            self._control_id = command.control_id
            self._writer.put(CONTROL_KEY, command.control_id)
        self._store(topic)
        return TopicChanged(topic)

    def update(self, command: UpdateTopic, index: int) -> TopicChanged:
        """Change the fields that are given.

        A layout is that of the queues to be written; the topic keeps those behind it. What is read
        goes on being read until fewer are asked for.
        """
        topic = self.live(command.topic_id)
        layout, write_queues, read_queues = topic.layout, topic.write_queues, topic.read_queues
        if command.layout:
            check_layout(command.layout)
            layout, write_queues = grown(layout, command.layout), queues_of(command.layout)
            read_queues = max(read_queues, topic.write_queues, write_queues)
        read_queues = command.read_queues or read_queues
        changed = replace(
            topic,
            layout=layout,
            write_queues=write_queues,
            read_queues=read_queues,
            permission=command.permission or topic.permission,
            control_index=index,
        )
        if (layout, write_queues) != (topic.layout, topic.write_queues):
            changed = replace(changed, layout_version=topic.layout_version + 1)
        check_topic(changed)
        self._store(changed)
        return TopicChanged(changed)

    def delete(self, command: DeleteTopic, index: int) -> TopicChanged:
        """Mark as deleted; the name is free again."""
        topic = replace(self.live(command.topic_id), deleted=True, control_index=index)
        self._store(topic)
        return TopicChanged(topic)

    def is_forgetting_due(self, command: ForgetTopics) -> bool:
        """Tell whether the command would free anything now."""
        return bool(self._forgettable(command)[0])

    def forget(self, command: ForgetTopics) -> TopicsForgotten:
        """Free the rows of topics that were deleted for so long, oldest first."""
        topics, more = self._forgettable(command)
        for key, topic in topics:
            self._writer.delete(key)
            self._writer.delete(PREFIX[Table.TOPIC] + topic.topic_id)
            del self._by_id[topic.topic_id]
            self._floor = max(self._floor, topic.control_index)
        if topics:
            self._writer.put(FLOOR_KEY, U64.pack(self._floor))
        return TopicsForgotten(tuple(topic.topic_id for _, topic in topics), more)

    def _forgettable(self, command: ForgetTopics) -> tuple[list[tuple[bytes, Topic]], bool]:
        """Return keys of table 11 with their topics, and whether others may be due behind them."""
        start = PREFIX[Table.TOPIC_DELETED]
        stop = start + U64.pack(self._time.certainly_before(command.kept_ms))
        rows = self._writer.store.scan(start, stop, FORGOTTEN_AT_ONCE_MAX + 1)
        looked_at = [(key, self._by_id[key[9:]]) for key, _ in rows[:FORGOTTEN_AT_ONCE_MAX]]
        found = [each for each in looked_at if each[1].control_index <= command.known_index]
        return found, bool(found) and len(rows) > FORGOTTEN_AT_ONCE_MAX

    def _check_room(self) -> None:
        """Raise TOO_MANY_TOPICS unless there is room for another topic."""
        live, rows = len(self._by_name), len(self._by_id)
        if live >= TOPICS_MAX:
            raise _too_many(f"{live} topics exist, at most {TOPICS_MAX}: delete some first")
        if rows >= TOPIC_ROWS_MAX:
            raise _too_many(
                f"{rows - live} deleted topics are remembered beside {live} others, at most "
                f"{TOPIC_ROWS_MAX} in all: the oldest is forgotten some "
                f"{DELETED_TOPIC_KEPT_MS // 60_000} minutes after its deletion"
            )

    def _store(self, topic: Topic) -> None:
        topic_id = topic.topic_id
        known = self._by_id.get(topic_id)
        if topic.deleted and (known is None or not known.deleted):
            key = PREFIX[Table.TOPIC_DELETED] + U64.pack(self._time.ms) + topic_id
            self._writer.put(key, b"")
        if topic.deleted and known is not None and not known.deleted:
            self._deleted.append(topic_id)
            if self._by_name.get(known.name) == topic_id:
                del self._by_name[known.name]
        if not topic.deleted:
            self._by_name[topic.name] = topic_id
        self._by_id[topic_id] = topic
        self._writer.put(PREFIX[Table.TOPIC] + topic_id, encode_topic(topic))


def _differences(known: Topic, wanted: Topic) -> str:
    """Say how a topic that exists is another than the one wanted; empty when it is not."""
    rows: list[tuple[str, object, object]] = [
        ("deleted", known.deleted, False),
        ("name", known.name, wanted.name),
        ("type", known.type, wanted.type),
        ("layout", _layout_text(known), _layout_text(wanted)),
        ("read queues", known.read_queues, wanted.read_queues),
        ("permission", known.permission, wanted.permission),
    ]
    different = [f"{field} {has}, not {asked}" for field, has, asked in rows if has != asked]
    return f"with {'; '.join(different)}" if different else ""


def _layout_text(topic: Topic) -> str:
    written = first_queues(topic.layout, topic.write_queues)
    return ",".join(f"{part.group}:{part.queues}" for part in written)
