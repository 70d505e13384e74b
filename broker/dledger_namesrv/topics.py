"""The topics of the cluster as the groups tell them. Pure.

Every member of every group tells all topics of its group. A row is decided by the control group's
log, so the one with the higher control index is newer, whoever tells it. A topic's row stays while
any group that told it is listed (S8); deleted topics stay as rows too, so that a member that is
behind cannot bring one back: the newest DELETED_ROWS_MAX, as many as a control group remembers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from dledger_proto.limits import DELETED_TOPICS_MAX, TOPICS_MAX
from dledger_proto.v1.broker_pb2 import Topic

DELETED_ROWS_MAX: Final = TOPICS_MAX + DELETED_TOPICS_MAX


@dataclass(slots=True)
class TopicRow:
    """One topic, and which groups told it. The message is never changed after it was stored."""

    topic: Topic
    groups: dict[str, int] = field(default_factory=dict[str, int])
    """Group to the applied index at which one of its members told this row."""

    @property
    def age(self) -> tuple[int, int]:
        """Newer rows compare higher."""
        return self.topic.control_index, self.topic.layout_version


class TopicTable:
    """Topics by id, and the newest id of each name."""

    def __init__(self) -> None:
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
            self._rows[told.id] = TopicRow(kept, {group: applied_index})
            self._ids_by_name.setdefault(told.name, set()).add(told.id)
            self._note(kept)
            return True
        known_index = row.groups.get(group)
        if known_index is None or applied_index > known_index:
            row.groups[group] = applied_index
        age = (told.control_index, told.layout_version)
        # Of one age the rows are equal, unless a group told it before it was complete; then its
        # own later index decides.
        newer = age > row.age or (
            age == row.age
            and known_index is not None
            and applied_index > known_index
            and told != row.topic
        )
        if newer:
            kept = Topic()
            kept.CopyFrom(told)
            row.topic = kept
            self._note(kept)
        return newer

    def _note(self, topic: Topic) -> None:
        """Keep the order of deletions, and their bound."""
        self._deleted.pop(topic.id, None)
        if topic.deleted:
            self._deleted[topic.id] = None
            if len(self._deleted) > DELETED_ROWS_MAX:
                oldest = next(iter(self._deleted))
                self._drop(oldest)
                self._dropped.append(oldest)

    def take_dropped(self) -> list[bytes]:
        """Return the ids dropped since the last call to keep the bound of deleted topics."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def _drop(self, topic_id: bytes) -> None:
        name = self._rows.pop(topic_id).topic.name
        self._deleted.pop(topic_id, None)
        ids = self._ids_by_name[name]
        ids.discard(topic_id)
        if not ids:
            del self._ids_by_name[name]

    def drop_group(self, group: str) -> Iterator[bytes]:
        """Forget what the group told; yield the ids that nobody else tells, now gone."""
        for topic_id, row in list(self._rows.items()):
            if row.groups.pop(group, None) is not None and not row.groups:
                self._drop(topic_id)
                yield topic_id

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
        """Return the newest topic of this name, also a deleted one."""
        ids = self._ids_by_name.get(name)
        if not ids:
            return None
        return max((self._rows[topic_id] for topic_id in ids), key=lambda row: row.age).topic

    def living(self) -> Iterator[Topic]:
        """Yield every topic that is not deleted, one of each name."""
        for name in self._ids_by_name:
            yield from self.living_of((name,))

    def living_of(self, names: Iterable[str]) -> Iterator[Topic]:
        """Yield the topics of these names that are not deleted."""
        for name in names:
            topic = self.by_name(name)
            if topic is not None and not topic.deleted:
                yield topic
