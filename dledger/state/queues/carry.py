"""CarryForward: what old segments still hold is copied to the end of the log (D7, D24).

Owns: the command, the order of a pass, and what a pass must not leave out. Not: rows (`copies.py`),
when a leader begins a pass, and who reads the bytes (its loop does).

One old record must not keep a whole log. So a pass walks over everything that names a batch, the
*roots*, in an order that all members share:

    the rows of queues     by first position, queue and offset; a reference needs nothing here,
                           nor does what compaction deleted
    the pins               of timers, retries and dead letters, by position

Each command takes the roots of one stretch of that order, from the cursor of the pass on, and
brings the bytes of each that lies below the target. Apply walks over the same stretch, and refuses
the command if a root is missing among its copies. A root that appears behind the cursor names a
batch that another root named before; so at the end of a pass nothing needed lies below the target.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from crc32c import crc32c

from dledger.state.commands.codec import Blob, UInt64
from dledger.state.commands.command import Command
from dledger.state.queues.copies import FIRST
from dledger.state.queues.table import NO_POSITION
from dledger.state.results import CarriedForward, Refused
from dledger.state.state import State
from dledger.state.values import Root
from dledger.types import Entry, Position
from dledger_proto.batch.codec import parse_header
from dledger_proto.errors import Code, DledgerError, invalid

ROOTS_PER_COMMAND: Final = 1_024
"""Roots of a stretch, as a leader proposes it. Failures may add pins until it is applied."""
COPIES_SIZE_TARGET: Final = 1 << 20
"""Bytes of batches in a command, unless its only batch is larger."""
ROOTS_IN_STRETCH_MAX: Final = 2 * ROOTS_PER_COMMAND
END: Final = b"\xff"
"""The cursor behind all roots."""
_ROW_KEY: Final = struct.Struct(">BQ16sIQ")
_PIN_KEY: Final = struct.Struct(">BQQ")
_IN_QUEUE: Final = 1
_PINNED: Final = 2
_PINS: Final = bytes((_PINNED,))
_COPY_HEAD_SIZE: Final = 8 + 4
"""Of a `Copy` in the command: the position, and the size of the batch."""
_CRC_FROM: Final = 8
"""The checksum of a batch covers its bytes from here on."""
_BYTES_AT_ONCE: Final = 1 << 40
"""Rows are read a block after the other, whatever their batches' sizes are."""


class Copy(NamedTuple):
    """A batch and its position, which is its name."""

    position: UInt64
    batch: Blob

    def describe(self) -> str:
        """Return one word."""
        return f"{self.position}[{len(self.batch)}]"


@dataclass(frozen=True, slots=True)
class CarryForward(Command[CarriedForward]):
    """Copy the batches that the next roots of a pass name and that lie below its target."""

    NUMBER: ClassVar = 62
    ROWS_READ_MAX: ClassVar = 4 * ROOTS_PER_COMMAND
    HOLDS_BATCHES: ClassVar = True

    target: UInt64
    """The position below which nothing is needed after the pass."""
    cursor: Blob
    """Where the stretch begins: the cursor of the pass. Empty: a new pass begins."""
    until: Blob
    """Where it ends: the key of the first root that is left, or END."""
    copies: tuple[Copy, ...]

    def apply(self, state: State, entry: Entry) -> CarriedForward | Refused:
        """Note the copies, if none is missing; bytes that nobody needs any more are left out."""
        carried = state.copies.carried
        if not carried.horizon < self.target <= entry.ref.position:
            raise invalid(
                f"target {self.target}: must be above {carried.horizon} and at most "
                f"{entry.ref.position}"
            )
        if not (self.cursor < self.until and _is_cursor(self.until)):
            raise invalid(f"until {self.until.hex()}: must be a cursor behind {self.cursor.hex()}")
        if self.cursor != FIRST and (self.target, self.cursor) != carried[1:]:
            return _look_again(f"the pass is at {carried.cursor.hex()} to {carried.target}")
        brought = {copy.position: copy.batch for copy in self.copies}
        if len(brought) != len(self.copies):
            raise invalid("copies: each position must occur once")
        needed: set[int] = set()
        for looked_at, root in enumerate(walk(state, self.cursor, self.target)):
            if root.key >= self.until:
                break
            if looked_at == ROOTS_IN_STRETCH_MAX:
                return _look_again(f"there are more than {looked_at} roots in the stretch")
            if root.place < self.target and root.position not in needed:
                batch = brought.get(root.position)
                if batch is None:
                    return _look_again(f"no copy of the batch at position {root.position}")
                check_batch(batch, root)
                needed.add(root.position)
        places = [each for each in places_of(self.copies, entry) if each[0] in needed]
        state.copies.record(sorted(places))
        if self.until == END:
            state.copies.finish(self.target)
        else:
            state.copies.note(self.target, self.until)
        return CarriedForward(len(needed))


