"""Who is in a consumer group: the commands Join and EndSessions (D20).

Owns: the verdicts about consumers that come and go. Not: what becomes of queues (`granting.py`),
how long a session lasts (its leader knows, by its own clock).

A Join names a session by the index of its entry. The end of a session names it too. So the end of
an old session, however late it is decided, does not touch a consumer that came back.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from dledger.state.commands.codec import UInt64
from dledger.state.commands.command import Command
from dledger.state.consumers.granting import NOBODY, Turn
from dledger.state.consumers.settings import STRATEGIES, ConsumeOrder
from dledger.state.consumers.table import Consumer, ConsumerGroup, Epochs, QueueKey, Subscribed
from dledger.state.results import Joined, Refused, SessionsEnded
from dledger.types import Entry
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import (
    CONSUMERS_PER_GROUP_MAX,
    QUEUES_PER_CALL_MAX,
    QUEUES_PER_CONSUMER_GROUP_MAX,
    SUBSCRIPTIONS_MAX,
    TOPIC_NAME_LENGTH_MAX,
)
from dledger_proto.names import CLIENT_ID_LENGTH_MAX, check_client_id

if TYPE_CHECKING:
    from dledger.state.state import State


@dataclass(frozen=True, slots=True)
class Join(Command[Joined]):
    """A consumer begins a session, or begins anew after its stream broke."""

    NUMBER: ClassVar = 40

    group_id: bytes
    consumer: str
    instance: str
    client: str
    room: str
    order: ConsumeOrder
    """What its listener does."""
    strategy: str
    subscriptions: tuple[Subscribed, ...]
    wanted: tuple[QueueKey, ...] = ()

    @property
    def rows_read_max(self) -> int:
        return QUEUES_PER_CONSUMER_GROUP_MAX if self.instance else 1

    def apply(self, state: "State", entry: Entry) -> Joined | Refused:
        """Take the consumer in; a static one takes over the place of its last life."""
        settings = state.coordinated(self.group_id)
        self.check()
        if self.order is not settings.order:
            return Refused(
                Code.ORDER_CONFLICT,
                f"consumer {self.consumer} consumes in order {self.order.name}, the consumer "
                f"group in order {settings.order.name}",
            )
        group = state.consumers.group(self.group_id)
        last_life = self._last_life(group)
        self._check_others(group, last_life)
        turn = Turn(state, group, entry)
        known = group.consumers.get(last_life or self.consumer)
        epoch = 0 if known is None else known.epoch
        consumer = Consumer(
            entry.ref.index, epoch, self.instance, self.client, self.room, self.wanted
        )
        two_in_one = bool(last_life) and self.consumer in group.consumers
        changed = two_in_one or self._changes(group, known, consumer)
        state.usage.touch(self.group_id)
        state.consumers.put_consumer(group, self.consumer, consumer)
        if last_life:
            _hand_on(turn, last_life, self.consumer)
            state.consumers.delete_consumer(group, last_life)
        turn.finish()
        if changed:
            epochs = replace(
                group.epochs,
                group=group.epochs.group + 1,
                strategy=self.strategy,
                subscriptions=self.subscriptions,
                since_ms=self._since(group.epochs, entry.time_ms),
            )
            state.consumers.put_epochs(group, epochs)
        return Joined(entry.ref.index, group.epochs.group, last_life)

    def check(self) -> None:
        """Raise INVALID_ARGUMENT naming the first field outside its limit."""
        size = len(self.consumer.encode())
        if not 1 <= size <= CLIENT_ID_LENGTH_MAX:
            raise invalid(f"member_id has {size} bytes, 1 to {CLIENT_ID_LENGTH_MAX}")
        fields = ("member_id", self.consumer), ("instance", self.instance), ("room", self.room)
        for field, value in (*fields, ("client", self.client)):
            check_client_id(field, value)
        if self.strategy and self.strategy not in STRATEGIES:
            raise invalid(f"strategy {self.strategy!r}: known are {', '.join(STRATEGIES)}")
        if not 1 <= len(self.subscriptions) <= SUBSCRIPTIONS_MAX:
            raise invalid(f"{len(self.subscriptions)} subscriptions, 1 to {SUBSCRIPTIONS_MAX}")
        if list(self.subscriptions) != sorted(set(self.subscriptions)):
            raise invalid("subscriptions must be sorted, each once")
        for topic, _ in self.subscriptions:
            if not 1 <= len(topic) <= TOPIC_NAME_LENGTH_MAX:
                raise invalid(
                    f"subscription has {len(topic)} characters, 1 to {TOPIC_NAME_LENGTH_MAX}"
                )
        if len(self.wanted) > QUEUES_PER_CALL_MAX:
            raise invalid(f"wanted has {len(self.wanted)} queues, at most {QUEUES_PER_CALL_MAX}")

    def _since(self, known: Epochs, time_ms: int) -> tuple[int, ...]:
        """Return of each subscription since when the group has it."""
        before = dict.fromkeys(known.subscriptions, 0)
        before |= dict(zip(known.subscriptions, known.since_ms, strict=False))
        return tuple(before.get(each, time_ms) for each in self.subscriptions)

    def _last_life(self, group: ConsumerGroup) -> str:
        """Return the consumer whose place this one takes over, or empty."""
        if not self.instance:
            return ""
        same = (name for name, each in group.consumers.items() if each.instance == self.instance)
        return next((name for name in same if name != self.consumer), "")

    def _check_others(self, group: ConsumerGroup, last_life: str) -> None:
        others = sorted(group.consumers.keys() - {self.consumer, last_life})
        if not others:
            return
        place = self.instance or self.consumer
        for name in others:
            if group.consumers[name].place(name) == place:
                raise invalid(f"instance or member_id {place!r}: consumer {name} goes by it")
        epochs, is_new = group.epochs, not last_life and self.consumer not in group.consumers
        if (self.subscriptions, self.strategy) != (epochs.subscriptions, epochs.strategy):
            raise DledgerError(
                Code.SUBSCRIPTION_CONFLICT,
                f"consumer {self.consumer} subscribes to "
                f"{_wanted(self.subscriptions, self.strategy)}; consumer {others[0]} to "
                f"{_wanted(epochs.subscriptions, epochs.strategy)}",
            )
        if is_new and len(group.consumers) >= CONSUMERS_PER_GROUP_MAX:
            raise DledgerError(
                Code.TOO_MANY_CONSUMERS,
                f"the consumer group has {len(group.consumers)} consumers, at most "
                f"{CONSUMERS_PER_GROUP_MAX}",
            )

    def _changes(self, group: ConsumerGroup, known: Consumer | None, now: Consumer) -> bool:
        """Tell whether queues may have to move because of this Join."""
        agreed = group.epochs.subscriptions, group.epochs.strategy
        if known is None or agreed != (self.subscriptions, self.strategy):
            return True
        return (known.instance, known.room, known.wanted) != (now.instance, now.room, now.wanted)


def _hand_on(turn: Turn, old: str, new: str) -> None:
    """Give a consumer's place to another: all that the old one has, with new epochs."""
    for key, grant in sorted(turn.group.grants.items()):
        target = new if grant.target == old else grant.target
        if grant.holder == old:
            turn.free(key, target)
        elif target != grant.target:
            turn.aim(key, target)


