"""Each anomaly that is written by hand is named, and nothing else."""

from collections.abc import Callable

import pytest

from jepsen_tests.checkers import CHECKERS
from jepsen_tests.checkers.shared.judgement import FINDINGS_MAX, Valid
from tests.unit.jepsen import (
    client_anomalies,
    delivery_anomalies,
    member_anomalies,
    stored_anomalies,
)
from tests.unit.jepsen.anomalies import STORIES
from tests.unit.jepsen.stories import Story, judged, kinds_of, texts_of

assert client_anomalies, "it registers its stories"
assert delivery_anomalies, "it registers its stories"
assert member_anomalies, "it registers its stories"
assert stored_anomalies, "it registers its stories"


@pytest.mark.parametrize(("kinds", "story"), STORIES, ids=[s.__name__ for _, s in STORIES])
def test_exactly_the_anomaly_is_named(kinds: set[str], story: Callable[[], Story]) -> None:
    history = story().history()
    assert kinds_of(history) == kinds, texts_of(history)
    for judgement in judged(history).values():
        for finding in judgement.findings:
            assert finding.rows or finding.kind == "not-converged", finding
            assert all(1 <= row <= len(story().rows) for row in finding.rows)
        assert judgement.valid is not Valid.YES or not judgement.findings


def test_every_class_has_a_story() -> None:
    known = {kind for checker in CHECKERS for kind in checker.kinds}
    assert known == {kind for kinds, _ in STORIES for kind in kinds}


def test_a_class_belongs_to_one_checker() -> None:
    kinds = [kind for checker in CHECKERS for kind in checker.kinds]
    assert len(kinds) == len(set(kinds))


def test_all_anomalies_are_counted_and_some_are_kept() -> None:
    words = " ".join(f"1-{n}" for n in range(FINDINGS_MAX + 5))
    story = Story().send(1, words, 0).send(1, "1-last", FINDINGS_MAX + 5).final("")
    judgement = judged(story.history())["C3"]
    assert judgement.count == FINDINGS_MAX + 6
    assert len(judgement.findings) == FINDINGS_MAX


@pytest.mark.parametrize(
    ("kept", "part"), [("0 1", "postfix"), ("1 2", "prefix"), ("0 2", "middle"), ("", "all")]
)
def test_a_loss_is_placed_in_what_its_writer_wrote(kept: str, part: str) -> None:
    story = Story()
    for number in range(3):
        story.send(1, f"1-{number}", number)
    runs = [["t/0", int(word), [f"1-{word}"]] for word in kept.split()]
    runs.append(["t/0", 3, ["2-1"]])
    story.lose(2, "2-1").phase("final").on("n1", "drain", runs, "t/0")
    texts = [finding.text for finding in judged(story.history())["C1"].findings]
    assert texts
    assert all(f"({part} of what process 1 wrote)" in text for text in texts)


@pytest.mark.parametrize("what", ["rss", "files", "threads"])
def test_what_is_not_given_back_is_named(what: str) -> None:
    before = {"rss": 1000, "files": 10, "threads": 10}
    story = Story().phase("setup").on("n1", "resources", before).phase("final")
    story.on("n1", "resources", before | {what: 10**9})
    assert kinds_of(story.history()) == {"not-returned"}
