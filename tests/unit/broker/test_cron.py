"""When a cron expression is due: missed times, summer time, what cannot be read."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from dledger_broker.timers.cron import due_time
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import TIME_MS_MAX

BERLIN = "Europe/Berlin"


def ms(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1_000)


def next_after(cron: str, last: str, now: str, zone: str = "UTC") -> int:
    return due_time(cron, zone, ms(last, zone), ms(now, zone))


def test_the_first_time_after_the_last_is_next() -> None:
    assert next_after("*/5 * * * *", "2026-01-01T10:00:00", "2026-01-01T10:00:01") == ms(
        "2026-01-01T10:05:00"
    )
    assert next_after("30 6 * * MON-FRI", "2026-01-02T06:30", "2026-01-02T06:31") == ms(
        "2026-01-05T06:30:00"
    )


def test_seconds_are_read_from_the_first_of_six_fields() -> None:
    assert due_time("*/10 * * * * *", "UTC", 1_000, 1_000) == 10_000
    assert due_time("*/10 * * * * *", "UTC", 10_000, 10_500) == 20_000


def test_of_the_times_that_were_missed_the_latest_is_due() -> None:
    assert next_after("0 * * * *", "2026-01-01T10:00", "2026-01-01T13:30") == ms("2026-01-01T13:00")
    assert next_after("0 * * * *", "2026-01-01T10:00", "2026-01-01T13:00") == ms("2026-01-01T13:00")
    assert due_time("* * * * * *", "UTC", 1_000, 86_400_000_500) == 86_400_000_000


def test_a_time_that_was_sent_is_never_due_again() -> None:
    now_ms = ms("2026-01-01T13:30")
    due_ms = due_time("0 * * * *", "UTC", ms("2026-01-01T10:00"), now_ms)
    assert due_time("0 * * * *", "UTC", due_ms, now_ms) == ms("2026-01-01T14:00")


def test_a_time_of_day_that_summer_time_leaves_out_comes_after_the_gap() -> None:
    due = next_after("30 2 * * *", "2026-03-28T12:00", "2026-03-28T12:00", BERLIN)
    assert due == ms("2026-03-29T01:00:00"), "03:00 there, the first moment after the gap"


def test_a_time_of_day_that_comes_twice_counts_once() -> None:
    first = next_after("30 2 * * *", "2026-10-24T12:00", "2026-10-24T12:00", BERLIN)
    second = due_time("30 2 * * *", BERLIN, first, first)
    assert first == ms("2026-10-25T00:30:00")
    assert second == ms("2026-10-26T01:30:00")


def test_after_the_last_time_there_is_none() -> None:
    with pytest.raises(DledgerError, match="there is no such time"):
        due_time("* * * * *", "UTC", TIME_MS_MAX, 0)


@pytest.mark.parametrize(
    ("cron", "zone", "words"),
    [
        ("", "UTC", "cron of 0 bytes"),
        ("x" * 200, "UTC", "cron of 200 bytes"),
        ("60 * * * *", "UTC", "cron '60 * * * *': Bad minute"),
        ("* * * *", "UTC", "Wrong number of fields"),
        ("0 0 30 2 *", "UTC", "Bad day-of-month"),
        ("* * * * *", "Mars/Olympus", "time_zone 'Mars/Olympus'"),
        ("* * * * *", "../etc/passwd", "time_zone '../etc/passwd'"),
        ("* * * * *", "Europe", "time_zone 'Europe'"),
    ],
)
def test_what_cannot_be_read_is_named(cron: str, zone: str, words: str) -> None:
    with pytest.raises(DledgerError) as refused:
        due_time(cron, zone, 0, 0)
    assert refused.value.code is Code.INVALID_ARGUMENT
    assert words in refused.value.detail
