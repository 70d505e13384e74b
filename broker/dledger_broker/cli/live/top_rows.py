"""The rows of `dledger top`: rates from two looks. Pure.

Owns: what a rate is, and the order of rows. Not: looking (`top.py`). A rate needs two looks; at the
first one there is none. A queue that is new has no rate before its second look.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment."""

    at: float
    """Monotonic seconds."""
    members: Sequence[Row]
    """Those of `dledger status`."""
    queues: Mapping[tuple[str, int], tuple[int, int]] = field(
        default_factory=dict[tuple[str, int], tuple[int, int]]
    )
    """By topic and number: first offset, and the one behind the last message."""
    lags: Mapping[str, Sequence[Row]] = field(default_factory=dict[str, Sequence[Row]])
    """By consumer group: the rows of `dledger group lag`."""


def topic_rows(now: Look, before: Look | None) -> list[dict[str, object]]:
    """Return a row for each topic, those that grow fastest first."""
    rows: dict[str, dict[str, object]] = {}
    grown: dict[str, int] = {}
    for (topic, number), (minimum, maximum) in now.queues.items():
        row = rows.setdefault(topic, {"topic": topic, "queues": 0, "messages": 0})
        row["queues"] = cast("int", row["queues"]) + 1
        row["messages"] = cast("int", row["messages"]) + maximum - minimum
        known = before.queues.get((topic, number)) if before else None
        if known is not None:
            grown[topic] = grown.get(topic, 0) + max(maximum - known[1], 0)
    for topic, row in rows.items():
        row["in_per_second"] = _rate(grown.get(topic), now, before)
    return sorted(rows.values(), key=lambda row: (-_number(row["in_per_second"]), row["topic"]))


def lag_rows(now: Look, before: Look | None) -> list[dict[str, object]]:
    """Return a row for each consumer group and topic, the longest lag first."""
    rows: list[dict[str, object]] = []
    for name, queues in now.lags.items():
        known = _done(before.lags.get(name, ())) if before else {}
        for topic in sorted({str(queue["topic"]) for queue in queues}):
            mine = [queue for queue in queues if queue["topic"] == topic]
            begun = [queue for queue in mine if queue["floor"] is not None]
            done = [
                max(count - known[place], 0)
                for place, count in _done(mine).items()
                if place in known
            ]
            rows.append(
                {
                    "consumer_group": name,
                    "topic": topic,
                    "lag": sum(cast("int", queue["lag"]) for queue in begun),
                    "lag_seconds": max((_number(each["lag_seconds"]) for each in begun), default=0),
                    "done_per_second": _rate(sum(done) if done else None, now, before),
                    "lost": sum(cast("int", queue["lost"]) for queue in begun),
                }
            )
    return sorted(rows, key=lambda row: (-_number(row["lag"]), row["consumer_group"], row["topic"]))


def _done(queues: Sequence[Row]) -> dict[tuple[str, int], int]:
    """Return of each queue that the group has begun a number that grows with each message done."""
    return {
        (str(queue["topic"]), cast("int", queue["queue"])): cast("int", queue["floor"])
        + cast("int", queue["done_above"])
        for queue in queues
        if queue["floor"] is not None
    }


def _rate(count: int | None, now: Look, before: Look | None) -> float | None:
    if count is None or before is None or now.at <= before.at:
        return None
    return round(count / (now.at - before.at), 1)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
