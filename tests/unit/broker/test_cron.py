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


@pytest.mark.parametrize(
    ("zone", "around"),
    [
        (BERLIN, "2026-10-25T00:00"),
        (BERLIN, "2026-03-29T00:00"),
        ("America/Santiago", "2026-04-05T02:00"),
        ("Africa/Cairo", "2026-10-29T20:00"),
        ("Australia/Lord_Howe", "2026-04-04T14:00"),
        ("Asia/Kathmandu", "2026-01-01T00:00"),
    ],
)
@pytest.mark.parametrize(
    "cron",
    [
        "30 2 * * *", "*/5 * * * SAT", "* * * * * SAT", "*/10 * * * THU", "0 */2 * * *",
        "15,45 * * * *", "59 23 L * *", "0 0 * * SUN", "*/7 1-3 * * *", "30 1 25 10 *",
    ],
)  # fmt: skip
def test_the_next_time_is_later_than_the_last_whatever_clocks_do(
    cron: str, zone: str, around: str
) -> None:
    """A time that is not later would be proposed without end."""
    begin = ms(around)
    for minutes in range(0, 360, 10):
        last_ms = begin + minutes * 60_000
        for later_ms in (0, 1_000, 3_600_000, 26 * 3_600_000):
            due_ms = due_time(cron, zone, last_ms, last_ms + later_ms)
            assert due_ms > last_ms, (minutes, later_ms)
            again_ms = due_time(cron, zone, due_ms, max(due_ms, last_ms + later_ms))
            assert again_ms > due_ms, (minutes, later_ms)


def test_a_time_of_day_that_is_over_is_not_next() -> None:
    """At 02:10 for the second time, 02:30 for the first time is over."""
    last_ms = ms("2026-10-25T01:10")
    assert due_time("30 2 * * *", BERLIN, last_ms, last_ms) == ms("2026-10-26T01:30")


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
        ("* * * * *", "localtime", "time_zone 'localtime'"),
        ("\udcff", "UTC", "Wrong number of fields"),
    ],
)
def test_what_cannot_be_read_is_named(cron: str, zone: str, words: str) -> None:
    with pytest.raises(DledgerError) as refused:
        due_time(cron, zone, 0, 0)
    assert refused.value.code is Code.INVALID_ARGUMENT
    assert words in refused.value.detail
