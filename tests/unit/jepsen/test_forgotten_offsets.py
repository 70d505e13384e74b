"""Sends that are stored at an offset which nobody remembers: acknowledged all the same."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dledger_client import Acknowledgement, SendResult
from jepsen_tests.checkers.shared.judgement import Valid
from jepsen_tests.history.events import Kind
from jepsen_tests.history.history_file import BadHistory, read_history
from jepsen_tests.workloads.clients import shown_sent
from tests.unit.jepsen.stories import Story, judged, kinds_of, texts_of
from tests.unit.jepsen.test_row_schema import written


def told(offset: int, *, duplicate: bool) -> list[SendResult]:
    return [
        SendResult(
            "t", "g", 0, offset, 0, 0, b"", Acknowledgement.MAJORITY_SYNCED, duplicate=duplicate
        )
    ]


def test_it_is_written_down_only_of_what_an_earlier_try_stored() -> None:
    assert shown_sent(told(7, duplicate=True)) == [7, 0]
    assert shown_sent(told(-1, duplicate=True)) == [None, 0]
    with pytest.raises(ValueError, match="stored at offset -1"):
        shown_sent(told(-1, duplicate=False))


def test_a_repeat_by_hand_always_names_its_offset(tmp_path: Path) -> None:
    story = Story().lose(1, "1-1").invoke(2, "resend", "t/0", ["1-1"]).end(2, [None, 0])
    with pytest.raises(BadHistory, match=r"line 5: v of resend \(ok\) is \[null,0\]"):
        read_history(written(tmp_path, story.rows))


STORIES: list[tuple[set[str], Callable[[], Story]]] = [
    (set(), lambda: Story().forget(1, "1-1").final("1-1").send(1, "1-2", 1)),
    (set(), lambda: Story().forget(1, "1-1 1-2").send(1, "1-3", 2).final("1-1 1-2 1-3")),
    # Loss goes by the value.
    ({"lost"}, lambda: Story().forget(1, "1-1").send(1, "1-2", 0).final("1-2")),
    ({"lost"}, lambda: Story().forget(1, "1-1 1-2").send(1, "1-3", 1).final("1-2 1-3")),
    ({"unseen"}, lambda: Story().forget(1, "1-1").final("")),
    ({"unseen"}, lambda: Story().send(1, "1-1", 0).forget(1, "1-2").send(1, "1-3", 2).final("1-1")),
    (
        {"lost-on-node"},
        lambda: Story().forget(1, "1-1").send(1, "1-2", 1).final("1-1 1-2", nodes=("n1",))
        .on("n2", "drain", [["t/0", 1, ["1-2"]]], "t/0"),
    ),
    ({"unseen"}, lambda: Story().forget(1, "1-1").send(1, "1-2", 0, "t/1").final("1-2", k="t/1")),
    # So does what is visible, and the order of what is.
    ({"duplicate"}, lambda: Story().forget(1, "1-1").final("1-1 1-1")),
    ({"real-time"}, lambda: Story().forget(1, "1-1").send(1, "1-2", 0).final("1-2 1-1")),
    ({"real-time"}, lambda: Story().send(1, "1-1", 1).forget(1, "1-2").final("1-2 1-1")),
    (
        {"real-time", "key-order"},
        lambda: Story().forget(1, "1-1", key="a").forget(2, "2-1", key="a").final("2-1 1-1"),
    ),
    ({"split-batch", "real-time"}, lambda: Story().forget(1, "1-1 1-2").send(2, "2-1", 1)
     .final("1-1 2-1 1-2")),
    (
        {"fenced-write"},
        lambda: Story().send(1, "1-1", 0).invoke(2, "zombie-send", "t/0", ["2-1"])
        .end(2, [None, 0]).final("1-1 2-1"),
    ),
    # A later attempt that knows its offset is believed.
    (
        {"wrong-reply"},
        lambda: Story().forget(1, "1-1").invoke(2, "resend", "t/0", ["1-1"]).end(2, [5, 1])
        .final("1-1"),
    ),
    # What may be trimmed, or stand where damaged bytes are, is no loss.
    (set(), lambda: Story().forget(1, "1-1").send(1, "1-2", 1).op(5, "trim", "t/0", 1, 1)
     .final("1-2", first=1)),
    # Unless it was sent after something was stored that is not trimmed.
    ({"lost"}, lambda: Story().send(1, "1-1", 0).send(1, "1-2", 1).forget(1, "1-3")
     .op(5, "trim", "t/0", 1, 1).final("1-2", first=1)),
    ({"corrupt"}, lambda: Story().forget(1, "1-1").send(1, "1-2", 1).final("!00 1-2")),
    # What was acknowledged while final reads went on may be in none.
    (set(), lambda: Story().send(1, "1-1", 0).final("1-1").forget(1, "1-2")),
]  # fmt: skip


@pytest.mark.parametrize(("kinds", "story"), STORIES)
def test_value_and_order_count_and_offsets_do_not(
    kinds: set[str], story: Callable[[], Story]
) -> None:
    history = story().history()
    assert kinds_of(history) == kinds, texts_of(history)


def test_without_a_final_read_nothing_is_known_of_it() -> None:
    story = Story().forget(1, "1-1").phase("final")
    assert judged(story.history())["C1"].valid is not Valid.YES


@pytest.mark.parametrize("kind", [Kind.FAIL, Kind.INFO])
def test_only_what_is_stored_has_a_place(tmp_path: Path, kind: Kind) -> None:
    said: Any = [None, 0]
    story = Story().begin_send(1, "1-1").end(1, said, kind=kind)
    with pytest.raises(BadHistory, match="allowed is null"):
        read_history(written(tmp_path, story.rows))
