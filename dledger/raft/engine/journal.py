"""PySyncObj's Journal over the commit log: a lazy view, and the append rule that Raft asks for.

Owns: what the core sees of the log (index and term of an entry, never its bytes), the rule that
only a conflict cuts (F2), and the refusal to truncate at or below the commit index (I7, F15). Does
not own durability (`durability.py`), nor the leader's time stamps (`leadership/clocks.py`).

The core treats a journal as a list of (bytes, index, term). A `Run` takes part in that as if it
were one such entry, so that a message with hundreds of entries costs the core a single step.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, overload

from dledger.log.commit_log import CommitLog
from dledger.raft.leadership.clocks import GroupClock
from dledger.types import Buffer, EntryKind, EntryRef, LogIndex, Term
from dledger_proto.entry import EntryHeader

CoreEntry = tuple[bytes, int, int]

PLACEHOLDER: Final = b"\0"
"""Stands for an entry's bytes, which the core never needs."""


class InvariantBroken(AssertionError):
    """The member found itself about to break Raft; it stops at once (F15, I7)."""


class CommittedConflict(InvariantBroken):
    """A leader's entries contradict what this member holds for committed (I7)."""


class Run:
    """Consecutive entries of one append message, as frames of the log."""

    __slots__ = ("frames", "headers")

    def __init__(self, frames: memoryview, headers: Sequence[tuple[EntryHeader, int]]) -> None:
        self.frames = frames
        self.headers = headers
        """Of each entry: its header, and where it begins in `frames`."""

    @property
    def first(self) -> int:
        """Index of the first entry."""
        return self.headers[0][0].index

    @property
    def last(self) -> int:
        """Index of the last entry."""
        return self.headers[-1][0].index

    @property
    def last_term(self) -> int:
        """Term of the last entry."""
        return self.headers[-1][0].term


class RunList:
    """A run in the place of a message's list of entries: the core adds it in one call."""

    __slots__ = ("_entry", "_run")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._entry = (run, run.last, run.last_term)

    def __iter__(self) -> Iterator[tuple[Run, int, int]]:
        yield self._entry

    def __len__(self) -> int:
        return 1

    def __getitem__(self, place: int) -> tuple[Run, int, int]:
        return self._entry


class View:
    """A slice of the journal that looks up terms only where the core asks."""

    __slots__ = ("_first", "_log", "_stop")

    def __init__(self, log: CommitLog, first: int, stop: int) -> None:
        self._log = log
        self._first = first
        self._stop = max(first, stop)

    def __len__(self) -> int:
        return self._stop - self._first

    def __getitem__(self, place: int) -> CoreEntry:
        if place < 0:
            place += len(self)
        index = self._first + place
        if not self._first <= index < self._stop:
            raise IndexError(place)
        return _entry_at(self._log, index)


def _entry_at(log: CommitLog, index: int) -> CoreEntry:
    term = log.term_at(LogIndex(index))
    assert term is not None, f"the log holds no entry {index}"
    return PLACEHOLDER, index, term


def newest_up_to_term(log: CommitLog, low: int, high: int, term: int) -> int:
    """Return the highest index in low..high whose term is at most `term`; `low` if none is.

    Terms grow with the index, so a binary search finds it.
    """
    while low < high:
        middle = (low + high + 1) // 2
        found = log.term_at(LogIndex(middle))
        if found is not None and found <= term:
            low = middle
        else:
            high = middle - 1
    return low


