"""Saving a simulated member's state now and then: frozen, written, finished, each in its own time.

Owns: the intervals, a save that finds no room (tried again) and one that fails (the process ends).
"""

from typing import TYPE_CHECKING, Final

from dledger.state.machine import StateFlush
from dledger.store.store import StoreFailed, StoreFull

if TYPE_CHECKING:
    from tests.sim.member.process import Process

SAVE_MIN: Final = 0.05
SAVE_MAX: Final = 0.55


class Saver:
    """One process's saves; at most one is under way."""

    def __init__(self, process: "Process") -> None:
        self._process = process
        self._member = process.member
        self._world = process.member.world
        self._busy = False

    def consider(self) -> None:
        """Begin to save soon, if anything is new."""
        if not self._busy and self._process.machine.unsaved_bytes:
            self._busy = True
            delay = self._member.random.uniform(SAVE_MIN, SAVE_MAX)
            self._world.scheduler.after(delay, self._member.input, self._begin)

    def _begin(self) -> None:
        if self._process.ended:
            return
        flush = self._process.machine.freeze()
        if flush is None:
            self._busy = False
            return
        self._begin_write(flush)

    def _begin_write(self, flush: StateFlush) -> None:
        """Write the frozen state once the log up to it is synced, as the driver does (D6)."""
        if self._process.ended:
            return
        if self._process.log.durable_index < flush.applied_index:
            self._world.scheduler.after(SAVE_MIN, self._begin_write, flush)
            return
        length = self._member.random.uniform(0.001, 0.02)
        reached = self._member.random.random() * length
        self._world.scheduler.after(reached, self._write, flush, length - reached)

    def _write(self, flush: StateFlush, rest: float) -> None:
        if self._process.ended:
            return
        member, world = self._member, self._world
        try:
            flush.execute()
        except StoreFull:  # nothing was begun: again when there is room
            world.counts["state saves refused"] += 1
            world.scheduler.after(member.random.uniform(0.1, 0.5), self._write, flush, rest)
        except StoreFailed as error:  # as the driver does: the process ends (I16)
            world.trace(f"state {member.name} failed {error}")
            world.counts["state failures"] += 1
            member.kill()
            member.start_later(0.3, 2.0)
        else:
            world.scheduler.after(rest, member.input, self._finish, flush)

    def _finish(self, flush: StateFlush) -> None:
        if not self._process.ended:
            self._busy = False
            self._process.machine.flush_finished(flush)
