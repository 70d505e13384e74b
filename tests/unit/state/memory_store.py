"""A quick state store for tests of the state: the shared in-memory tail over rows in a dictionary.

Owns: `MemoryDisk`, what a disk holds of the state, and `MemoryStore` on it. The model of LMDB's
commits: a flush is all or nothing. Once `flush_finished` was called it cannot be lost. A power cut
while a flush is under way leaves the commit before it, or it (`lose_last` says which).
"""

from collections.abc import Iterable, Iterator

from sortedcontainers import SortedDict

from dledger.store.store import Flush, Row, StateStore, Value


class MemoryDisk:
    """Committed rows, and how to go back one commit."""

    def __init__(self) -> None:
        self.rows: SortedDict[bytes, bytes] = SortedDict()
        self._undo: list[tuple[bytes, bytes | None]] = []

    def get(self, key: bytes) -> bytes | None:
        """See `Base.get`."""
        return self.rows.get(key)

    def scan(self, start: bytes, stop: bytes, limit: int, *, reverse: bool) -> list[Row]:
        """See `Base.scan`."""
        found: list[Row] = []
        for key in self.rows.irange(start, stop, (True, False), reverse):
            found.append((key, self.rows[key]))
            if len(found) == limit:
                break
        return found

    def saved_rows(self) -> Iterator[Row]:
        """See `Base.saved_rows`."""
        return iter(list(self.rows.items()))

    def save(self, rows: Iterable[tuple[bytes, Value | None]], size_bytes: int) -> None:
        """See `Base.save`."""
        self._undo = []
        for key, value in rows:
            self._undo.append((key, self.rows.get(key)))
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = bytes(value)

    def finished(self) -> None:
        """Note that somebody waited for the last save: a power cut cannot lose it."""
        self._undo = []

    def after_power_cut(self, *, lose_last: bool) -> "MemoryDisk":
        """Return the rows after a power cut; with `lose_last`, without a save nobody waited for."""
        left = MemoryDisk()
        left.rows.update(self.rows)
        if lose_last:
            for key, value in reversed(self._undo):
                if value is None:
                    left.rows.pop(key, None)
                else:
                    left.rows[key] = value
        return left

    def close(self) -> None:
        """See `Base.close`; the rows stay for the next process."""


class MemoryStore(StateStore):
    """A process's view of a disk."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk()
        super().__init__(self.disk)

    def flush_finished(self, flush: Flush) -> None:
        """See `StateStore.flush_finished`."""
        super().flush_finished(flush)
        self.disk.finished()

    def power_cut(self, lose_last: bool) -> "MemoryStore":
        """Return the store that the next process opens; this one and its flushes are dead.

        A killed process leaves its commit: `lose_last` False.
        """
        return MemoryStore(self.disk.after_power_cut(lose_last=lose_last))
