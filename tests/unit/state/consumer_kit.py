"""What the tests of consumer groups share: a consumer group on a machine, and its rows."""

from dledger.state.commands.command import Command
from dledger.state.consumers.granting import Assign, GiveBack, Held, TopicTargets
from dledger.state.consumers.membership import EndSessions, Join, Session
from dledger.state.consumers.settings import ConsumeOrder, GroupSettings
from dledger.state.consumers.table import ConsumerGroup, Grant, QueueKey, Subscribed
from dledger.state.results import Joined, Result
from dledger.state.topics.commands import ImportTopic
from dledger.state.values import LayoutPart, Topic, TopicType
from tests.unit.state.kit import GROUP, TOPIC, Driven

BILLING = b"B" * 16
DEAD = b"D" * 16
ORDERS = (Subscribed("orders"),)


def retry_topic(
    settings: GroupSettings | None = None, control_index: int = 5, *, deleted: bool = False
) -> Topic:
    """Return the topic that is the consumer group `billing`."""
    return Topic(
        BILLING, "%RETRY%billing", TopicType.NORMAL, 1, (LayoutPart(GROUP, 1),), 1, 1, 4,
        control_index, deleted, (settings or GroupSettings(GROUP, DEAD),),
    )  # fmt: skip


def orders(queues: int = 4, control_index: int = 3, group: str = GROUP) -> Topic:
    """Return the topic `orders`."""
    return Topic(
        TOPIC, "orders", TopicType.NORMAL, 1, (LayoutPart(group, queues),), queues, queues, 6,
        control_index,
    )  # fmt: skip


class Billing:
    """The consumer group `billing`, which reads `orders`."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.driven = Driven()
        for topic in (orders(), retry_topic(settings)):
            self.driven.one(ImportTopic(topic, b"c" * 16))

    def run(self, *commands: Command[object]) -> list[Result]:
        """Apply one entry."""
        return self.driven.run(*commands)

    def one(self, command: Command[object]) -> Result:
        return self.driven.one(command)

    def join(self, consumer: str, instance: str = "") -> Joined:
        """Let a consumer join; it must be taken."""
        result = self.one(join(consumer, instance))
        assert isinstance(result, Joined), result
        return result

    def end(self, *consumers: str) -> Result:
        """End the present sessions of consumers."""
        return self.one(self.end_command(*consumers))

    def end_command(self, *consumers: str) -> EndSessions:
        found = tuple(Session(name, self.rows.consumers[name].joined) for name in consumers)
        return EndSessions(BILLING, found)

    def assign(self, *targets: str, group_epoch: int | None = None) -> Result:
        """Aim the queues of `orders`, one after the other; an empty name is nobody."""
        return self.one(self.assignment(*targets, group_epoch=group_epoch))

    def assignment(self, *targets: str, group_epoch: int | None = None) -> Assign:
        names = tuple(sorted({name for name in targets if name}))
        places = tuple(names.index(name) + 1 if name else 0 for name in targets)
        epoch = self.rows.epochs.group if group_epoch is None else group_epoch
        return Assign(BILLING, epoch, names, (TopicTargets(TOPIC, places),))

    def give_back(self, consumer: str, *queues: int) -> Result:
        """Give back queues by their present grants."""
        return self.one(self.giving_back(consumer, *queues))

    def giving_back(self, consumer: str, *queues: int) -> GiveBack:
        held = tuple(Held(TOPIC, queue, self.grant(queue).epoch) for queue in queues)
        known = self.rows.consumers.get(consumer)
        return GiveBack(BILLING, consumer, 0 if known is None else known.joined, held)

    @property
    def rows(self) -> ConsumerGroup:
        return self.driven.machine.queries.consumers(BILLING)

    def grant(self, queue: int) -> Grant:
        return self.rows.grants[QueueKey(TOPIC, queue)]

    def holders(self) -> list[str]:
        """Return who has which queue of `orders`: "c1", or "c1>c2" when it is to go to c2."""
        found = [self.rows.grants.get(QueueKey(TOPIC, queue)) for queue in range(4)]
        return [
            "-" if each is None
            else f"{each.holder}>{each.target}" if each.is_revoked else each.holder
            for each in found
        ]  # fmt: skip


def join(
    consumer: str,
    instance: str = "",
    subscriptions: tuple[Subscribed, ...] = ORDERS,
    strategy: str = "",
    order: ConsumeOrder = ConsumeOrder.CONCURRENT,
) -> Join:
    """Return a Join of a consumer of `orders`."""
    return Join(BILLING, consumer, instance, "host", "", order, strategy, subscriptions)
