"""A push consumer as a process of its own, whose listener tells each call, and fails by chance.

`python -m jepsen_tests.workloads.delivery.consumer JSON`, with the fields of `ConsumerPlan`. The
program writes one JSON line when a call begins and one when it ends, before the group can know of
it. It ends in order when its standard input ends; who kills it shows a crash.
"""

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from zlib import crc32

import uvloop

from dledger_client import (
    AsyncPushConsumer,
    ConnectionConfig,
    ConsumedRecord,
    ConsumeOrder,
    ConsumerConfig,
    DeadLetter,
    Delivery,
    PushConfig,
    StartAt,
)
from dledger_proto.batch.codec import Record
from jepsen_tests.workloads.values import value_of

CALL_TIMEOUT_MS: Final = 5_000
COMMIT_INTERVAL_MS: Final = 200
CLOSE_TIMEOUT_MS: Final = 2_000
CONCURRENCY: Final = 8
LISTENER_SECONDS: Final = 0.01
"""How long a call of the listener takes, on average, unless the plan says otherwise."""
POISON: Final = 12
"""One message of so many fails each time, as long as messages fail."""
REFUSED: Final = 20
"""One message of so many is sent to the dead letters by its listener."""


ERRORS: Final = 3
"""Dead letters have one of so many errors, by which some can be chosen."""


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """What the process is told."""

    bootstrap: str
    group: str
    topic: str
    order: str
    retries_max: int
    fails: float
    """Share of the calls that fail; 0: none, whatever the message."""
    began: int
    """When the run began, by the monotonic clock of this machine, ns."""
    seed: float
    seconds: float = LISTENER_SECONDS
    """How long a call takes, on average; 0: it does not wait."""
    tls_folder: str = ""


class Teller:
    """The listener."""

    def __init__(self, plan: ConsumerPlan) -> None:
        self._plan = plan
        self._random = Random(plan.seed)
        self._calls = 0

    async def __call__(self, record: ConsumedRecord, delivery: Delivery) -> DeadLetter | None:
        """Take some time, and succeed or fail."""
        self._calls += 1
        call, value = self._calls, _value(record)
        origin = record.origin
        queue, offset = (
            (record.queue, record.offset) if origin is None else (origin.queue, origin.offset)
        )
        asked = {
            "value": value, "offset": offset,
            "read": [f"{record.topic}/{record.queue}", record.offset],
            "order": self._plan.order, "epoch": delivery.epoch, "attempts": delivery.attempts,
            "begun": self._now(),
        }  # fmt: skip
        _tell(["begin", call, f"{self._plan.topic}/{queue}", asked])
        try:
            if self._plan.seconds:
                await asyncio.sleep(self._random.expovariate(1 / self._plan.seconds))
        except asyncio.CancelledError:
            _tell(["cancelled", call])
            raise
        said = self._said(value, delivery.attempts)
        _tell(["end", call, said, self._now()])
        if said == "dead":
            return DeadLetter(error=f"chaos: dead {(crc32(value.encode()) >> 8) % ERRORS}")
        if said == "failed":
            raise RuntimeError("chaos: failed")
        return None

    def _said(self, value: str, attempts: int) -> str:
        fails = self._plan.fails
        mark = crc32(value.encode())
        if fails and mark % REFUSED == 0:
            return "dead"
        if self._random.random() < fails or (fails and mark % POISON == 0):
            return "dead" if attempts >= self._plan.retries_max else "failed"
        return "done"

    def _now(self) -> int:
        return time.monotonic_ns() - self._plan.began


def _value(record: ConsumedRecord) -> str:
    return value_of(
        Record(record.body, record.tag, tuple(record.keys), record.properties, record.time_ms)
    )


def _tell(line: list[Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def main(plan: ConsumerPlan) -> None:
    """Consume until standard input ends."""
    consumer = ConsumerConfig(
        start_at=StartAt.FIRST,
        order=ConsumeOrder[plan.order.upper()],
        commit_interval_ms=COMMIT_INTERVAL_MS,
        create_group=False,
        connection=ConnectionConfig(call_timeout_ms=CALL_TIMEOUT_MS, tls_folder=plan.tls_folder),
    )
    config = PushConfig(
        consumer=consumer, concurrency=CONCURRENCY, close_timeout_ms=CLOSE_TIMEOUT_MS
    )
    addresses = plan.bootstrap.split(",")
    async with AsyncPushConsumer(addresses, plan.group, plan.topic, Teller(plan), config):
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main(ConsumerPlan(**json.loads(sys.argv[1]))))
