"""What apply answers: one value for each payload. No logic, no formats.

A refusal is a result, never an exception: every member computes it alike (D6, D8).
"""

from dataclasses import dataclass
from typing import NamedTuple

from dledger.state.values import Topic
from dledger_proto.errors import Code


class Appended(NamedTuple):
    """A batch is in its queue, `record_count` records from `base_offset`."""

    base_offset: int
    record_count: int
    duplicate: bool = False
    """True: a repeat; the offset is that of the first time."""


class Refused(NamedTuple):
    """A batch is void, or a command changed nothing."""

    code: Code
    detail: str


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """The topic as it is now."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class TopicsForgotten:
    """The rows of these deleted topics are freed; `more` are due, propose the command again."""

    topic_ids: tuple[bytes, ...]
    more: bool


class LastSequence(NamedTuple):
    """The newest sequence that a queue holds of a producer's epoch."""

    topic_id: bytes
    queue: int
    last_sequence: int


@dataclass(frozen=True, slots=True)
class Registered:
    """This life of the producer may write with `epoch`, from sequence 0 on in every queue.

    `last`: of the epoch before it.
    """

    epoch: int
    last: tuple[LastSequence, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """Another life of the producer holds `epoch`. Who takes over from it asks for the next."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ProducersExpired:
    """`count` producers are forgotten; `more` are due, propose the command again."""

    count: int
    more: bool


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """For each offset of the command: OK or why not, and what is stored now (-1: nothing)."""

    codes: tuple[Code, ...]
    stored_offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The queue's minimum now; `held_by` names the hold that stopped it short, or is empty."""

    minimum: int
    held_by: str = ""
    held_until_ms: int = 0
    """Leader time."""


@dataclass(frozen=True, slots=True)
class Held:
    """The hold lasts until this leader time, milliseconds; 0: there is none."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class FormatLevelSet:
    """Commands up to this level may be proposed from here on."""

    level: int


Result = (
    Appended
    | Refused
    | TopicChanged
    | TopicsForgotten
    | Registered
    | Taken
    | ProducersExpired
    | OffsetsCommitted
    | Trimmed
    | Held
    | FormatLevelSet
)
