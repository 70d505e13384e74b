"""Lookups, times, holds and exports that are right, however odd they look; what exports show."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.planning import Options
from dledger_client.export.run import export_once
from jepsen_tests.history.events import Kind
from jepsen_tests.workloads.stored.exports import TOPIC, shown_version
from tests.unit.export.fakes import DAY0, FakeLog, HereEngine, QuickDisk
from tests.unit.jepsen.stored_anomalies import clock, export, held, stamped, two_sent, version
from tests.unit.jepsen.stories import Story, kinds_of, texts_of


def late_trim() -> Story:
    """The hold lasted until 1,500 ms; the message before the trim was stored at 2,000 ms."""
    story = two_sent().send(1, "1-3", 2).send(6, "6-1", 0, "t/1")
    story.op(5, "hold", "t/0", {"owner": "o", "offset": 1, "ttl_ms": 500}, 1_500)
    story.send(6, "6-2", 1, "t/1").op(7, "trim", "t/0", 2, 2)
    return story.op(6, "stamps", "t/1", None, [[0, 1, 1_000], [1, 1, 2_000]])


def released_trim() -> Story:
    story = held().op(5, "release", "t/0", "o").op(7, "trim", "t/0", 2, 2)
    return clock(story)


def renewed_trim() -> Story:
    """The owner's next hold begins later; whether it was stored is not known."""
    story = held().invoke(5, "hold", "t/0", {"owner": "o", "offset": 2, "ttl_ms": 900})
    story.end(5, kind=Kind.INFO, err="DEADLINE")
    return clock(story.op(7, "trim", "t/0", 2, 2))


def unknown_hold() -> Story:
    """Nobody may rely on a hold of unknown outcome, but it may hold."""
    story = two_sent().send(1, "1-3", 2)
    story.invoke(5, "hold", "t/0", {"owner": "o", "offset": 1, "ttl_ms": 900})
    story.end(5, kind=Kind.INFO, err="DEADLINE").invoke(7, "trim", "t/0", 2)
    story.end(7, kind=Kind.FAIL, err="HELD: o holds the queue").op(7, "trim", "t/0", 2, 2)
    return story


def trimmed_lookups() -> Story:
    story = two_sent().send(1, "1-3", 2).invoke(7, "trim", "t/0", 2)
    story.end(7, kind=Kind.INFO, err="DEADLINE").op(2, "lookup-id", "t", "1-1", [])
    return story.op(2, "lookup", "t/0", 0, []).op(2, "lookup-key", "t", "1-2/0", [])


def concurrent_lookups() -> Story:
    """The messages were not acknowledged before the lookups began."""
    story = Story().begin_send(1, "1-1").invoke(2, "lookup-id", "t", "1-1").end(1, [0, 1])
    story.end(2, []).send(1, "1-2", 1).send(1, "1-3", 2)
    return story.op(3, "lookup", "t/0", 9, []).op(3, "lookup-key", "t", "7-7/0", [])


def times() -> Story:
    """Between two store times, at one, before all, behind all."""
    story = stamped(1_000, 2_000, 2_000)
    for time_ms, offset in ((1_500, 1), (2_000, 1), (0, 0), (9_000, 3), (1_000, 0)):
        story.op(4, "by-time", "t/0", time_ms, offset)
    return story


def trimmed_times() -> Story:
    return stamped(1_000, 2_000, 3_000).op(7, "trim", "t/0", 2, 2).op(4, "by-time", "t/0", 1, 2)


def exports() -> Story:
    """Nothing new, another's plan, a gap where somebody trimmed before the first version."""
    story = two_sent().send(1, "1-3", 2).op(7, "trim", "t/0", 1, 1)
    first = version(words="1-1 1-2", gaps=[["t/0", 0, 1]], rows=[["t/0", 1, ["1-2"]]])
    export(story, first | {"adopted": True})
    export(story, version(1, 2, "1-3"), p=6)
    return export(story, version(1, 2, "1-3"))


def one_way() -> Story:
    """One is there, one is not, one was refused; nobody promises their order."""
    story = Story().op(1, "one-way", "t/0", ["1-1"]).op(1, "one-way", "t/0", ["1-2"])
    story.invoke(1, "one-way", "t/0", ["1-3"]).end(1, kind=Kind.FAIL, err="BUSY")
    return story.op(1, "one-way", "t/0", ["1-4"]).final("1-4 1-1")


@pytest.mark.parametrize(
    "story",
    [
        late_trim, released_trim, renewed_trim, unknown_hold, trimmed_lookups, concurrent_lookups,
        times, trimmed_times, exports, one_way,
    ],
)  # fmt: skip
def test_what_is_right_is_not_named(story: Callable[[], Story]) -> None:
    history = story().history()
    assert not kinds_of(history), texts_of(history)


def test_a_version_shows_its_rows_and_gaps_as_the_files_have_them(tmp_path: Path) -> None:
    storage = ExportStorage(tmp_path, QuickDisk())
    log = FakeLog({0: 9, 1: 3}, minimums={0: 2})
    log.trimmed_after_freeze = {0: 4}
    options = Options(TOPIC, accept_data_loss=True)

    def run() -> dict[str, object]:
        outcome = export_once(storage, log, HereEngine(), options, lambda: DAY0)
        return shown_version(tmp_path, outcome)

    first = run()
    a, b = f"{TOPIC}/0", f"{TOPIC}/1"
    assert (first["version"], first["end"]) == (0, {a: 9, b: 3})
    rows = {(place, offset): len(values) for place, offset, values in first["rows"]}  # type: ignore[attr-defined]
    assert rows == {(a, 4): 5, (b, 0): 3}
    assert first["lost"] == [[a, 2, 4]], "these were planned and then trimmed"
    assert run() == first | {"lost": []}, "there is nothing new: the newest version"
    log.ends = {0: 9, 1: 5}
    second = run()
    assert (second["version"], second["start"], second["gaps"]) == (1, {a: 9, b: 3}, [])
    assert [run[:2] for run in second["rows"]] == [[b, 3]]  # type: ignore[attr-defined]
