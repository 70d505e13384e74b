"""A synchronous producer in a process of its own, one message after the other.

`python -m bench.setup.blocking NAME_SERVER TOPIC` prints a line for each acknowledgement: when it
came (monotonic seconds, the same clock in every process here), how long the send took, the term of
the leader that gave it; or `!` and what a failed send raised. It ends with its standard input.
"""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bench.setup.native import BODY_SIZE
from dledger_client import Producer
from dledger_client.errors import ClientError

END_SECONDS = 15.0


@dataclass(slots=True)
class Acks:
    """What the producer saw."""

    times: list[float] = field(default_factory=list[float])
    seconds: list[float] = field(default_factory=list[float])
    terms: list[int] = field(default_factory=list[int])
    failures: list[str] = field(default_factory=list[str])

    @property
    def term(self) -> int:
        """Term of the newest acknowledgement; 0: none yet."""
        return self.terms[-1] if self.terms else 0

    def has_moved_on(self, term: int) -> bool:
        """Tell whether a leader of a later term has acknowledged."""
        return self.term > term

    def gap(self, term: int) -> float:
        """Return the seconds between the last acknowledgement of `term` and the next."""
        later = next(place for place, of in enumerate(self.terms) if of > term)
        return self.times[later] - self.times[later - 1]

    def take(self, line: str) -> None:
        """Note a line of the process."""
        if line.startswith("!"):
            self.failures.append(line[1:].strip())
            return
        when, seconds, term = line.split()
        self.times.append(float(when))
        self.seconds.append(float(seconds))
        self.terms.append(int(term))


@asynccontextmanager
async def sending(name_server: str, topic: str) -> AsyncGenerator[Acks]:
    """Run the producer; yield what it sees, as it sees it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.setup.blocking", name_server, topic,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    acks = Acks()

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            acks.take(line.decode())

    reader = asyncio.create_task(read())
    try:
        yield acks
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(END_SECONDS):
            await reader
            await process.wait()
    finally:
        reader.cancel()
        if process.returncode is None:
            process.kill()
            await process.wait()


def main(name_server: str, topic: str) -> None:
    """Send until standard input ends."""
    over = threading.Event()

    def watch() -> None:
        sys.stdin.buffer.read()
        over.set()

    threading.Thread(target=watch, daemon=True).start()
    body = os.urandom(BODY_SIZE)
    with Producer(name_server) as producer:
        while not over.is_set():
            start = time.monotonic()
            try:
                result = producer.send(topic, body)
            except ClientError as error:
                print("!", " ".join(str(error).split()), flush=True)
                continue
            now = time.monotonic()
            print(f"{now:.6f} {now - start:.6f} {result.term}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
