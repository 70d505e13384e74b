"""Targets: frames of the append and fetch streams."""

from collections.abc import Sequence
from typing import Final

from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.frames import (
    AnswerRow,
    FetchFrame,
    FetchRow,
    RowOrigin,
    encode_answers,
    encode_append,
    encode_fetch,
    parse_answers,
    parse_append,
    parse_fetch,
    parse_fetches,
)
from tests.fuzz.target import Target
from tests.fuzz.targets.batches import TOPIC_ID, made, seeds


def _append(data: bytes) -> None:
    header, batches = parse_append(data)
    assert encode_append(batches, header.first_number, header.timeout_ms, header.one_way) == data


def _answers(data: bytes) -> None:
    rows = parse_answers(data)
    assert parse_answers(encode_answers(rows)) == rows


def _fetch(data: bytes) -> None:
    _told(parse_fetch(data))


def _fetches(data: bytes) -> None:
    for frame in parse_fetches(data):
        _told(frame)


def _told(frame: FetchFrame) -> None:
    """Look at a frame as a consumer does."""
    assert len(frame.rows) == len(frame.batches)
    assert [row.size for row in frame.rows] == [len(batch) for batch in frame.batches]


def _append_seeds() -> Sequence[bytes]:
    return [encode_append(seeds()[:3], 7, 1_000), encode_append([made()], 0, 0, one_way=True)]


def _answer_seeds() -> Sequence[bytes]:
    rows = [
        AnswerRow(1, base_offset=5, index=9, term=2),
        AnswerRow(2, Code.NOT_LEADER, detail="elsewhere", hint="b"),
        AnswerRow(3, duplicate=True, unsynced=True, base_offset=0),
    ]
    return [encode_answers(rows), encode_answers(rows[1:2])]


def _fetch_seeds() -> Sequence[bytes]:
    batch = made()
    row = FetchRow(10, 0, 3, len(batch), 1_000, 4_096)
    origins = {0: RowOrigin(TOPIC_ID, 1, 77, 2, "it failed")}
    gone = FetchRow(13, 0, 5, 0, position=0)
    return [
        encode_fetch([row], [batch], assignment=1, min_offset=0, max_offset=13, next_offset=13),
        encode_fetch(
            [row, gone], [batch], assignment=2, min_offset=0, max_offset=18, next_offset=18,
            with_positions=True, origins=origins,
        ),
        encode_fetch(
            [], [], assignment=3, min_offset=0, max_offset=0, next_offset=0,
            code=Code.OFFSET_OUT_OF_RANGE, detail="below 5",
        ),
    ]  # fmt: skip


_MODULE: Final = "dledger_proto.rpc.frames"
TARGETS: Final = (
    Target("frame-append", _append, (DledgerError,), _append_seeds, (f"{_MODULE}:parse_append",)),
    Target(
        "frame-answers", _answers, (DledgerError,), _answer_seeds, (f"{_MODULE}:parse_answers",)
    ),
    Target("frame-fetch", _fetch, (DledgerError,), _fetch_seeds, (f"{_MODULE}:parse_fetch",)),
    Target(
        "frame-fetches", _fetches, (DledgerError,),
        lambda: [*_fetch_seeds(), b"".join(_fetch_seeds())], (f"{_MODULE}:parse_fetches",),
    ),
)  # fmt: skip
