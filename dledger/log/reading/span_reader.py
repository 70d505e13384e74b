"""Reading runs of log bytes from any thread, while the loop appends, cuts and trims.

Owns: which part of the log may be read from files now. The loop's thread publishes a new `View`
whenever that changes. A reader takes the view, reads, and looks at the view again. After a cut in
between it starts over, so no caller gets bytes of a suffix that is being cut. The bytes are not
checked here: the caller checks their CRCs (I15).
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from dledger.log.errors import DamagedLog, SpanGone
from dledger.log.memory.segment import file_offset
from dledger.log.reading.file_pool import FilePool
from dledger.types import Position, Span
from dledger_proto.entry import segment_name

READ_RETRIES_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class View:
    """What may be read: the bases of the files, and the end of what is written."""

    bases: tuple[Position, ...]
    end: Position
    cuts: int = 0
    """How often a suffix was cut so far."""


class SpanReader:
    """Reads spans of what is written."""

    def __init__(self, log_path: str, pool: FilePool) -> None:
        self._log_path = log_path
        self._pool = pool
        self._view = View((), Position(0))

    def publish(self, bases: list[Position], end: Position, *, cut: bool) -> None:
        """Say what may be read from now on. The loop's thread only."""
        self._view = View(tuple(bases), end, self._view.cuts + cut)

    def read(self, span: Span) -> bytes:
        """Return the bytes of a span. SpanGone: not in the log, or not written. Blocks."""
        for _ in range(READ_RETRIES_MAX):
            view = self._view
            _check(view, span)
            try:
                parts = [
                    self._read_part(base, position, size)
                    for base, position, size in _parts(view, span)
                ]
            except DamagedLog:
                if self._view is view:
                    raise
                continue
            if self._view.cuts == view.cuts:
                return parts[0] if len(parts) == 1 else b"".join(parts)
        raise SpanGone(f"{span} was cut again and again while it was read")

    def path_of(self, position: Position) -> str:
        """Return the file that holds a position, to name it. Any thread, no I/O."""
        bases = self._view.bases
        place = bisect_right(bases, position) - 1
        return f"{self._log_path}/{segment_name(bases[place])}" if place >= 0 else self._log_path

    def _read_part(self, base: Position, position: Position, size: int) -> bytes:
        path = f"{self._log_path}/{segment_name(base)}"
        try:
            data = self._pool.pread(path, size, file_offset(base, position))
        except FileNotFoundError as error:
            raise DamagedLog(
                path,
                position,
                "READ",
                f"at position {position} the log has entries, and the file is missing",
            ) from error
        if len(data) != size:
            end = Position(position + len(data))
            raise DamagedLog(
                path,
                end,
                "READ",
                f"at position {end} more of the log is expected, and the file ends",
            )
        return data


def _check(view: View, span: Span) -> None:
    first = view.bases[0] if view.bases else view.end
    if span.position < first:
        raise SpanGone(f"{span} is below the log's first position, {first}")
    if span.position + span.size > view.end:
        raise SpanGone(f"{span} is above the written end of the log, {view.end}")


def _parts(view: View, span: Span) -> list[tuple[Position, Position, int]]:
    """Split a span by files: base, position and size of each part."""
    parts: list[tuple[Position, Position, int]] = []
    position, end = span.position, span.position + span.size
    place = bisect_right(view.bases, position) - 1
    while position < end:
        following = view.bases[place + 1] if place + 1 < len(view.bases) else end
        stop = Position(min(end, following))
        parts.append((view.bases[place], position, stop - position))
        position = stop
        place += 1
    return parts
