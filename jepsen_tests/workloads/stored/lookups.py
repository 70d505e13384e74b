"""W10: lookups by offset, by key and by message id, beside sends and failovers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import ClassVar, Final

from dledger_client import AsyncAdmin, SendResult
from jepsen_tests.workloads.clients import Worker, place_of, shown_sent, split_place
from jepsen_tests.workloads.stored.doing import act_at_random
from jepsen_tests.workloads.stored.finding import look_at, look_up
from jepsen_tests.workloads.values import attributes_of, message_of
from jepsen_tests.workloads.workload import LeastOk, Stage, Workload

TOPIC: Final = "chaos-lookups"
QUEUES: Final = 3
PLACES: Final = tuple(place_of(TOPIC, queue) for queue in range(QUEUES))
BATCH_MAX: Final = 4
BODY_SIZES: Final = (32, 200, 2_000)
ACTIONS: Final = {"send": 30, "offset": 14, "key": 14, "id": 14, "poll": 10, "crash": 1}
RECENT: Final = 20
"""Half of the lookups are for one of the newest messages."""


@dataclass(frozen=True, slots=True)
class Known:
    """A message that was sent; the rest is known once it is acknowledged."""

    value: str
    place: str
    offset: int = -1
    message_id: bytes = b""


class LookupsWorkload(Workload):
    """Whoever looks a message up finds it, if it was acknowledged before."""

    name = "lookups"
    what = "W10: look messages up by offset, key and id while they are sent"
    topics: ClassVar[Mapping[str, int]] = {TOPIC: QUEUES}
    least_ok: ClassVar[LeastOk] = {
        "send": (100, 0.3), "poll": (20, 0.3),
        "lookup": (50, 0.3), "lookup-key": (50, 0.3), "lookup-id": (50, 0.3),
    }  # fmt: skip

    def __init__(self) -> None:
        self._acknowledged: list[Known] = []
        self._sent: list[Known] = []
        """Of any outcome, with a key."""

    async def work(self, stage: Stage, random: Random) -> None:
        await act_at_random(stage, random, PLACES, self._act)

    async def _act(self, worker: Worker, admin: AsyncAdmin, place: str) -> None:
        random, process = worker.random, worker.process
        match random.choices(list(ACTIONS), list(ACTIONS.values()))[0]:
            case "send":
                await self._send(worker, place)
            case "offset" if self._acknowledged:
                known = self._one_of(self._acknowledged, random)
                await look_at(process, admin, known.place, known.offset + random.randint(0, 1))
            case "key" if self._sent:
                key = random.choice(attributes_of(self._one_of(self._sent, random).value).keys)
                lookup = partial(admin.lookup_key, TOPIC, key)
                await look_up(process, "lookup-key", TOPIC, key, lookup)
            case "id" if self._acknowledged:
                known = self._one_of(self._acknowledged, random)
                lookup = partial(admin.lookup_message, known.message_id)
                await look_up(process, "lookup-id", TOPIC, known.value, lookup)
            case "crash":
                await worker.crash()
                await worker.assign(dict.fromkeys(PLACES, 0))
            case _:
                await worker.poll()

    def _one_of(self, known: list[Known], random: Random) -> Known:
        return random.choice(known[-RECENT:] if random.random() < 0.5 else known)

    async def _send(self, worker: Worker, place: str) -> None:
        random = worker.random
        topic, queue = split_place(place)
        values = [worker.new_value() for _ in range(random.choice((1, 1, 1, BATCH_MAX)))]
        messages = [message_of(value, random, random.choice(BODY_SIZES)) for value in values]
        producer = await worker.producer()
        self._sent += [Known(value, place) for value in values if attributes_of(value).keys]

        async def call() -> list[SendResult]:
            return await producer.send_many(topic, messages, queue=queue)

        answer = await worker.process.do("send", place, values, call, shown_sent)
        self._acknowledged += [
            Known(value, place, result.offset, result.message_id)
            for value, result in zip(values, answer[1] or (), strict=False)
            if result.offset >= 0
        ]
