"""The saved state of a member that is stopped: its tables, opened for reading only.

Owns: the base of a store that nothing writes to, and what is checked when it is opened. Not: rows
and tables, which are those of a running member (`topics/table.py`, `queues/table.py`,
`progress/table.py`).

The rows are those of the newest whole commit. They are read without LMDB, because LMDB can end the
process when a file is damaged, and without a lock or any other trace. Opening costs a few pages,
however large the state is. Rows are checked as they are read, by their pages and seals. A member
applies committed entries only, so every batch that these tables name is committed; of entries
behind `Applied` nobody knows whether they are.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dledger.state.consumers.usage import UsageTable
from dledger.state.counted_time import CountedTime
from dledger.state.format_level import FORMAT_LEVEL_MAX, read_level
from dledger.state.machine import APPLIED_KEY, APPLIED_VALUE
from dledger.state.offsets import OffsetTable
from dledger.state.progress.table import ProgressTable
from dledger.state.queues.copies import Copies
from dledger.state.queues.garbage import Garbage
from dledger.state.queues.table import QueueTable
from dledger.state.tables import Writer
from dledger.state.topics.table import TopicTable
from dledger.store.lmdb_check import is_new, reading_pages, totals_of
from dledger.store.lmdb_rows import DATA_FILE, PageFile, Walk
from dledger.store.sealed import TOTALS_KEY, unseal
from dledger.store.store import NewerStore, Row, StateStore, Value


@dataclass(frozen=True, slots=True)
class Applied:
    """How far a saved state has applied the log; everything is 0 in an empty state."""

    index: int = 0
    term: int = 0
    time_ms: int = 0
    end_position: int = 0


class _SavedBase:
    """Implements `store.Base` over the pages of one commit."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._file = PageFile(os.path.join(folder, DATA_FILE))

    def check(self) -> int:
        """Check format, totals and mark; return the number of the commit."""
        with reading_pages(self._folder):
            return totals_of(self._folder, self._file).commit

    def get(self, key: bytes) -> bytes | None:
        rows = self.scan(key, key + b"\0", 1, reverse=False)
        return rows[0][1] if rows else None

    def scan(self, start: bytes, stop: bytes, limit: int, *, reverse: bool) -> list[Row]:
        found: list[Row] = []
        walk = Walk(self._file, self._file.newest)
        with reading_pages(self._folder):
            for rows in walk.range(start, min(stop, TOTALS_KEY), reverse=reverse):
                for key, sealed in rows[: limit - len(found)]:
                    found.append((key, unseal(self._folder, key, sealed)))
                if len(found) == limit:
                    break
        return found

    def saved_rows(self) -> Iterator[Row]:
        """Nobody copies a saved state by its rows."""
        raise AssertionError(f"{self._folder} is read by its tables")

    def save(self, rows: Iterable[tuple[bytes, Value | None]], size_bytes: int) -> None:
        """Nobody writes to a saved state."""
        raise AssertionError(f"{self._folder} is only read: {rows}, {size_bytes} bytes")

    def close(self) -> None:
        """Close."""
        self._file.close()


class SavedState:
    """Topics, consume queues and consumer groups of a saved state. Use it in a `with`.

    DamagedStore naming the file, NewerStore, or another OSError of the disk, here and in every
    table; the file may also be changed by a member that starts, which is found by the same checks.
    """

    def __init__(self, folder: str) -> None:
        """Open the state in a folder; FileNotFoundError when none was ever saved there."""
        if is_new(folder):
            raise FileNotFoundError(f"no state was saved in {folder}")
        with reading_pages(folder):
            base = _SavedBase(folder)
        try:
            self.commit = base.check()
            """The number of the save. A member that ran meanwhile has made newer ones."""
            self._store = store = StateStore(base)
            self.applied = _applied(folder, store)
            writer = Writer(store)
            time = CountedTime(writer)
            usage = UsageTable(writer, time)
            self.topics = TopicTable(writer, time, usage)
            live = self.topics.since(-1, with_deleted=False)
            self.copies = Copies(writer, Garbage(writer))
            live_ids = frozenset(topic.topic_id for topic in live)
            self.queues = QueueTable(writer, live_ids, self.copies)
            self.progress = ProgressTable(writer, OffsetTable(writer), usage)
        except BaseException:
            base.close()
            raise

    def close(self) -> None:
        """Close."""
        self._store.close()

    def __enter__(self) -> "SavedState":
        """Return the open state."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def _applied(folder: str, store: StateStore) -> Applied:
    level = read_level(store)
    if level > FORMAT_LEVEL_MAX:
        raise NewerStore(
            f"state store {folder}: format level {level}, this dledger knows {FORMAT_LEVEL_MAX}; "
            "read it with the dledger that wrote it, or a later one"
        )
    value = store.get(APPLIED_KEY)
    return Applied() if value is None else Applied(*APPLIED_VALUE.unpack(value)[:-1])
