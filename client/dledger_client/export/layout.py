"""Names of files, and where the log is cut into them. Pure.

Owns: the folders, the names, cutting at UTC days and by bytes. A file lies in one day and one
queue, so every attempt at a range has the same name, and any reader may prune by folder.
"""

import datetime as dt
import enum
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from urllib.parse import quote

OFFSET_DIGITS: Final = 20
QUEUE_DIGITS: Final = 4
MS_PER_DAY: Final = 86_400_000
FILE_NAME: Final = re.compile(
    r"topic=[^/]+/(?:dt=\d{4}-\d\d-\d\d/)?queue=\d{4,}/\d{20}-\d{20}\.parquet", re.ASCII
)
"""Files of an export beside `_dledger`; others in the folder are not the export's."""


class Layout(enum.StrEnum):
    """How files are put into folders."""

    DATE = "date"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets `start` to `end` - 1 of a queue: what one task makes one file of."""

    queue: int
    start: int
    end: int
    date: str = ""
    """UTC day of the store time, "2026-01-31"; empty with the layout by queue."""
    size: int = 0
    """Estimate, bytes. No part of the name."""

    def describe(self) -> str:
        """Return one stable line."""
        return f"queue {self.queue} offsets {self.start} to {self.end - 1}"


@dataclass(frozen=True, slots=True)
class FrozenQueue:
    """What the cluster told about a queue, before anything is cut."""

    queue: int
    start: int
    """Where this run begins: the export's position, or where its first run does."""
    minimum: int
    """The earliest offset that still exists; above `start` records are lost."""
    end: int
    """Committed; what lies behind it belongs to the next run."""
    maximum: int
    """Committed, too: above `end` where that is cut by a time."""
    sizes: tuple[tuple[int, int], ...] = ()
    """(offset, bytes before it), growing; between two it is even."""
    days: tuple[tuple[int, str], ...] = ()
    """(first offset stored on or after this UTC day, day), growing; the first covers all before."""


def topic_folder(topic: str) -> str:
    """Return the folder of a topic; Hive's form, a topic's "%" escaped as Hive does."""
    return f"topic={quote(topic, safe='')}"


def folder_of(topic: str, piece: Piece) -> str:
    """Return the folder of a piece."""
    day = f"dt={piece.date}/" if piece.date else ""
    return f"{topic_folder(topic)}/{day}queue={piece.queue:0{QUEUE_DIGITS}d}"


def name_of(topic: str, piece: Piece) -> str:
    """Return the name of a piece's file."""
    start, end = (f"{offset:0{OFFSET_DIGITS}d}" for offset in (piece.start, piece.end))
    return f"{folder_of(topic, piece)}/{start}-{end}.parquet"


def day_of(time_ms: int) -> str:
    """Return the UTC day of a time."""
    return (dt.date(1970, 1, 1) + dt.timedelta(days=time_ms // MS_PER_DAY)).isoformat()


def bytes_before(frozen: FrozenQueue, offset: int) -> float:
    """Return about how many bytes of a queue lie before an offset."""
    sizes = frozen.sizes
    if not sizes:
        return float(offset)
    at = bisect_right(sizes, offset, key=lambda each: each[0]) - 1
    if at < 0:
        return float(sizes[0][1])
    if at == len(sizes) - 1:
        return float(sizes[-1][1])
    (left, below), (right, above) = sizes[at], sizes[at + 1]
    return below + (above - below) * (offset - left) / (right - left)


def pieces_of(frozen: FrozenQueue, layout: Layout, size_max: int) -> Iterator[Piece]:
    """Yield a queue's pieces: cut at days, then into equal parts of at most `size_max` bytes."""
    start, end = max(frozen.start, frozen.minimum), frozen.end
    if start >= end:
        return
    for first, last, day in _days(frozen, layout, start, end):
        size = bytes_before(frozen, last) - bytes_before(frozen, first)
        parts = min(max(1, -int(-size // size_max)), last - first)
        borders = [_offset_at(frozen, first, last, part / parts) for part in range(parts)]
        for low, high in pairwise([*borders, last]):
            if low < high:
                estimate = bytes_before(frozen, high) - bytes_before(frozen, low)
                yield Piece(frozen.queue, low, high, day, round(estimate))


def _days(
    frozen: FrozenQueue, layout: Layout, start: int, end: int
) -> Iterator[tuple[int, int, str]]:
    if layout is Layout.QUEUE:
        yield start, end, ""
        return
    assert frozen.days, "who freezes for a layout by date names the days"
    days = frozen.days
    for number, (offset, day) in enumerate(days):
        first = start if number == 0 else max(offset, start)
        last = min(days[number + 1][0], end) if number + 1 < len(days) else end
        if first < last:
            yield first, last, day


def _offset_at(frozen: FrozenQueue, first: int, last: int, share: float) -> int:
    """Return the offset before which a share of a range's bytes lies, by bisection."""
    before = bytes_before(frozen, first)
    wanted = before + (bytes_before(frozen, last) - before) * share
    candidates: Sequence[int] = range(first, last)
    place = bisect_right(candidates, wanted, key=lambda offset: bytes_before(frozen, offset))
    return first + max(place - 1, 0)
