"""When a message is to be delivered: delays, times, RocketMQ's levels (S40, S105)."""

from typing import Any

import pytest

from dledger_client._core.delays import delivery_time
from dledger_client._core.producer.lane import GatherLimits, Lane
from dledger_client.errors import MessageIllegal
from dledger_proto.batch.codec import Record
from dledger_proto.delays import DELAY_LEVELS_MS
from dledger_proto.limits import DELAY_MS_MAX

NOW_MS = 1_700_000_000_000
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
PUBLISHED = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


def time_of(delay_ms: Any = None, deliver_at_ms: Any = None, delay_level: Any = None) -> int:
    return delivery_time(delay_ms, deliver_at_ms, delay_level, NOW_MS)


def test_the_levels_are_the_published_ones() -> None:
    assert " ".join(DELAY_LEVELS_MS) == PUBLISHED
    units = {"s": SECOND, "m": MINUTE, "h": HOUR}
    for level, name in enumerate(PUBLISHED.split(), 1):
        delay = int(name[:-1]) * units[name[-1]]
        assert DELAY_LEVELS_MS[name] == delay
        assert time_of(delay_level=level) == NOW_MS + delay


def test_a_level_above_the_last_means_the_last() -> None:
    assert time_of(delay_level=19) == time_of(delay_level=10_000) == NOW_MS + 2 * HOUR


def test_delays_and_times() -> None:
    assert time_of() == 0
    assert time_of(delay_ms=0) == 0
    assert time_of(delay_ms=1.6) == NOW_MS + 2
    assert time_of(deliver_at_ms=NOW_MS + 5) == NOW_MS + 5
    assert time_of(deliver_at_ms=NOW_MS) == time_of(deliver_at_ms=0) == 0, "past: at once"
    assert time_of(delay_ms=DELAY_MS_MAX) == NOW_MS + DELAY_MS_MAX


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"delay_level": 0}, "delay_level: 0, must be an integer from 1 to 18"),
        ({"delay_level": "10m"}, "delay_level: '10m', must be an integer from 1 to 18; a higher"),
        ({"delay_level": True}, "delay_level: True, must be an integer from 1 to 18"),
        ({"delay_level": "3"}, "delay_level: '3', must be an integer from 1 to 18"),
        ({"delay_ms": -1}, "delay_ms: -1, must not be negative"),
        ({"delay_ms": float("nan")}, "delay_ms: nan, must not be negative"),
        ({"delay_ms": "5s"}, "delay_ms: '5s', must be a number"),
        ({"delay_ms": DELAY_MS_MAX + 1}, f"delay_ms: {DELAY_MS_MAX + 1} ms from now, at most"),
        ({"deliver_at_ms": 1.5}, "deliver_at_ms: 1.5, must be an integer from 0"),
        ({"deliver_at_ms": NOW_MS + DELAY_MS_MAX + 1}, "deliver_at_ms: 3456000001 ms from now"),
        ({"delay_ms": 1, "delay_level": 1}, "2 are given, at most one may be"),
    ],
)
def test_what_is_out_of_range_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MessageIllegal) as caught:
        time_of(**arguments)
    assert sentence in caught.value.detail


def test_the_records_of_a_batch_have_one_delivery_time() -> None:
    lane = Lane("t", b"t" * 16, 0, "g", is_one_way=False)
    limits = GatherLimits(10_000, 100, 0.0, 5)
    for due_ms in (0, 0, 7, 7, 8, 0):
        lane.append(Record(b"x"), 21, 10.0, 0.0, limits, due_ms)
    lane.close_open()
    found = [(batch.count, batch.delivery_time_ms) for batch in lane.ready]
    assert found == [(2, 0), (2, 7), (1, 8), (1, 0)]
