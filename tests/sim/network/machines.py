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

    def strike(self, random: Random, host: str, other: ProcessLoop) -> None:
        """Begin a fault between a host and another one's process, or end all of them."""
        network = self.network
        match random.randrange(6):
            case 0:
                network.cut(host, other.host)
            case 1:
                network.hold(other.host, host)
            case 2:
                network.break_connections(host, other.host)
            case 3:
                other.pause()
            case _:
                network.heal_all()
                other.resume()

    def run(self, seconds: float) -> None:
        self.scheduler.run_until(self.scheduler.now + seconds, lambda: None)

    def spawn(self, loop: ProcessLoop, work: Callable[[], Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run a coroutine on a process; its task is in the list at once, or after the pause."""
        tasks: list[Any] = []
        loop.run_now(lambda: tasks.append(loop.create_task(work())))
        return tasks
