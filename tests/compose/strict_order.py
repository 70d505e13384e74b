"""Sending in strict order by several keys, and judging what came of it. `judge` is pure."""

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from dledger_client import (
    AsyncConsumer,
    AsyncProducer,
    AsyncSendFuture,
    ConsumerConfig,
    ProducerConfig,
    StartAt,
)

TOPIC: Final = "strict"
KEYS: Final = tuple(f"key-{number}" for number in range(8))
WINDOW: Final = 16
"""Messages of one key on their way."""
PACE_SECONDS: Final = 0.02
"""Between two messages of a key, so that the machine has time for the containers too."""
TIMEOUT_MS: Final = 90_000
POLL_RECORDS: Final = 5_000
READ_SECONDS: Final = 60.0


class Message(NamedTuple):
    """The number `sequence` of a key."""

    key: str
    sequence: int

    def body(self) -> bytes:
        """What is sent."""
        return f"{self.key} {self.sequence}".encode()


def message_of(body: bytes) -> Message:
    """Read a body again."""
    key, _, sequence = body.decode().partition(" ")
    return Message(key, int(sequence))


class Place(NamedTuple):
    """Where a message lies."""

    queue: int
    offset: int


Found = tuple[Place, Message]


@dataclass(frozen=True)
class Verdict:
    """What is wrong with what was read; empty: nothing."""

    lost: tuple[Message, ...]
    """Acknowledged and not there."""
    elsewhere: tuple[Message, ...]
    """There, but not where the acknowledgement said."""
    repeated: tuple[Message, ...]
    reordered: tuple[Message, ...]
    """Behind a later one of their key, or in another queue than their key's first."""
    holes: tuple[Place, ...]
    """Offsets that were not delivered in their turn."""

    @property
    def is_good(self) -> bool:
        """True: nothing is wrong."""
        return self == Verdict((), (), (), (), ())


def judge(acknowledged: Mapping[Message, Place], found: Iterable[Found]) -> Verdict:
    """Compare what was acknowledged with what was read, in the order in which it was."""
    places: dict[Message, Place] = {}
    times: Counter[Message] = Counter()
    newest: dict[str, Found] = {}
    next_offsets: defaultdict[int, int] = defaultdict(int)
    reordered: list[Message] = []
    holes: list[Place] = []
    for place, message in found:
        if place.offset != next_offsets[place.queue]:
            holes.append(place)
        next_offsets[place.queue] = place.offset + 1
        times[message] += 1
        places.setdefault(message, place)
        before = newest.get(message.key)
        if before is not None and (
            before[0].queue != place.queue or before[1].sequence > message.sequence
        ):
            reordered.append(message)
        newest[message.key] = place, message
    return Verdict(
        lost=tuple(each for each in acknowledged if each not in places),
        elsewhere=tuple(
            each for each, place in acknowledged.items() if places.get(each, place) != place
        ),
        repeated=tuple(each for each, count in times.items() if count > 1),
        reordered=tuple(reordered),
        holes=tuple(holes),
    )


@dataclass
class Traffic:
    """A producer that sends until it is stopped, and what it was told."""

    acknowledged: dict[Message, Place] = field(default_factory=dict[Message, Place])
    times: list[float] = field(default_factory=list[float])
    """Of each acknowledgement."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """Acknowledgements by key."""
    _stopping: bool = False

    def stop(self) -> None:
        """Send no more than is on its way."""
        self._stopping = True

    async def run(self, name_servers: str) -> None:
        """Send until stopped; returns when everything is settled, all of it acknowledged."""
        config = ProducerConfig(name="strict-order", timeout_ms=TIMEOUT_MS)
        async with AsyncProducer(name_servers, config) as producer:
            await asyncio.gather(*(self._send(producer, key) for key in KEYS))

    async def _send(self, producer: AsyncProducer, key: str) -> None:
        on_way: deque[AsyncSendFuture] = deque()
        sequence = 0
        while not self._stopping:
            while len(on_way) >= WINDOW:
                await on_way.popleft().wait()
            message = Message(key, sequence)
            on_way.append(
                producer.submit(
                    TOPIC,
                    message.body(),
                    ordering_key=key,
                    on_done=partial(self._settled, message),
                )
            )
            sequence += 1
            await asyncio.sleep(PACE_SECONDS)
        for future in on_way:
            await future.wait()

    def _settled(self, message: Message, future: AsyncSendFuture) -> None:
        if future.exception() is not None:
            return  # raised to who waits for it: the run has failed
        result = future.result()
        self.acknowledged[message] = Place(result.queue, result.offset)
        self.times.append(asyncio.get_running_loop().time())
        self.counts[message.key] += 1

    def longest_silence(self, since: float) -> float:
        """Return the longest time between two acknowledgements, of which one came after `since`."""
        last = max((time for time in self.times if time <= since), default=since)
        silence = 0.0
        for time in self.times:
            if time > since:
                silence, last = max(silence, time - last), time
        return silence


async def read_all(name_servers: str) -> list[Found]:
    """Read the topic from its first message to its last."""
    found: list[Found] = []
    config = ConsumerConfig(start_at=StartAt.FIRST)
    async with AsyncConsumer(name_servers, config) as consumer:
        await consumer.assign(TOPIC)
        total = sum(bounds.maximum for bounds in (await consumer.offsets(TOPIC)).values())
        async with asyncio.timeout(READ_SECONDS):
            while len(found) < total:
                for record in await consumer.poll(max_records=POLL_RECORDS, timeout_ms=500):
                    place = Place(record.queue, record.offset)
                    found.append((place, message_of(bytes(record.body))))
    return found
