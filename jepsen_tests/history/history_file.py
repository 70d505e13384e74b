"""The file of a history: its writer, its reader, and how rows become operations.

`events` draws the lines. `row_schema` checks each row before any checker looks.
"""

import gc
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from sys import intern
from typing import Any, Final, Self

import msgspec
from crc32c import crc32c

from jepsen_tests.history import row_schema
from jepsen_tests.history.events import NEMESIS, NEVER, VERSION, Header, History, Kind, Op, Row

_TAIL: Final = len(',"crc":"00000000"}\n')
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading one line may raise."""


class BadHistory(Exception):
    """A history that cannot be judged; the message names file, line and reason."""


class _End(msgspec.Struct):
    end: int
    t: int


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

    def _write(self, line: bytes) -> None:
        text = line[:-1]
        self._crc = crc32c(text, self._crc)
        self._file.write(b'%b,"crc":"%08x"}\n' % (text, self._crc))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()  # without an end when `close` did not come: the run was broken off


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
        return _of_format(version)
    return "edited: it does not match its checksum, which goes on from the line before"


def _of_format(version: object) -> str:
    return f"a history of format {version}; this program reads {VERSION}"


def _header_of(path: Path, text: bytes) -> Header:
    try:
        version = msgspec.json.decode(text, type=dict[str, Any]).get("dledger_history")
        if version != VERSION:
            raise BadHistory(f"{path}, line 1: {_of_format(version)}")
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
    pairing, checker = Pairing(), row_schema.RowChecker(header.nodes)
    ended: int | None = None
    for row in rows:
        if isinstance(row, Row):
            wrong = pairing.take(row) or checker.wrong(row)
            if wrong:
                raise BadHistory(f"{path}, line {row.i + 1}: {wrong}")
        elif isinstance(row, _End):
            if row.end != pairing.rows:
                raise BadHistory(f"{path}, the end: {row.end} rows, there are {pairing.rows}")
            if wrong := checker.wrong_time(row.t):
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
