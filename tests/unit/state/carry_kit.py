"""A pass that carries old batches forward, over the entries of a test's log."""

from dledger.state.queues.carry import END, ROOTS_PER_COMMAND, CarryForward
from dledger.state.queues.copies import FIRST
from dledger.state.results import CarriedForward, Result
from dledger.types import Position, Span
from dledger_broker.carrying.carrying import read_copies
from tests.unit.state.kit import Driven, LogWriter


class EntriesLog:
    """Implements `SpanReader` over entries that a test applied."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log

    def read_span(self, span: Span) -> bytes:
        for entry in reversed(self._log.entries):
            for start, payload in zip(entry.starts, entry.payloads, strict=True):
                if start <= span.position and span.position + span.size <= start + len(payload):
                    at = span.position - start
                    return bytes(payload[at : at + span.size])
        raise AssertionError(f"{span} is in no payload")

    def path_of(self, position: Position) -> str:
        return f"log {position}"


def bytes_at(driven: Driven, place: int, size: int) -> bytes:
    """Return bytes of the log."""
    return EntriesLog(driven.log).read_span(Span(Position(place), size))


def stretch(
    driven: Driven, target: int, cursor: bytes | None = None, *, limit: int = ROOTS_PER_COMMAND
) -> CarryForward:
    """Return what a leader would propose next, which has seen up to `limit` roots."""
    queries = driven.machine.queries
    if cursor is None:
        cursor = queries.carried.cursor if queries.carried.target == target else FIRST
    roots = queries.roots(cursor, target, limit + 1)
    left = roots[limit:]
    copies, until = read_copies(EntriesLog(driven.log), roots[:limit], target)
    return CarryForward(
        target, cursor, left[0].key if left and until == END else until, tuple(copies)
    )


def carry(driven: Driven, target: int, *, limit: int = ROOTS_PER_COMMAND) -> int:
    """Carry out what is left of a pass; return how many batches were copied."""
    copied = 0
    while True:
        command = stretch(driven, target, limit=limit)
        copied += carried(driven.one(command))
        if command.until == END:
            return copied


def carried(result: Result) -> int:
    assert isinstance(result, CarriedForward), result
    return result.count


def end_of(driven: Driven) -> int:
    """Return the position behind the log's last entry."""
    return driven.log.position
