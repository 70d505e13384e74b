"""Limits of one message (S33): at the limit it passes, one beyond it is refused by name."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_client._core.message_checks import check_group, check_topic, make_record, taken_over
from dledger_client.errors import ClientError, MessageIllegal, MessageTooLarge
from dledger_proto.batch.codec import BATCH_HEADER_SIZE, Record, encode_batch
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import (
    BODY_SIZE_MAX,
    GROUP_NAME_LENGTH_MAX,
    KEYS_PER_RECORD_MAX,
    PROPERTIES_SIZE_MAX,
    TOPIC_NAME_LENGTH_MAX,
)


def test_body_limit() -> None:
    make_record(bytes(BODY_SIZE_MAX))
    with pytest.raises(MessageTooLarge, match=f"body: {BODY_SIZE_MAX + 1} .* {BODY_SIZE_MAX}") as e:
        make_record(bytes(BODY_SIZE_MAX + 1))
    assert e.value.code is Code.MESSAGE_TOO_LARGE
    assert e.value.definite
    with pytest.raises(MessageTooLarge):
        taken_over(Record(bytes(BODY_SIZE_MAX + 1)))


def test_properties_limit() -> None:
    room = PROPERTIES_SIZE_MAX - 4 - 1
    make_record(b"", properties={"n": "v" * room})
    with pytest.raises(MessageTooLarge, match=str(PROPERTIES_SIZE_MAX)):
        make_record(b"", properties={"n": "v" * (room + 1)})
    make_record(b"", properties={"n": "ä" * (room // 2)})
    with pytest.raises(MessageTooLarge):
        make_record(b"", properties={"n": "ä" * (room // 2 + 1)})


def test_keys_limit() -> None:
    make_record(b"", keys=[f"k{i}" for i in range(KEYS_PER_RECORD_MAX)])
    make_record(b"", key="k", keys=[f"k{i}" for i in range(KEYS_PER_RECORD_MAX - 1)])
    with pytest.raises(MessageIllegal, match=f"{KEYS_PER_RECORD_MAX + 1} keys"):
        make_record(b"", key="k", keys=[f"k{i}" for i in range(KEYS_PER_RECORD_MAX)])


@pytest.mark.parametrize(
    ("tag", "keys", "properties"),
    [
        ("a|b", (), {}),
        (" ", (), {}),
        ("tab\t", (), {}),
        ("", ("two words",), {}),
        ("", ("",), {}),
        ("", "text", {}),
        ("", (), {"": "v"}),
        ("", (), {"KEYS": "v"}),
        ("", (), {"TAGS": "v"}),
        ("", (), {"n" * 256: "v"}),
        ("", (), {"n\n": "v"}),
        ("\ud800", (), {}),
    ],
)
def test_rules(tag: str, keys: Sequence[str], properties: Mapping[str, str]) -> None:
    with pytest.raises(MessageIllegal):
        make_record(b"", tag, None, keys, properties)


@pytest.mark.parametrize("body", ["text", None, 5, [1]])
def test_bodies_are_bytes(body: bytes) -> None:
    with pytest.raises(MessageIllegal, match=r"body: .*, must be bytes"):
        make_record(body)


def test_buffers_are_copied() -> None:
    body = bytearray(b"abc")
    record, _ = make_record(bytes(body))
    copied, _ = make_record(memoryview(body))  # type: ignore[arg-type]
    body[0] = 0
    assert record.body == copied.body == b"abc"


@pytest.mark.parametrize("properties", [{"n": 5}, {5: "v"}, {"n": None}])
def test_wrong_types_are_named(properties: Mapping[str, str]) -> None:
    with pytest.raises(ClientError, match=r"message|property"):
        make_record(b"", properties=properties)


def test_names() -> None:
    check_topic("%RETRY%a|b_c-9")
    for check, limit in (
        (check_topic, TOPIC_NAME_LENGTH_MAX),
        (check_group, GROUP_NAME_LENGTH_MAX),
    ):
        check("n" * limit)
        for bad in ("", "n" * (limit + 1), "a b", "ä", "a.b", "a/b", "a\n", 5):
            with pytest.raises(MessageIllegal):
                check(bad)  # type: ignore[arg-type]


text = st.text(max_size=20)


@given(st.binary(max_size=50), text, st.lists(text, max_size=3), st.dictionaries(text, text))
def test_the_fast_path_never_accepts_what_the_codec_refuses(
    body: bytes, tag: str, keys: list[str], properties: dict[str, str]
) -> None:
    record = Record(body, tag, tuple(keys), properties)
    refusal: DledgerError | None = None
    encoded = b""
    try:
        encoded = encode_batch(
            [record], topic_id=b"?" * 16, queue=0, stamp=None, base_number=0, base_time_ms=0
        )
    except DledgerError as error:
        refusal = error
    if refusal is None:
        _, size = make_record(body, tag, None, keys, properties)
        assert size >= len(encoded) - BATCH_HEADER_SIZE
    else:
        with pytest.raises(MessageIllegal) as raised:
            make_record(body, tag, None, keys, properties)
        assert raised.value.code is refusal.code