def places_of(copies: Sequence[Copy], entry: Entry) -> list[tuple[int, int]]:
    """Return where batches lie, by name, that are the end of a command, alone in its entry."""
    at = entry.starts[0] + len(entry.payloads[0])
    places: list[tuple[int, int]] = []
    for copy in reversed(copies):
        at = Position(at - len(copy.batch))
        places.append((copy.position, at))
        at = Position(at - _COPY_HEAD_SIZE)
    places.reverse()
    return places


def walk(state: State, cursor: bytes, target: int) -> Iterator[Root]:
    """Iterate over the roots from a cursor on that name batches below a target, in their order.

    Rows of references, and those that are gone, are among them, as roots that need nothing: so a
    stretch bounds what is read. Valid until the next write.
    """
    if cursor < _PINS:
        yield from _in_queues(state, cursor, target)
    yield from _pinned(state, cursor, target)


def _in_queues(state: State, cursor: bytes, target: int) -> Iterator[Root]:
    queues = state.queues
    first, topic_id, number, offset = 0, b"", 0, 0
    if cursor:
        _, first, topic_id, number, offset = _ROW_KEY.unpack(cursor)
    for begins, queue_id in queues.beginning_between((first, (topic_id, number)), target):
        queue = queues.find(queue_id)
        at = queue.minimum
        if (begins, queue_id) == (first, (topic_id, number)):
            at = max(at, offset)
        end = queues.offset_by_place(queue, target)
        while at < end:
            for span in queues.spans(queue, at, _BYTES_AT_ONCE):
                at = span.base_offset + span.record_count
                if span.base_offset >= end:
                    break
                key = _ROW_KEY.pack(_IN_QUEUE, begins, *queue_id, span.base_offset)
                if span.is_reference or span.is_gone:
                    yield Root(key, NO_POSITION, NO_POSITION)
                else:
                    records = span.record_count
                    yield Root(key, span.position, span.place, span.size, queue_id, records)


def _pinned(state: State, cursor: bytes, target: int) -> Iterator[Root]:
    if cursor == END:
        return
    _, first, number = _PIN_KEY.unpack(cursor) if cursor >= _PINS else (_PINNED, 0, 0)
    for pin in state.references.pins((first, number), target):
        yield Root(_PIN_KEY.pack(_PINNED, *pin), pin[0], state.copies.place(pin[0]))


def check_batch(batch: bytes, root: Root) -> None:
    """Raise unless these bytes are a sound batch that looks as a row says; a pin says nothing.

    BUSY for one with more records than the row: the row was cut since the leader read it.
    """
    header = parse_header(batch)
    is_sound = header.size == len(batch) and header.crc == crc32c(batch[_CRC_FROM:])
    is_its = root.queue is None or (root.size, root.records, *root.queue) == (
        header.size, header.record_count, header.topic_id, header.queue,
    )  # fmt: skip
    if not is_sound or not is_its:
        is_of_queue = root.queue == (header.topic_id, header.queue)
        was_cut = is_sound and is_of_queue and header.record_count > root.records
        raise DledgerError(
            Code.BUSY if was_cut else Code.CORRUPT_BATCH,
            f"copy of position {root.position}: {len(batch)} bytes are not the batch",
        )


def _is_cursor(value: bytes) -> bool:
    sizes = {_IN_QUEUE: _ROW_KEY.size, _PINNED: _PIN_KEY.size}
    return value == END or len(value) == sizes.get(value[0])


def _look_again(why: str) -> Refused:
    return Refused(Code.BUSY, f"{why}: the leader looks again")
