"""What happened in a run, one JSON line for each event, in the order in which the harness saw them.

Owns the format, its writer and its reader; what a line may hold is checked by `shapes`. A history
is all that checkers get: it can be judged again at any time, by anybody, without the cluster
(`python -m jepsen_tests check FILE`).

    {"dledger_history": 1, ...}      header: the run (Header)
    {"i": 1, "t": 81234, ...}        rows: what clients and the nemesis did (Row)
    {"end": 2, "t": 99999}           how many rows there are: without it the history is cut off

Each line ends with `,"crc":"xxxxxxxx"}`: CRC32C of the line before that, continued from the CRC of
the line before; so an edited, missing or doubled line is named.

An operation is a row `invoke` and at most one of `ok`, `fail` (certainly did not happen) or `info`
(may have happened, or may still happen); one without is `info`. A process does one operation at a
time. After an `info` a process number is not used again: whatever it did is concurrent with all
that follows; who goes on names it in the first row of its own (`before`).

A *place* is "topic/queue". Values are unique: "<process>-<counter>"; a resend alone has those of a
send before it, all of them, to the same place.

    f         k              v of invoke              v of ok
    send      place          [value, ...]             [offset of the first, term or 0], or
                                                      [null, 0]: stored, and it is forgotten where
    resend    place          the same send again, same producer id and sequence; else as send
    zombie-send place        a send of a producer that has a successor of which something is stored
                             already, so that it must be refused; else as send
    assign    -              {place: offset, ...}     - (polls of this process continue there)
    poll      -              -                        [[place, offset, [value, ...]], ...]
    crash     -              -                        - (the process's client was thrown away)
    trim      place          offset                   new minimum
    bounds    place          -                        [minimum, maximum], confirmed by a quorum
    commit    group@place    offset                   - (refused OFFSET_BEHIND: fail)
    reset     group@place    offset                   - (a commit that may go back)
    committed group@place    -                        offset, or null when there is none
    set       register       number                   -
    get       register       -                        number, or null when there is none
    drain     place          -                        as poll: all that member `node` alone serves
    entries   -              -                        {"first": index, "terms": [...],
                                                       "crcs": [...], "applied": index,
                                                       "digest": "hex"} of `node`
    status    -              -                        {"role","term","leader","commit","applied",
                                                       "first","last","incarnation"} of `node`
    resources -              -                        {"rss","files","threads"} of `node`
A value whose body did not match its own checksum is shown as "!" and what was read in hex.
The nemesis is process -1: `f` is the fault, `k` the targets; `invoke` when it is begun, `ok` when
it is in force, `info` with `err` when it could not be (skipped). Healing is a fault named "heal".
Phases are rows of the nemesis with f = "phase" and k = "setup", "faults", "heal", "final". A member
that was found to have ended by itself is a row "died" with k = its name and err = "exit CODE" or
"exit CODE, life NUMBER". A run that was broken off in order ends with a row "interrupted", k = the
signal; its final phase has not begun, or is not whole. A member that applied nothing while others
did is a row "stood-still" with k = its name, err = for how long ("12.345 s"), and v = what was
compared: {"applied": index, "others": {member: [index at the start, at the end]}}.
"""

import enum
import gc
import os
import re
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from sys import intern
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec
from crc32c import crc32c

from jepsen_tests.history import row_schema

VERSION: Final = 1
NEMESIS: Final = row_schema.NEMESIS
SKIPPED: Final = "skipped: "
"""How the row of a fault that could not be done begins to say why."""
BROKEN_OFF: Final = "broken off: "
"""The same of one that was begun and not done to its end."""
INTERRUPTED: Final = "interrupted"
HEAL: Final = "heal"
EXAMINE: Final = "examine"
"""A fault that is none: a damaged member was ended, its files read, and mended if need be."""
WHOLE: Final = ("leader", "follower")
"""Roles of a member that is trusted and complete enough to take part."""
STOOD_STILL: Final = row_schema.STOOD_STILL
NO_FAULTS: Final = ("phase", "died", INTERRUPTED, STOOD_STILL)
"""What the nemesis writes down and does not do."""
NEVER: Final = (1 << 63) - 1
"""When an operation ended whose end nobody saw, in ns."""
_TAIL: Final = len(',"crc":"00000000"}\n')
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading one line may raise."""


class Kind(enum.StrEnum):
    """What a row says of its operation."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was run, enough to run it again."""

    dledger_history: int = VERSION
    workload: str
    nemeses: tuple[str, ...]
    backend: str
    nodes: tuple[str, ...]
    seed: int
    seconds: float
    began: str
    """Wall-clock time, ISO 8601 with zone."""
    product: str
    """Version and, when it is known, the commit of what was tested."""
    mutant: str = ""
    """A known bug that was put into the product on purpose."""
    settings: dict[str, str | int | float | bool] = {}
    """Members' configuration where it is not the default."""
    notes: dict[str, Any] = {}
    """What the workload's checkers need to know: topics, queues, budgets."""