class Journal:
    """The log as the core sees it. Position p of the list is index `first_index + p`."""

    def __init__(
        self,
        log: CommitLog,
        clocks: GroupClock,
        *,
        term: int,
        vote: str | None,
        commit_index: int,
        on_hard_state: Callable[[int, str | None], None],
        on_truncated: Callable[[int, int], None],
    ) -> None:
        assert not log.is_empty, "a journal begins with the genesis entry"
        self._log = log
        self._clocks = clocks
        self.term = term
        self.vote = vote
        self.commit_index = commit_index
        """Invariant: never goes back, and is at most the log's last index."""
        self._on_hard_state = on_hard_state
        self._on_truncated = on_truncated

    # What the core reads.

    def __len__(self) -> int:
        return self._log.last_index - self._log.first_index + 1

    @overload
    def __getitem__(self, item: int) -> CoreEntry: ...
    @overload
    def __getitem__(self, item: slice) -> View: ...

    def __getitem__(self, item: int | slice) -> CoreEntry | View:
        log = self._log
        if isinstance(item, slice):
            first = log.first_index
            end = log.last_index + 1
            start = first + (item.start or 0)
            stop = end if item.stop is None else min(end, first + item.stop)
            return View(log, start, stop)
        if item == -1:
            return PLACEHOLDER, log.last_index, log.last_term
        return _entry_at(log, log.first_index + item)

    # What the core writes.

    def add(self, command: bytes | Run, index: int, term: int) -> None:
        """Append a leader's own no-op, or what a follower does not hold yet of a run."""
        if isinstance(command, Run):
            self._add_run(command)
            return
        assert index == self._log.last_index + 1, f"no-op at {index} after {self._log.last_index}"
        self.append_new(EntryKind.NO_OP, (), term)

    def append_new(self, kind: EntryKind, payloads: Sequence[Buffer], term: int) -> EntryRef:
        """Append an entry of this leader, stamped with a time that never goes back (D8)."""
        stamp_ms = self._clocks.stamp_ms(self._log.last_time_ms)
        return self._log.append_new(kind, payloads, Term(term), stamp_ms)

    def _add_run(self, run: Run) -> None:
        log = self._log
        last = log.last_index
        fresh = 0
        for header, _ in run.headers if run.first <= last else ():
            if header.index > last or log.term_at(LogIndex(header.index)) != header.term:
                break
            fresh += 1
        if fresh == len(run.headers):
            return
        first = run.headers[fresh][0].index
        if first <= last:
            if first <= self.commit_index:
                raise CommittedConflict(f"conflict at {first}, committed up to {self.commit_index}")
            log.truncate_from(LogIndex(first), LogIndex(self.commit_index))
            self._on_truncated(first, last)
        log.append_frames(run.frames, run.headers[fresh:] if fresh else run.headers)

    def clear(self) -> None:
        """Never happens: the library's snapshots are off (F4-F6)."""
        raise InvariantBroken("the journal was asked to clear itself")

    def deleteEntriesFrom(self, _start: int) -> None:  # noqa: N802 - the library's name
        """Do nothing: `add` decides, entry by entry, where a real conflict begins (F2)."""

    def deleteEntriesTo(self, _end: int) -> None:  # noqa: N802 - the library's name
        """Never happens: the library's compaction is off; `trim_head` trims."""
        raise InvariantBroken("the journal was asked to compact itself")

    def setRaftCommitIndex(self, commit_index: int) -> None:  # noqa: N802
        """Note the commit index. It lives in the state, not in the journal (F14)."""
        if commit_index < self.commit_index:
            raise InvariantBroken(f"commit {commit_index} after {self.commit_index}")
        self.commit_index = commit_index

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        """Return the commit index that the state vouches for."""
        return self.commit_index

    def setCurrentTerm(self, term: int, vote: str | None) -> None:  # noqa: N802
        """Take a new term or vote; what depends on it waits in the gate until it is on disk."""
        assert term >= self.term, f"term {term} after {self.term}"
        self.term = term
        self.vote = vote
        self._on_hard_state(term, vote)

    def getCurrentTerm(self) -> int:  # noqa: N802
        """Return the term."""
        return self.term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        """Return the vote of the term."""
        return self.vote

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Do nothing; the library offers this for journals that flush by time."""

    def _destroy(self) -> None:
        """Do nothing; the log has an owner of its own."""

    # What an answer says about a conflict (L4).

    def conflict_hint(self, index: int, term: int) -> tuple[int, int]:
        """Return (index, term) of the newest own entry that may agree with a log holding `term`.

        That is the newest one at or before `index` whose term is at most `term`; never below the
        commit index, since everything up to there is equal on every leader to come.
        """
        low, high = self.commit_index, min(index, self._log.last_index)
        found = newest_up_to_term(self._log, low, high, term)
        return found, self._log.term_at(LogIndex(found)) or 0
