"""The product's administrator, as far as it creates, changes and deletes consumer groups.

Owns: the groups "w1", "w2" and so on. Each answer is compared with the history of the name, and the
end with both topics of each group.
"""

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Final

from dledger.state.values import Topic
from dledger_client import AsyncAdmin
from dledger_client.errors import (
    ClientError,
    ConsumerGroupNotFound,
    OffsetOutOfRange,
    Overloaded,
    QueueNotFound,
    TopicNotFound,
    Unavailable,
    UnknownOutcome,
)
from dledger_client.model import ConsumerGroup
from dledger_proto.errors import Code
from dledger_proto.names import DEAD_LETTER_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from tests.sim.invariants.delivery.group_history import (
    CreateGroup,
    DeleteGroup,
    GroupChange,
    GroupHistory,
    GroupState,
    UpdateGroup,
)
from tests.sim.invariants.violation import Property, Violation

if TYPE_CHECKING:
    from tests.sim.world.world import World

NAMES_AT_ONCE: Final = 2
RETRIES_MAX: Final = 2
BUSY: Final = (Unavailable, Overloaded, UnknownOutcome)
GONE: Final = (ConsumerGroupNotFound, OffsetOutOfRange, QueueNotFound, TopicNotFound)
"""What a reset may end with: the group has expired, or a queue is not known everywhere yet."""
USES_SHARE: Final = 0.7
RULES: Final = frozenset((Code.CONSUMER_GROUP_EXISTS, Code.CONSUMER_GROUP_NOT_FOUND))
"""Refusals that the state of a group explains."""


