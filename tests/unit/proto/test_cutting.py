"""A record cut out of its batch: a sound batch of one, with everything that is the record's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_proto.batch.codec import (
    BatchView,
    Compression,
    ProducerStamp,
    Record,
    check_batch,
    cut_record,
    encode_batch,
)
from dledger_proto.keyhash import key_hash

WORDS = st.text("abc", min_size=1, max_size=5)
RECORDS = st.builds(
    Record,
    st.binary(max_size=50),
    st.sampled_from(["", "tag"]),
    st.lists(WORDS, max_size=3).map(tuple),
    st.dictionaries(WORDS, WORDS, max_size=2),
    st.integers(1, 1_000_000),
)


@given(
    records=st.lists(RECORDS, min_size=1, max_size=6),
    stamp=st.sampled_from([None, ProducerStamp(b"p" * 16, 3, 70)]),
    compression=st.sampled_from(list(Compression)),
)
def test_what_is_cut_out_is_the_record(
    records: list[Record], stamp: ProducerStamp | None, compression: Compression
) -> None:
    batch = encode_batch(
        records, topic_id=b"t" * 16, queue=5, stamp=stamp, base_number=40, base_time_ms=500,
        compression=compression,
    )  # fmt: skip
    view = BatchView(batch)
    for place in range(len(records)):
        alone = cut_record(view, place)
        header = check_batch(alone)
        single = BatchView(alone)
        assert (header.record_count, header.topic_id, header.queue) == (1, b"t" * 16, 5)
        assert single.record(0) == view.record(place)
        assert single.message_id(0) == view.message_id(place)
        assert single.key_hashes(0) == view.key_hashes(place)
        assert single.tag_hashes == (view.tag_hashes[place],)
        assert header.base_sequence == (-1 if stamp is None else 70 + place)
        assert cut_record(single, 0) == alone
    with pytest.raises(IndexError):
        cut_record(view, len(records))


def test_extensions_stay() -> None:
    batch = bytearray(
        encode_batch(
            [Record(b"a"), Record(b"b")], topic_id=b"t" * 16, queue=0, stamp=None, base_number=0,
            base_time_ms=1,
        )
    )  # fmt: skip
    extension = (999).to_bytes(2, "little") + (4).to_bytes(2, "little") + b"kept"
    batch[112:112] = extension
    batch[12:14] = (112 + len(extension)).to_bytes(2, "little")
    batch[8:12] = len(batch).to_bytes(4, "little")
    alone = cut_record(BatchView(bytes(batch)), 1)
    assert check_batch(alone).header_size == 112 + len(extension)
    assert alone[112 : 112 + len(extension)] == extension
    assert bytes(BatchView(alone).body(0)) == b"b"


@given(st.lists(st.lists(WORDS, max_size=4).map(tuple), min_size=1, max_size=6), WORDS)
def test_records_are_found_by_a_keys_hash(keys: list[tuple[str, ...]], wanted: str) -> None:
    batch = encode_batch(
        [Record(b"", keys=each) for each in keys], topic_id=b"t" * 16, queue=0, stamp=None,
        base_number=0, base_time_ms=1,
    )  # fmt: skip
    view = BatchView(batch)
    having = [place for place, each in enumerate(keys) if wanted in each]
    assert view.records_with_hash(key_hash(wanted.encode())) == having
    assert [place for place in range(len(keys)) if wanted in view.keys(place)] == having
