"""Hosts with one process each, for tests of the network alone."""

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from tests.sim.network.network import Network
from tests.sim.process.loop import ProcessLoop
from tests.sim.world.clock import Scheduler


class Machines:
    """Hosts with a process each, by name."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler()
        self.random = Random(seed)
        self.lines: list[str] = []
        self.network = Network(self.scheduler, self.random, (0.0002, 0.002), self._trace)
        self.errors: list[BaseException] = []

    def _trace(self, line: str) -> None:
        self.lines.append(f"{self.scheduler.now:.6f} {line}")

    def start(self, host: str) -> ProcessLoop:
        loop = ProcessLoop(  # type: ignore[abstract]  # simulated processes have no sockets
            self.scheduler,
            Random(self.random.getrandbits(64)),
            host,
            lambda: self.scheduler.now,
            lambda error, _where: self.errors.append(error),
        )
        loop.network = self.network
        self.network.process_started(host, loop)
        return loop

    def end(self, loop: ProcessLoop, *, silent: bool = False) -> None:
        loop.end()
        self.network.process_ended(loop.host, silent=silent)

    def run(self, seconds: float) -> None:
        self.scheduler.run_until(self.scheduler.now + seconds, lambda: None)

    def spawn(self, loop: ProcessLoop, work: Callable[[], Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run a coroutine on a process; its task is in the list at once, or after the pause."""
        tasks: list[Any] = []
        loop.run_now(lambda: tasks.append(loop.create_task(work())))
        return tasks
