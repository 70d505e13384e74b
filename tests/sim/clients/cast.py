"""Who the clients of a world are: producers, consumers and an administrator, as its plan wants.

Owns: which client gets which plan, and chance of its own.
"""

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.clients.consumer import Consumer, ConsumerPlan, Trimmer
from tests.sim.clients.core_producer import CoreProducer
from tests.sim.clients.producer import Producer, ProducerPlan

if TYPE_CHECKING:
    from tests.sim.world.world import World

TRIMMER: Final = "admin"
CORE_SHARE: Final = 0.6
"""This share of the stamped producers are the product's own."""


class Cast:
    """The clients of one world. None of them does anything before `start`."""

    def __init__(self, world: "World") -> None:
        plan, kept = world.plan, world.replay.clients
        producers = [_producer(world, number) for number in range(plan.producers)]
        consumers = [_consumer(world, number) for number in range(plan.consumers)]
        self.producers = [each for each in producers if kept is None or each.plan.name in kept]
        self.consumers = [each for each in consumers if kept is None or each.plan.name in kept]
        self.trimmer: Trimmer | None = None
        if plan.trims and (kept is None or TRIMMER in kept):
            random = Random(f"{plan.seed}/admin")
            self.trimmer = Trimmer(
                plan.trim_interval, plan.trim_keep, plan.queues,
                world.scheduler, random, world.calls, world.routes, world.oracle,
            )  # fmt: skip

    def start(self) -> None:
        """Let every client begin."""
        for actor in self._all():
            actor.start()

    def stop(self) -> None:
        """Let every client end its work."""
        for actor in self._all():
            actor.stop()

    def _all(self) -> Iterable[Producer | CoreProducer | Consumer | Trimmer]:
        trimmers = () if self.trimmer is None else (self.trimmer,)
        return *self.producers, *self.consumers, *trimmers


def _producer(world: "World", number: int) -> Producer | CoreProducer:
    """Return one of the product's own cores, or the harsher one of the simulation."""
    plan, random = world.plan, Random(f"{world.plan.seed}/p{number}")
    what = ProducerPlan(
        name=f"p{number}",
        stamped=number == 0 or random.random() < plan.stamped_share,
        interval=plan.send_interval,
        records_max=plan.records_max,
        body_max=plan.body_max,
        window=plan.window,
        queues=plan.queues,
        keys=plan.keys,
    )
    common = what, world.scheduler, random, world.calls, world.routes, world.oracle
    if what.stamped and random.random() < CORE_SHARE:
        return CoreProducer(*common, world.streams)
    return Producer(*common)


def _consumer(world: "World", number: int) -> Consumer:
    plan, random = world.plan, Random(f"{world.plan.seed}/c{number}")
    reading = ConsumerPlan(
        f"c{number}", 0.3, plan.fetch_bytes, plan.queues, plan.resets, plan.keys,
        plan.lookup_interval,
    )  # fmt: skip
    return Consumer(reading, world.scheduler, random, world.calls, world.routes, world.oracle)
