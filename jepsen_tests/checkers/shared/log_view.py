"""What a history shows of each log: which value stands at which offset, and who saw it.

Built once in two passes (sends, then reads) and shared by the checkers. A *place* is one log. Per
place every offset has a `Spot`; per value that was sent there is a `Sent`. What cannot be put into
these (a second value at an offset, a value that nobody sent) is kept aside in full: it is rare in
a good history, and all that matters in a bad one.

A *final read* is a poll or drain that was invoked after phase "final" began. Which offsets reads
*cover* is known from where each reader stood: a process that continues at 5 and gets 5..9 covers
these; if it gets 7..9 it covers 5..9 as well, and has jumped. What a trim may have taken away
before the read was over is not covered: the floor is that of the place, and of the read.
"""

from bisect import bisect_left
from collections import defaultdict
from operator import itemgetter
from typing import Final

import msgspec

from jepsen_tests.checkers.shared.offset_ranges import OffsetRanges
from jepsen_tests.history.events import NEVER, Kind, Op

REPLIED: Final = 1
"""An acknowledgement names it."""
POLLED: Final = 2
DRAINED: Final = 4
FINAL: Final = 8
"""Read in the final phase."""
FOUND: Final = 16
"""Found by a lookup, or in a file of an export."""
READ: Final = POLLED | DRAINED | FOUND
PERHAPS: Final = ("one-way", "delay")
"""Sends whose success does not say that the value is in its place: nobody learns the outcome, or
the value comes there later, unless somebody takes it back."""
CORRUPT: Final = "!"
"""How a value begins whose body did not match its own checksum."""

Run = tuple[str, int, list[str]]
"""Place, offset of the first value, values at consecutive offsets."""


class Sent(msgspec.Struct, gc=False):
    """One value that was sent: what came of it, and where it was seen in its own place."""

    place: "PlaceLog"
    op: Op
    """The first attempt that did not certainly fail; the first, when all did."""
    index: int
    """Of the value in its batch."""
    outcome: Kind
    seen: int = 0
    acked_row: int = 0
    acked_offset: int = -1
    """-1: no acknowledgement named one; it may have been forgotten."""
    acked_elsewhere: int = -1
    """Another offset that a later acknowledgement names."""
    read_row: int = 0
    first: int = -1
    """Lowest offset at which it was read."""
    last: int = -1
    """Highest offset at which it was read."""

    counts: bool = False
    """Settled: it is acknowledged, or was not refused and proven by a read."""
    lowest: int = -1
    """Settled: the lowest offset known of it, where it was read, else what the reply says.

    -1 of one that counts: it is stored, nobody knows where, and it was never read."""
    highest: int = -1
    """Settled: the highest offset known of it, likewise."""
    known_row: int = 0
    """Settled: from which row on it certainly stands in the log; 0: never."""

    @property
    def is_fenced(self) -> bool:
        """It must be refused: its producer had a successor that something was stored of."""
        return self.op.f == "zombie-send"

    @property
    def where(self) -> str:
        """Return where it stands, for people."""
        return f"at offset {self.lowest}" if self.lowest >= 0 else "at an offset that is forgotten"

    def settle(self) -> None:
        """Conclude from all that was seen; checkers ask for each of these several times."""
        acked, read = self.acked_row, self.read_row
        self.counts = acked > 0 or (self.outcome is not Kind.FAIL and read > 0)
        self.known_row = min(acked, read) if acked and read else acked or read
        if self.first >= 0:
            self.lowest, self.highest = self.first, self.last
        else:
            self.lowest = self.acked_offset
            self.highest = max(self.acked_offset, self.acked_elsewhere)

    def rows(self) -> tuple[int, ...]:
        """Return the rows that prove it: sent, acknowledged, read."""
        return tuple(row for row in (self.op.i, self.acked_row, self.read_row) if row)


class Spot(msgspec.Struct, gc=False):
    """One value at one offset of a place: a row that showed it, and by which means it was seen."""

    value: str
    row: int
    seen: int
    read_row: int = 0
    """A row in which it was read, of the read that was invoked first."""
    sent: Sent | None = None
    """The send of that value to that place, once it was read."""


