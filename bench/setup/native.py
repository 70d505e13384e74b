"""The native wire without the client library: what a member can do, whoever asks.

Owns: making batches, and pouring them into an append stream with a window.
"""

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from bench.setup.cluster import Running
from dledger_proto.batch.codec import ProducerStamp, Record, encode_batch
from dledger_proto.limits import FRAME_SIZE_TARGET
from dledger_proto.rpc import raw
from dledger_proto.rpc.frames import encode_append, parse_answers
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import broker_pb2_grpc

BODY_SIZE = 1024
TRY_MS = 10_000
BODIES = 64
"""So many different bodies are sent in turn."""


def plain_records(count: int) -> list[Record]:
    """Return records of random bodies and nothing else."""
    bodies = [os.urandom(BODY_SIZE) for _ in range(min(count, BODIES))]
    return [Record(bodies[number % len(bodies)]) for number in range(count)]


def rich_records(count: int) -> list[Record]:
    """Return records with a tag, a key of their own and two properties, as applications do."""
    return [
        Record(
            record.body,
            tag=("created", "paid", "shipped")[number % 3],
            keys=(f"order-{number:08d}",),
            properties={"region": "eu-west", "trace": f"{number:016x}"},
        )
        for number, record in enumerate(plain_records(count))
    ]


class Maker(Protocol):
    """Makes the batches of an append stream."""

    @property
    def per_batch(self) -> int:
        """Records in each batch."""
        ...

    def make(self) -> bytes:
        """Return the next batch."""
        ...


@dataclass(slots=True)
class Batches:
    """Makes one producer's batches for one queue, each encoded and stamped anew."""

    topic_id: bytes
    queue: int
    producer_id: bytes
    epoch: int
    records: list[Record]
    """The records are taken in turn, `per_batch` for each batch."""
    per_batch: int
    sequence: int = 0

    def make(self) -> bytes:
        """Return the next batch."""
        first = self.sequence % len(self.records)
        batch = encode_batch(
            self.records[first : first + self.per_batch],
            topic_id=self.topic_id,
            queue=self.queue,
            stamp=ProducerStamp(self.producer_id, self.epoch, self.sequence),
            base_number=self.sequence,
            base_time_ms=int(time.time() * 1000),
        )
        self.sequence += self.per_batch
        return batch


async def register(
    here: Running,
    leader: str,
    topic_id: bytes,
    queue: int,
    records: list[Record],
    per_batch: int = 0,
) -> Batches:
    """Register a new producer; return what makes its batches (0: of all the records)."""
    per_batch = per_batch or len(records)
    assert len(records) % per_batch == 0, f"{len(records)} records in batches of {per_batch}"
    producer_id = os.urandom(16)
    broker = broker_pb2_grpc.BrokerStub(here.channel(leader))
    request = pb.RegisterProducerRequest(producer_id=producer_id, life_id=producer_id)
    reply = await broker.RegisterProducer(request, timeout=10, metadata=here.metadata)
    return Batches(topic_id, queue, producer_id, reply.epoch, records, per_batch)


@dataclass(slots=True)
class Poured:
    """What went through an append stream."""

    records: int = 0
    seconds: float = 0.0
    batch_seconds: list[float] = field(default_factory=list[float])
    """For each batch, the seconds from its write to its answer."""

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds


@dataclass(slots=True)
class Window:
    """How much may be in flight, and how it is framed."""

    batches: int
    batches_per_frame: int = 1 << 30
    """1: a message of the stream for each batch; else as many as wait, up to about a MiB."""
    batches_per_second: float = 0.0
    """0: without a limit."""


class AppendStream:
    """One stream to a leader."""

    def __init__(self, call: raw.RawStreamCall, batches: Maker, window: Window) -> None:
        self._call = call
        self._batches = batches
        self._window = window
        self._sent: deque[float] = deque()
        self._number = 0
        self._room = asyncio.Event()
        self.poured = Poured()

    async def pour(self, go_on: Callable[[int], bool]) -> Poured:
        """Append until `go_on` says no of the records stored so far, then wait for the answers.

        DledgerError for a refusal.
        """
        start = time.perf_counter()
        reader = asyncio.create_task(self._read())
        try:
            while go_on(self.poured.records):
                if reader.done():
                    break
                if not self._may_send(time.perf_counter() - start):
                    self._room.clear()
                    await self._wait()
                    continue
                await self._call.write(self._frame(start))
            await self._call.done_writing()
            await reader
        finally:
            reader.cancel()
        self.poured.seconds = time.perf_counter() - start
        return self.poured

    async def _wait(self) -> None:
        rate = self._window.batches_per_second
        try:
            async with asyncio.timeout(1 / rate if rate else 1.0):
                await self._room.wait()
        except TimeoutError:
            return

    def _may_send(self, elapsed: float) -> bool:
        rate = self._window.batches_per_second
        due = not rate or self._number < elapsed * rate
        return due and len(self._sent) < self._window.batches

    def _frame(self, start: float) -> bytes:
        first = self._number
        parts: list[bytes] = []
        size = 0
        now = time.perf_counter()
        while size < FRAME_SIZE_TARGET and len(parts) < self._window.batches_per_frame:
            if parts and not self._may_send(now - start):
                break
            batch = self._batches.make()
            parts.append(batch)
            size += len(batch)
            self._sent.append(now)
            self._number += 1
        return encode_append(parts, first, TRY_MS)

    async def _read(self) -> None:
        per_batch = self._batches.per_batch
        while (frame := await raw.read_frame(self._call)) is not None:
            now = time.perf_counter()
            for row in parse_answers(frame):
                error = row.error()
                if error is not None:
                    raise error
                self.poured.batch_seconds.append(now - self._sent.popleft())
                self.poured.records += per_batch
            self._room.set()


async def pour_for(
    here: Running,
    topic_id: bytes,
    records: list[Record],
    window: Window,
    seconds: float,
    per_batch: int = 0,
) -> Poured:
    """Append to the leader for so many seconds, `per_batch` of the records at a time (0: all)."""
    batches = await register(here, await here.leader(), topic_id, 0, records, per_batch)
    end = time.perf_counter() + seconds
    return await pour(here, batches, window, lambda _: time.perf_counter() < end)


async def pour_bytes(here: Running, topic_id: bytes, total: int, per_batch: int = 256) -> Poured:
    """Append until so many bytes of bodies are stored."""
    batches = await register(here, await here.leader(), topic_id, 0, plain_records(per_batch))
    return await pour(here, batches, Window(32), lambda records: records * BODY_SIZE < total)


async def pour(
    here: Running, batches: Maker, window: Window, go_on: Callable[[int], bool], leader: str = ""
) -> Poured:
    """Append to the leader on a stream of its own; see `AppendStream.pour`.

    `leader`: it is known, and need not be looked for.
    """
    channel = here.channel(leader or await here.leader())
    call = raw.raw_stream(channel, raw.APPEND)(metadata=here.metadata)
    try:
        return await AppendStream(call, batches, window).pour(go_on)
    finally:
        call.cancel()
