"""Load as users write it, through `dledger_client`."""

import asyncio
import os
import time

from bench.setup.cluster import NotReady
from bench.setup.native import BODIES, BODY_SIZE
from dledger_client import AsyncProducer, AsyncSendFuture
from dledger_client.errors import BufferFull

BREATH_MESSAGES = 256
"""After so many messages the loop turns once, so that answers arrive."""


async def submit_for(producer: AsyncProducer, topic: str, seconds: float) -> float:
    """Call `submit` once per message for so many seconds; return stored messages per second."""
    bodies = [os.urandom(BODY_SIZE) for _ in range(BODIES)]
    futures: list[AsyncSendFuture] = []
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(BREATH_MESSAGES):
            try:
                futures.append(producer.submit(topic, bodies[len(futures) % BODIES]))
            except BufferFull:
                await producer.wait_for_room()
        await asyncio.sleep(0)
    await producer.flush()
    taken = time.perf_counter() - start
    for future in futures:
        future.result()  # raises what went wrong
    return len(futures) / taken


async def callbacks_for(producer: AsyncProducer, topic: str, seconds: float) -> float:
    """As `submit_for`, with a callback for each message; return messages heard of per second."""
    bodies = [os.urandom(BODY_SIZE) for _ in range(BODIES)]
    stored = 0

    def heard(future: AsyncSendFuture) -> None:
        nonlocal stored
        future.result()  # raises what went wrong: not counted, and logged
        stored += 1

    submitted = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(BREATH_MESSAGES):
            try:
                producer.submit(topic, bodies[submitted % BODIES], on_done=heard)
                submitted += 1
            except BufferFull:
                await producer.wait_for_room()
        await asyncio.sleep(0)
    await producer.flush()
    taken = time.perf_counter() - start
    if stored != submitted:
        raise NotReady(f"{stored} of {submitted} messages were heard of as stored")
    return stored / taken


async def send_for(producer: AsyncProducer, topic: str, tasks: int, seconds: float) -> float:
    """Await `send` in so many tasks for so many seconds; return messages per second."""
    bodies = [os.urandom(BODY_SIZE) for _ in range(BODIES)]
    sent = 0
    start = time.perf_counter()

    async def one(number: int) -> None:
        nonlocal sent
        while time.perf_counter() - start < seconds:
            await producer.send(topic, bodies[number % BODIES])
            sent += 1

    await asyncio.gather(*(one(number) for number in range(tasks)))
    return sent / (time.perf_counter() - start)


async def send_many_for(
    producer: AsyncProducer, topic: str, per_call: int, calls: int, seconds: float
) -> float:
    """Call `send_many` from so many tasks for so many seconds; return messages per second."""
    bodies = [os.urandom(BODY_SIZE) for _ in range(BODIES)]
    batch = [bodies[number % BODIES] for number in range(per_call)]
    sent = 0
    start = time.perf_counter()

    async def one() -> None:
        nonlocal sent
        while time.perf_counter() - start < seconds:
            results = await producer.send_many(topic, batch)
            sent += len(results)  # not in one line: `sent` would be read before the wait

    await asyncio.gather(*(one() for _ in range(calls)))
    return sent / (time.perf_counter() - start)
