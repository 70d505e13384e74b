"""The record batch: golden bytes, round trips, refusals."""

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_proto.batch.codec import (
    BATCH_HEADER_SIZE,
    FLAG_STAGED,
    NO_ID,
    BatchHeader,
    BatchView,
    ProducerStamp,
    Record,
    check_batch,
    encode_batch,
    message_id,
    parse_header,
    parse_message_id,
    restamp,
    split_batches,
)
from dledger_proto.errors import Code, DledgerError
from dledger_proto.keyhash import key_hash, tag_hash
from dledger_proto.limits import (
    BATCH_RECORDS_MAX,
    BATCH_SIZE_MAX,
    BODY_SIZE_MAX,
    KEYS_PER_RECORD_MAX,
    PROPERTIES_SIZE_MAX,
    QUEUES_PER_TOPIC_MAX,
    TIME_MS_MAX,
)
from tests.unit.proto.samples import (
    BASE_TIME_MS,
    HEADER_FIELDS,
    HEADER_FORMAT,
    PRODUCER_ID,
    RICH,
    STAMP,
    TOPIC_ID,
    make_batch,
    refused,
    sealed,
    untimed,
    with_extensions,
    with_fields,
)

GOLDEN_PLAIN = (
    "444c4231b93c1cca9e000000700001000000000000000000000102030405060708090a0b0c0d0e0f02000000"
    "020000000068e5cf8b0100000000000000000000000000000000000000000000ffffffffffffffff09000000"
    "0000000000000000000000000600000006000000000000000500000001000000000000000000000000000000"
    "000000000000000000000000000000000000000068656c6c6f21"
)
GOLDEN_RICH = (
    "444c4231e9af96bb21010000700001000000000000000000000102030405060708090a0b0c0d0e0f02000000"
    "030000000068e5cf8b0100006465666768696a6b6c6d6e6f7071727303000000280000000000000009000000"
    "00000000030000004e0000000f0000000f0000000000000005000000000000000a0000002e0000000a000000"
    "160000006a686bbd0000000019c3c9e60500000000000000f9ffffff0200000001000000000000009d000901"
    "a9a00e969e000a0113f1070f9f000b0185c100780400040054414753626c7565040005004b4559536b31206b"
    "3201000100613104000700636974795ac3bc72696368040002004b4559536b33040005005441475367726565"
    "6e05000000656d7074796669727374746869726420626f6479"
)

text = st.text(st.characters(exclude_categories=["C"]), max_size=12)
names = text.filter(lambda name: name not in ("", "TAGS", "KEYS"))
tags = text.filter(lambda tag: "|" not in tag and not tag.isspace())
keys = text.filter(lambda key: key != "" and " " not in key)
records = st.builds(
    Record,
    body=st.binary(max_size=40),
    tag=tags,
    keys=st.lists(keys, max_size=3).map(tuple),
    properties=st.dictionaries(names, text, max_size=3),
    time_ms=st.one_of(st.just(0), st.integers(BASE_TIME_MS - 2**31 + 1, BASE_TIME_MS + 2**31 - 1)),
)


def as_read(record: Record) -> Record:
    """What a reader gets: a record without a time has the batch's."""
    return record._replace(time_ms=record.time_ms or BASE_TIME_MS)


def test_golden_bytes_of_a_plain_batch() -> None:
    batch = make_batch([Record(b"hello"), Record(b"!")], stamp=None)
    assert batch.hex() == GOLDEN_PLAIN
    assert check_batch(batch).stamp is None


def test_golden_bytes_of_a_batch_with_everything() -> None:
    batch = make_batch(RICH)
    assert batch.hex() == GOLDEN_RICH
    assert list(BatchView(batch).records()) == [as_read(record) for record in RICH]


