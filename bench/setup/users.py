"""Load as users write it, through `dledger_client`."""

import asyncio
import itertools
import os
import time
from collections.abc import Iterable, Iterator

from bench.setup.cluster import NotReady
from bench.setup.native import BODIES, BODY_SIZE
from dledger_client import AsyncProducer, AsyncSendFuture
from dledger_client.errors import BufferFull, ClientError

BREATH_MESSAGES = 256
"""After so many messages the loop turns once, so that answers arrive."""
DELAYED_TIMEOUT_MS = 120_000
"""Budget of a delayed message: a full buffer of such messages, one in each batch, takes a while."""


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


def due_times(first_ms: int, span_ms: int, count: int) -> Iterator[int]:
    """Return so many times, spread evenly over a span: each millisecond of it, again and again."""
    assert span_ms > 1, f"a span of {span_ms} ms: neighbours would be equal"
    return itertools.islice(itertools.cycle(range(first_ms, first_ms + span_ms)), count)


async def send_delayed(producer: AsyncProducer, topic: str, due_ms: Iterable[int]) -> float:
    """Send a message for each due time, which is in its first 8 bytes; return messages a second.

    Neighbours must have different due times: then each message is a batch, and a timer, of its own.
    """
    filling = os.urandom(BODY_SIZE - 8)
    stored = submitted = 0
    errors: list[ClientError] = []

    def heard(future: AsyncSendFuture) -> None:
        nonlocal stored
        try:
            future.result()
        except ClientError as error:
            errors.append(error)
        else:
            stored += 1

    def submit(due: int) -> None:
        producer.submit(
            topic,
            due.to_bytes(8) + filling,
            deliver_at_ms=due,
            timeout_ms=DELAYED_TIMEOUT_MS,
            on_done=heard,
        )

    start = time.perf_counter()
    for due in due_ms:
        try:
            submit(due)
        except BufferFull:
            await producer.wait_for_room()
            submit(due)
        submitted += 1
        if submitted % BREATH_MESSAGES == 0:
            await asyncio.sleep(0)
    await producer.flush()
    if stored != submitted:
        raise NotReady(f"{stored} of {submitted} delayed messages were stored: {errors[:1]}")
    return submitted / (time.perf_counter() - start)


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


async def lone_for(producer: AsyncProducer, topic: str, seconds: float) -> list[float]:
    """Send one message after the other; return how long each took, in seconds."""
    body = os.urandom(BODY_SIZE)
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        await producer.send(topic, body)
        taken.append(time.perf_counter() - start)
    return taken


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
