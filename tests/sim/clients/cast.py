"""Who the clients of a world are: producers, consumers and an administrator, as its plan wants.

Owns: which client gets which plan, and chance of its own.
"""

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from tests.sim.clients.consumer import Consumer, ConsumerPlan, Trimmer
from tests.sim.clients.producer import Producer, ProducerPlan
from tests.sim.clients.real.admin import RealAdmin
from tests.sim.clients.real.consumer import ReadingPlan, RealConsumer
from tests.sim.clients.real.keeper import HOST as KEEPER
from tests.sim.clients.real.keeper import Keeper
from tests.sim.clients.real.producer import RealProducer

if TYPE_CHECKING:
    from tests.sim.world.world import World


TRIMMER: Final = "admin"
REAL_ADMIN: Final = "u"
SHARED: Final = "v"
"""All that share a topic, as one: consumers of groups, their sender, their administrator."""


class Actor(Protocol):
    """Any client."""

    def start(self) -> None:
        """Begin."""
        ...

    def stop(self) -> None:
        """End what it does."""
        ...


class Cast:
    """The clients of one world. None of them does anything before `start`."""

    def __init__(self, world: "World") -> None:
        plan, kept = world.plan, world.replay.clients
        producers = [_producer(world, number) for number in range(plan.producers)]
        consumers: list[Consumer | RealConsumer] = [
            _consumer(world, number) for number in range(plan.consumers)
        ]
        consumers += [_real_consumer(world, number) for number in range(plan.real_consumers)]
        self.producers = [each for each in producers if kept is None or each.plan.name in kept]
        self.consumers = [each for each in consumers if kept is None or each.plan.name in kept]
        self.admin: RealAdmin | None = None
        if plan.administers and (kept is None or REAL_ADMIN in kept):
            random = Random(f"{plan.seed}/u")
            self.admin = RealAdmin(plan.admin_interval, world, random)
        self.keeper: Keeper | None = None
        if plan.compacts and (kept is None or KEEPER in kept):
            random = Random(f"{plan.seed}/k")
            self.keeper = Keeper(random.choice((0.05, 0.2)), world, random)
        self.shared = world.shared
        self.trimmer: Trimmer | None = None
        if plan.trims and (kept is None or TRIMMER in kept):
            random = Random(f"{plan.seed}/admin")
            group = random.choice(list(world.groups.values()))
            self.trimmer = Trimmer(
                plan.trim_interval, plan.trim_keep, group.queues,
                world.scheduler, random, world.calls, group, world.oracle,
            )  # fmt: skip

    def start(self) -> None:
        """Let every client begin."""
        for actor in self._all():
            actor.start()

    def stop(self) -> None:
        """Let every client end its work."""
        for actor in self._all():
            actor.stop()

    def close(self) -> None:
        """End with the world."""
        for actor in (*self.producers, *self.consumers):
            if isinstance(actor, RealProducer | RealConsumer):
                actor.close()
        if self.admin is not None:
            self.admin.close()
        if self.keeper is not None:
            self.keeper.close()
        if self.shared is not None:
            self.shared.close()

    def _all(self) -> Iterable[Actor]:
        maybe = (self.trimmer, self.admin, self.keeper, self.shared)
        others = (each for each in maybe if each is not None)
        return *self.producers, *self.consumers, *others


def _producer(world: "World", number: int) -> Producer | RealProducer:
    """Return one of the product's own producers, or the harsher one of the simulation."""
    plan, random = world.plan, Random(f"{world.plan.seed}/p{number}")
    group = random.choice(list(world.groups.values()))
    is_real = number > 0 and random.random() < plan.real_share
    what = ProducerPlan(
        name=f"p{number}",
        stamped=number == 0 or random.random() < plan.stamped_share,
        interval=plan.send_interval,
        records_max=plan.records_max,
        body_max=plan.body_max,
        window=plan.window,
        queues=plan.queues if is_real else group.queues,
        keys=plan.keys,
    )
    if is_real:
        return RealProducer(what, world, random)
    return Producer(what, world.scheduler, random, world.calls, group.routes, world.oracle)


def _consumer(world: "World", number: int) -> Consumer:
    plan, random = world.plan, Random(f"{world.plan.seed}/c{number}")
    group = random.choice(list(world.groups.values()))
    reading = ConsumerPlan(
        f"c{number}", 0.3, plan.fetch_bytes, group.queues, plan.resets, plan.keys,
        plan.lookup_interval,
    )  # fmt: skip
    return Consumer(reading, world.scheduler, random, world.calls, group, world.oracle)


def _real_consumer(world: "World", number: int) -> RealConsumer:
    plan, random = world.plan, Random(f"{world.plan.seed}/r{number}")
    reading = ReadingPlan(f"r{number}", 0.3, plan.fetch_bytes, plan.queues, plan.resets)
    return RealConsumer(reading, world, random)
