"""A simulated name server: the product's own, on a host of its own.

Owns: its process, and what befalls it. It keeps nothing: each life learns everything from the
members that register.
"""

from random import Random
from typing import TYPE_CHECKING, Any

from dledger_namesrv.service import NameServer, NameServerSettings
from tests.sim.member.config import NAME_SERVER_PORT
from tests.sim.process.loop import ProcessLoop, new_loop
from tests.sim.world.clock import MemberClock

if TYPE_CHECKING:
    from tests.sim.world.world import World


class Life:
    """One process of a name server."""

    def __init__(self, world: "World", name: str, number: int, clock: MemberClock) -> None:
        self._world = world
        self._name = name
        random = Random(f"{world.plan.seed}/{name}/{number}")
        self.loop: ProcessLoop = new_loop(
            world.scheduler, random, name, clock.monotonic, self._uncaught
        )
        self.loop.on_log = self._log_line
        self._server = NameServer(
            NameServerSettings(listen=f"0.0.0.0:{NAME_SERVER_PORT}"), self.loop.time
        )

    def begin(self) -> None:
        """Listen."""
        self.loop.run_now(lambda: self.loop.create_task(self._run(), name="serve"))

    async def _run(self) -> None:
        try:
            await self._server.start()
        except Exception as error:  # nobody else would hear of it in time
            self._world.found_error(error, f"{self._name}: its start")

    def stop(self) -> None:
        """End in order, and then for good."""
        self.loop.run_now(lambda: self.loop.create_task(self._stop(), name="stop"))

    async def _stop(self) -> None:
        await self._server.stop()
        self.end()

    def end(self) -> None:
        """End at once."""
        if not self.loop.is_ended:
            self._world.network.process_ended(self._name, silent=False)
            self.loop.end()
            self._world.dead.append(self)

    def _uncaught(self, error: BaseException, where: str) -> None:
        self._world.found_error(error, f"{self._name}: {where}")

    def _log_line(self, level: str, event: str, fields: dict[str, Any]) -> None:
        self._world.counts[f"event {event}"] += 1
        self._world.trace(f"event {self._name} {event} {fields}")


class SimNameServer:
    """A name server by name; `life` is None while it does not run."""

    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self.name = name
        offset = Random(f"{world.plan.seed}/{name}").uniform(0.0, 100_000.0)
        self._clock = MemberClock(world.scheduler, offset, _nobody)
        self._lives = 0
        self._life: Life | None = None

    @property
    def is_running(self) -> bool:
        """Tell whether a process exists."""
        return self._life is not None and not self._life.loop.is_ended

    def start(self) -> None:
        """Start a process, unless one runs."""
        if self.is_running:
            return
        self._lives += 1
        self._world.trace(f"start {self.name} life {self._lives}")
        life = self._life = Life(self._world, self.name, self._lives, self._clock)
        self._world.network.process_started(self.name, life.loop)
        life.begin()

    def kill(self) -> None:
        """End the process at once."""
        if self._life is not None and self.is_running:
            self._world.trace(f"kill {self.name}")
            self._life.end()

    def stop(self) -> None:
        """Let the process end in order."""
        if self._life is not None and self.is_running and not self._life.loop.is_paused:
            self._world.trace(f"stop {self.name}")
            self._life.stop()

    def pause(self) -> None:
        """Stop the process (SIGSTOP)."""
        if self._life is not None and self.is_running:
            self._world.trace(f"pause {self.name}")
            self._life.loop.pause()

    def resume(self) -> None:
        """Continue the process."""
        if self._life is not None and self.is_running and self._life.loop.is_paused:
            self._world.trace(f"resume {self.name}")
            self._life.loop.resume()


def _nobody() -> None:
    pass
