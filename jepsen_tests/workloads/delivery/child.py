"""Consumers as processes of their own, whose lines become rows of the history.

Each call of a listener is a process of the history, because one consumer has several at a time.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from jepsen_tests.history.events import Kind
from jepsen_tests.run.recorder import Recorder
from jepsen_tests.workloads.delivery.consumer import ConsumerPlan

ROOT: Final = Path(__file__).parents[3]
CLOSE_SECONDS: Final = 8.0
"""A consumer that ends in order and takes longer is killed."""
LINE_LENGTH_MAX: Final = 1 << 20
KILLED: Final = "CANCELLED: the consumer ended"
REVOKED: Final = "CANCELLED: the consumer lost the queue"


class Lanes:
    """Numbers of processes for calls, used again as long as outcomes are known."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._free: list[int] = []

    def take(self) -> int:
        """Return the number of a process that does nothing."""
        return self._free.pop() if self._free else self._recorder.new_process()

    def give(self, number: int) -> None:
        """Take back the number of a process whose call has a known outcome."""
        self._free.append(number)


class Child:
    """One process."""

    def __init__(
        self, recorder: Recorder, lanes: Lanes, name: str, plan: ConsumerPlan,
        process: asyncio.subprocess.Process,
    ) -> None:  # fmt: skip
        self._recorder = recorder
        self._lanes = lanes
        self._name = name
        self._plan = plan
        self._process = process
        self._open: dict[int, int] = {}
        """Of each call that has not ended its process number."""

    def kill(self) -> None:
        """End it at once."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)

    async def leave(self) -> None:
        """End it in order."""
        assert self._process.stdin is not None, "it was started with a pipe"
        self._process.stdin.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self.kill()

    async def follow(self) -> None:
        """Write down what the process tells, until it ends."""
        out = self._process.stdout
        assert out is not None, "it was started with a pipe"
        try:
            while line := await out.readline():
                if line.endswith(b"\n"):  # else it was killed in the middle of one
                    self._take(json.loads(line))
        finally:
            self.kill()
            for number in self._open.values():
                self._recorder.end(number, Kind.INFO, "handle", err=KILLED)
            await self._process.wait()

    def _take(self, line: list[Any]) -> None:
        what, call, *more = line
        if what == "begin":
            place, asked = more
            number = self._open[call] = self._lanes.take()
            k = f"{self._plan.group}@{place}"
            self._recorder.invoke(number, "handle", k, {**asked, "consumer": self._name})
            return
        number = self._open.pop(call)
        if what == "cancelled":
            self._recorder.end(number, Kind.INFO, "handle", err=REVOKED)
            return
        self._recorder.end(number, Kind.OK, "handle", v=more)
        self._lanes.give(number)


@asynccontextmanager
async def child(
    recorder: Recorder, lanes: Lanes, name: str, plan: ConsumerPlan, *, folder: Path, mutant: str
) -> AsyncGenerator[Child]:
    """Run a consumer for the length of a block; it is killed at the end unless it has left."""
    environment = {key: each for key, each in os.environ.items() if key[:8] != "DLEDGER_"}
    with (folder / f"{name}.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "jepsen_tests.processes.launch", str(os.getpid())),
            *(("--mutant", mutant) if mutant else ()),
            "jepsen_tests.workloads.delivery.consumer", json.dumps(asdict(plan)),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
            cwd=ROOT, env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True, limit=LINE_LENGTH_MAX,
        )  # fmt: skip
    made = Child(recorder, lanes, name, plan, process)
    following = asyncio.create_task(made.follow())
    try:
        yield made
    finally:
        made.kill()
        await following
