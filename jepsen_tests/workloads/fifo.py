"""W2: strict order. Each ordering key has one producer, which does not wait between its sends."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
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
        while not stage.over.is_set():
            life += 1
            worker = Worker(stage.recorder, stage.backend.bootstrap, random)
            try:
                await self._live(stage, worker, key, f"{key}.{life}")
            finally:
                await worker.close()

    async def _live(self, stage: Stage, worker: Worker, key: str, name: str) -> None:
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
                sends.create_task(self._send(worker, producer, lane, key, name, started, free))
                await started.wait()
                await stage.pause(worker.random, 0.02)

    async def _send(
        self,
        worker: Worker,
        producer: AsyncProducer,
        lane: Process,
        key: str,
        name: str,
        started: asyncio.Event,
        free: "asyncio.Queue[Process]",
    ) -> None:
        value = worker.new_value()
        body = body_of(value, worker.random, 100)
        place = place_of(TOPIC, queue_of_key(key.encode(), QUEUES))

        async def call() -> list[SendResult]:
            future = producer.submit(TOPIC, body, ordering_key=key)
            started.set()
            return [await future.wait()]

        try:
            await lane.do("send", place, [value], call, shown_sent, key=name)
        finally:
            started.set()
            free.put_nowait(lane)

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