class GroupAdministrator:
    """Nobody else changes its consumer groups; where they expire, it deletes none itself."""

    def __init__(self, host: str, world: "World", random: Random, topic: str) -> None:
        """`topic`: in which its groups get somewhere, where they expire."""
        self._host = host
        self._topic = topic
        self._world = world
        self._random = random
        self.histories: dict[str, GroupHistory] = {}

    def expired(self, name: str) -> None:
        """Take a deletion by the control group's leader, of a group that nobody used."""
        if name in self.histories:
            self.histories[name].unknown(DeleteGroup())

    async def turn(self, admin: AsyncAdmin) -> None:
        """Change a consumer group, or look at one, or at all."""
        if self._world.plan.group_expiry_ms and self._random.random() < USES_SHARE:
            await self._use(admin)
            return
        drawn = self._random.random()
        if drawn < 0.6:
            await self._change(admin)
        elif drawn < 0.8:
            await self._look(admin)
        else:
            await self._list(admin)

    async def _use(self, admin: AsyncAdmin) -> None:
        """Let a group begin in one queue: only the home group of the queue knows of this use."""
        names = [name for name, each in self.histories.items() if each.known is not None]
        if not names:
            return
        name, (_, queue) = self._random.choice(names), self._random.choice(self._world.plan.queues)
        for group in self._world.groups.values():
            group.invariants.progress.groups.add(name)  # its offsets go when it expires
        self._world.story.client(self._host, "uses", name, "in queue", queue)
        try:
            await admin.reset_offsets(name, self._topic, to="earliest", queues=[queue])
        except (*BUSY, *GONE) as error:
            self._world.oracle.counts[f"administrator {error.code.name}"] += 1
        else:
            self._world.oracle.counts["uses of consumer groups"] += 1

    def _history(self) -> GroupHistory:
        clear = [history for history in self.histories.values() if history.is_clear]
        if len(clear) < NAMES_AT_ONCE:
            name = f"w{len(self.histories) + 1}"
            clear.append(self.histories.setdefault(name, GroupHistory(name)))
        return self._random.choice(clear)

    async def _change(self, admin: AsyncAdmin) -> None:
        history = self._history()
        change = self._draw(history.known)
        story, counts = self._world.story, self._world.oracle.counts
        story.client(self._host, "asks for", change, "of", history.name)
        try:
            told = await self._carry_out(admin, history.name, change)
        except ClientError as error:
            story.client(self._host, "is refused", history.name, error.code.name)
            if not error.definite:
                counts["changes of consumer groups unknown"] += 1
                history.unknown(change)
            elif error.code in RULES:
                counts["changes of consumer groups refused"] += 1
                history.refused(change, error.code)
            elif not isinstance(error, BUSY):
                raise
            return
        counts[f"consumer groups: {type(change).__name__}"] += 1
        story.client(self._host, "is told", told)
        history.answered(change, _state(told))

    def _draw(self, known: GroupState | None) -> GroupChange:
        random = self._random
        if known is None or random.random() < 0.2:
            return CreateGroup(random.randint(1, RETRIES_MAX))
        drawn = random.random()
        if drawn < 0.3 and not self._world.plan.group_expiry_ms:
            return DeleteGroup()
        if drawn < 0.6:
            return UpdateGroup(retries_max=random.randint(1, RETRIES_MAX))
        return UpdateGroup(paused=random.random() < 0.5)

    @staticmethod
    async def _carry_out(admin: AsyncAdmin, name: str, change: GroupChange) -> ConsumerGroup:
        match change:
            case CreateGroup(retries_max):
                return await admin.create_consumer_group(name, retries_max=retries_max)
            case UpdateGroup(retries_max=int(retries_max)):
                return await admin.update_consumer_group(name, retries_max=retries_max)
            case UpdateGroup():
                return await admin.update_consumer_group(name, paused=bool(change.paused))
            case DeleteGroup():
                return await admin.delete_consumer_group(name)

    async def _look(self, admin: AsyncAdmin) -> None:
        history = self._history()
        try:
            history.seen(_state(await admin.consumer_group(history.name)))
        except ConsumerGroupNotFound:
            history.seen(None)
        except BUSY as error:
            self._world.oracle.counts[f"administrator {error.code.name}"] += 1

    async def _list(self, admin: AsyncAdmin) -> None:
        try:
            listed = await admin.consumer_groups()
        except BUSY as error:
            self._world.oracle.counts[f"administrator {error.code.name}"] += 1
            return
        self._world.oracle.counts["lists of consumer groups"] += 1
        found = {group.name: _state(group) for group in listed}
        self._check_names(found)
        for name, history in self.histories.items():
            history.seen(found.get(name))

    def _check_names(self, names: Iterable[str]) -> None:
        plan = self._world.plan.delivery
        shared = set() if plan is None else {group.name for group in plan.groups}
        others = set(names) - self.histories.keys() - shared
        if others:
            raise Violation(Property.TOPICS, f"consumer groups that nobody made: {sorted(others)}")

    def check_end(self, topics: Iterable[Topic]) -> None:
        """Compare the topics that the control group holds with the histories: both of each."""
        by_name = {topic.name: topic for topic in topics}
        dead = {name for name in by_name if name.startswith(DEAD_LETTER_TOPIC_PREFIX)}
        found: dict[str, GroupState] = {}
        for name, topic in by_name.items():
            if not name.startswith(RETRY_TOPIC_PREFIX):
                continue
            group = name.removeprefix(RETRY_TOPIC_PREFIX)
            (settings,) = topic.settings
            twin = by_name.get(DEAD_LETTER_TOPIC_PREFIX + group)
            if twin is None or twin.topic_id != settings.dead_letter_topic_id:
                raise Violation(Property.TOPICS, f"{name} is there, its dead letters are {twin}")
            dead.remove(twin.name)
            found[group] = GroupState(topic.topic_id, settings.retries_max, settings.paused)
        if dead:
            raise Violation(Property.TOPICS, f"dead letters of no group: {sorted(dead)}")
        self._check_names(found)
        for name, history in self.histories.items():
            history.seen(found.get(name))


def _state(group: ConsumerGroup) -> GroupState:
    return GroupState(group.id, group.retries_max, group.paused)
