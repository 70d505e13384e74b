"""What commands print of users' bytes: one line for one message, no control characters."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_broker.cli.messages import tail
from dledger_broker.cli.output import print_error, print_json, print_line, print_rows, say
from dledger_client import ConsumedRecord
from dledger_client.records import RecordBatch
from dledger_proto.batch.codec import BatchView, Record, encode_batch
from dledger_proto.names import escaped, printable

NASTY = "a\x1b]0;owned\x07b\nc\td\re\x9bf\u202eg\u2028h"
FORGED = "x\n0\t99\t2026-01-31T12:00:00.000+00:00\t-\tforged"


def record(body: bytes, keys: tuple[str, ...] = ()) -> ConsumedRecord:
    """A message."""
    batch = encode_batch(
        [Record(body, keys=("k",) * len(keys))],
        topic_id=b"t" * 16, queue=0, stamp=None, base_number=0, base_time_ms=0,
    )  # fmt: skip
    found = RecordBatch("t", 0, 7, BatchView(batch), 0, 1, 0)[0]
    found.__dict__["_record"] = Record(body, keys=keys)  # a client of ours would not send such keys
    return found


def test_a_message_is_one_line_of_five_fields(capsys: pytest.CaptureFixture[str]) -> None:
    for body in (FORGED, NASTY, "plain"):
        tail.print_text(record(body.encode(), ("k\n1", "k\x1b2")))
        shown = capsys.readouterr().out
        assert shown.endswith("\n")
        assert printable(shown[:-1].replace("\t", "")) == shown[:-1].replace("\t", "")
        assert len(shown[:-1].split("\t")) == 5
        assert "k\\n1,k\\x1b2" in shown


def test_what_is_printable_stays_as_it_is() -> None:
    for text in ("plain", "Grüße\u3000世界", 'C:\\new {"a": "\\n"}', ""):
        assert tail.shown_body(text.encode()) == text


def test_what_is_not_is_marked() -> None:
    assert tail.shown_body(b"a\nb\\n") == "escaped:a\\nb\\\\n"
    assert tail.shown_body(b"\xff\x00") == "base64:/wA="
    assert tail.shown_body(b"base64:/wA=") == "escaped:base64:/wA="
    assert tail.shown_body(b"escaped:a") == "escaped:escaped:a"


@given(st.binary(max_size=12) | st.text(max_size=12).map(str.encode), st.binary(max_size=12))
def test_no_body_looks_like_another_one(one: bytes, other: bytes) -> None:
    assert (tail.shown_body(one) == tail.shown_body(other)) == (one == other)
    shown = tail.shown_body(one)
    assert printable(shown) == shown


@given(st.text())
def test_escapes_can_be_undone(text: str) -> None:
    shown = escaped(text)
    back = shown.encode("ascii", "backslashreplace").decode("unicode_escape")
    assert back == text


def test_json_is_exact(capsys: pytest.CaptureFixture[str]) -> None:
    tail.print_document(record(NASTY.encode()))
    shown = capsys.readouterr().out
    assert json.loads(shown)["body"] == NASTY
    assert printable(shown[:-1]) == shown[:-1]
    tail.print_document(record(b"\xff"))
    assert json.loads(capsys.readouterr().out)["body_base64"] == "/w=="


def test_raw_is_exact(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    tail.print_body(record(b"\x1b[31m\xff\n"))
    assert capfdbinary.readouterr().out == b"\x1b[31m\xff\n\n"


def test_every_way_to_print_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[Mapping[str, object]] = [{"topic": NASTY, "problem": [NASTY]}]
    print_rows(rows, ("topic", "problem"), as_json=False, title=NASTY)
    say(NASTY)
    print_line(NASTY)
    print_error(NASTY)
    print_json({NASTY: NASTY})
    shown = capsys.readouterr()
    for line in (shown.out + shown.err).splitlines():
        assert printable(line) == line
        assert "owned" in line or line.split() == ["topic", "problem"]
    assert json.loads(shown.out.splitlines()[-1]) == {NASTY: NASTY}
