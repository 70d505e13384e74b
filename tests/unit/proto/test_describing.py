"""Describing records: what is remembered between messages, and which field was wrong."""

import pytest

from dledger_proto.batch.codec import BatchView, Record, encode_batch
from dledger_proto.errors import Code, DledgerError


def make_batch(records: list[Record]) -> bytes:
    return encode_batch(
        records, topic_id=b"t" * 16, queue=0, stamp=None, base_number=0, base_time_ms=1
    )


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (Record(b"", tag="\udfff"), "tag"),
        (Record(b"", keys=("k", "\udfff")), "key"),
        (Record(b"", keys=("\udfff",)), "key"),
        (Record(b"", properties={"a": "b", "\udfff": "v"}), "property name"),
        (Record(b"", properties={"a": "b", "n": "\udfff"}), "n"),
    ],
)
def test_text_that_is_no_unicode_is_refused_with_its_field(record: Record, field: str) -> None:
    with pytest.raises(DledgerError) as caught:
        make_batch([Record(b"good"), record])
    assert caught.value.code is Code.MESSAGE_ILLEGAL
    assert (
        caught.value.detail == f"record 1: {field}: not valid Unicode text: surrogates not allowed"
    )


def test_what_is_remembered_of_tags_and_names_is_bounded_and_right() -> None:
    """More tags, names and sizes than are remembered, each used twice."""
    sent = [
        Record(b"", tag=f"t{at % 1500}", keys=("k" * (at % 150 + 1),),
               properties={f"n{at % 300}": "v" * (at % 140)})
        for at in range(3000)
    ]  # fmt: skip
    assert list(BatchView(make_batch(sent)).records()) == [
        record._replace(time_ms=1) for record in sent
    ]
