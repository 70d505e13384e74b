"""Saving a simulated member's state now and then: frozen, written, finished, each in its own time.

Owns: the intervals, a save that finds no room (tried again) and one that fails (the process ends).
"""

import contextlib
from typing import TYPE_CHECKING, Final

from dledger.state.machine import StateFlush
from dledger.store.store import StoreFailed, StoreFull
from tests.sim.disk.disk import PowerCut

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
        self._writing: StateFlush | None = None
        """A flush that its thread has, and that has not reached the disk."""

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
        self._writing = flush
        member = self._member
        if member.in_next_save is not None:
            self._world.scheduler.after(member.random.random() * length, member.in_next_save)
            member.in_next_save = None

    def _write(self, flush: StateFlush, rest: float) -> None:
        if self._process.ended:
            return
        member, world = self._member, self._world
        try:
            flush.execute()
            self._writing = None
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

    def end(self) -> None:
        """Let a save under way come to a drawn row, or to its end, of which nobody hears."""
        flush, self._writing = self._writing, None
        if flush is not None and self._member.random.random() < 0.8:
            rows = len(flush.flush.overlay.values)
            self._member.state.cut_at_row(self._member.random.randrange(rows + rows // 2 + 1))
            with contextlib.suppress(PowerCut, StoreFailed):
                flush.execute()

    def close_store(self) -> None:
        """Close the store in order, unless a save is under way: its thread may still write."""
        if not self._busy:
            self._process.machine.close()
