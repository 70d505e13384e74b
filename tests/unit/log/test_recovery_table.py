"""The decision tables are total and unambiguous, and say what they were meant to say."""

import enum
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import cast, get_type_hints

import pytest

from dledger.log.recovery.table import (
    FILE_ROWS,
    FOLDER_ROWS,
    TAIL_ROWS,
    Action,
    Ending,
    Facts,
    FileFacts,
    FolderFacts,
    Row,
    TailFacts,
    decide,
    fitting,
)

TABLES: list[tuple[Sequence[Row], type[Facts]]] = [
    (FOLDER_ROWS, FolderFacts),
    (FILE_ROWS, FileFacts),
    (TAIL_ROWS, TailFacts),
]


def combinations(kind: type[Facts]) -> Iterator[Facts]:
    hints = get_type_hints(kind)
    values = [
        list(hints[field.name]) if issubclass(hints[field.name], enum.Enum) else [False, True]
        for field in fields(kind)
    ]
    for combination in itertools.product(*values):
        yield cast("Callable[..., Facts]", kind)(*combination)


@pytest.mark.parametrize(("rows", "kind"), TABLES, ids=["folder", "file", "tail"])
def test_exactly_one_row_fits_every_combination(rows: Sequence[Row], kind: type[Facts]) -> None:
    met: set[str] = set()
    for facts in combinations(kind):
        labels = [row.label for row in fitting(rows, facts)]
        assert len(labels) == 1, f"{facts} fits {labels}"
        met.add(labels[0])
    assert met == {row.label for row in rows}, "every row is for something"


def test_labels_are_unique_and_every_row_says_why() -> None:
    rows = [row for table, _ in TABLES for row in table]
    assert len({row.label for row in rows}) == len(rows)
    assert all(len(row.why) > 40 for row in rows)


def test_every_refusal_can_be_read_without_this_table() -> None:
    for row in (row for table, _ in TABLES for row in table):
        assert bool(row.says) == (row.action is Action.REFUSE), row.label
        said = row.says.format(position=4711, found="magic is b'what'")
        assert not re.search(r"\b[FST]\d", said), f"{row.label} speaks of another row: {said}"
        if said and row.label[0] in "ST":
            assert said.startswith("at position 4711 "), row.label


def test_a_hole_or_an_overlap_in_a_table_is_noticed() -> None:
    facts = TailFacts(Ending.TORN, last=True, synced=False)
    with pytest.raises(AssertionError, match=r"fits \[\]"):
        decide(TAIL_ROWS[:3], facts)
    double = Row("T9", {"last": True}, Action.CUT, "")
    with pytest.raises(AssertionError, match=r"\['T4', 'T9'\]"):
        decide([*TAIL_ROWS, double], facts)
    with pytest.raises(AssertionError, match="facts that do not exist"):
        decide([Row("T9", {"lst": True}, Action.CUT, "")], facts)


def test_nothing_that_was_synced_is_ever_cut_or_removed() -> None:
    for facts in combinations(TailFacts):
        assert isinstance(facts, TailFacts)
        action = decide(TAIL_ROWS, facts).action
        if facts.synced or not facts.last:
            assert action is Action.REFUSE
    for file in combinations(FileFacts):
        assert isinstance(file, FileFacts)
        if decide(FILE_ROWS, file).action is Action.REMOVE:
            assert file.place.name == "TRIMMED" or not file.written
