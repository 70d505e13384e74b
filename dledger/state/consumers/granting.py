"""Who has which queue: the rules of grants (D20), and the commands Assign and GiveBack.

Owns the one rule that keeps a queue from having two holders: it goes to its target when nobody
holds it, and only then. A new grant has a new epoch. What does not move keeps its holder and epoch.
Not: who the consumers are (`membership.py`), who should have what (the leader computes it).

The epoch of a grant is the index of its entry. When several commands of one entry grant, each is
one above the one before; so no epoch is given twice, and later ones are higher.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from dledger.state.commands.codec import UInt32, UInt64
from dledger.state.commands.command import Command
from dledger.state.consumers.table import ConsumerGroup, Grant, QueueKey
from dledger.state.results import Assigned, GivenBack, Refused
from dledger.types import Entry
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import QUEUES_PER_CALL_MAX, QUEUES_PER_CONSUMER_GROUP_MAX

if TYPE_CHECKING:
    from dledger.state.state import State

NOBODY: Final = ""


class Turn:
    """What one command changes in one consumer group."""

    def __init__(self, state: "State", group: ConsumerGroup, entry: Entry) -> None:
        self.group = group
        self._table = state.consumers
        self._index = entry.ref.index
        self._time_ms = entry.time_ms
        self._epoch = max(entry.ref.index, group.epochs.granted + 1)
        self._told: set[str] = set()
        """Consumers that hold something else than before, or have to give something back."""
        self.granted = 0
        self.revoked = 0
        """Queues that their holders have to give back now."""

    def aim(self, key: QueueKey, target: str) -> None:
        """Say who should have a queue; its holder keeps it until it gives it back."""
        known = self.group.grants.get(key)
        self._place(key, known, target, NOBODY if known is None else known.holder)

    def free(self, key: QueueKey, target: str) -> None:
        """Take a queue from its holder, who gave it back or is gone."""
        self._place(key, self.group.grants[key], target, NOBODY)

    def finish(self) -> None:
        """Note the epoch of all whom the command told something, and the highest epoch given."""
        for name in sorted(self._told & self.group.consumers.keys()):
            consumer = replace(self.group.consumers[name], epoch=self._index)
            self._table.put_consumer(self.group, name, consumer)
        if self.granted:
            epochs = replace(self.group.epochs, granted=self._epoch)
            self._table.put_epochs(self.group, epochs)

    def _place(self, key: QueueKey, known: Grant | None, target: str, holder: str) -> None:
        if holder == NOBODY and target == NOBODY:
            after = None
        elif holder == NOBODY:
            after = Grant(target, target, self._epoch, self._time_ms)
        else:
            assert known is not None, f"{key} has a holder and no row"
            after = replace(known, target=target, holder=holder)
        if after == known:
            return
        if after is not None:
            after = replace(after, since_ms=self._time_ms)
            self.granted += holder == NOBODY
            self.revoked += after.is_revoked and not (known is not None and known.is_revoked)
        self._told |= {grant.holder for grant in (known, after) if grant is not None}
        self._table.put_grant(self.group, key, after)


class TopicTargets(NamedTuple):
    """Who should have the queues of one topic, from queue 0 on."""

    topic_id: bytes
    consumers: tuple[UInt32, ...]
    """Of each queue: the place in `Assign.consumers`, counted from 1; 0: nobody."""

    def describe(self) -> str:
        """Return one word."""
        return f"{self.topic_id.hex()}:{','.join(map(str, self.consumers))}"


@dataclass(frozen=True, slots=True)
class Assign(Command[Assigned]):
    """Say who should have which queue: all of a consumer group's queues, as its leader computed.

    Queues that the command does not name should be held by nobody.
    """

    NUMBER: ClassVar = 42

    group_id: bytes
    group_epoch: UInt64
    """For these consumers the result was computed."""
    consumers: tuple[str, ...]
    topics: tuple[TopicTargets, ...]

    @property
    def rows_read_max(self) -> int:
        return 1 + sum(len(topic.consumers) for topic in self.topics)

    def apply(self, state: "State", entry: Entry) -> Assigned | Refused:
        """Store the targets; grant what nobody holds."""
        state.coordinated(self.group_id)
        group = state.consumers.group(self.group_id)
        if group.epochs.group != self.group_epoch:
            return Refused(
                Code.FENCED,
                f"assignment of group epoch {self.group_epoch}, it is {group.epochs.group} now",
            )
        targets = self._targets(group)
        turn = Turn(state, group, entry)
        for key in sorted(group.grants.keys() | targets.keys()):
            turn.aim(key, targets.get(key, NOBODY))
        turn.finish()
        if group.epochs.assignment != self.group_epoch:
            epochs = replace(group.epochs, assignment=self.group_epoch)
            state.consumers.put_epochs(group, epochs)
        return Assigned(turn.granted, turn.revoked)

    def _targets(self, group: ConsumerGroup) -> Mapping[QueueKey, str]:
        unknown = [name for name in self.consumers if name not in group.consumers]
        if unknown:
            raise invalid(f"consumers {', '.join(unknown)}: not in the consumer group")
        names = (NOBODY, *self.consumers)
        targets: dict[QueueKey, str] = {}
        for topic in self.topics:
            for queue, place in enumerate(topic.consumers):
                if place >= len(names):
                    raise invalid(f"consumer {place} of {len(self.consumers)}")
                if place:
                    targets[QueueKey(topic.topic_id, queue)] = names[place]
        if len(targets) > QUEUES_PER_CONSUMER_GROUP_MAX:
            raise invalid(
                f"{len(targets)} queues, a consumer group has at most "
                f"{QUEUES_PER_CONSUMER_GROUP_MAX}"
            )
        return targets


class Held(NamedTuple):
    """A queue, as it was granted."""

    topic_id: bytes
    queue: UInt32
    epoch: UInt64

    def describe(self) -> str:
        """Return one word."""
        return f"{self.topic_id.hex()}/{self.queue}#{self.epoch}"


@dataclass(frozen=True, slots=True)
class GiveBack(Command[GivenBack]):
    """A consumer has finished with queues; each goes to its target."""

    NUMBER: ClassVar = 43

    group_id: bytes
    consumer: str
    joined: UInt64
    """Names the session in which it gave them back. A later session was told that it has them."""
    queues: tuple[Held, ...]

    @property
    def rows_read_max(self) -> int:
        return 1 + len(self.queues)

    def apply(self, state: "State", entry: Entry) -> GivenBack | Refused:
        """Free the queues that the session holds by these grants; pass over all others."""
        state.coordinated(self.group_id)
        if len(self.queues) > QUEUES_PER_CALL_MAX:
            raise invalid(f"{len(self.queues)} queues at once, at most {QUEUES_PER_CALL_MAX}")
        group = state.consumers.group(self.group_id)
        consumer = group.consumers.get(self.consumer)
        if consumer is None or consumer.joined != self.joined:
            raise DledgerError(
                Code.SESSION_ENDED, f"consumer {self.consumer}: this session is over"
            )
        turn = Turn(state, group, entry)
        freed = 0
        for topic_id, queue, epoch in self.queues:
            key = QueueKey(topic_id, queue)
            grant = group.grants.get(key)
            # A late copy names a grant that is over: the queue was given back and came again.
            if grant is None or (grant.holder, grant.epoch) != (self.consumer, epoch):
                continue
            turn.free(key, grant.target)
            freed += 1
        turn.finish()
        return GivenBack(freed)
