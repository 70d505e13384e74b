"""How people write and read times, durations and sizes in bytes."""

import datetime as dt
import re
from typing import Final

from dledger_broker.cli.output import bad_input

_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_DURATIONS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_time(text: str, option: str) -> int:
    """Return milliseconds since 1970 of an ISO time; end the command when the text is no time."""
    try:
        return round(dt.datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):  # no time, or one of the year 1 in a zone east of UTC
        bad_input(f"{option}: {text}, must be a time like 2026-01-31T12:00:00")


def shown_time(time_ms: int, timespec: str = "seconds") -> str:
    """Return a time that a member sent as people here read it, to the second."""
    try:
        moment = dt.datetime.fromtimestamp(time_ms / 1_000, dt.UTC).astimezone()
    except (OverflowError, ValueError):  # of the year 10000 and later
        return f"{time_ms} ms"
    return moment.isoformat(sep=" ", timespec=timespec)


def parse_size(text: str, option: str) -> int:
    """Return bytes of "64m" and the like; end the command when the text is no size."""
    found = re.fullmatch(r"(\d{1,15})([kmg]?)", text.strip().lower())
    if found is None:
        bad_input(f"{option}: {text}, must be a number of bytes like 500, 64k, 128m or 1g")
    return int(found[1]) * _SIZES[found[2]]


def parse_duration(text: str, option: str) -> int:
    """Return milliseconds of "10m" and the like; end the command when the text is no duration."""
    found = re.fullmatch(r"(\d{1,9})(ms|s|m|h|d)", text.strip().lower())
    if found is None:
        bad_input(f"{option}: {text}, must be a time like 500ms, 30s, 10m, 24h or 7d")
    return int(found[1]) * _DURATIONS[found[2]]
