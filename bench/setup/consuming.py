"""A consumer of a group in a process of its own, which tells which queues it has.

`python -m bench.setup.consuming NAME_SERVER GROUP TOPIC` prints `ready`, waits for a line, joins
the group and polls. After each change it prints a line: when it was (monotonic seconds, the same
clock in every process here), then all queues that it reads, each of which it has claimed. It
ends with its standard input.
"""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import uvloop

from bench.setup.cluster import NotReady, within
from dledger_client import AsyncConsumer, ConsumerConfig, StartAt

READY_SECONDS_MAX = 60.0
END_SECONDS_MAX = 30.0
POLL_MS = 1_000


@dataclass(slots=True, eq=False)
class Consuming:
    """The process, as the benchmark sees it."""

    process: asyncio.subprocess.Process
    heard: Callable[[], None]
    """Called after each line."""
    queues: frozenset[bytes] = frozenset()
    changed_at: float = 0.0
    """When the queues became those that it has now."""
    _reader: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    @classmethod
    async def prepare(
        cls, name_server: str, group: str, topic: str, heard: Callable[[], None]
    ) -> "Consuming":
        """Start the process; return when it is about to join."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.setup.consuming", name_server, group, topic,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        here = cls(process, heard)
        try:
            async with within(READY_SECONDS_MAX, "a consumer's process"):
                await here._ready()
        except BaseException:
            await here.kill()
            raise
        here._reader.append(asyncio.create_task(here._read()))
        return here

    async def _ready(self) -> None:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if line != b"ready\n":
            raise NotReady(f"a consumer's process printed {line!r} instead of ready")

    def join(self) -> float:
        """Let the process join its group; return when that was."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        return time.monotonic()

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            when, *queues = line.split()
            self.queues = frozenset(queues)
            self.changed_at = float(when)
            self.heard()

    @property
    def is_over(self) -> bool:
        """True: the process has ended."""
        return self.process.returncode is not None

    async def kill(self) -> float:
        """Kill the process; return when that was."""
        if not self.is_over:
            self.process.kill()
        killed = time.monotonic()
        async with within(END_SECONDS_MAX, "the end of a consumer"):
            await self.process.wait()
            await asyncio.gather(*self._reader)
        return killed


async def consume(name_server: str, group: str, topic: str) -> None:
    """Poll until standard input ends."""
    held: set[tuple[str, int]] = set()

    def tell() -> None:
        queues = sorted(f"{name}/{queue}" for name, queue in held)
        print(f"{time.monotonic():.6f}", *queues, flush=True)

    def assigned(places: list[tuple[str, int]]) -> None:
        held.update(places)
        tell()

    def revoked(places: list[tuple[str, int]]) -> None:
        held.difference_update(places)
        tell()

    loop, may_join = asyncio.get_running_loop(), asyncio.Event()

    def watch() -> None:
        os.read(0, 1)
        loop.call_soon_threadsafe(may_join.set)
        while os.read(0, 1):
            pass
        os._exit(0)  # nobody waits for a farewell

    threading.Thread(target=watch, daemon=True).start()
    await may_join.wait()
    config = ConsumerConfig(group=group, start_at=StartAt.FIRST)
    async with AsyncConsumer(name_server, config) as consumer:
        await consumer.subscribe(topic, on_assigned=assigned, on_revoked=revoked)
        while True:
            await consumer.poll(timeout_ms=POLL_MS)


if __name__ == "__main__":
    print("ready", flush=True)
    uvloop.run(consume(*sys.argv[1:4]))