def _wanted(subscriptions: tuple[Subscribed, ...], strategy: str) -> str:
    topics = ", ".join(each.describe() for each in subscriptions)
    return f"{topics} with strategy {strategy}" if strategy else topics


class Session(NamedTuple):
    """A session, by its consumer and the index of its Join."""

    consumer: str
    joined: UInt64

    def describe(self) -> str:
        """Return one word."""
        return f"{self.consumer}@{self.joined}"


@dataclass(frozen=True, slots=True)
class EndSessions(Command[SessionsEnded]):
    """Sessions are over: their consumers left, or were silent too long. Their queues are free."""

    NUMBER: ClassVar = 41
    ROWS_READ_MAX: ClassVar = QUEUES_PER_CONSUMER_GROUP_MAX

    group_id: bytes
    sessions: tuple[Session, ...]

    def apply(self, state: "State", entry: Entry) -> SessionsEnded | Refused:
        """Take the consumers out; pass over those that have joined again."""
        state.coordinated(self.group_id)
        group = state.consumers.group(self.group_id)
        gone = sorted(
            name
            for name, joined in dict(self.sessions).items()
            if name in group.consumers and group.consumers[name].joined == joined
        )
        if not gone:
            return SessionsEnded(())
        state.usage.touch(self.group_id)
        turn = Turn(state, group, entry)
        for name in gone:
            state.consumers.delete_consumer(group, name)
        for key, grant in sorted(group.grants.items()):
            target = NOBODY if grant.target in gone else grant.target
            if grant.holder in gone:
                turn.free(key, target)
            elif target != grant.target:
                turn.aim(key, target)
        turn.finish()
        epochs = replace(group.epochs, group=group.epochs.group + 1)
        state.consumers.put_epochs(group, epochs)
        return SessionsEnded(tuple(gone))
