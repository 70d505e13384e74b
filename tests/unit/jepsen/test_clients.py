"""C21: who only looks as if left behind is not named; a client is followed over its numbers."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from jepsen_tests.checkers.cluster.clients import clients_of
from jepsen_tests.checkers.shared.judgement import Valid
from jepsen_tests.history.events import INTERRUPTED, NEMESIS, Kind, Row
from jepsen_tests.history.history_file import BadHistory, HistoryWriter, read_history
from jepsen_tests.run.recorder import Process, Recorder
from tests.unit.jepsen.client_anomalies import a_call_does_not_end, tried
from tests.unit.jepsen.stories import Story, header, judged, texts_of
from tests.unit.jepsen.test_row_schema import why_bad

STORIES: list[Callable[[], Story]] = [
    # It had no time to end.
    lambda: Story().begin_send(1, "1-1").wait(15_000).phase("final"),
    # It took long, and ended by itself; or was to read all that there is.
    lambda: Story().begin_send(1, "1-1").wait(19_000).end(1, kind=Kind.INFO, err="DEADLINE")
    .phase("final"),
    lambda: Story().phase("final").invoke(1, "drain", "t/0", node="n1").wait(60_000)
    .end(1, []),
    # Nobody else succeeded either, or did something else.
    lambda: _alone(),
    # It succeeded once.
    lambda: tried(tried(Story().poll(2), 1, 6).poll(1), 1, 6).phase("final"),
    # It was tried too seldom, or for a part of the run only.
    lambda: tried(Story().poll(2), 1, 9).phase("final"),
    lambda: tried(Story().poll(2), 1, 12).wait(5_000).poll(2).phase("final"),
    # These are others: nothing says that they went on with each other's work.
    lambda: tried(tried(Story().poll(2), 1, 6), 5, 6).phase("final"),
    # Zombies are to be refused.
    lambda: _zombies(),
    # Somebody could write after the heal.
    lambda: Story().fault("kill").fault("heal", "").lose(2, "2-1").send(3, "3-1", 0)
    .lose(4, "4-1").phase("final"),
    # Nobody tried, or there was no heal.
    lambda: Story().lose(2, "2-1").fault("kill").fault("heal", "").phase("final"),
]  # fmt: skip


def _alone() -> Story:
    story = Story()
    for _ in range(12):
        story.invoke(1, "poll").end(1, kind=Kind.FAIL, err="UNAVAILABLE").op(2, "assign", v={})
    return story.phase("final")


def _zombies() -> Story:
    story = Story()
    for number in range(12):
        story.invoke(1, "zombie-send", "t/0", [f"1-{number}"])
        story.end(1, kind=Kind.FAIL, err="STALE_EPOCH")
    return story.phase("final")


def test_a_call_that_ended_long_after_its_deadline_hung() -> None:
    story = Story().begin_send(1, "1-1").wait(21_000).end(1, kind=Kind.INFO, err="DEADLINE")
    assert judged(story.phase("final").history())["C21"].kinds() == {"hung"}


@pytest.mark.parametrize("number", range(len(STORIES)))
def test_nobody_is_named_for_nothing(number: int) -> None:
    history = STORIES[number]().history()
    assert not judged(history)["C21"].findings, texts_of(history)


def test_of_a_run_that_was_broken_off_nothing_is_said() -> None:
    story = a_call_does_not_end()
    story.row(NEMESIS, Kind.OK, INTERRUPTED, "SIGINT")
    assert judged(story.history())["C21"].valid is Valid.UNKNOWN


def test_a_client_is_followed_over_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"

    async def fails() -> None:
        raise KeyError

    async def works() -> None:
        return

    async def run() -> None:
        with HistoryWriter(path, header()) as writer:
            recorder = Recorder(writer)
            one, other = Process(recorder), Process(recorder)
            for call in (works, fails, fails, works):
                await one.do("crash", "", None, call, lambda _: None)
            one.renew()
            one.renew()  # this number is in no row
            await other.do("crash", "", None, works, lambda _: None)
            await one.do("crash", "", None, works, lambda _: None)
            writer.close(recorder.now())

    asyncio.run(run())
    ops = read_history(path).ops
    assert [(op.p, op.before) for op in ops] == [
        (0, -1), (0, -1), (2, 0), (3, 2), (1, -1), (5, 3)
    ]  # fmt: skip
    assert {number: len(of) for number, of in clients_of(ops).items()} == {0: 5, 1: 1}


@pytest.mark.parametrize(
    "row",
    [
        Row(0, 2, 2, Kind.INVOKE, "poll", before=7),
        Row(0, 2, 2, Kind.INVOKE, "poll", before=2),
        Row(0, 2, 2, Kind.INVOKE, "poll", before=-5),
        Row(0, 2, 1, Kind.OK, "poll", v=[], before=1),
    ],
)
def test_who_went_on_is_known(tmp_path: Path, row: Row) -> None:
    said = why_bad(tmp_path, [Row(0, 1, 1, Kind.INVOKE, "poll"), row])
    assert f"before of poll ({row.type}) is {row.before}, allowed is in a process's first" in said
    with pytest.raises(BadHistory):
        read_history(tmp_path / "history.jsonl")
