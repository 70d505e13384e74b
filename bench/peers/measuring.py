"""The figures, measured by what every system can do (`peer.System`).

Owns how a load is made and what of it counts. Not: how a client is called.
"""

import asyncio
import itertools
import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from bench.peers.peer import BODY_SIZE, Done, Heard, Load, Purpose, Sender, Sent
from bench.setup.cluster import NotReady, within

BODIES = 64
"""So many different random bodies are sent in turn."""
BREATH_MESSAGES = 64
"""After so many messages acknowledgements may arrive."""
PACE_SECONDS = 0.001
"""How long a paced producer sleeps before it looks what is due."""
WARM_SHARE = 0.25
"""A load runs so much longer before it counts."""
ANSWER_SECONDS_MAX = 120.0
RECOVERY_SECONDS_MAX = 90.0
QUIET_SECONDS = (0.5, 1.5)
"""Before a kill; random, so that kills meet timers at any point."""
_numbers = itertools.count()


def topic_name(what: str) -> str:
    """Return a name that no earlier topic of this process has."""
    return f"{what}-{next(_numbers)}"


class Tally:
    """Counts the answers of a load."""

    def __init__(self) -> None:
        self.sent = 0
        self.stored = 0
        self.failed = 0

    def done(self, is_stored: bool) -> None:
        """Count an answer."""
        if is_stored:
            self.stored += 1
        else:
            self.failed += 1

    async def answered(self, sender: Sender) -> None:
        """Wait until each message has its answer; NotReady when a send failed."""
        async with within(ANSWER_SECONDS_MAX, "the last acknowledgement"):
            while self.stored + self.failed < self.sent:
                await sender.breathe()
                await asyncio.sleep(PACE_SECONDS)
        if self.failed:
            raise NotReady(f"{self.failed} of {self.sent} sends failed")


async def first_messages(sender: Sender, topics: Sequence[str], size_bytes: int) -> None:
    """Send a message of zeros to each topic: the first one waits for where the topic is."""
    tally = Tally()
    for topic in topics:
        while not sender.submit(topic, bytes(size_bytes), tally.done):
            await sender.room()
        tally.sent += 1
    await tally.answered(sender)


async def full_speed(sender: Sender, topics: Sequence[str], load: Load) -> Sent:
    """Hand messages over as fast as they are taken; count the acknowledged ones."""
    bodies = [os.urandom(load.size_bytes) for _ in range(BODIES)]
    tally = Tally()
    await first_messages(sender, topics, load.size_bytes)
    place = itertools.cycle(topics)
    begin = time.perf_counter() + load.seconds * WARM_SHARE
    counted_from, counted = 0.0, 0
    while (now := time.perf_counter()) < begin + load.seconds:
        if not counted_from and now >= begin:
            counted_from, counted = now, tally.stored
        for _ in range(BREATH_MESSAGES):
            body = bodies[tally.sent % BODIES]
            topic = next(place)
            while not sender.submit(topic, body, tally.done):
                await sender.room()
            tally.sent += 1
        await sender.breathe()
    rate = (tally.stored - counted) / (time.perf_counter() - (counted_from or begin))
    await tally.answered(sender)
    return Sent(rate)


async def paced(sender: Sender, topic: str, load: Load) -> Sent:
    """Hand messages over when they are due; a late producer counts as the system's delay."""
    bodies = [os.urandom(load.size_bytes) for _ in range(BODIES)]
    tally = Tally()
    seconds: list[float] = []
    warm = int(load.rate * load.seconds * WARM_SHARE)
    count = warm + int(load.rate * load.seconds)
    await first_messages(sender, [topic], load.size_bytes)
    start = time.perf_counter()

    def timed(number: int) -> Done:
        due = start + number / load.rate

        def done(is_stored: bool) -> None:
            tally.done(is_stored)
            if number >= warm:
                seconds.append(time.perf_counter() - due)

        return done

    while tally.sent < count:
        due = min(count, int((time.perf_counter() - start) * load.rate) + 1)
        for number in range(tally.sent, due):
            done = timed(number)
            while not sender.submit(topic, bodies[number % BODIES], done):
                await sender.room()
            tally.sent += 1
            if not number % BREATH_MESSAGES:
                await sender.breathe()
        await sender.breathe()
        await asyncio.sleep(PACE_SECONDS)
    taken = time.perf_counter() - start
    await tally.answered(sender)
    return Sent(count / taken, seconds)


