"""W3: a storm of retries: at most one copy may be visible, and all answers name the same offset.

Whatever was sent is sent again, as it was, to any member, also after an answer.
"""

from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from random import Random
from typing import Any, ClassVar, Final

from dledger_client import AsyncAdmin
from dledger_proto.batch.codec import ProducerStamp
from dledger_proto.errors import DledgerError
from dledger_proto.rpc.frames import AnswerRow
from jepsen_tests.run.recorder import Process
from jepsen_tests.workloads.clients import place_of, shown_stored
from jepsen_tests.workloads.values import message_of
from jepsen_tests.workloads.wire import Wire, batch_of, wires_to
from jepsen_tests.workloads.workload import LeastOk, Stage, Workload

TOPIC: Final = "chaos-retry"
QUEUES: Final = 3
TRY_SECONDS: Final = 1.0
TRIES_MAX: Final = 12
REPLAYS: Final = 0.2
"""Share of stored batches that are sent again although they were acknowledged."""
OLD_REPLAYS: Final = 0.05
"""Share of operations that send an old batch again, within what the table remembers."""
REMEMBERED: Final = 200
"""Of the 256 batches that the producer table promises to remember."""
CONSUMERS: Final = 1


class _Repeater:
    """A producer that frames its batches itself, one queue, one batch after the other."""

    def __init__(
        self, stage: Stage, topic_id: bytes, random: Random, wires: Sequence[Wire]
    ) -> None:
        self.stage = stage
        self.random = random
        self.process = Process(stage.recorder)
        self._topic_id = topic_id
        self._queue = random.randrange(QUEUES)
        self._wires = wires
        self._stamp = ProducerStamp(random.randbytes(16), 0, 0)
        self._stored: list[tuple[str, bytes]] = []
        self._counter = 0

    async def register(self) -> None:
        """Register with a member that takes it."""
        while not self.stage.over.is_set():
            try:
                epoch = await self.random.choice(self._wires).register(
                    self._stamp.producer_id, TRY_SECONDS
                )
            except DledgerError:
                await self.stage.pause(self.random)
                continue
            self._stamp = self._stamp._replace(epoch=epoch)
            return

    async def send_next(self) -> bool:
        """Send one batch until it is stored; False when it never was: the sequence ends there."""
        self._counter += 1
        value = f"{self.process.number}-{self._counter}"
        message = message_of(value, self.random, 200)
        batch = batch_of(self._topic_id, self._queue, [message], self._stamp)
        stored = await self._try("send", value, batch)
        tries = 1
        while not stored and tries < TRIES_MAX:
            await self.stage.pause(self.random)
            stored = await self._try("resend", value, batch)
            tries += 1
        if stored:
            self._stamp = self._stamp._replace(base_sequence=self._stamp.base_sequence + 1)
            self._stored = [*self._stored, (value, batch)][-REMEMBERED:]
            if self.random.random() < REPLAYS:
                await self._try("resend", value, batch)
            if self.random.random() < OLD_REPLAYS:
                await self._try("resend", *self.random.choice(self._stored))
        return stored

    async def _try(self, f: str, value: str, batch: bytes) -> bool:
        wire = self.random.choice(self._wires)
        done, _ = await self.process.do(
            f, place_of(TOPIC, self._queue), [value],
            lambda: wire.append(batch, TRY_SECONDS), _shown,
        )  # fmt: skip
        return done


def _shown(row: AnswerRow) -> list[int]:
    return shown_stored(row.base_offset, row.term)


class RetryWorkload(Workload):
    """At most one copy of whatever is repeated."""

    name = "retry"
    what = "W3: each batch is sent again and again, as it was, to any member: one copy, one offset"
    topics: ClassVar[Mapping[str, int]] = {TOPIC: QUEUES}
    least_ok: ClassVar[LeastOk] = {"send": (50, 0.1), "resend": (10, 0.1), "poll": (30, 0.3)}
    _topic_id = b""

    async def setup(self, stage: Stage) -> None:
        async with AsyncAdmin(stage.backend.bootstrap, stage.connection) as admin:
            self._topic_id = (await admin.describe_topic(TOPIC)).id

    def workers(self, stage: Stage) -> Sequence[Coroutine[Any, Any, None]]:
        producers = max(1, stage.concurrency - CONSUMERS)
        randoms = [Random(stage.random.random()) for _ in range(producers + CONSUMERS)]
        return [
            *(self._produce(stage, random) for random in randoms[:producers]),
            *(self._consume(stage, random) for random in randoms[producers:]),
        ]

    async def _produce(self, stage: Stage, random: Random) -> None:
        while not stage.over.is_set():
            async with wires_to(stage.backend, stage.addresses) as wires:
                repeater = _Repeater(stage, self._topic_id, random, wires)
                await repeater.register()
                while not stage.over.is_set():
                    if not await repeater.send_next():
                        break  # a sequence cannot go on behind an unknown outcome: begin anew
                    await stage.pause(random)

    async def _consume(self, stage: Stage, random: Random) -> None:
        places = {place_of(TOPIC, queue): 0 for queue in range(QUEUES)}
        async with aclosing(stage.worker(random)) as worker:
            is_assigned = False
            while not stage.over.is_set():
                is_assigned = is_assigned or await worker.assign(places)
                await worker.poll()
                await stage.pause(random)
