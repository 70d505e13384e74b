"""W2: strict order. Each ordering key has one producer, which does not wait between its sends.

A producer that crashes is followed by one of the same name. Some do not know that they are dead:
once the follower's first message is stored, what they send is refused, and is not a send in the
history, so that it is a phantom wherever it is read.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from random import Random
from typing import Any, ClassVar, Final

from dledger_client import AsyncProducer, SendResult
from dledger_proto.keyhash import queue_of_key
from jepsen_tests.recorder import Process
from jepsen_tests.workloads.clients import Worker, place_of, shown_sent
from jepsen_tests.workloads.values import body_of
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


class FifoWorkload(Workload):
    """Sends of one key are stored in the order of the calls, whatever fails in between."""

    name = "fifo"
    what = "W2: one pipelining producer per ordering key; its order is the queue's order"
    least_ok: ClassVar[LeastOk] = {"send": (100, 0.3), "poll": (50, 0.3)}

    def topics(self) -> Mapping[str, int]:
        """See `Workload`."""
        return {TOPIC: QUEUES}

    def workers(self, stage: Stage) -> Sequence[Coroutine[Any, Any, None]]:
        """See `Workload`."""
        producers = max(1, stage.concurrency - 2)
        randoms = [Random(stage.random.random()) for _ in range(producers + 2)]
        return [
            *(self._produce(stage, f"key-{n}", randoms[n]) for n in range(producers)),
            *(self._consume(stage, random) for random in randoms[producers:]),
        ]

    async def _produce(self, stage: Stage, key: str, random: Random) -> None:
        life = 0
        async with AsyncExitStack() as lives:
            zombie: Worker | None = None
            while not stage.over.is_set():
                life += 1
                worker = Worker(stage.recorder, stage.backend.bootstrap, random, name=key)
                lives.push_async_callback(worker.close)
                await self._live(stage, worker, key, f"{key}.{life}", zombie)
                zombie = worker if random.random() < ZOMBIES else None
                if zombie is None:
                    await lives.aclose()

    async def _live(
        self, stage: Stage, worker: Worker, key: str, name: str, zombie: Worker | None
    ) -> None:
        """Send until the producer crashes.

        `name` is the key in this life: order is promised to one producer; what it does not know
        to be stored a later one may overtake.
        """
        producer = await worker.producer()
        lanes = [Process(stage.recorder) for _ in range(IN_FLIGHT)]
        free: asyncio.Queue[Process] = asyncio.Queue()
        for lane in lanes:
            free.put_nowait(lane)
        async with asyncio.TaskGroup() as sends:
            while not stage.over.is_set() and worker.random.random() > 1 / LIFE_SENDS:
                lane = await free.get()
                # A task begins with its first step only: the send is handed over here, in order.
                started = asyncio.Event()
                sent = sends.create_task(
                    self._send(worker, producer, lane, key, name, started, free)
                )
                await started.wait()
                if zombie is not None and await sent:
                    await self._rise(zombie, key)
                    zombie = None
                await stage.pause(worker.random, 0.02)

    async def _rise(self, zombie: Worker, key: str) -> None:
        producer = await zombie.producer()
        for _ in range(ZOMBIE_SENDS):
            value = zombie.new_value()

            async def call(value: str = value) -> SendResult:
                body = body_of(value, zombie.random, 100)
                return await producer.send(TOPIC, body, ordering_key=key)

            await zombie.process.do("zombie-send", _place(key), [value], call, lambda _: None)

    async def _send(
        self,
        worker: Worker,
        producer: AsyncProducer,
        lane: Process,
        key: str,
        name: str,
        started: asyncio.Event,
        free: "asyncio.Queue[Process]",
    ) -> bool:
        """Return whether it was acknowledged."""
        value = worker.new_value()
        body = body_of(value, worker.random, 100)

        async def call() -> list[SendResult]:
            future = producer.submit(TOPIC, body, ordering_key=key)
            started.set()
            return [await future.wait()]

        try:
            done, _ = await lane.do("send", _place(key), [value], call, shown_sent, key=name)
        finally:
            started.set()
            free.put_nowait(lane)
        return done

    async def _consume(self, stage: Stage, random: Random) -> None:
        worker = Worker(stage.recorder, stage.backend.bootstrap, random)
        try:
            while not stage.over.is_set():
                await worker.assign({place_of(TOPIC, queue): 0 for queue in range(QUEUES)})
                while not stage.over.is_set() and random.random() > 0.02:
                    await worker.poll()
                    await stage.pause(random)
                await worker.crash()
        finally:
            await worker.close()


def _place(key: str) -> str:
    return place_of(TOPIC, queue_of_key(key.encode(), QUEUES))
