"""W2: strict order. Each ordering key has one producer, which does not wait between its sends.

A producer that crashes gets a successor of the same name. Some crashed producers, the zombies, send
again: once the successor's first message is stored, members must refuse what a zombie sends (C6).
A stray is another producer of the same name. Some strays sleep first and wake up in the middle of a
life, others send at once. Of two producers the one that registered last may go on. So a stray's
send is a send like any other, with an order of its own, and a producer that is refused ends.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Final

from dledger_client import AsyncProducer, AsyncSendFuture, SendResult
from dledger_proto.keyhash import queue_of_key
from jepsen_tests.run.recorder import Process
from jepsen_tests.workloads.clients import Worker, place_of, shown_sent
from jepsen_tests.workloads.values import message_of
from jepsen_tests.workloads.workload import LeastOk, Stage, Workload

TOPIC: Final = "chaos-fifo"
QUEUES: Final = 4
IN_FLIGHT: Final = 5
"""Sends of one key that are not yet settled; each is a process of its own in the history."""
LIFE_SENDS: Final = 150
"""After so many sends on average a producer crashes; the next one goes on with the same key."""
ZOMBIES: Final = 0.4
"""Share of crashed producers that send again when they have a successor."""
ZOMBIE_SENDS: Final = 3
STRAYS: Final = 0.1
"""Share of lives in which another producer of the name wakes up; in as many it sends meanwhile."""
STRAY_SENDS: Final = 10
STRAY_SLEEP_SECONDS: Final = 1.0
"""On average."""


@dataclass(slots=True)
class Life:
    """One producer between its start and its crash."""

    worker: Worker
    key: str
    name: str
    """The key in this life. Order is promised to one producer only: a later producer may overtake
    sends of unknown outcome."""
    is_stored: bool = False
    """Something was acknowledged."""
    is_refused: bool = False
    """Something was certainly not stored: mostly, another of its name took over."""

    async def send(
        self, lane: Process, started: asyncio.Event, free: "asyncio.Queue[Process]"
    ) -> bool:
        """Hand one message over and set `started`; return whether it was acknowledged."""
        producer, number = await self.worker.producer(), lane.number
        value = self.worker.new_value()

        async def call() -> list[SendResult]:
            future = _submitted(producer, value, self.worker.random, self.key)
            started.set()
            return [await future.wait()]

        try:
            done, _ = await lane.do(
                "send", place_of_key(self.key), [value], call, shown_sent, key=self.name
            )
        finally:
            started.set()
            free.put_nowait(lane)
        self.is_stored |= done
        self.is_refused |= not done and lane.number == number  # else its outcome is unknown
        return done


def _submitted(producer: AsyncProducer, value: str, random: Random, key: str) -> AsyncSendFuture:
    body, tag, keys, properties, _ = message_of(value, random, 100)
    return producer.submit(TOPIC, body, tag=tag, keys=keys, properties=properties, ordering_key=key)


class FifoWorkload(Workload):
    """Sends of one key are stored in the order of the calls, whatever fails in between."""

    name = "fifo"
    what = "W2: one pipelining producer per ordering key; its order is the queue's order"
    topics: ClassVar[Mapping[str, int]] = {TOPIC: QUEUES}
    least_ok: ClassVar[LeastOk] = {"send": (100, 0.3), "poll": (50, 0.3)}

    def workers(self, stage: Stage) -> Sequence[Coroutine[Any, Any, None]]:
        producers = max(1, stage.concurrency - 2)
        randoms = [Random(stage.random.random()) for _ in range(producers + 2)]
        return [
            *(self._produce(stage, f"key-{n}", randoms[n]) for n in range(producers)),
            *(self._consume(stage, random) for random in randoms[producers:]),
        ]

    async def _produce(self, stage: Stage, key: str, random: Random) -> None:
        number = 0
        async with AsyncExitStack() as closing:
            zombie: Worker | None = None
            while not stage.over.is_set():
                number += 1
                worker = stage.worker(random, name=key)
                closing.push_async_callback(worker.aclose)
                life = Life(worker, key, f"{key}.{number}")
                await self._live(stage, life, zombie)
                # A producer that the group never knew is no zombie: it would be the newest.
                zombie = worker if life.is_stored and random.random() < ZOMBIES else None
                if zombie is None:
                    await closing.aclose()

    async def _live(self, stage: Stage, life: "Life", zombie: Worker | None) -> None:
        """Send until the producer crashes, or is refused."""
        random = life.worker.random
        await life.worker.producer()
        free: asyncio.Queue[Process] = asyncio.Queue()
        for _ in range(IN_FLIGHT):
            free.put_nowait(Process(stage.recorder))
        async with asyncio.TaskGroup() as sends:
            for pause in (STRAY_SLEEP_SECONDS, 0.0):
                if random.random() < STRAYS:
                    sends.create_task(self._stray(stage, life, pause))
            while not stage.over.is_set() and random.random() > 1 / LIFE_SENDS:
                lane = await free.get()
                if life.is_refused:
                    return
                # A task begins with its first step only: the send is handed over here, in order.
                started = asyncio.Event()
                sent = sends.create_task(life.send(lane, started, free))
                await started.wait()
                if zombie is not None and await sent:
                    await self._rise(zombie, life.key)
                    zombie = None
                await self.between(life)
                await stage.pause(random, 0.02)

    async def between(self, life: "Life") -> None:
        """Do something with the producer of a life between two of its sends."""
        del life

    async def _stray(self, stage: Stage, life: "Life", pause: float) -> None:
        """Be another producer of the same name, which waits before its first send, or does not."""
        random = Random(life.worker.random.random())
        lane = Process(stage.recorder)
        free: asyncio.Queue[Process] = asyncio.Queue()
        async with aclosing(stage.worker(random, name=life.key)) as worker:
            stray = Life(worker, life.key, f"{life.name}{'-late' if pause else ''}-stray")
            await worker.producer()
            if pause:
                await stage.pause(random, pause)
            for _ in range(STRAY_SENDS):
                if stage.over.is_set() or stray.is_refused:
                    return
                await stray.send(lane, asyncio.Event(), free)
                lane = await free.get()

    async def _rise(self, zombie: Worker, key: str) -> None:
        producer = await zombie.producer()
        for _ in range(ZOMBIE_SENDS):
            value = zombie.new_value()

            async def call(value: str = value) -> list[SendResult]:
                return [await _submitted(producer, value, zombie.random, key).wait()]

            await zombie.process.do("zombie-send", place_of_key(key), [value], call, shown_sent)

    async def _consume(self, stage: Stage, random: Random) -> None:
        async with aclosing(stage.worker(random)) as worker:
            while not stage.over.is_set():
                await worker.assign({place_of(TOPIC, queue): 0 for queue in range(QUEUES)})
                while not stage.over.is_set() and random.random() > 0.02:
                    await worker.poll()
                    await stage.pause(random)
                await worker.crash()


def place_of_key(key: str) -> str:
    """Return where sends of a key go."""
    return place_of(TOPIC, queue_of_key(key.encode(), QUEUES))
