"""When a cron expression is due, in a time zone. Pure.

Expressions have five fields, or six with seconds first, as `cronsim` reads them: it treats summer
time as Debian's cron does. A time of day that a zone leaves out comes right after the gap, and one
that a zone has twice counts once.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from dledger_proto.errors import invalid
from dledger_proto.limits import SCHEDULE_TEXT_SIZE_MAX

ZONES_CACHED: Final = 256
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)


def due_time(cron: str, time_zone: str, last_ms: int, now_ms: int) -> int:
    """Return when to send next, ms since 1970; up to `now_ms` it is due.

    It is the first time after `last_ms`. When several are past, it is the latest of them: what was
    missed is sent once. INVALID_ARGUMENT when the expression or the zone cannot be read, or when
    there is no such time.
    """
    for field, text in (("cron", cron), ("time_zone", time_zone)):
        if not 1 <= len(text) <= SCHEDULE_TEXT_SIZE_MAX:
            raise invalid(f"{field} of {len(text)} bytes, must have 1 to {SCHEDULE_TEXT_SIZE_MAX}")
    zone = _zone(time_zone)
    try:
        due = next(CronSim(cron, _time(last_ms, zone)))
        if _ms(due) <= now_ms:
            latest = next(CronSim(cron, _time(now_ms, zone) + _SECOND, reverse=True))
            due = max(due, latest)
    except CronSimError as error:
        raise invalid(f"cron {cron!r}: {error}") from None
    except (StopIteration, OverflowError):
        raise invalid(f"cron {cron!r}: there is no such time") from None
    return _ms(due)


@lru_cache(ZONES_CACHED)
def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not found, no name of a zone, a folder of zones
        raise invalid(f"time_zone {name!r}: this member knows no such time zone") from None


def _time(time_ms: int, zone: tzinfo) -> datetime:
    return (_EPOCH + timedelta(seconds=time_ms // 1_000)).astimezone(zone)


def _ms(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(milliseconds=1)
