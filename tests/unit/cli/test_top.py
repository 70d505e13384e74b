"""`dledger top`: rates from two looks, order of rows, and how often it looks."""

import json
from itertools import count

import pytest
from rich.text import Text

from dledger_broker.cli.live.refresh import refreshed
from dledger_broker.cli.live.top_rows import Look, lag_rows, topic_rows


def lag(
    topic: str, queue: int, floor: int | None, maximum: int, above: int = 0
) -> dict[str, object]:
    waiting = None if floor is None else maximum - floor - above
    return {
        "topic": topic,
        "queue": queue,
        "floor": floor,
        "done_above": above,
        "lag": waiting,
        "lag_seconds": None if floor is None else 3.0 * queue,
        "lost": None if floor is None else queue,
    }


def test_a_rate_needs_two_looks_at_a_queue() -> None:
    first = Look(10.0, [], {("slow", 0): (0, 5), ("fast", 0): (2, 10)})
    assert [row["in_per_second"] for row in topic_rows(first, None)] == [None, None]
    new_queue = {("slow", 0): (0, 6), ("fast", 0): (2, 30), ("fast", 1): (0, 1_000)}
    assert topic_rows(Look(12.0, [], new_queue), first) == [
        {"topic": "fast", "queues": 2, "messages": 1_028, "in_per_second": 10.0},
        {"topic": "slow", "queues": 1, "messages": 6, "in_per_second": 0.5},
    ]


def test_a_topic_that_was_made_anew_has_no_negative_rate() -> None:
    before = Look(1.0, [], {("t", 0): (0, 100)})
    (row,) = topic_rows(Look(2.0, [], {("t", 0): (0, 3)}), before)
    assert row["in_per_second"] == 0.0


def test_lag_is_over_queues_and_done_counts_what_lies_above_the_floor() -> None:
    before = Look(0.0, [], {}, {"billing": [lag("t", 0, 10, 50), lag("t", 1, 0, 10)]})
    now = Look(
        2.0, [], {},
        {"billing": [lag("t", 0, 10, 50, above=4), lag("t", 1, 6, 10), lag("t", 2, None, 7)]},
    )  # fmt: skip
    assert lag_rows(now, before) == [
        {
            "consumer_group": "billing", "topic": "t", "lag": 40, "lag_seconds": 3.0,
            "done_per_second": 5.0, "lost": 1,
        }
    ]  # fmt: skip
    (row,) = lag_rows(now, None)
    assert row["done_per_second"] is None


def test_the_longest_lag_comes_first() -> None:
    now = Look(0.0, [], {}, {"a": [lag("t", 0, 9, 10)], "b": [lag("t", 0, 0, 10)]})
    assert [row["consumer_group"] for row in lag_rows(now, None)] == ["b", "a"]


def test_json_is_a_line_for_each_look_and_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    numbers = count()
    refreshed(lambda: next(numbers), lambda _: Text(""), 3.0, as_json=True, count=3)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [0, 1, 2]
    assert pauses == [3.0, 3.0]


def test_ctrl_c_ends_it_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    shown: list[int] = []

    def show(number: int) -> Text:
        shown.append(number)
        return Text(str(number))

    refreshed(lambda: 7, show, 1.0, as_json=False)
    assert shown == [7]
