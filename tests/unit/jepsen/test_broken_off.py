"""A run that was broken off: nothing is concluded from what is not there, what is wrong counts."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jepsen_tests.checkers import judge
from jepsen_tests.checkers.shared.judgement import Valid, merged
from jepsen_tests.history.events import INTERRUPTED, NEMESIS, History, Kind
from jepsen_tests.history.faults import faults_in_force
from tests.unit.jepsen.member_anomalies import status
from tests.unit.jepsen.model import valid_story
from tests.unit.jepsen.stories import Story, judged, kinds_of, texts_of


def broken_off(story: Story) -> History:
    """End a story as a signal does: what goes on is cancelled."""
    for p in list(story._open):
        story.end(p, kind=Kind.INFO, err="CANCELLED: the run is over")
    story.row(NEMESIS, Kind.OK, INTERRUPTED, "SIGINT")
    return story.history()


def cut_at(story: Story, count: int) -> Story:
    """Return a story's first rows."""
    cut = Story()
    cut.head = story.head
    cut.rows = story.rows[:count]
    cut._t = cut.rows[-1].t if cut.rows else 0
    for row in cut.rows:
        if row.p != NEMESIS and row.type is Kind.INVOKE:
            cut._open[row.p] = row
        else:
            cut._open.pop(row.p, None)
    return cut


@given(st.integers(0, 1 << 32), st.floats(0, 1))
@settings(max_examples=150)
def test_a_valid_run_that_is_broken_off_anywhere_is_unknown(seed: int, part: float) -> None:
    story = valid_story(seed, 150)
    final = next(row.i for row in story.rows if row.k == "final")
    for count in {int(part * len(story.rows)), int(final + part * (len(story.rows) - final))}:
        history = broken_off(cut_at(story, count))
        assert not kinds_of(history), texts_of(history)
        assert merged(judge(history)) is Valid.UNKNOWN


@pytest.mark.parametrize("checker", ["C1", "C3", "C18", "C20"])
def test_what_the_final_phase_would_have_shown_is_unknown(checker: str) -> None:
    used = {"rss": 1000, "files": 10, "threads": 9}
    story = Story().on("n1", "resources", used).send(1, "1-1 1-2", 0).poll(2, (0, "1-1 1-2"))
    story.phase("final").lose(1, "1-3").assign(9, t0=0).poll(9, (0, "1-1"))
    story.on("n1", "status", status("leader")).on("n1", "resources", used | {"files": 900})
    judgement = judged(broken_off(story))[checker]
    assert judgement.valid is Valid.UNKNOWN
    assert judgement.why == "the run was broken off by SIGINT in its final phase"


def test_who_has_not_named_the_leader_yet_might_have() -> None:
    story = Story().phase("final").on("n1", "status", status("leader", 2))
    for node in ("n2", "n3"):
        story.on(node, "status", status(term=2, leader=""))
    assert not kinds_of(broken_off(story))


def test_the_time_after_a_run_was_broken_off_is_no_unavailability() -> None:
    story = Story(budgets={"kill": 1.0}).send(1, "1-1", 0).fault("kill").lose(2, "2-1").wait(500)
    story.begin_send(3, "3-1")
    history = broken_off(story)
    history.ended += 60_000_000_000  # until the cluster was stopped
    assert not kinds_of(history), texts_of(history)


def test_the_time_before_a_run_was_broken_off_is() -> None:
    story = Story(budgets={"kill": 1.0}).send(1, "1-1", 0).fault("kill").lose(2, "2-1").wait(1500)
    assert kinds_of(broken_off(story.begin_send(3, "3-1"))) == {"too-slow"}


Wrong = Callable[[], tuple[Story, set[str]]]
WRONG: list[Wrong] = [
    lambda: (Story().send(1, "1-1", 0).final("7-7"), {"inconsistent-offset", "phantom", "lost",
                                                      "lost-write"}),
    lambda: (Story().send(1, "1-1 1-2 1-3", 0).phase("final").assign(9, t0=0)
             .poll(9, (0, "1-1")).poll(9, (2, "1-3")), {"lost", "lost-write", "poll-skip"}),
    lambda: (Story().send(1, "1-1 1-2", 0).final("1-1 !00", nodes=()), {"corrupt"}),
    lambda: (Story().phase("final").on("n1", "status", status("leader"))
             .on("n2", "status", status("leader")), {"two-leaders"}),
    lambda: (Story().fault("kill", "n2").fault("died", "n1"), {"died"}),
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_was_seen_and_is_wrong_counts(wrong: Wrong) -> None:
    story, kinds = wrong()
    history = broken_off(story)
    assert kinds_of(history) == kinds, texts_of(history)
    assert merged(judge(history)) is Valid.NO


def test_a_fault_that_was_only_begun_may_have_hit_anybody() -> None:
    story = Story().on("n1", "status", status(index=9))
    story.row(NEMESIS, Kind.INVOKE, "full-disk")
    story.on("n1", "status", status(index=7))
    story.row(NEMESIS, Kind.OK, "died", "n1", err="exit 74")
    story.fault("heal", "").on("n1", "status", status(index=8))
    history = broken_off(story)
    assert not kinds_of(history), texts_of(history)
    assert list(faults_in_force(history)) == []
    [fault] = faults_in_force(history, unfinished=True)
    assert (fault.name, fault.targets, fault.row) == ("full-disk", "", 3)


@pytest.mark.parametrize("err", ["skipped: nobody leads", ""])
def test_a_fault_that_was_not_done_is_no_excuse(err: str) -> None:
    story = Story()
    story.row(NEMESIS, Kind.INVOKE, "full-disk")
    story.row(NEMESIS, Kind.INFO, "full-disk", err=err)
    story.row(NEMESIS, Kind.OK, "died", "n1", err="exit 74")
    assert kinds_of(story.history()) == {"died"}