class Measured(ABC):
    """A `Peer` out of a `System`: the figures that need no more than it has."""

    @abstractmethod
    async def create(self, topics: Sequence[str], queues: int) -> None: ...
    @abstractmethod
    def sending(self, purpose: Purpose = "rate") -> AbstractAsyncContextManager[Sender]: ...
    @abstractmethod
    def reading(self, topic: str, heard: Heard) -> AbstractAsyncContextManager[None]: ...
    @abstractmethod
    async def read_back(self, topic: str, count: int) -> float: ...
    @abstractmethod
    async def leader(self, topic: str) -> str: ...
    @abstractmethod
    def kill(self, node: str) -> None: ...
    @abstractmethod
    def restart(self, node: str) -> None: ...
    @abstractmethod
    async def settled(self, topic: str) -> None: ...

    async def one_call_per_message(self, load: Load) -> Sent:
        topics = [topic_name("load") for _ in range(load.topics)]
        await self.create(topics, load.queues)
        async with self.sending() as sender:
            if load.rate:
                return await paced(sender, topics[0], load)
            return await full_speed(sender, topics, load)

    async def backlog(self, count: int) -> float:
        topic = topic_name("backlog")
        await self.create([topic], 1)
        bodies = [os.urandom(BODY_SIZE) for _ in range(BODIES)]
        tally = Tally()
        async with self.sending() as sender:
            for number in range(count):
                while not sender.submit(topic, bodies[number % BODIES], tally.done):
                    await sender.room()
                tally.sent += 1
                if not number % BREATH_MESSAGES:
                    await sender.breathe()
            await tally.answered(sender)
        return count / await self.read_back(topic, count)

    async def end_to_end(self, rate: float, seconds: float) -> list[float]:
        topic = topic_name("ages")
        await self.create([topic], 1)
        ages: list[float] = []
        is_open = threading.Event()

        def heard(body: bytes) -> None:
            sent_ns = int.from_bytes(body[:8])
            if sent_ns:
                ages.append((time.perf_counter_ns() - sent_ns) / 1e9)
            else:
                is_open.set()

        count, tally = int(rate * seconds), Tally()
        async with self.sending("single") as sender, self.reading(topic, heard):
            await first_messages(sender, [topic], BODY_SIZE)
            await _reached(is_open.is_set, "the first message at the reader")
            start = time.perf_counter()
            for number in range(count):
                await _until(sender, start + number / rate)
                body = time.perf_counter_ns().to_bytes(8) + os.urandom(BODY_SIZE - 8)
                while not sender.submit(topic, body, tally.done):
                    await sender.room()
                tally.sent += 1
                await sender.breathe()
            await tally.answered(sender)
            await _reached(lambda: len(ages) >= count, "the last message at the reader")
        return ages[count // 10 :]

    async def failover(self, trials: int) -> list[float]:
        topic = topic_name("failover")
        await self.create([topic], 1)
        chance = random.Random(7)
        acks: list[float] = []
        gaps: list[float] = []
        async with self.sending("failover") as sender:
            is_over = asyncio.Event()
            task = asyncio.create_task(_one_after_the_other(sender, topic, acks, is_over))
            try:
                for _ in range(trials):
                    before = len(acks)
                    await _reached(lambda: len(acks) > before + 10, "an acknowledgement")  # noqa: B023 - awaited here
                    await asyncio.sleep(chance.uniform(*QUIET_SECONDS))
                    gaps.append(await self._lose_leader(topic, acks))
            finally:
                is_over.set()
                await task
        return gaps

    async def _lose_leader(self, topic: str, acks: list[float]) -> float:
        """Kill the leader, wait for a new one, start the killed node again; return the gap."""
        node = await self.leader(topic)
        killed = time.monotonic()
        self.kill(node)
        try:
            # Answers that were on their way still arrive: the longest gap after the kill counts.
            await _reached(lambda: _goes_on(acks, killed), "an acknowledgement by a new leader")
        finally:
            self.restart(node)
        gap = longest_gap(acks, killed)
        await self.settled(topic)
        return gap


SPREAD_ACKS = 20
SPREAD_SECONDS = 0.5


def _goes_on(acks: Sequence[float], killed: float) -> bool:
    """Tell whether acknowledgements come again: several, and some time after the kill."""
    return (
        len(acks) > SPREAD_ACKS
        and acks[-SPREAD_ACKS] > killed
        and acks[-1] > killed + SPREAD_SECONDS
    )


def longest_gap(acks: Sequence[float], killed: float) -> float:
    """Return the longest time between two acknowledgements that ends after the kill."""
    pairs = itertools.pairwise(acks)
    return max((later - earlier for earlier, later in pairs if later > killed), default=0.0)


async def _one_after_the_other(
    sender: Sender, topic: str, acks: list[float], is_over: asyncio.Event
) -> None:
    body = os.urandom(BODY_SIZE)
    while not is_over.is_set():
        if await sender.send(topic, body):
            acks.append(time.monotonic())


async def _until(sender: Sender, when: float) -> None:
    """Sleep until a time; let acknowledgements arrive meanwhile."""
    while (left := when - time.perf_counter()) > 0:
        await sender.breathe()
        await asyncio.sleep(min(left, PACE_SECONDS))


async def _reached(
    condition: Callable[[], bool], what: str, seconds_max: float = RECOVERY_SECONDS_MAX
) -> None:
    """Wait until something holds; NotReady when it does not within the bound."""
    async with within(seconds_max, what):
        while not condition():  # noqa: ASYNC110 - what it looks at has no event
            await asyncio.sleep(PACE_SECONDS)