class Row(msgspec.Struct, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    """One event. `t` is in ns since the run began, on the harness's monotonic clock."""

    i: int
    t: int
    p: int
    type: Kind
    f: str
    k: str = ""
    v: Any = None
    key: str = ""
    """The ordering key of a send, in one life of its producer: sends of a key were handed over one
    after the other, by whatever processes, in the order of their rows."""
    node: str = ""
    err: str = ""
    before: int = -1
    """In the first row of a process: whose work it goes on with, under another number."""


class _End(msgspec.Struct):
    end: int
    t: int


class BadHistory(Exception):
    """A history that cannot be judged; the message names file, line and reason."""


class Op(msgspec.Struct, gc=False):
    """An operation of a client: what was asked, what came of it. Times in ns."""

    i: int
    """Number of the row that invoked it."""
    done: int
    """Number of the row that ended it; 0: none."""
    p: int
    f: str
    k: str
    asked: Any
    began: int
    ended: int
    """NEVER when the outcome is unknown: it may take effect at any later time."""
    outcome: Kind
    result: Any = None
    key: str = ""
    node: str = ""
    err: str = ""
    over: int = NEVER
    """When it was said to have ended, also with an unknown outcome; NEVER: nobody said so."""
    before: int = -1
    """Of a process's first: the process that went on as this one."""

    @property
    def is_ok(self) -> bool:
        """It happened."""
        return self.outcome is Kind.OK

    @property
    def is_failed(self) -> bool:
        """It certainly did not happen."""
        return self.outcome is Kind.FAIL


class History(msgspec.Struct, gc=False):
    """A whole run: `ops` in the order in which they were invoked, `faults` as they came."""

    header: Header
    ops: list[Op]
    faults: list[Row]
    ended: int
    """When the run was over, ns."""


_encoder = msgspec.json.Encoder()


class HistoryWriter:
    """Appends rows to a file; closing it writes the end and syncs."""

    def __init__(self, path: Path, header: Header) -> None:
        self._file = path.open("wb")
        self._crc = 0
        self.rows = 0
        self._last_t = 0
        self._write(_encoder.encode(header))

    def append(self, row: Row) -> Row:
        """Number the row and write it; return it."""
        self.rows += 1
        row.i = self.rows
        assert row.t >= self._last_t, f"time went back: {row.t} after {self._last_t}"
        self._last_t = row.t
        self._write(_encoder.encode(row))
        return row

    def close(self, t: int) -> None:
        """Write how many rows there are, and sync."""
        self._write(_encoder.encode(_End(self.rows, t)))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        """Close without an end: a run that was broken off stays recognisable as one."""
        self._file.close()

    def _write(self, line: bytes) -> None:
        text = line[:-1]
        self._crc = crc32c(text, self._crc)
        self._file.write(b'%b,"crc":"%08x"}\n' % (text, self._crc))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._file.closed:
            self.abandon()


def read_rows(path: Path) -> Iterator[Header | Row | _End]:
    """Yield header, rows and end; BadHistory naming the line for anything else."""
    decode_row = msgspec.json.Decoder(Row).decode
    crc, number = 0, 0
    expected = 1
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            text = line[:-_TAIL]
            crc = crc32c(text, crc)
            if line[-_TAIL:] != b',"crc":"%08x"}\n' % crc:
                raise BadHistory(f"{path}, line {number}: {_why_unlike(line)}")
            if number == 1:
                yield _header_of(path, text + b"}")
                continue
            try:
                if text.startswith(b'{"end"'):
                    yield msgspec.json.decode(text + b"}", type=_End)
                    break
                row = decode_row(text + b"}")
            except _UNREADABLE as error:
                raise BadHistory(f"{path}, line {number}: {error}") from error
            if row.i != expected:
                raise BadHistory(f"{path}, line {number}: row {row.i}, expected {expected}")
            expected += 1
            yield row
        else:
            raise BadHistory(f"{path}, line {number + 1}: cut off, the end is missing")
        if file.read(1):
            raise BadHistory(f"{path}, line {number + 1}: something follows the end")


def _why_unlike(line: bytes) -> str:
    if not line.endswith(b"\n"):
        return "cut off within the line"
    try:
        version = msgspec.json.decode(line, type=dict[str, Any]).get("dledger_history", VERSION)
    except _UNREADABLE:
        return "not a line of a history"
    if version != VERSION:
        return f"a history of format {version}; this program reads {VERSION}"
    return "edited: it does not match its checksum, which goes on from the line before"


def _header_of(path: Path, text: bytes) -> Header:
    try:
        version = msgspec.json.decode(text, type=dict[str, Any]).get("dledger_history")
        if version != VERSION:
            raise BadHistory(
                f"{path}, line 1: a history of format {version}; this program reads {VERSION}"
            )
        header = msgspec.json.decode(text, type=Header)
    except _UNREADABLE as error:
        raise BadHistory(f"{path}, line 1: not the header of a history: {error}") from error
    if wrong := row_schema.wrong_notes(header.notes):
        raise BadHistory(f"{path}, line 1: {wrong}")
    return header


@contextmanager
def uncollected() -> Generator[None]:
    """Keep the cyclic collector from running; for work on millions of objects that stay.

    Nothing in a history is a cycle, and the collector would go over all of it again and again.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@uncollected()
def read_history(path: Path) -> History:
    """Read and pair a whole history; BadHistory names the line."""
    rows = read_rows(path)
    header = next(rows, None)
    if not isinstance(header, Header):
        raise BadHistory(f"{path}, line 1: empty")
    pairing, shape = Pairing(), row_schema.Shapes(header.nodes)
    ended: int | None = None
    for row in rows:
        if isinstance(row, Row):
            wrong = pairing.take(row) or shape.wrong(row)
            if wrong:
                raise BadHistory(f"{path}, line {row.i + 1}: {wrong}")
        elif isinstance(row, _End):
            if row.end != pairing.rows:
                raise BadHistory(f"{path}, the end: {row.end} rows, there are {pairing.rows}")
            if wrong := shape.wrong_time(row.t):
                raise BadHistory(f"{path}, the end: {wrong}")
            ended = row.t  # and go on: nothing may follow it
    assert ended is not None, "read_rows ends with the end"
    return pairing.history(header, ended)


class Pairing:
    """Makes operations of rows. Also for rows that never were in a file."""

    def __init__(self) -> None:
        self.rows = 0
        self._ops: list[Op] = []
        self._faults: list[Row] = []
        self._pending: dict[int, Op] = {}

    def take(self, row: Row) -> str:
        """Take in the next row; return what is wrong with it, empty if nothing is."""
        self.rows += 1
        if row.p == NEMESIS:
            self._faults.append(row)
            return ""
        op = self._pending.get(row.p)
        if row.type is Kind.INVOKE:
            if op is not None:
                return f"process {row.p} invokes {row.f} while its {op.f} of row {op.i} goes on"
            op = Op(  # by position: keywords take twice as long; names of which there are few, once
                row.i, 0, row.p, intern(row.f), intern(row.k), row.v, row.t, NEVER, Kind.INFO, None,
                row.key, row.node, "", NEVER, row.before,
            )  # fmt: skip
            self._pending[row.p] = op
            self._ops.append(op)
            return ""
        if op is None or op.f != row.f:
            return f"process {row.p} ends {row.f}, which it did not begin"
        del self._pending[row.p]
        op.done, op.outcome, op.result, op.err = row.i, row.type, row.v, row.err
        op.node = row.node or op.node
        op.over = row.t
        if row.type is not Kind.INFO:
            op.ended = row.t
        return ""

    def history(self, header: Header, ended: int) -> History:
        """Return what was taken in."""
        return History(header, self._ops, self._faults, ended)


class Fault(NamedTuple):
    """A fault: class, targets, from when it was begun until it was healed (ns), and its row."""

    name: str
    targets: str
    start: int
    """Its acts come later: the nemesis may ask first who leads, or wait for a member."""
    done: int
    """When the last of them was over; `start` when nobody knows."""
    end: int
    row: int
    is_broken_off: bool = False
    """It was begun, and not done to its end: whether it came to its main act is not known."""

    def hits(self, node: str, nodes: Collection[str]) -> bool:
        """Say whether it may have touched a node: it names it, or none, or speaks of all."""
        words = set(re.findall(r"[\w.-]+", self.targets))
        return node in words or "all" in words or words.isdisjoint(nodes)


def faults_in_force(history: History, *, unfinished: bool = False) -> Iterator[Fault]:
    """Yield each fault that was done: until the next "heal", or the end.

    With `unfinished` also those that were only begun, as when somebody breaks a run off: something
    may have been done, to whom is not known.
    """
    begun: dict[str, Row] = {}
    in_force: list[Fault] = []
    for row in history.faults:
        if row.f == HEAL:
            if row.type is Kind.OK:
                yield from _until(row.t, in_force, begun, unfinished=unfinished)
        elif row.f not in NO_FAULTS:
            first = begun.pop(row.f, row)
            if row.type is Kind.INVOKE:
                begun[row.f] = row
            elif row.type is Kind.OK:
                broken_off = row.err.startswith(BROKEN_OFF)
                in_force.append(Fault(row.f, row.k, first.t, row.t, NEVER, row.i, broken_off))
    yield from _until(history.ended, in_force, begun, unfinished=unfinished)


def _until(
    end: int, in_force: list[Fault], begun: dict[str, Row], *, unfinished: bool
) -> list[Fault]:
    """Return what ends now, and forget it."""
    ended = [fault._replace(end=end) for fault in in_force]
    if unfinished:
        ended += [Fault(row.f, "", row.t, row.t, end, row.i, True) for row in begun.values()]
    in_force.clear()
    begun.clear()
    return ended


def phase_of(history: History, name: str) -> Row | None:
    """Return the row that began a phase; None when it never began."""
    return next((row for row in history.faults if row.f == "phase" and row.k == name), None)
