"""The topics of the cluster as the groups tell them. Pure.

Every member of every group tells all topics of its group. The control group's log decides every
row, so what the control group tells counts. The control group may not tell a topic, because it is
not listed or because its members are behind. Then the row with the higher control index is newer,
whichever group tells it. What a group told counts while the group is listed (S8). Deleted topics
stay as rows, so that a member that is behind cannot bring one back: the newest DELETED_ROWS_MAX, as
many as a control group remembers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from dledger_proto.limits import DELETED_TOPICS_MAX, TOPICS_MAX
from dledger_proto.v1.broker_pb2 import Topic

DELETED_ROWS_MAX: Final = TOPICS_MAX + DELETED_TOPICS_MAX


class Told(NamedTuple):
    """What the members of one group told of a topic. The message is never changed."""

    topic: Topic
    applied_index: int
    """The highest index at which one of the members told it."""


def _age(topic: Topic) -> tuple[int, int]:
    """Newer rows compare higher."""
    return topic.control_index, topic.layout_version


@dataclass(slots=True)
class TopicRow:
    """One topic: what counts, and what each group told. Equal messages share one object."""

    topic: Topic
    told: dict[str, Told]

    def take(self, group: str, told: Told, control: str) -> bool:
        """Take what a group tells now; True when another message counts from now on."""
        known = self.told.get(group)
        if known is not None:
            # Rows of the same age are equal, unless a group told the topic before the topic was
            # complete. Then the later index of that group decides.
            older, newer = _age(known.topic), _age(told.topic)
            later = told.applied_index > known.applied_index
            kept = told.topic if newer > older or (newer == older and later) else known.topic
            told = Told(kept, max(told.applied_index, known.applied_index))
        self.told[group] = told
        if control in self.told:
            return self._count(self.told[control].topic)
        again = known is not None and told.topic is not known.topic
        if _age(told.topic) > _age(self.topic) or (again and _age(told.topic) == _age(self.topic)):
            return self._count(told.topic)
        return False

    def leave(self, group: str, control: str) -> bool:
        """Drop what a group told; True when another message counts now. Other groups told too."""
        del self.told[group]
        if control in self.told or any(told.topic is self.topic for told in self.told.values()):
            return False
        return self._count(max((told.topic for told in self.told.values()), key=_age))

    def _count(self, topic: Topic) -> bool:
        changed = topic != self.topic
        self.topic = topic
        return changed


class TopicTable:
    """Topics by id, and the newest id of each name."""

    def __init__(self) -> None:
        self.control = ""
        """The control group's name; empty: not known yet."""
        self._rows: dict[bytes, TopicRow] = {}
        self._ids_by_name: dict[str, set[bytes]] = {}
        self._deleted: dict[bytes, None] = {}
        """Ids of deleted topics, in the order in which they were told."""
        self._dropped: list[bytes] = []

    def __len__(self) -> int:
        return len(self._rows)

    def merge(self, group: str, applied_index: int, told: Topic) -> bool:
        """Take a row that a member of the group told; True when the table changed."""
        row = self._rows.get(told.id)
        if row is None:
            kept = Topic()
            kept.CopyFrom(told)  # not the message itself: it would keep a whole registration alive
            self._rows[told.id] = TopicRow(kept, {group: Told(kept, applied_index)})
            self._ids_by_name.setdefault(told.name, set()).add(told.id)
            self._note(kept)
            return True
        kept = row.topic
        if told != kept:
            kept = Topic()
            kept.CopyFrom(told)
        changed = row.take(group, Told(kept, applied_index), self.control)
        if changed:
            self._note(row.topic)
        return changed

    def _note(self, topic: Topic) -> None:
        """Keep the order of deletions, and their bound."""
        self._deleted.pop(topic.id, None)
        if topic.deleted:
            self._deleted[topic.id] = None
            if len(self._deleted) > DELETED_ROWS_MAX:
                oldest = next(iter(self._deleted))
                self.drop(oldest)
                self._dropped.append(oldest)

    def take_dropped(self) -> list[bytes]:
        """Return the ids dropped since the last call to keep the bound of deleted topics."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def drop(self, topic_id: bytes) -> None:
        """Forget a topic that has a row."""
        name = self._rows.pop(topic_id).topic.name
        self._deleted.pop(topic_id, None)
        ids = self._ids_by_name[name]
        ids.discard(topic_id)
        if not ids:
            del self._ids_by_name[name]

    def drop_group(self, group: str) -> Iterator[tuple[bytes, bool]]:
        """Forget what the group told; yield the ids that changed, and whether others tell them."""
        for topic_id in list(self._rows):
            row = self._rows.get(topic_id)
            if row is None or group not in row.told:
                continue
            if len(row.told) == 1:
                self.drop(topic_id)
                yield topic_id, False
            elif row.leave(group, self.control):
                self._note(row.topic)
                yield topic_id, True

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of an id, None when it has no row."""
        row = self._rows.get(topic_id)
        return row.topic.name if row else None

    def unknown(self, told: Iterable[Topic]) -> int:
        """Return how many of these topics have no row."""
        return sum(topic.id not in self._rows for topic in told)

    def newest_of(self, topic_id: bytes) -> Topic | None:
        """Return what the name of this id means now: of a name made anew, the new topic."""
        row = self._rows.get(topic_id)
        return self.by_name(row.topic.name) if row else None

    def by_name(self, name: str) -> Topic | None:
        """Return the topic that this name means, also a deleted one: see the module header."""
        ids = self._ids_by_name.get(name)
        if not ids:
            return None
        rows = (self._rows[topic_id] for topic_id in ids)
        return max(rows, key=lambda row: (self.control in row.told, _age(row.topic))).topic

    def living(self, names: Iterable[str] = ()) -> Iterator[Topic]:
        """Yield the topics of these names, by default of all, that are not deleted."""
        for name in names or self._ids_by_name:
            topic = self.by_name(name)
            if topic is not None and not topic.deleted:
                yield topic
