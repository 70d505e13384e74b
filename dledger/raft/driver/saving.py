"""When the derived state is saved: soon after a change, never ahead of the log behind it.

Owns the decision and the one flush in flight. The state itself, what a flush writes and that it
moves `saved_index` are the store's (`dledger.state`), which this package never imports.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from dledger.log.commit_log import CommitLog
from dledger.raft.api import Machine
from dledger.raft.driver.worker import Worker
from dledger.types import LogIndex

FULL_RETRY_SECONDS: Final = 1.0
"""How long after a full disk the same flush is tried again."""


class StateFlush(Protocol):
    """A frozen part of the derived state on its way to disk."""

    @property
    def applied_index(self) -> LogIndex:
        """The newest entry it covers."""
        ...

    def execute(self) -> None:
        """Write and sync; OSError when the disk refuses. Off the loop's thread."""
        ...


class SavedMachine(Machine, Protocol):
    """A machine whose state is saved in frozen parts; `dledger.state.machine` has one."""

    @property
    def needs_flush(self) -> bool:
        """So much is unsaved that saving should begin now."""
        ...

    @property
    def is_backlogged(self) -> bool:
        """So much is unsaved that apply must pause until a flush ended."""
        ...

    def freeze(self) -> StateFlush | None:
        """Begin to save what changed; None when nothing did. One flush at a time."""
        ...

    def flush_finished(self, flush: Any, /) -> None:
        """The flush is on disk; `saved_index` moves."""
        ...


class Saving:
    """Saves the state of one group. Times in seconds."""

    def __init__(
        self,
        machine: SavedMachine,
        log: CommitLog,
        worker: Worker,
        on_finished: Callable[[BaseException | None], None],
        *,
        interval: float,
        full: type[OSError] | None,
    ) -> None:
        self._machine = machine
        self._log = log
        self._worker = worker
        self._on_finished = on_finished
        self._interval = interval
        self._full = full
        self._dirty_since: float | None = None
        self._retry_at: float | None = None
        self._flush: StateFlush | None = None
        self._is_submitted = False
        self._frozen_index = machine.saved_index

    @property
    def is_behind(self) -> bool:
        """So much is unsaved that apply must pause until the disk has caught up."""
        return self._machine.is_backlogged

    @property
    def is_done(self) -> bool:
        """Everything applied is saved."""
        return self._flush is None and not self._is_dirty

    @property
    def waits_for_log(self) -> bool:
        """A frozen state waits for the log: its entries were not durable yet."""
        return self._flush is not None and not self._is_submitted

    @property
    def _is_dirty(self) -> bool:
        return self._machine.applied_index > self._frozen_index

    def deadline(self) -> float | None:
        """Return when `consider` has something to do; None while nothing changed."""
        if self._retry_at is not None:
            return self._retry_at
        if self._dirty_since is None or self._flush is not None:
            return None
        return self._dirty_since + self._interval

    def consider(self, now: float) -> None:
        """Begin to save when the oldest change is old enough, or the unsaved part large."""
        self._submit(now)
        if not self._is_dirty:
            return
        if self._dirty_since is None:
            self._dirty_since = now
        if self._machine.needs_flush or now - self._dirty_since >= self._interval:
            self.begin(now)

    def begin(self, now: float) -> None:
        """Save what changed, unless a flush is in flight."""
        if self._flush is None and self._is_dirty:
            self._flush = self._machine.freeze()
            self._frozen_index = self._machine.applied_index
            self._is_submitted = False
            self._dirty_since = None
            self._submit(now)

    def _submit(self, now: float) -> None:
        """Give the frozen state to its thread, once the log behind it is durable.

        With `flush: async` apply runs ahead of the disk. A saved state must not refer to entries
        that a power cut may take from the log: nothing could repair it (D6).
        """
        flush = self._flush
        if flush is None or self._is_submitted or self._log.durable_index < flush.applied_index:
            return
        if self._retry_at is not None and now < self._retry_at:
            return
        self._retry_at = None
        self._is_submitted = True

        def done(_result: object, error: BaseException | None) -> None:
            if error is not None and self._full is not None and isinstance(error, self._full):
                # Nothing was begun. Appends are refused by the disk's low-water mark meanwhile.
                self._is_submitted = False
                self._retry_at = now + FULL_RETRY_SECONDS
                self._on_finished(None)
                return
            self._flush = None
            if error is None:
                self._machine.flush_finished(flush)
            self._on_finished(error)

        self._worker.submit(flush.execute, done)
