"""What a consumer's core knows of one queue and of one stream. Pure.

Owns no decision: `core.py` decides where a queue is read on, `buffer.py` what is handed out.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dledger_client.errors import ClientError
from dledger_client.records import RecordBatch
from dledger_proto.errors import Code
from dledger_proto.rpc.views import kept_bytes

GONE: Final = frozenset((Code.TOPIC_NOT_FOUND, Code.QUEUE_NOT_FOUND))
"""What fetches of a deleted topic are refused with."""
Place = tuple[str, int]
"""Topic and queue."""
StreamKey = tuple[str, int]
"""Broker group and priority: what one stream serves."""


class Wanted(NamedTuple):
    """One assignment of a fetch stream."""

    place: Place
    topic_id: bytes
    offset: int


class RunBuffer:
    """Runs of one queue, in order, that are not handed out yet; how much memory they keep.

    A view keeps all of the frame that it came in, so a frame counts as a whole until its last run
    is dropped. To that come compressed bodies, at the size that they will have.
    """

    __slots__ = ("runs", "size")

    def __init__(self) -> None:
        self.runs: deque[RecordBatch] = deque()
        """The oldest first. Only a part of the first one may replace it, for that keeps as much."""
        self.size = 0
        """Bytes that are kept."""

    def __len__(self) -> int:
        return len(self.runs)

    def append(self, run: RecordBatch) -> int:
        """Add the newest run; return how many bytes more are kept now."""
        kept = _kept_beside(self.runs[-1] if self.runs else None, run)
        self.runs.append(run)
        self.size += kept
        return kept

    def drop_first(self) -> int:
        """Drop the oldest run; return how many bytes fewer are kept now."""
        run = self.runs.popleft()
        kept = _kept_beside(self.runs[0] if self.runs else None, run)
        self.size -= kept
        return kept


def _kept_beside(neighbour: RecordBatch | None, run: RecordBatch) -> int:
    """Return how many bytes a run keeps that its neighbour, perhaps of one frame, does not."""
    shares = neighbour is not None and neighbour.view.buffer.obj is run.view.buffer.obj
    frame_bytes = 0 if shares else kept_bytes((run.view.buffer,))
    return frame_bytes + run.memory - run.view.header.size


@dataclass(slots=True, eq=False, repr=False)
class QueueRead:
    """One assigned queue."""

    place: Place
    topic_id: bytes
    group: str
    position: int
    """The next record to be handed out. It may lie before offsets whose records are compacted."""
    fetch_at: int
    """The next record to be fetched: position, what is buffered, and what is compacted."""
    priority: int = 0
    """Its records are handed out before those of a lower one."""
    buffer: RunBuffer = field(default_factory=RunBuffer)
    gone: int = 0
    """So many offsets right before `fetch_at` are compacted; the next run tells of them."""
    is_paused: bool = False
    is_held_back: bool = False
    """Nothing is handed out now, though it is fetched."""
    is_filled: bool = False
    """Nothing is fetched now, for enough is buffered; it is handed out."""
    is_lost: bool = False
    """Its offset is out of range and another one is being found."""
    bad_frames: int = 0
    error: ClientError | None = None
    minimum: int = -1
    maximum: int = -1
    """Bounds as the last frame told them; -1: not known."""

    @property
    def stream_key(self) -> StreamKey:
        """Which stream serves it."""
        return self.group, self.priority

    @property
    def is_silent(self) -> bool:
        """True: nothing of it is handed out now."""
        return self.is_paused or self.is_held_back

    @property
    def is_gone(self) -> bool:
        """True: its topic was deleted. A consumer in a group waits until the group takes it."""
        return self.error is not None and self.error.code in GONE

    @property
    def name(self) -> str:
        """Topic and queue, for errors."""
        return f"{self.place[0]}/{self.place[1]}"


@dataclass(slots=True, eq=False, repr=False)
class FetchStream:
    """One stream to one member."""

    id: int
    key: StreamKey
    address: str
    wanted: list[Wanted]
