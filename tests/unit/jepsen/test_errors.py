"""Which errors an operation of a workload may meet, and that any other one is named."""

from typing import Any

import pytest
from msgspec.structs import replace

from dledger_proto.errors import MEANINGS, Code
from jepsen_tests import errors
from jepsen_tests.errors import allowed_errors
from jepsen_tests.history.events import History, Kind
from jepsen_tests.history.row_schema import ROW_SCHEMAS
from jepsen_tests.workloads import WORKLOADS
from tests.unit.jepsen.stories import Story, judged

ASKED: dict[str, tuple[str, Any]] = {
    "send": ("t/0", ["1-1"]), "zombie-send": ("t/0", ["1-1"]), "trim": ("t/0", 5),
    "commit": ("g@t/0", 5), "committed": ("g@t/0", None), "set": ("r", 1), "get": ("r", None),
    "bounds": ("t/0", None), "assign": ("", {"t/0": 0}), "lookup": ("t/0", 0),
    "hold": ("t/0", {"owner": "o", "offset": 1, "ttl_ms": 5}),
}  # fmt: skip


def failed(workload: str, f: str, error: str, kind: Kind = Kind.FAIL) -> History:
    """One operation that failed so, in a run that lists all codes as runs do."""
    k, asked = ASKED.get(f, ("", None))
    story = Story(errors=[code.name for code in Code] + ["CANCELLED"])
    history = story.invoke(1, f, k, asked).end(1, kind=kind, err=f"{error}: n1").history()
    history.header = replace(history.header, workload=workload)
    return history


@pytest.mark.parametrize(
    ("workload", "f", "error"),
    [
        ("log", "send", "TOPIC_NOT_FOUND"),
        ("log", "poll", "TOPIC_NOT_FOUND"),
        ("metadata", "set", "TOPIC_NOT_FOUND"),
        ("metadata", "get", "TOPIC_NOT_FOUND"),
        ("metadata", "set", "TOPIC_EXISTS"),
        ("log", "send", "STALE_EPOCH"),
        ("retry", "send", "DUPLICATE"),
        ("retry", "send", "UNKNOWN_PRODUCER"),
        ("log", "poll", "OFFSET_OUT_OF_RANGE"),
        ("retention", "trim", "OFFSET_OUT_OF_RANGE"),
        ("retention", "bounds", "HEAD_TRIMMED"),
        ("offsets", "reset", "OFFSET_BEHIND"),
        ("offsets", "committed", "NOT_FOUND"),
        ("fifo", "poll", "STALE_EPOCH"),
        ("retention", "trim", "HELD"),
        ("lookups", "lookup", "OFFSET_OUT_OF_RANGE"),
        ("holds", "hold", "HELD"),
        ("fifo", "send", "INTERNAL"),
        ("log", "send", "CLOSED"),
    ],
)
def test_an_error_that_makes_no_sense_there_is_named(workload: str, f: str, error: str) -> None:
    [finding] = judged(failed(workload, f, error))["C19"].findings
    assert finding.kind == "unexpected-error"
    assert f"{error}: n1, which {f} of {workload} must never meet" in finding.text


@pytest.mark.parametrize(
    ("workload", "f", "error"),
    [
        ("log", "send", "NOT_LEADER"),
        ("log", "poll", "CANCELLED"),
        ("log", "entries", "INVALID_ARGUMENT"),
        ("retention", "poll", "HEAD_TRIMMED"),
        ("fifo", "send", "STALE_EPOCH"),
        ("fifo", "zombie-send", "STALE_EPOCH"),
        ("offsets", "commit", "OFFSET_BEHIND"),
        ("holds", "trim", "HELD"),
        ("exports", "trim", "HELD"),
        ("holds", "hold", "OFFSET_OUT_OF_RANGE"),
        ("some other", "send", "TOPIC_NOT_FOUND"),
    ],
)
def test_one_that_may_be_met_is_not(workload: str, f: str, error: str) -> None:
    assert not judged(failed(workload, f, error))["C19"].findings


def test_what_asks_for_another_try_may_be_met_everywhere() -> None:
    later = {code.name for code, each in MEANINGS.items() if each.retriable}
    assert later | {"UNKNOWN_OUTCOME"} == errors.LATER
    for workload in WORKLOADS:
        for function in ROW_SCHEMAS:
            allowed = allowed_errors(workload, function)
            assert allowed is not None
            assert errors.LATER < allowed <= {"CANCELLED", *(code.name for code in Code)}
            assert not {"INTERNAL", "OK"} & allowed


def test_the_table_knows_every_workload_and_no_other_function() -> None:
    assert set(errors._OF_WORKLOAD) == set(WORKLOADS)
    named = {f for each in (errors._OF_ALL, *errors._OF_WORKLOAD.values()) for f in each}
    assert named <= set(ROW_SCHEMAS)
