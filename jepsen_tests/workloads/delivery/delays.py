"""W15: messages that are delivered later, among others, and are taken back now and then."""

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from dledger_client import AsyncAdmin, SendResult
from dledger_proto.errors import DledgerError
from jepsen_tests.run.patience import Revive
from jepsen_tests.workloads.clients import Worker, place_of
from jepsen_tests.workloads.stored.doing import worker_and_admin
from jepsen_tests.workloads.values import message_of
from jepsen_tests.workloads.workload import LeastOk, Stage, Workload

TOPIC: Final = "chaos-delays"
QUEUES: Final = 3
DELAYS_MS: Final = (20, 5_000)
SIZE: Final = 60
SENT_AT_ONCE: Final = 0.2
"""Share of messages that are not delayed."""
RECALLED: Final = 0.25
"""Share of delayed messages that somebody takes back, or tries to."""
READERS: Final = 2
FIRED_SECONDS: Final = 60.0
"""So long the end waits for timers that are due."""
LOOK_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class _Delayed:
    """A message that is under way."""

    result: SendResult
    due: int
    """By the clock of the run, ns."""


class DelaysWorkload(Workload):
    """Delayed messages come once, never early, and not at all once they are taken back."""

    name = "delays"
    what = "W15: delayed messages and their recall: never early, once, or not at all"
    topics: ClassVar[Mapping[str, int]] = {TOPIC: QUEUES}
    least_ok: ClassVar[LeastOk] = {
        "send": (10, 0.2), "delay": (50, 0.2), "recall": (10, 0.1), "poll": (30, 0.3),
    }  # fmt: skip

    def workers(self, stage: Stage) -> Sequence[Coroutine[Any, Any, None]]:
        senders = max(1, stage.concurrency - READERS)
        randoms = [Random(stage.random.random()) for _ in range(senders + READERS)]
        return [
            *(self._send(stage, random) for random in randoms[READERS:]),
            *(self._read(stage, random) for random in randoms[:READERS]),
        ]

    async def _send(self, stage: Stage, random: Random) -> None:
        async with worker_and_admin(stage, random) as (worker, admin):
            while not stage.over.is_set():
                place = place_of(TOPIC, random.randrange(QUEUES))
                if random.random() < SENT_AT_ONCE:
                    await worker.send(place, 1, SIZE)
                else:
                    await _delay(worker, admin, place)
                await stage.pause(random, 0.1)

    async def _read(self, stage: Stage, random: Random) -> None:
        async with aclosing(stage.worker(random)) as worker:
            await worker.assign({place_of(TOPIC, queue): 0 for queue in range(QUEUES)})
            while not stage.over.is_set():
                await worker.poll()
                await stage.pause(random, 0.02)

    async def finish(self, stage: Stage, revive: Revive) -> None:
        """Wait until everything is delivered. If it never is, the final reads show that."""
        del revive
        until = asyncio.get_running_loop().time() + FIRED_SECONDS
        async with AsyncAdmin(stage.backend.bootstrap, stage.connection) as admin:
            while asyncio.get_running_loop().time() < until:
                try:
                    if not await admin.timers(TOPIC, limit=1):
                        break
                except DledgerError:
                    pass  # it recovers
                await asyncio.sleep(LOOK_SECONDS)


async def _delay(worker: Worker, admin: AsyncAdmin, place: str) -> None:
    """Send a delayed message, and perhaps take it back before or after its time."""
    random = worker.random
    delay_ms = random.randint(*DELAYS_MS)
    value = worker.new_value()
    body, tag, keys, properties, _ = message_of(value, random, SIZE)
    producer, recorder = await worker.producer(), worker.process.recorder
    topic, queue = TOPIC, int(place.rpartition("/")[2])

    async def call() -> _Delayed:
        due = recorder.now() + delay_ms * 1_000_000
        at_ms = time.time_ns() // 1_000_000 + delay_ms
        result = await producer.send(
            topic, body, tag=tag, keys=keys, properties=properties, queue=queue,
            deliver_at_ms=at_ms,
        )  # fmt: skip
        return _Delayed(result, due)

    answer = await worker.process.do("delay", place, [value], call, lambda found: found.due)
    sent = answer[1]
    if sent is None or not sent.result.message_id or random.random() >= RECALLED:
        return
    await asyncio.sleep(random.uniform(0.0, 1.2 * delay_ms / 1_000))
    recall = partial(admin.recall, sent.result.message_id)
    await worker.process.do("recall", place, value, recall, lambda _: None)
