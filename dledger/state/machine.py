"""The replicated state machine: committed entries in, rows and results out (D6, D8).

Owns: dispatch of entries to commands and queues, the applied index and the digest, saving. Not:
tables and how they are wired (`state.py`), the commands, questions (`queries.py`). `apply` sees no
clock, no randomness, no I/O but the store. It refuses by results. Only `UnknownCommand` and the
store's `StoreFailed` leave it, and both stop the member.

    00 "applied"   -> index u64, term u64, time_ms i64, end position u64, digest 32   (this member)

Everything runs on one thread but `Flush.execute`. To save, that thread calls `freeze` between
entries, a dedicated thread calls `execute`, and the first thread calls `flush_finished`.
`saved_index` and `head_needed` are those of the last flush that ended: a member trims its log only
below the entries that it would replay after a power cut.
"""

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dledger.state.commands.command import Command
from dledger.state.commands.registry import UnknownCommand, decode
from dledger.state.events import Applied, Events
from dledger.state.format_level import FORMAT_LEVEL_MAX
from dledger.state.progress.lag import Lags
from dledger.state.queries import Queries
from dledger.state.queues.append import Appender
from dledger.state.queues.table import NO_POSITION
from dledger.state.results import Refused, Result
from dledger.state.state import State
from dledger.state.tables import NO_DIGEST, PREFIX, Table
from dledger.store.store import HARD_LIMIT_BYTES, SOFT_LIMIT_BYTES, Flush, StateStore
from dledger.types import Entry, EntryKind, LogIndex
from dledger_proto.errors import DledgerError

APPLIED_KEY: Final = PREFIX[Table.META_LOCAL] + b"applied"
APPLIED_VALUE: Final = struct.Struct("<QQqQ32s")


class StateFlush:
    """A flush with the place in the log that it saves."""

    def __init__(self, flush: Flush, applied_index: LogIndex, head: int) -> None:
        self.flush = flush
        self.applied_index = applied_index
        self.head = head

    def execute(self) -> None:
        self.flush.execute()


class StateMachine:
    """One group's state on one member. Implements `dledger.raft.api.Machine`."""

    def __init__(self, store: StateStore, group: str) -> None:
        self._store = store
        self._state = state = State(store, group)
        self.queries = Queries(state)
        self.lags = Lags(state)
        self._appender = Appender(state)
        self.events = Events()
        value = store.get(APPLIED_KEY)
        self._index = self._term = self._time_ms = self._end = 0
        self._digest = NO_DIGEST
        if value is not None:
            fields = APPLIED_VALUE.unpack(value)
            self._index, self._term, self._time_ms, self._end, self._digest = fields
        if self.format_level > FORMAT_LEVEL_MAX:
            raise UnknownCommand(
                f"state of format level {self.format_level}, {FORMAT_LEVEL_MAX} is known"
            )
        self._saved_index = self._index
        self._saved_head = self._head()

    # What a group drives (`raft.api.Machine`).

    @property
    def applied_index(self) -> LogIndex:
        """The newest entry whose effects are visible; 0 before the first."""
        return LogIndex(self._index)

    @property
    def applied_time_ms(self) -> int:
        """The leader's stamp of that entry."""
        return self._time_ms

    @property
    def applied_position(self) -> int:
        """The log position behind that entry."""
        return self._end

    @property
    def saved_index(self) -> LogIndex:
        """The newest entry that a synced state covers."""
        return LogIndex(self._saved_index)

    @property
    def digest(self) -> bytes:
        """Chained over every write up to `applied_index`: equal on all members at one index."""
        return self._digest

    @property
    def format_level(self) -> int:
        """A leader proposes no command above this level."""
        return self._state.format_level.level

    def head_needed(self) -> int:
        """Return the lowest log position that the last saved state refers to."""
        return self._saved_head

    def apply(self, entry: Entry) -> Sequence[Result]:
        """Apply one committed entry, the successor of `applied_index`; one result per payload.

        `UnknownCommand` leaves before anything of the entry took effect.
        """
        ref = entry.ref
        assert ref.index == self._index + 1, f"entry {ref.index} after {self._index}"
        results: Sequence[Result] = ()
        if entry.kind == EntryKind.BATCHES:
            results = self._appender.apply(entry)
        elif entry.kind == EntryKind.COMMANDS:
            commands = [decode(payload) for payload in entry.payloads]
            results = [self._run(command, entry, at) for at, command in enumerate(commands)]
        changed = self._state.end_entry(len(entry.payloads))
        self._digest = self._state.writer.digest(self._digest, ref, entry.time_ms)
        self._index, self._term, self._time_ms = ref.index, ref.term, entry.time_ms
        self._end = ref.position + ref.size
        self._store.put(
            APPLIED_KEY,
            APPLIED_VALUE.pack(self._index, self._term, self._time_ms, self._end, self._digest),
        )
        state = self._state
        grown = changed if entry.kind == EntryKind.BATCHES else state.queues.take_referring()
        topics, consumer_groups = state.topics.take_changed(), state.consumers.take_changed()
        self.events.publish(Applied(entry, results, grown, topics, consumer_groups))
        return results

    # Saving.

    @property
    def unsaved_bytes(self) -> int:
        """Memory held by rows that no ended flush covers."""
        return self._store.unsaved_bytes

    @property
    def needs_flush(self) -> bool:
        """True: begin a flush now, before its time."""
        return self._store.unsaved_bytes > SOFT_LIMIT_BYTES

    @property
    def is_backlogged(self) -> bool:
        """True: apply nothing until a flush ended."""
        return self._store.unsaved_bytes > HARD_LIMIT_BYTES

    def freeze(self) -> StateFlush | None:
        """Return the flush of everything applied so far; None when nothing is new."""
        flush = self._store.freeze()
        return None if flush is None else StateFlush(flush, self.applied_index, self._head())

    def flush_finished(self, flush: StateFlush) -> None:
        """Note that `flush.execute` returned: the rows that it covers survive a power cut."""
        self._store.flush_finished(flush.flush)
        self._saved_index = flush.applied_index
        self._saved_head = flush.head

    def close(self) -> None:
        """Close the store; a restart replays what is unsaved from the log."""
        self._store.close()

    def _head(self) -> int:
        # Until a command frees something, the whole log stays, entries without rows included: no
        # member trims by itself, and a wiped member is refilled from the first entry.
        horizon = self._state.copies.carried.horizon
        if not self._state.queues.was_trimmed and not horizon:
            return 0
        head = max(min(self._state.queues.head, self._state.references.head), horizon)
        return self._end if head == NO_POSITION else head

    def _run(self, command: Command[Result], entry: Entry, at: int) -> Result:
        if command.HOLDS_BATCHES:
            entry = replace(entry, payloads=entry.payloads[at : at + 1], starts=[entry.starts[at]])
        try:
            return command.apply(self._state, entry)
        except DledgerError as error:
            # Raised before anything was written: commands check first.
            return Refused(error.code, error.detail)