class Clash(msgspec.Struct):
    """A second value at an offset."""

    place: str
    offset: int
    first: Spot
    second: Spot


class Stray(msgspec.Struct):
    """A value read that nobody sent to that place; `sent` when it was sent to another."""

    place: str
    offset: int
    value: str
    row: int
    sent: Sent | None


class PlaceLog:
    """All that is known of one place."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.spots: dict[int, Spot] = {}
        self.others: dict[tuple[int, str], Spot] = {}
        self.corrupt: dict[int, int] = {}
        """Offsets where damaged bytes were served, and the row."""
        self._floors: list[tuple[int, int]] = []
        """From which row on values below which offset may be gone, both growing."""
        self.polled = OffsetRanges()
        self.finally_read = OffsetRanges()
        self.finally_asked = 0
        """The row in which the first final read was invoked, even if it gave nothing; 0: none."""
        self.finally_over = 0
        """The row in which the last final read was over; 0: none."""
        self.final_end = 0
        """One above the highest offset at which a final read stood."""
        self.kept_from = NEVER
        """The row from which on something was known to stand where nothing was ever trimmed."""
        self._known: list[int] | None = None
        self._shown: dict[int, tuple[int, list[str]]] = {}
        """By means: values at consecutive offsets from one on, as they were read last."""

    def trim(self, row: int, offset: int) -> None:
        """Note that from a row on values below an offset may be gone; rows in their order."""
        if offset > self.floor_at(NEVER):
            self._floors.append((row, offset))

    def floor_at(self, row: int) -> int:
        """Return below which offset values may have been gone before a row."""
        if not self._floors:
            return 0
        at = bisect_left(self._floors, row, key=itemgetter(0))
        return self._floors[at - 1][1] if at else 0

    @property
    def floor(self) -> int:
        """Below it values may be gone in the end: for the last final read, if there is one."""
        return self.floor_at(self.finally_over or NEVER)

    def cover(self, start: int, end: int, row: int, means: int) -> None:
        """Note that a read went through offsets: what was not trimmed by its end it had to show."""
        start = max(start, self.floor_at(row))
        if means & POLLED:
            self.polled.add(start, end)
        if means & FINAL:
            self.finally_read.add(start, end)
            self.final_end = max(self.final_end, end)
            self.finally_over = max(self.finally_over, row)

    def was_shown(self, start: int, values: list[str], means: int) -> bool:
        """Say whether all of a run was taken in before by the same means; remember it, else.

        Every value is read many times, mostly as it was: to look at each again would take longest.
        """
        base, shown = self._shown.setdefault(means, (start, []))
        at = start - base
        if not 0 <= at <= len(shown) or self.corrupt:
            return False  # every read of damaged bytes counts
        if shown[at : at + len(values)] == values:
            return True
        shown[at : at + len(values)] = values
        return False

    def known(self) -> list[int]:
        """Return all offsets that hold something, in order."""
        if self._known is None:
            self._known = sorted(self.spots.keys() | self.corrupt.keys())
        return self._known

    @property
    def is_finally_whole(self) -> bool:
        """Final reads went through all that was not trimmed: what they do not show is nowhere."""
        ranges, known = self.finally_read.ranges(), self.known()
        begins_at_once = len(ranges) == 1 and ranges[0][0] <= self.floor
        return begins_at_once and (not known or known[-1] < ranges[0][1])

    def may_hide(self, row: int) -> bool:
        """Say whether a value sent in this row, nobody knows where to, may be out of sight.

        It may be trimmed unless something that is not was known to be stored before: it stands
        above that. It may be what was read as damaged.
        """
        return bool(self.corrupt) or (self.floor > 0 and row < self.kept_from)


class LogView:
    """The logs of all places, and every value that was sent."""

    def __init__(self, final_row: int | None) -> None:
        self.final_row = final_row
        self.places: defaultdict[str, PlaceLog] = _Places()
        self.sent: dict[str, Sent] = {}
        self.clashes: list[Clash] = []
        self.strays: list[Stray] = []
        self.corrupt: list[Stray] = []

    def take_send(self, op: Op) -> None:
        """Take in a send, or another attempt at one."""
        place, is_ok, known, outcome = self.places[op.k], op.is_ok, self.sent.get, op.outcome
        if op.f in PERHAPS and is_ok:
            is_ok, outcome = False, Kind.INFO
        for index, value in enumerate(op.asked):
            sent = known(value)
            if sent is None:
                sent = self.sent[value] = Sent(place, op, index, outcome)
            else:
                assert place is sent.place, f"{value} was sent to {sent.place.name}, and to {op.k}"
                _attempted_again(sent, op)
            if is_ok:
                sent.acked_row = sent.acked_row or op.done
                if op.result[0] is not None:
                    self._replied(sent, op.result[0] + index, value, op.done)

    def _replied(self, sent: Sent, offset: int, value: str, row: int) -> None:
        if sent.acked_offset < 0:
            sent.acked_offset = offset
        elif offset != sent.acked_offset:
            sent.acked_elsewhere = offset
        self._spot(sent.place, offset, value, row, REPLIED)

    def take_run(self, run: Run, row: int, means: int) -> None:
        """Take in values that were read at consecutive offsets; `means` is POLLED or so."""
        name, start, values = run
        place = self.places[name]
        if place.was_shown(start, values, means):
            return
        known = place.spots.get
        for offset, value in enumerate(values, start):  # most of the time of judging is spent here
            spot = known(offset)
            if spot is None or spot.value != value:
                if value.startswith(CORRUPT):
                    place.corrupt.setdefault(offset, row)
                    self.corrupt.append(Stray(name, offset, value, row, None))
                    continue
                spot = self._spot(place, offset, value, row, 0)
            if not spot.read_row:
                self._first_read(place, offset, spot, row, means)
            elif spot.seen & means != means:
                spot.seen |= means
                if spot.sent is not None:
                    spot.sent.seen |= means

    def _first_read(self, place: PlaceLog, offset: int, spot: Spot, row: int, means: int) -> None:
        spot.read_row = row
        spot.seen |= means
        sent = self.sent.get(spot.value)
        if sent is None or sent.place is not place:
            self.strays.append(Stray(place.name, offset, spot.value, row, sent))
            return
        spot.sent = sent
        sent.seen |= means
        sent.read_row = sent.read_row or row
        if sent.first < 0 or offset < sent.first:
            sent.first = offset
        if offset > sent.last:
            sent.last = offset

    def _spot(self, place: PlaceLog, offset: int, value: str, row: int, means: int) -> Spot:
        spot = place.spots.get(offset)
        if spot is None:
            spot = place.spots[offset] = Spot(value, row, means)
        elif spot.value != value:
            first, key = spot, (offset, value)
            spot = place.others.get(key)
            if spot is None:
                spot = place.others[key] = Spot(value, row, means)
                self.clashes.append(Clash(place.name, offset, first, spot))
        spot.seen |= means
        return spot

    def settle(self) -> None:
        """Conclude from all sends and reads."""
        for sent in self.sent.values():
            sent.settle()
        floors = {place.name: place.floor for place in self.places.values() if place.floor}
        for sent in self.sent.values() if floors else ():
            place = sent.place
            if sent.counts and sent.lowest >= floors.get(place.name, NEVER):
                place.kept_from = min(place.kept_from, sent.known_row)

    def batch(self, op: Op) -> list[Sent]:
        """Return what is known of each value of a send."""
        return [self.sent[value] for value in op.asked]


class _Places(defaultdict[str, PlaceLog]):
    """Makes the log of a place when it is first named."""

    def __missing__(self, name: str) -> PlaceLog:
        log = self[name] = PlaceLog(name)
        return log


def _attempted_again(sent: Sent, op: Op) -> None:
    if sent.op.is_failed and not op.is_failed:
        sent.op = op
    if op.is_ok or (sent.outcome is Kind.FAIL and not op.is_failed):
        sent.outcome = op.outcome
