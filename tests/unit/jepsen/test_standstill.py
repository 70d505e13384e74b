"""A member that applies nothing while others do: who sees it, how it is told, what excuses it."""

from pathlib import Path
from typing import Any

import pytest

from jepsen_tests.history.events import NEMESIS, Kind, Row
from jepsen_tests.history.history_file import HistoryWriter, read_history
from jepsen_tests.run.recorder import Recorder
from jepsen_tests.run.standstill import STILL_SECONDS, Looks, Seen, Standstill
from tests.unit.jepsen.stories import Story, header, judged, kinds_of
from tests.unit.jepsen.test_row_schema import why_bad

S = 1_000_000_000


def look(at: int, *applied: int | tuple[str, int] | None) -> dict[str, Seen]:
    """One look at n1, n2, ...: each answers a second after the one before it."""
    seen: dict[str, Seen] = {}
    for number, each in enumerate(applied):
        if each is not None:
            role, index = each if isinstance(each, tuple) else ("follower", each)
            seen[f"n{number + 1}"] = Seen((at + number) * S, (at + number + 1) * S, role, index)
    return seen


def found(*looks: dict[str, Seen]) -> list[list[Standstill]]:
    kept = Looks()
    return [kept.add(each) for each in looks]


def test_it_is_seen_when_it_lasts() -> None:
    rows = found(look(0, 9, 9, 4), look(5, 12, 12, 4), look(10, 15, 15, 4), look(18, 19, 19, 4))
    assert rows == [[], [], [], [Standstill("n3", 17 * S, 4, {"n1": [9, 19], "n2": [9, 19]})]]


def test_it_is_seen_again_as_long_as_it_lasts() -> None:
    looks = [look(at, 9 + at, 4) for at in range(0, 60, 5)]
    kept = Looks()
    rows = [kept.add(each) for each in looks]
    assert [bool(row) for row in rows] == [False] * 4 + [True] * 8
    assert all(row[0].ns >= STILL_SECONDS * S for row in rows if row)
    assert len(kept._looks) < 7


@pytest.mark.parametrize(
    "looks",
    [
        [look(0, 9, 4), look(20, 15, 5)],  # it goes on
        [look(0, 9, 4), look(10, 12, 9), look(20, 15, 4)],
        [look(0, 9, 4), look(20, 9, 4)],  # the others do not
        [look(0, 4, 4), look(20, 9, 4)],  # it lacked nothing then: the writes may be of just now
        [look(0, 9, 4), look(10, 12, 4)],  # not for long
        [look(0, 9, 4), look(10, 12, None), look(20, 15, 4)],  # it may have been another life
        [look(0, 9, ("quarantined", 4)), look(20, 15, ("quarantined", 4))],
        [look(0, 9, 4), look(10, 11, ("candidate", 4)), look(20, 15, 4)],
        [look(0, None, 4), look(20, 15, 4)],
        [look(0, 9, 4), {}, look(20, None, 4)],
        [{}, {}],
    ],
)
def test_what_is_none_is_not_seen(looks: list[dict[str, Seen]]) -> None:
    assert not any(found(*looks))


COMPARED = {"applied": 4, "others": {"n1": [9, 19]}}


def still(story: Story, seconds: str = "20.000 s", node: str = "n3") -> Story:
    story.row(NEMESIS, Kind.OK, "stood-still", node, COMPARED, err=seconds)
    return story


def test_what_was_compared_is_written_down_and_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path, header()) as writer:
        recorder = Recorder(writer)
        recorder.stood_still(Standstill("n3", 17_250_000_000, 4, {"n1": [9, 19]}))
        writer.close(recorder.now())
    history = read_history(path)
    [row] = history.faults
    assert (row.f, row.k, row.err, row.v) == ("stood-still", "n3", "17.250 s", COMPARED)
    [finding] = judged(history)["C16"].findings
    assert finding.kind == "stood-still"
    assert "n3 applied nothing after index 4 for 17.250 s" in finding.text
    assert "meanwhile n1 went from 9 to 19" in finding.text


def test_a_fault_of_its_own_excuses_it_and_one_of_another_does_not() -> None:
    assert not kinds_of(still(Story().fault("pause", "n3").wait(25_000)).history())
    assert not kinds_of(still(Story().fault("delay", "all, 5 ms").wait(25_000)).history())
    healed = Story().fault("pause", "n3").wait(25_000).fault("heal", "").wait(10_000)
    assert not kinds_of(still(healed).history())
    assert kinds_of(still(Story().fault("pause", "n1").wait(25_000)).history()) == {"stood-still"}
    healed = Story().fault("pause", "n3").fault("heal", "").wait(25_000)
    assert kinds_of(still(healed).history()) == {"stood-still"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"err": "20"}, 'err of stood-still is "20", allowed are seconds: 12.345 s'),
        ({"err": "20.1234 s"}, "err of stood-still is"),
        ({"err": "-1 s"}, "err of stood-still is"),
        ({"err": "1e5 s"}, "err of stood-still is"),
        ({"err": "20. s"}, "err of stood-still is"),
        ({"err": "20 s\n"}, "err of stood-still is"),
        ({"err": "9" * 400 + " s"}, "err of stood-still is"),
        ({"err": ""}, "err of stood-still is"),
        ({"k": "n9"}, 'k of stood-still is "n9", allowed are n1, n2, n3'),
        ({"v": None}, "v of stood-still (ok) is null"),
        ({"v": {"applied": 4, "others": {}}}, "v of stood-still (ok) is"),
        ({"v": {"applied": 4, "others": {"n1": [4, 9]}}}, "v of stood-still (ok) is"),
        ({"v": {"applied": 4, "others": {"n1": [9, 9]}}}, "v of stood-still (ok) is"),
        ({"v": {"applied": 4, "others": {"n7": [5, 9]}}}, 'names "n7", allowed are n1, n2'),
        ({"v": {"applied": 4, "others": {"n3": [5, 9]}}}, 'names "n3", allowed are n1, n2'),
    ],
)
def test_its_row_is_checked(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    fields = {"k": "n3", "v": COMPARED, "err": "20.5 s"} | changes
    row = Row(i=0, t=1, p=NEMESIS, type=Kind.OK, f="stood-still", **fields)
    assert said in why_bad(tmp_path, [row])


@pytest.mark.parametrize("seconds", ["20 s", "20.5 s", "0.001 s"])
def test_seconds_may_have_three_digits(tmp_path: Path, seconds: str) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path, header()) as writer:
        writer.append(still(Story(), seconds).rows[0])
        writer.close(1_000_000)
    assert len(read_history(path).faults) == 1
