"""What a group needs from the log, as a protocol that `dledger.log` satisfies by shape.

Owns nothing. The seam is visible in one place, and a test may bring a log of its own. The
implementation tells the semantics (`dledger.log.commit_log`).
"""

from collections.abc import Sequence
from typing import Any, Protocol

from dledger.log.hard_state import HardState
from dledger.raft.api import WriteRound
from dledger.types import (
    AppendPayload,
    Buffer,
    DiskRoom,
    Entry,
    EntryKind,
    EntryRef,
    LogIndex,
    Position,
    Span,
    Term,
)
from dledger_proto.entry import EntryHeader


class RaftLog(Protocol):
    """The log of a group: `dledger.log.commit_log.CommitLog`."""

    @property
    def first_index(self) -> int:
        """The oldest entry held; 1 until the head is trimmed."""
        ...

    @property
    def last_index(self) -> int:
        """The newest entry, 0 when empty."""
        ...

    @property
    def last_term(self) -> int:
        """Its term, 0 when empty."""
        ...

    @property
    def last_time_ms(self) -> int:
        """Its leader's stamp, 0 when empty."""
        ...

    @property
    def durable_index(self) -> int:
        """Everything up to here survives a power cut."""
        ...

    @property
    def written_index(self) -> int:
        """Everything up to here survives the end of the process."""
        ...

    @property
    def unsynced_bytes(self) -> int:
        """The size of what is written and not synced."""
        ...

    @property
    def checkpoint_is_behind(self) -> bool:
        """A checkpoint would cover more than the newest does, and there is room for it."""
        ...

    @property
    def disk_room(self) -> DiskRoom:
        """How much free space there was at the last look (I16)."""
        ...

    @property
    def is_empty(self) -> bool:
        """The log has no entry."""
        ...

    def term_at(self, index: LogIndex, /) -> int | None:
        """Return the term of an entry, None when it is not held."""
        ...

    def size_between(self, first: LogIndex, last: LogIndex, /) -> int:
        """Return the framed size of the entries `first`..`last`, 0 when there are none."""
        ...

    def write_genesis(self, payload: bytes, group_id: bytes, /) -> object:
        """Stage entry 1."""
        ...

    def append_new(
        self, kind: EntryKind, payloads: Sequence[Buffer], term: Term, time_ms: int, /
    ) -> EntryRef:
        """Stage a leader's next entry."""
        ...

    def append_frames(
        self, buffer: memoryview, entries: Sequence[tuple[EntryHeader, int]], /
    ) -> object:
        """Stage a follower's next entries; ValueError, and nothing kept, when a CRC is wrong."""
        ...

    def truncate_from(self, index: LogIndex, committed: LogIndex, /) -> object:
        """Drop the suffix that begins at `index`, which is above `committed`."""
        ...

    def take_round(
        self, hard_state: HardState | None, /, *, sync: bool, checkpoint: bool
    ) -> WriteRound | None:
        """Return what is to be written, None when nothing is."""
        ...

    def round_finished(self, finished: Any, /) -> object:
        """Learn that a round is on disk."""
        ...

    def payload(self, first: LogIndex, max_bytes: int, /) -> AppendPayload:
        """Return the entries from `first`, at least one, up to about `max_bytes`."""
        ...

    def read_span(self, span: Span, /) -> bytes:
        """Read log bytes; blocks."""
        ...

    def entries(self, first: LogIndex, last: LogIndex, max_bytes: int, /) -> Sequence[Entry]:
        """Return decoded entries, at least one, up to about `max_bytes`."""
        ...

    def trim_head(self, position_needed: Position, index_limit: LogIndex, /) -> Sequence[object]:
        """Let go of whole segments that nothing needs; returns those that go now."""
        ...