def test_the_header_is_read_as_drawn() -> None:
    batch = make_batch()
    header = check_batch(batch)
    assert header._asdict() == dict(
        zip(HEADER_FIELDS, struct.unpack_from(HEADER_FORMAT, batch), strict=True)
    )
    assert header.stamp == STAMP
    assert header.last_sequence == 42
    assert header.describe() == (
        "batch 000102030405060708090a0b0c0d0e0f/2 records=3 "
        "producer=6465666768696a6b6c6d6e6f70717273 epoch=3 sequence=40 number=9 "
        f"size={len(batch)} crc={header.crc:08x}"
    )


@untimed
@given(st.lists(records, min_size=1, max_size=8), st.booleans())
def test_round_trip(sent: list[Record], stamped: bool) -> None:
    batch = make_batch(sent, stamp=STAMP if stamped else None)
    header = check_batch(batch)
    view = BatchView(batch, header)
    expected = [as_read(record) for record in sent]
    assert list(view.records()) == expected
    assert [view.record(i) for i in range(len(view))] == expected
    assert [bytes(view.body(i)) for i in range(len(sent))] == [record.body for record in sent]
    assert list(view.body_sizes) == [len(record.body) for record in sent]
    assert list(view.times) == [record.time_ms for record in expected]
    assert list(view.tag_hashes) == [tag_hash(record.tag) for record in sent]
    for i, record in enumerate(sent):
        assert list(view.key_hashes(i)) == [key_hash(key.encode()) for key in record.keys]
        properties = view.properties(i)
        assert properties.get("TAGS", "") == record.tag
        assert properties.get("KEYS", "") == " ".join(record.keys)
    assert list(view.all_key_hashes) == [
        key_hash(key.encode()) for record in sent for key in record.keys
    ]


def test_the_fast_path_for_plain_records_writes_the_same_bytes() -> None:
    plain = [Record(b"a"), Record(b"bb")]
    described = [Record(b"a", time_ms=BASE_TIME_MS), Record(b"bb")]
    assert make_batch(plain) == make_batch(described)


def test_bodies_above_the_copy_threshold_have_the_same_crc_rule() -> None:
    batch = make_batch([Record(bytes([i]) * 10_000) for i in range(5)])
    assert check_batch(batch).bodies_size == 50_000
    assert BatchView(batch).record(4).body == bytes([4]) * 10_000


@pytest.mark.parametrize("records", [RICH, (Record(b"plain"),)], ids=["rich", "plain"])
def test_one_flipped_bit_anywhere_is_refused(records: tuple[Record, ...]) -> None:
    batch = make_batch(records)
    for bit in range(8 * len(batch)):
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DledgerError):
            check_batch(damaged)


def test_a_truncated_or_longer_batch_is_refused() -> None:
    batch = make_batch()
    for size in range(len(batch)):
        refused(lambda size=size: check_batch(batch[:size]), Code.CORRUPT_BATCH)  # type: ignore[misc]
    refused(lambda: check_batch(batch + b"\0"), Code.CORRUPT_BATCH)


@untimed
@given(st.binary(max_size=400))
def test_garbage_is_refused_and_nothing_else_happens(garbage: bytes) -> None:
    for prefix in (b"", b"DLB1", make_batch()[:BATCH_HEADER_SIZE]):
        refused(lambda prefix=prefix: check_batch(prefix + garbage))  # type: ignore[misc]
        with contextlib.suppress(DledgerError):
            split_batches(prefix + garbage)
        with contextlib.suppress(DledgerError):
            parse_header(prefix + garbage)


