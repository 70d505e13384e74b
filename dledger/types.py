"""The numbers and values that every layer passes on, each with a type of its own.

An *index* is a place in the Raft log, an *offset* a place in a queue, a *position* the sum of the
framed sizes of all entries before a byte. The three are never mixed.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NewType

from dledger_proto.errors import Code, Outcome

MemberId = NewType("MemberId", str)
Term = NewType("Term", int)
LogIndex = NewType("LogIndex", int)
Position = NewType("Position", int)
QueueOffset = NewType("QueueOffset", int)

Buffer = bytes | bytearray | memoryview


class EntryKind(enum.IntEnum):
    """What the payloads of an entry are."""

    NO_OP = 0
    BATCHES = 1
    COMMANDS = 2
    GENESIS = 3


@dataclass(frozen=True, slots=True)
class EntryRef:
    """Where an entry lies, and what identifies it: equal on every member that holds it."""

    index: LogIndex
    term: Term
    position: Position
    size: int
    crc: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A decoded entry. `payloads` are views into one buffer; payload i starts at `starts[i]`."""

    ref: EntryRef
    kind: EntryKind
    time_ms: int
    """The leader's stamp, never lower than the one before (D8)."""
    payloads: Sequence[memoryview]
    starts: Sequence[Position]
    """Position of the first byte of each payload."""


@dataclass(frozen=True, slots=True)
class Span:
    """A run of log bytes: from `position`, `size` bytes."""

    position: Position
    size: int


@dataclass(frozen=True, slots=True)
class AppendPayload:
    """Entries of an append message: as bytes when the log's tail cache holds them, else as a span.

    The transport loads a span with `CommitLog.read_span` just before sending and drops the message
    when the log no longer holds it; `first` and `term_of_first` let it check the bytes it read.
    """

    first: LogIndex
    last: LogIndex
    term_of_first: Term
    size: int
    buffers: Sequence[memoryview | bytes] | None
    span: Span


@dataclass(frozen=True, slots=True)
class Settled:
    """How one proposal ended."""

    outcome: Outcome
    code: Code
    detail: str = ""
    index: LogIndex = LogIndex(0)
    term: Term = Term(0)
    results: Sequence[object] = ()
    """One result of the state machine for each payload; only when stored."""


OnSettled = Callable[[Settled], None]


class DiskRoom(enum.IntEnum):
    """How much free space a member's disk has (I16)."""

    ENOUGH = 0
    LOW = 1
    """Below the low-water mark: a leader takes nothing new but what frees space."""
    FULL = 2
    """Below half of the mark, or the reserve was touched: no entry is taken at all."""


class FlushMode(enum.StrEnum):
    """When an acknowledgement may leave (D4): after fdatasync, or once it is written.

    Written bytes survive the end of the process (kill -9). They may not survive a power cut.
    """

    SYNC = "sync"
    ASYNC = "async"
