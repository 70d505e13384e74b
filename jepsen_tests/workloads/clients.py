"""The clients of one worker: they are thrown away and made anew when the worker "crashes".

Owns how the public clients are configured for tests, and how what they return is written down.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final

from dledger_client import (
    AsyncConsumer,
    AsyncProducer,
    ConnectionConfig,
    ConsumerConfig,
    ProducerConfig,
    RecordBatch,
    SendResult,
    StartAt,
)
from jepsen_tests.history.events import KEY_MARK
from jepsen_tests.run.recorder import Process, Recorder
from jepsen_tests.workloads.values import message_of, value_of

CALL_TIMEOUT_MS: Final = 5_000
"""Of one operation: short enough that a fault shows, long enough for an election."""
CLOSE_TIMEOUT_MS: Final = 1_000
RECORDS_PER_POLL: Final = 200
POLL_MS: Final = 100
CONNECTION: Final = ConnectionConfig(call_timeout_ms=CALL_TIMEOUT_MS)


def place_of(topic: str, queue: int) -> str:
    """Return how a queue is written down."""
    return f"{topic}/{queue}"


def split_place(place: str) -> tuple[str, int]:
    """Return topic and queue of a place."""
    topic, _, queue = place.rpartition("/")
    return topic, int(queue)


def shown_runs(batches: Iterable[RecordBatch]) -> list[list[Any]]:
    """Return what was read as runs: place, offset of the first, values."""
    return [
        [place_of(b.topic, b.queue), b.base_offset, [value_of(each) for each in b.records()]]
        for b in batches
    ]


def shown_sent(results: Sequence[SendResult]) -> list[int | None]:
    """Return the offset of the first; None where it was stored by an earlier try and is forgotten.

    The term is left out. ValueError where the offset is missing for no reason.
    """
    first = results[0]
    if first.offset < 0 and first.duplicate:
        return [None, 0]
    return [*shown_stored(first.offset, 0)]


def shown_stored(offset: int, term: int) -> list[int]:
    """Return where something is stored; ValueError when that is not told.

    Members may forget where a repeated batch is, but not so soon as the workloads repeat theirs by
    themselves. What the public client finds out by a new epoch is another matter: `shown_sent`.
    """
    if offset < 0:
        raise ValueError(f"stored at offset {offset}")
    return [offset, term]


class Worker:
    """One logical process with a producer and a consumer of its own."""

    def __init__(
        self,
        recorder: Recorder,
        bootstrap: str,
        random: Random,
        connection: ConnectionConfig = CONNECTION,
        *,
        name: str = "",
    ) -> None:
        """`name` is its producer's: the next one of that name fences it off."""
        self.process = Process(recorder)
        self._name = name
        self.random = random
        self._bootstrap = bootstrap
        self._connection = connection
        self._counter = 0
        self._producer: AsyncProducer | None = None
        self._consumer: AsyncConsumer | None = None

    def new_value(self) -> str:
        """Return a value that nobody has sent."""
        self._counter += 1
        return f"{self.process.number}-{self._counter}"

    async def producer(self) -> AsyncProducer:
        """Return this life's producer."""
        if self._producer is None:
            config = ProducerConfig(
                name=self._name, timeout_ms=CALL_TIMEOUT_MS, connection=self._connection
            )
            self._producer = await AsyncProducer(self._bootstrap, config).start()
        return self._producer

    async def consumer(self) -> AsyncConsumer:
        """Return this life's consumer."""
        if self._consumer is None:
            config = ConsumerConfig(start_at=StartAt.FIRST, connection=self._connection)
            self._consumer = await AsyncConsumer(self._bootstrap, config).start()
        return self._consumer

    async def send(
        self, place: str, count: int, size: int, *, key: str = "", order_key: str = ""
    ) -> bool:
        """Send one message, or several stored together; return whether it was acknowledged.

        `order_key` is the first key of the messages, by which consumer groups may keep order.
        """
        topic, queue = split_place(place)
        mark = KEY_MARK + order_key if order_key else ""
        values = [self.new_value() + mark for _ in range(count)]
        messages = [message_of(value, self.random, size) for value in values]
        producer = await self.producer()

        async def call() -> list[SendResult]:
            if count > 1:
                return await producer.send_many(topic, messages, queue=queue)
            body, tag, keys, properties, _ = messages[0]
            sent = producer.send(
                topic, body, tag=tag, keys=keys, properties=properties, queue=queue
            )
            return [await sent]

        done, _ = await self.process.do("send", place, values, call, shown_sent, key=key)
        return done

    async def assign(self, starts: dict[str, int]) -> bool:
        """Read exactly these places from these offsets on; return whether it could be done."""
        consumer = await self.consumer()
        what = {split_place(place): offset for place, offset in starts.items()}
        done, _ = await self.process.do(
            "assign", "", starts, lambda: consumer.assign(what), lambda _: None, reads=True
        )
        if not done:  # nothing promises what such a consumer reads next
            await self.crash()
        return done

    async def poll(self) -> list[RecordBatch] | None:
        """Read what is there; None without an attempt while nothing is assigned."""
        consumer = await self.consumer()
        if not consumer.assignment():
            return None

        async def call() -> list[RecordBatch]:
            return await consumer.poll_batches(RECORDS_PER_POLL, POLL_MS)

        found = await self.process.do("poll", "", None, call, shown_runs, reads=True)
        return found[1]

    async def bounds(self, place: str) -> list[int] | None:
        """Return minimum and maximum, confirmed by a quorum."""
        consumer = await self.consumer()
        topic, queue = split_place(place)

        async def call() -> list[int]:
            found = (await consumer.offsets(topic))[queue]
            if found.minimum > found.maximum:  # no bounds: an error that nobody expects
                raise ValueError(f"minimum {found.minimum} above maximum {found.maximum}")
            return [found.minimum, found.maximum]

        _, found = await self.process.do(
            "bounds", place, None, call, lambda found: found, reads=True
        )
        return found

    async def crash(self) -> None:
        """Throw the clients away with all they know, and be a new process."""
        await self.process.do("crash", "", None, self.aclose, lambda _: None)
        self.process.renew()
        self._counter = 0

    async def aclose(self) -> None:
        """End the clients of this life. With this name `contextlib.aclosing` takes a worker."""
        producer, self._producer = self._producer, None
        consumer, self._consumer = self._consumer, None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000 + 1):
                if producer is not None:
                    await producer.close(CLOSE_TIMEOUT_MS)
                if consumer is not None:
                    await consumer.close()