@untimed
@given(st.data())
def test_a_lying_batch_with_a_right_crc_never_breaks_a_reader(data: st.DataObject) -> None:
    batch = bytearray(make_batch())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(BATCH_HEADER_SIZE - 28, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    lying = sealed(batch)
    with contextlib.suppress(DledgerError):
        check_batch(lying)
    with contextlib.suppress(DledgerError):
        view = BatchView(lying)
        list(view.records())
        view.columns()
        for i in range(len(view)):
            view.key_hashes(i)


LIES: list[tuple[dict[str, Any], Code]] = [
    ({"magic": b"DLB2"}, Code.CORRUPT_BATCH),
    ({"version": 2}, Code.UNSUPPORTED_FORMAT),
    ({"compression": 3}, Code.UNSUPPORTED_FORMAT),
    ({"reserved": 1}, Code.CORRUPT_BATCH),
    ({"record_count": 0}, Code.CORRUPT_BATCH),
    ({"record_count": 4}, Code.CORRUPT_BATCH),
    ({"key_count": 2}, Code.CORRUPT_BATCH),
    ({"properties_size": 1}, Code.CORRUPT_BATCH),
    ({"bodies_size": 14}, Code.CORRUPT_BATCH),
    ({"bodies_stored_size": 14}, Code.CORRUPT_BATCH),
    ({"bodies_size": BATCH_SIZE_MAX + 1}, Code.MESSAGE_TOO_LARGE),
    ({"size": BATCH_SIZE_MAX + 1}, Code.MESSAGE_TOO_LARGE),
    ({"header_size": 110}, Code.CORRUPT_BATCH),
    ({"topic_id": NO_ID}, Code.MESSAGE_ILLEGAL),
    ({"queue": QUEUES_PER_TOPIC_MAX}, Code.MESSAGE_ILLEGAL),
    ({"base_time_ms": -1}, Code.MESSAGE_ILLEGAL),
    ({"base_time_ms": TIME_MS_MAX + 1}, Code.MESSAGE_ILLEGAL),
    ({"base_number": 2**64 - 2}, Code.MESSAGE_ILLEGAL),
    ({"base_sequence": -1}, Code.MESSAGE_ILLEGAL),
    ({"base_sequence": -2}, Code.MESSAGE_ILLEGAL),
    ({"base_sequence": 2**63 - 3}, Code.MESSAGE_ILLEGAL),
    ({"producer_id": NO_ID}, Code.MESSAGE_ILLEGAL),
    ({"base_sequence": -1, "producer_id": NO_ID}, Code.MESSAGE_ILLEGAL),
    ({"required_flags": FLAG_STAGED}, Code.UNIMPLEMENTED),
    ({"required_flags": 2}, Code.UNSUPPORTED_FORMAT),
    ({"required_flags": 2 | FLAG_STAGED}, Code.UNSUPPORTED_FORMAT),
]


@pytest.mark.parametrize(("changes", "code"), LIES, ids=[str(changes) for changes, _ in LIES])
def test_a_field_outside_its_limit_is_refused(changes: dict[str, Any], code: Code) -> None:
    error = refused(lambda: check_batch(with_fields(make_batch(), **changes)), code)
    assert error.detail, "a refusal says what is wrong"


def test_the_last_sequence_leaves_room_for_the_next() -> None:
    check_batch(with_fields(make_batch(), base_sequence=2**63 - 4))  # three records


def test_unknown_optional_flags_are_let_through() -> None:
    check_batch(with_fields(make_batch(), optional_flags=2**32 - 1))


def columns_at(place: int, count: int = 3) -> int:
    return BATCH_HEADER_SIZE + 4 * count * place


@pytest.mark.parametrize(
    ("place", "name"), [(0, "body_sizes"), (1, "property_sizes"), (4, "key_counts")]
)
def test_columns_that_do_not_add_up_are_refused(place: int, name: str) -> None:
    batch = bytearray(make_batch())
    batch[columns_at(place)] += 1
    lying = sealed(batch)
    assert name in refused(lambda: check_batch(lying), Code.UNREADABLE_BATCH).detail
    refused(lambda: list(BatchView(lying).records()) and BatchView(lying).key_hashes(0))
    refused(lambda: BatchView(lying).columns(), Code.UNREADABLE_BATCH)


def test_bodies_longer_than_what_is_stored_are_refused() -> None:
    batch = bytearray(make_batch())
    batch[columns_at(0)] += 1
    lying = with_fields(bytes(batch), bodies_size=16)
    refused(lambda: check_batch(lying), Code.CORRUPT_BATCH)


def test_key_counts_without_keys_are_refused() -> None:
    batch = bytearray(make_batch([Record(b"x")]))
    batch[columns_at(4, count=1)] = 1
    assert "key_counts" in refused(lambda: check_batch(sealed(batch)), Code.UNREADABLE_BATCH).detail


def test_more_in_one_record_than_its_limit_is_refused() -> None:
    many_keys = tuple(f"k{i}" for i in range(KEYS_PER_RECORD_MAX))
    batch = bytearray(make_batch([Record(b"", keys=many_keys), Record(b"", keys=many_keys)]))
    at = columns_at(4, count=2)
    struct.pack_into("<2I", batch, at, KEYS_PER_RECORD_MAX + 1, KEYS_PER_RECORD_MAX - 1)
    refused(lambda: check_batch(sealed(batch)), Code.MESSAGE_TOO_LARGE)

    half = {"n": "v" * (PROPERTIES_SIZE_MAX - 100)}
    batch = bytearray(make_batch([Record(b"", properties=half)] * 2))
    size = PROPERTIES_SIZE_MAX - 95
    struct.pack_into("<2I", batch, columns_at(1, count=2), 2 * size, 0)
    refused(lambda: check_batch(sealed(batch)), Code.MESSAGE_TOO_LARGE)

    batch = bytearray(make_batch([Record(bytes(BODY_SIZE_MAX)), Record(b"12")]))
    struct.pack_into("<2I", batch, BATCH_HEADER_SIZE, BODY_SIZE_MAX + 1, 1)
    refused(lambda: check_batch(sealed(batch)), Code.MESSAGE_TOO_LARGE)


RESERVED_TAGS = {
    2: "priority", 3: "ordering_key_hash", 4: "original_topic", 5: "original_queue",
    6: "original_offset", 7: "attempt",
}  # fmt: skip


@pytest.mark.parametrize("tag", RESERVED_TAGS)
def test_reserved_delivery_features_are_refused_by_name(tag: int) -> None:
    batch = with_extensions(make_batch(), struct.pack("<HHI", tag, 4, 0))
    error = refused(lambda: check_batch(batch), Code.UNIMPLEMENTED)
    assert RESERVED_TAGS[tag] in error.detail


def test_a_staged_batch_is_refused_by_name() -> None:
    batch = with_fields(make_batch(), required_flags=FLAG_STAGED)
    assert "STAGED" in refused(lambda: check_batch(batch), Code.UNIMPLEMENTED).detail


def test_an_unknown_extension_is_carried() -> None:
    area = struct.pack("<HH3sx", 8, 3, b"abc") + struct.pack("<HH", 9, 0)
    batch = with_extensions(make_batch(), area)
    assert check_batch(batch).header_size == BATCH_HEADER_SIZE + len(area)
    assert list(BatchView(batch).records()) == [as_read(record) for record in RICH]


@pytest.mark.parametrize(
    "area",
    [
        struct.pack("<HHI", 8, 5, 0),
        struct.pack("<HH4s", 8, 3, b"abc!"),
        struct.pack("<HHI", 0, 4, 0),
        struct.pack("<HHHH", 8, 0, 8, 0),
        struct.pack("<HHH", 8, 0, 0),
    ],
    ids=["too long", "padding", "tag 0", "twice", "odd size"],
)
def test_an_ill_formed_extension_is_refused(area: bytes) -> None:
    refused(lambda: check_batch(with_extensions(make_batch(), area)), Code.CORRUPT_BATCH)


ILLEGAL_RECORDS = [
    (Record(b"", tag=" "), Code.MESSAGE_ILLEGAL),
    (Record(b"", tag="a||b"), Code.MESSAGE_ILLEGAL),
    (Record(b"", tag="a\n"), Code.MESSAGE_ILLEGAL),
    (Record(b"", tag="\ud800"), Code.MESSAGE_ILLEGAL),
    (Record(b"", tag="t" * PROPERTIES_SIZE_MAX), Code.MESSAGE_TOO_LARGE),
    (Record(b"", tag="t" * 70_000), Code.MESSAGE_TOO_LARGE),
    (Record(b"", keys=("",)), Code.MESSAGE_ILLEGAL),
    (Record(b"", keys=("a b",)), Code.MESSAGE_ILLEGAL),
    (Record(b"", keys=("\udfff",)), Code.MESSAGE_ILLEGAL),
    (Record(b"", keys=("k",) * (KEYS_PER_RECORD_MAX + 1)), Code.MESSAGE_ILLEGAL),
    (Record(b"", keys=("k" * 70_000,)), Code.MESSAGE_TOO_LARGE),
    (Record(b"", properties={"": "v"}), Code.MESSAGE_ILLEGAL),
    (Record(b"", properties={"TAGS": "v"}), Code.MESSAGE_ILLEGAL),
    (Record(b"", properties={"KEYS": "v"}), Code.MESSAGE_ILLEGAL),
    (Record(b"", properties={"a\0": "v"}), Code.MESSAGE_ILLEGAL),
    (Record(b"", properties={"n" * 256: "v"}), Code.MESSAGE_ILLEGAL),
    (Record(b"", properties={"n": "\ud800"}), Code.MESSAGE_ILLEGAL),
    (Record(b"", properties={"n": "v" * 70_000}), Code.MESSAGE_TOO_LARGE),
    (Record(b"", properties={"n": "v" * PROPERTIES_SIZE_MAX}), Code.MESSAGE_TOO_LARGE),
    (Record(b"", time_ms=BASE_TIME_MS + 2**31), Code.MESSAGE_ILLEGAL),
    (Record(b"", time_ms=-1), Code.MESSAGE_ILLEGAL),
    (Record(bytes(BODY_SIZE_MAX + 1)), Code.MESSAGE_TOO_LARGE),
]


@pytest.mark.parametrize(("record", "code"), ILLEGAL_RECORDS)
def test_an_illegal_record_is_refused_with_its_place(record: Record, code: Code) -> None:
    error = refused(lambda: make_batch([Record(b"good"), record]), code)
    assert error.detail.startswith("record 1: "), error.detail
    assert len(error.detail) < 300


def test_the_largest_record_fits() -> None:
    value = "v" * (PROPERTIES_SIZE_MAX - 5)
    batch = make_batch([Record(bytes(BODY_SIZE_MAX), properties={"n": value})])
    assert check_batch(batch).properties_size == PROPERTIES_SIZE_MAX
    assert BatchView(batch).record(0).properties == {"n": value}


def test_a_batch_above_the_limits_is_refused() -> None:
    refused(lambda: make_batch([Record(bytes(BODY_SIZE_MAX // 2))] * 3), Code.MESSAGE_TOO_LARGE)
    with pytest.raises(ValueError, match="65536 records"):
        make_batch([Record(b"")] * (BATCH_RECORDS_MAX + 1))
    with pytest.raises(ValueError, match="0 records"):
        make_batch([])
    assert check_batch(make_batch([Record(b"")] * BATCH_RECORDS_MAX)).record_count == 65_535


MISUSES: list[tuple[dict[str, Any], str]] = [
    ({"topic_id": b"short"}, "topic_id"),
    ({"topic_id": NO_ID}, "topic_id"),
    ({"queue": -1}, "queue"),
    ({"queue": QUEUES_PER_TOPIC_MAX}, "queue"),
    ({"base_number": -1}, "base_number"),
    ({"base_number": 2**64 - 1}, "base_number"),
    ({"base_time_ms": -1}, "base_time_ms"),
    ({"stamp": ProducerStamp(b"x", 1, 0)}, "producer_id"),
    ({"stamp": ProducerStamp(NO_ID, 1, 0)}, "producer_id"),
    ({"stamp": ProducerStamp(PRODUCER_ID, 2**32, 0)}, "epoch"),
    ({"stamp": ProducerStamp(PRODUCER_ID, 1, -1)}, "base_sequence"),
]


@pytest.mark.parametrize(("changes", "field"), MISUSES)
def test_our_own_misuse_is_a_value_error_naming_the_field(
    changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValueError, match=field):
        make_batch(**changes)


def test_a_new_stamp_changes_the_stamp_and_nothing_else() -> None:
    batch = make_batch(stamp=STAMP)
    new = ProducerStamp(PRODUCER_ID, 8, 0)
    again = restamp(batch, new)
    assert again == make_batch(stamp=new)
    assert check_batch(again).stamp == new
    assert restamp(again, STAMP) == batch
    assert restamp(memoryview(make_batch(stamp=None)), STAMP) == batch
    with pytest.raises(ValueError, match="epoch"):
        restamp(batch, ProducerStamp(PRODUCER_ID, -1, 0))
    refused(lambda: restamp(b"no batch", new), Code.CORRUPT_BATCH)


def test_batches_back_to_back_are_split() -> None:
    batches = [make_batch(), make_batch([Record(b"x")]), make_batch(stamp=None)]
    assert split_batches(b"junk" + b"".join(batches), 4) == batches
    assert split_batches(b"") == []
    for cut in (1, 50, len(batches[2]) - 1):
        refused(lambda cut=cut: split_batches(b"".join(batches)[:-cut]), Code.CORRUPT_BATCH)  # type: ignore[misc]
    zero_size = bytearray(batches[0])
    zero_size[8:12] = bytes(4)
    refused(lambda: split_batches(zero_size), Code.CORRUPT_BATCH)


def test_a_header_is_read_in_the_middle_of_a_buffer() -> None:
    batch = make_batch()
    assert parse_header(b"12345" + batch[:BATCH_HEADER_SIZE], 5) == check_batch(batch)
    refused(lambda: parse_header(batch, len(batch)), Code.CORRUPT_BATCH)


def test_a_view_ignores_what_follows_the_batch() -> None:
    view = BatchView(make_batch() + b"next batch")
    assert view.record(2).body == b"third body"
    refused(lambda: BatchView(make_batch()[:-1]), Code.CORRUPT_BATCH)


def test_records_by_range_and_out_of_range() -> None:
    view = BatchView(make_batch())
    assert [record.body for record in view.records(1, 1)] == [b""]
    assert list(view.records(3)) == []
    for first, count in ((-1, 1), (2, 2), (4, None)):
        with pytest.raises(IndexError):
            list(view.records(first, count))
    for i in (-1, 3):
        with pytest.raises(IndexError):
            view.record(i)
        with pytest.raises(IndexError):
            view.message_id(i)


def test_keys_framed_by_others_with_double_spaces_are_read() -> None:
    batch = make_batch([Record(b"", keys=("a-b",))])
    assert BatchView(sealed(batch.replace(b"a-b", b"a  "))).record(0).keys == ("a",)


def test_message_ids() -> None:
    identifier = message_id(PRODUCER_ID, 258)
    assert identifier == PRODUCER_ID + b"\0\0\0\0\0\0\x01\x02"
    assert parse_message_id(identifier) == (PRODUCER_ID, 258)
    assert BatchView(make_batch()).message_id(2) == message_id(PRODUCER_ID, 11)
    refused(lambda: parse_message_id(identifier[1:]), Code.INVALID_ARGUMENT)
    with pytest.raises(ValueError, match="out of range"):
        message_id(PRODUCER_ID, -1)


def test_hashes_are_what_other_languages_compute() -> None:
    assert key_hash(b"123456789") == 0xCBF43926_091E01DE
    assert tag_hash("123456789") == 0xE3069283
    assert tag_hash("") == 0


def test_the_halves_of_a_key_hash_are_independent() -> None:
    def difference(key: bytes) -> int:
        return key_hash(key) >> 32 ^ key_hash(key) & 0xFFFFFFFF

    assert len({difference(b"%04d" % i) for i in range(1000)}) > 990


def test_a_header_knows_batches_without_a_producer() -> None:
    header: BatchHeader = check_batch(make_batch(stamp=None))
    assert header.stamp is None
    assert header.last_sequence == -1
    assert header.producer_id == NO_ID
    assert "producer" not in header.describe()
    assert encode_batch(
        [Record(b"x")], topic_id=TOPIC_ID, queue=0, stamp=None, base_number=0, base_time_ms=0
    )
