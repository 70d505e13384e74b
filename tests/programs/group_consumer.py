"""A push consumer as a process of its own: writes a line for each record that it has handled.

    python tests/programs/group_consumer.py NAME_SERVERS GROUP TOPIC ORDER

A line is JSON: when (monotonic nanoseconds), queue, offset, key, attempts. The first line says that
it has begun. The end of standard input ends it in order.
"""

import asyncio
import json
import sys
import time

from dledger_client import (
    AsyncPushConsumer,
    ConsumedRecord,
    ConsumeOrder,
    ConsumerConfig,
    Delivery,
    PushConfig,
    StartAt,
)


async def main(bootstrap: str, group: str, topic: str, order: str) -> None:
    async def listener(record: ConsumedRecord, delivery: Delivery) -> None:
        await asyncio.sleep(0.001)
        handled = (
            time.monotonic_ns(),
            record.queue,
            record.offset,
            *record.keys,
            delivery.attempts,
        )
        print(json.dumps(handled), flush=True)

    consumer = ConsumerConfig(
        start_at=StartAt.FIRST, order=ConsumeOrder[order], commit_interval_ms=100
    )
    config = PushConfig(consumer=consumer)
    async with AsyncPushConsumer(bootstrap, group, topic, listener, config):
        print(json.dumps("begun"), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
