"""W7: as fifo, and the same producers send one-way messages in between.

A one-way message has no producer id and no sequence: it may be lost, and it must not appear twice.
The other messages keep their promise and their order among themselves.
"""

from functools import partial
from typing import ClassVar, Final

from dledger_client import AsyncProducer
from dledger_proto.batch.codec import Record
from jepsen_tests.workloads.fifo import TOPIC, FifoWorkload, Life, place_of_key
from jepsen_tests.workloads.values import message_of
from jepsen_tests.workloads.workload import LeastOk

ONE_WAY: Final = 0.4
"""Share of sends behind which the producer hands over one-way messages."""
TOGETHER_MAX: Final = 3
SIZE: Final = 100


class OneWayWorkload(FifoWorkload):
    """One-way messages beside the ordered ones of the same producer."""

    name = "one-way"
    what = "W7: as fifo, with one-way sends of the same producers in between: each at most once"
    least_ok: ClassVar[LeastOk] = {**FifoWorkload.least_ok, "one-way": (100, 0.3)}

    async def between(self, life: Life) -> None:
        worker, random = life.worker, life.worker.random
        if random.random() < ONE_WAY:
            producer = await worker.producer()
            for _ in range(random.randint(1, TOGETHER_MAX)):
                value = worker.new_value()
                hand_over = partial(_hand_over, producer, message_of(value, random, SIZE), life.key)
                await worker.process.do(
                    "one-way", place_of_key(life.key), [value], hand_over, lambda _: None
                )


async def _hand_over(producer: AsyncProducer, message: Record, key: str) -> None:
    body, tag, keys, properties, _ = message
    producer.send_one_way(TOPIC, body, tag=tag, keys=keys, properties=properties, ordering_key=key)
