"""When a cron expression is due, in a time zone. Pure.

Expressions have five fields, or six with seconds first, as `cronsim` reads them: it treats summer
time as Debian's cron does. A time of day that a zone leaves out comes right after the gap, and one
that a zone has twice counts once.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from importlib import resources
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from dledger_proto.errors import invalid
from dledger_proto.limits import SCHEDULE_TEXT_SIZE_MAX

ZONES_CACHED: Final = 256
FOLD_HOURS_MAX: Final = 3
"""The longest time by which a zone turns its clocks back, and one hour more."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_HOUR_MS: Final = 3_600_000


def due_time(cron: str, time_zone: str, last_ms: int, now_ms: int) -> int:
    """Return when to send next, ms since 1970, later than `last_ms`; up to `now_ms` it is due.

    It is the first time after `last_ms`. When several are past, it is the latest of them: what was
    missed is sent once. INVALID_ARGUMENT when the expression or the zone cannot be read, or when
    there is no such time.
    """
    for field, text in (("cron", cron), ("time_zone", time_zone)):
        size = len(text.encode(errors="replace"))
        if not 1 <= size <= SCHEDULE_TEXT_SIZE_MAX:
            raise invalid(f"{field} of {size} bytes, must have 1 to {SCHEDULE_TEXT_SIZE_MAX}")
    zone = _zone(time_zone)
    try:
        due_ms = _first_after(cron, zone, last_ms)
        if due_ms <= now_ms:
            latest = next(CronSim(cron, _time(now_ms, zone) + _SECOND, reverse=True))
            if _ms(latest) <= now_ms:
                due_ms = max(due_ms, _ms(latest))
    except CronSimError as error:
        raise invalid(f"cron {cron!r}: {error}") from None
    except (StopIteration, OverflowError):
        raise invalid(f"cron {cron!r}: there is no such time") from None
    return due_ms


def _first_after(cron: str, zone: tzinfo, last_ms: int) -> int:
    """Return the first time after `last_ms`.

    While a zone has an hour for the second time, `cronsim` returns times of the first. They are
    over, so the search begins again an hour later.
    """
    for hours in range(FOLD_HOURS_MAX + 1):
        due_ms = _ms(next(CronSim(cron, _time(last_ms + hours * _HOUR_MS, zone))))
        if due_ms > last_ms:
            return due_ms
    raise OverflowError


@lru_cache(ZONES_CACHED)
def _zone(name: str) -> tzinfo:
    if name not in _known_zones():
        raise invalid(f"time_zone {name!r}: this member knows no such time zone")
    return ZoneInfo(name)


@lru_cache(1)
def _known_zones() -> frozenset[str]:
    """Return the names of the IANA: a machine has names of its own, such as localtime."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text().split())


def _time(time_ms: int, zone: tzinfo) -> datetime:
    return (_EPOCH + timedelta(seconds=time_ms // 1_000)).astimezone(zone)


def _ms(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(milliseconds=1)
