"""The file of a flight record: lines with checksums, read as far as they are whole.

Owns: the format, its encoder and its reader. One line of UTF-8 for each event:

    crc32c of what follows it, 8 hex digits; a space; JSON; a line's end

    first line   {"format": "dledger flight 1", "cluster", "member", "version", "reason",
                  "written_ms", "monotonic", "dropped": older events that were not kept}
    event        [wall_ms, monotonic, group, name, {field: value}]; bytes are hexadecimal text
    last line    {"events": how many there are}

A file without its last line was cut off. A line that does not fit its checksum is passed over and
counted: the lines behind it are as good as before.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, cast

from crc32c import crc32c

from dledger_broker.flight.recorder import Event, Snapshot, Value

FORMAT: Final = "dledger flight 1"
LINE_BYTES_MAX: Final = 64 << 10
"""A longer line is damage."""
FILE_BYTES_MAX: Final = 64 << 20
"""Twice what a full record may become; nobody reads on behind it."""
_SUM_DIGITS: Final = 8


class NoRecord(ValueError):
    """The bytes are no flight record; says why."""


@dataclass(slots=True)
class FlightRecord:
    """What a file holds, as far as it is whole."""

    about: dict[str, Any]
    """The first line; empty when it is damaged."""
    events: list[Event] = field(default_factory=list[Event])
    damaged_lines: int = 0
    is_whole: bool = False
    """The last line is there, and counts these events."""

    @property
    def problem(self) -> str:
        """What is wrong with the file; empty: nothing."""
        if self.damaged_lines:
            return f"{self.damaged_lines} lines are damaged and left out"
        return "" if self.is_whole else "the file ends too early: later events are missing"


def encode_record(about: dict[str, object], snapshot: Snapshot) -> Iterator[bytes]:
    """Yield the lines of a file."""
    yield _line({"format": FORMAT, **about, "dropped": snapshot.dropped})
    for event in snapshot.events:
        fields = {key: _shown(value) for key, value in event.fields.items()}
        yield _line([event.wall_ms, event.monotonic, event.group, event.name, fields])
    yield _line({"events": len(snapshot.events)})


def _shown(value: Value) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return repr(value) if isinstance(value, float) and not abs(value) < 1e300 else value


def _line(value: object) -> bytes:
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32c(text), text)


def parse_record(data: bytes) -> FlightRecord:
    """Return what the bytes of a file hold; NoRecord when it is none, or a later program's."""
    record = FlightRecord({})
    expected: int | None = None
    for number, line in enumerate(data[:FILE_BYTES_MAX].split(b"\n")[:-1]):
        value = _value_of(line)
        match value:
            case {"format": str(found)} if number == 0:
                if found != FORMAT:
                    raise NoRecord(f"format {found[:40]!r}, this program reads {FORMAT!r}")
                record.about = cast("dict[str, Any]", value)
            case {"events": int(expected)} if number:
                pass
            case [int(), int() | float(), str(), str(), dict()] if number:
                record.events.append(Event(*cast("list[Any]", value)))
            case _:
                record.damaged_lines += 1
    if not record.about and not record.events:
        raise NoRecord("no line of it is one of a flight record")
    record.is_whole = expected == len(record.events) and data.endswith(b"\n")
    return record


def _value_of(line: bytes) -> object:
    """Return the value of a line; None when it is damaged."""
    if len(line) > LINE_BYTES_MAX or line[_SUM_DIGITS : _SUM_DIGITS + 1] != b" ":
        return None
    text = line[_SUM_DIGITS + 1 :]
    if line[:_SUM_DIGITS] != b"%08x" % crc32c(text):
        return None
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return None


def shown_events(events: Iterable[Event]) -> Iterator[dict[str, object]]:
    """Yield events as fields, for JSON."""
    for event in events:
        yield {
            "time_ms": event.wall_ms, "monotonic": event.monotonic, "group": event.group,
            "event": event.name, **{f"{key}": value for key, value in event.fields.items()},
        }  # fmt: skip
