"""What a trim excuses: reads of that queue that ended after it was asked for, and no other."""

from collections.abc import Callable

import pytest

from jepsen_tests.history.events import Kind
from tests.unit.jepsen.anomalies import three_sent
from tests.unit.jepsen.stories import Story, kinds_of, texts_of


def trimmed(story: Story, k: str = "t/0") -> Story:
    return story.op(5, "trim", k, 2, 2)


def gone_at_once() -> Story:
    """A final read that lacks the middle."""
    return three_sent().phase("final").assign(9, t0=0).poll(9, (0, "1-1"), (2, "1-3"))


def drained(*runs: tuple[int, str]) -> Story:
    story = three_sent().final("1-1 1-2 1-3", nodes=("n1",))
    return story.on("n2", "drain", [["t/0", at, words.split()] for at, words in runs], "t/0")


NAMED: list[tuple[set[str], Callable[[], Story]]] = [
    (
        {"poll-skip", "lost-write"},
        lambda: trimmed(
            three_sent().assign(2, t0=0).poll(2, (0, "1-1")).poll(2, (2, "1-3"))
        ).final("1-3", first=2),
    ),
    ({"lost", "lost-write", "int-poll-skip"}, lambda: trimmed(gone_at_once())),
    (
        {"lost", "un-read", "int-poll-skip"},
        lambda: trimmed(
            three_sent().poll(2, (0, "1-1 1-2 1-3")).phase("final").assign(9, t0=0)
            .poll(9, (0, "1-1"), (2, "1-3"))
        ),
    ),
    ({"lost-on-node"}, lambda: trimmed(drained((0, "1-1"), (2, "1-3")))),
    (
        {"gap"},
        lambda: trimmed(
            Story().send(1, "1-1", 0).send(1, "1-2", 2).phase("final")
            .on("n1", "drain", [["t/0", 0, ["1-1"]], ["t/0", 2, ["1-2"]]], "t/0")
        ),
    ),
    # Another queue's trim, and one that was refused, excuse nothing.
    (
        {"lost", "lost-write", "int-poll-skip"},
        lambda: trimmed(three_sent().send(1, "1-4 1-5 1-6", 0, "t/1"), "t/1").phase("final")
        .assign(8, t1=2).poll(8, (2, "1-6", "t/1"))
        .assign(9, t0=0).poll(9, (0, "1-1"), (2, "1-3")),
    ),
    (
        {"lost", "lost-write", "int-poll-skip"},
        lambda: three_sent().invoke(5, "trim", "t/0", 2).end(5, kind=Kind.FAIL, err="NOT_LEADER")
        .phase("final").assign(9, t0=0).poll(9, (0, "1-1"), (2, "1-3")),
    ),
]  # fmt: skip
EXCUSED: list[Callable[[], Story]] = [
    lambda: trimmed(three_sent().poll(2, (0, "1-1"))).poll(2, (2, "1-3")).final("1-3", first=2),
    # It was asked for before the read was over, and done after it.
    lambda: three_sent().invoke(5, "trim", "t/0", 2).assign(9, t0=0).poll(9, (2, "1-3")).end(5, 2)
    .final("1-3", first=2),
    lambda: three_sent().invoke(2, "poll").invoke(5, "trim", "t/0", 2)
    .end(2, [["t/0", 0, ["1-1"]], ["t/0", 2, ["1-3"]]]).end(5, kind=Kind.INFO)
    .final("1-3", first=2),
    # The members were drained one before and one after it.
    lambda: trimmed(drained((0, "1-1 1-2 1-3"))).on("n3", "drain", [["t/0", 2, ["1-3"]]], "t/0"),
    # Of an unknown trim the effect comes late.
    lambda: three_sent().invoke(5, "trim", "t/0", 2).end(5, kind=Kind.INFO)
    .final("1-1 1-2 1-3").assign(8, t0=0).poll(8, (2, "1-3")),
]  # fmt: skip


@pytest.mark.parametrize(("kinds", "story"), NAMED)
def test_what_a_read_lacks_before_it_is_named(kinds: set[str], story: Callable[[], Story]) -> None:
    history = story().history()
    assert kinds_of(history) == kinds, texts_of(history)


@pytest.mark.parametrize("story", EXCUSED)
def test_what_is_trimmed_is_not_lost(story: Callable[[], Story]) -> None:
    history = story().history()
    assert kinds_of(history) == set(), texts_of(history)
