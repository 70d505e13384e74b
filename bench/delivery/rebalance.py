"""Queues that move in a consumer group: a consumer joins ten others, and one of eleven dies.

Each consumer is a process of its own. A join lasts until all eleven have their final queues, each
claimed. After a death (SIGKILL, so the kernel closes its connections) a queue is served again when
another consumer has claimed it; that includes the half second in which the dead one might have come
back.
"""

import asyncio
import random
import time
from contextlib import AsyncExitStack

from bench.effort import Effort
from bench.figures import Figure, Rounds, stated
from bench.setup.cluster import NotReady, Running, running
from bench.setup.consuming import Consuming

TOPIC = "rebalance"
GROUP = "movers"
QUEUES = 900
DEALT = QUEUES + 1
"""With the queue of the group's retry topic."""
CONSUMERS = 10
SETTLE_SECONDS_MAX = 60.0
QUIET_SECONDS = (0.5, 1.5)
"""Before each change; random, so that changes meet timers at any point."""
WANTED_SECONDS = 1.0


async def measure(effort: Effort) -> list[Figure]:
    """Measure in turn: a join, a death."""
    rounds = Rounds()
    chance = random.Random(5)
    async with running(effort.folder) as here, Movers(here) as movers:
        await here.create_topic(TOPIC, queues=QUEUES)
        for _ in range(CONSUMERS):
            await movers.prepare()
        await movers.join()
        for _ in range(effort.trials):
            await movers.prepare()
            await asyncio.sleep(chance.uniform(*QUIET_SECONDS))
            rounds.add("join", await movers.join())
            await asyncio.sleep(chance.uniform(*QUIET_SECONDS))
            rounds.add("death", await movers.lose(chance))
    what = f"{QUEUES} queues, {effort.trials} times"
    return [
        stated("rebalance_join", rounds["join"], "s", "<=", WANTED_SECONDS,
               f"one more than {CONSUMERS} consumers, {what}; until each queue is claimed anew"),
        Figure("rebalance_join_worst", max(rounds["join"]), "s"),
        stated("rebalance_death", rounds["death"], "s", "<=", WANTED_SECONDS,
               f"one of {CONSUMERS + 1} consumers killed, {what}; its queues claimed by others"),
        Figure("rebalance_death_worst", max(rounds["death"]), "s"),
    ]  # fmt: skip


class Movers:
    """The consumers of one group."""

    def __init__(self, here: Running) -> None:
        self._here = here
        self._members: list[Consuming] = []
        self._prepared: list[Consuming] = []
        self._heard = asyncio.Event()

    async def __aenter__(self) -> "Movers":
        return self

    async def __aexit__(self, *_: object) -> None:
        async with AsyncExitStack() as stack:
            for each in [*self._members, *self._prepared]:
                stack.push_async_callback(each.kill)

    async def prepare(self) -> None:
        """Start a process that joins at the next `join`: what its start takes does not count."""
        name_server = self._here.cluster.name_server
        self._prepared.append(await Consuming.prepare(name_server, GROUP, TOPIC, self._heard.set))

    async def join(self) -> float:
        """Let those that are prepared join; return the seconds until all have their queues."""
        began = min(each.join() for each in self._prepared)
        self._members += self._prepared
        self._prepared = []
        return await self._settled() - began

    async def lose(self, chance: random.Random) -> float:
        """Kill a consumer; return the seconds until the others have its queues."""
        victim = self._members.pop(chance.randrange(len(self._members)))
        return -await victim.kill() + await self._settled()

    async def _settled(self) -> float:
        """Wait until each queue has one consumer, and all have as many; return since when."""
        until = time.monotonic() + SETTLE_SECONDS_MAX
        while not self._is_shared():
            self._here.check_alive()
            if any(each.is_over for each in self._members):
                raise NotReady("a consumer has ended; what it printed says why")
            self._heard.clear()
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + 1.0):
                    await self._heard.wait()
            except TimeoutError:
                if time.monotonic() > until:
                    have = [len(each.queues) for each in self._members]
                    raise NotReady(f"not shared in {SETTLE_SECONDS_MAX} s: {have}") from None
        return max(each.changed_at for each in self._members)

    def _is_shared(self) -> bool:
        counts = [len(each.queues) for each in self._members]
        together = {queue for each in self._members for queue in each.queues}
        return sum(counts) == len(together) == DEALT and max(counts) - min(counts) <= 1
