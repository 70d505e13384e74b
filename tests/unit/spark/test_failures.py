"""What Spark's users read of an error: code, what was wrong, what to do."""

import pyarrow as pa
import pytest

from dledger_client.errors import error_of
from dledger_client.spark.failures import DledgerReadError, told
from dledger_proto.errors import MEANINGS, Code


def said(code: Code, detail: str, *, is_plan_kept: bool = False) -> str:
    with pytest.raises(DledgerReadError) as caught, told(is_plan_kept=is_plan_kept):
        raise error_of(code, detail)
    return str(caught.value)


def test_errors_that_cannot_name_a_value_name_the_remedy() -> None:
    """By the options that a reader has."""
    assert said(Code.UNAVAILABLE, "nobody answers") == (
        "DLEDGER_UNAVAILABLE: nobody answers; is the cluster running, and is endpoints, as driver "
        "and executors see it, right?"
    )
    assert said(Code.TOPIC_NOT_FOUND, "topic 'x'").endswith("; see: dledger topic list")
    assert "holdOwner" in said(Code.TOO_MANY_HOLDS, "64 holds")
    assert said(Code.INVALID_ARGUMENT, "topic: empty") == "DLEDGER_INVALID_ARGUMENT: topic: empty"
    assert MEANINGS[Code.BUSY].sentence in said(Code.BUSY, "")


def test_what_arrow_says_is_no_option() -> None:
    """To Python some of it is a ValueError, as what is said of addresses."""
    with pytest.raises(pa.ArrowInvalid), told():
        raise pa.ArrowInvalid("too large")
    with pytest.raises(DledgerReadError, match="INVALID_ARGUMENT: no port"), told():
        raise ValueError("no port")


def test_a_reader_is_told_nothing_about_writes() -> None:
    """A hold whose outcome is unknown is repeatable, and all that a read writes."""
    assert said(Code.UNKNOWN_OUTCOME, "a hold") == "DLEDGER_UNKNOWN_OUTCOME: a hold"


@pytest.mark.parametrize("code", [Code.OFFSET_OUT_OF_RANGE, Code.TOPIC_NOT_FOUND])
def test_a_plan_that_may_be_old_is_to_be_made_anew(code: Code) -> None:
    """By tasks of a batch read; a stream plans each of its batches."""
    assert "load() again" in said(code, "gone", is_plan_kept=True)
    assert "load() again" not in said(code, "gone")
    assert "load()" not in said(Code.UNAVAILABLE, "gone", is_plan_kept=True)
