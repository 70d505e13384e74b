"""The message codec: everything that goes in comes out, anything else is a ValueError. Loading."""

import contextlib
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.log.commit_log import CommitLog
from dledger.raft.wire import loading, message_codec
from dledger.raft.wire.messages import (
    AppendAnswer,
    AppendRequest,
    BarrierAnswer,
    BarrierRequest,
    Hello,
    Message,
    PreVote,
    PreVoteAnswer,
    TermNotice,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
)
from dledger.types import AppendPayload, DiskRoom, EntryKind, LogIndex, Position, Span, Term
from dledger_proto.entry import frame_entry

LIFE = bytes(range(16))
PAYLOAD = AppendPayload(
    LogIndex(8), LogIndex(9), Term(3), 6, [b"ab", memoryview(b"cdef")], Span(Position(0), 6)
)
MESSAGES: list[tuple[Message, str]] = [
    (
        Hello("c", "g", "a", LIFE, 3, 4),
        "hello c/g/a incarnation=00010203 state=3 term=4 group_id=- recorded=- echo_state=0 "
        "met=- genesis=0",
    ),
    (
        Hello(
            "c", "g", "ä", LIFE, 3, 4, group_id=LIFE, quarantined=True, lifted=True, recorded=LIFE,
            echo_session=9, echo_state=2, met={"a": LIFE, "b": LIFE}, genesis=b"xyz",
        ),
        "hello c/g/ä incarnation=00010203 state=3 term=4 group_id=00010203 quarantined lifted "
        "recorded=00010203 echo_state=2 met=a,b genesis=3",
    ),
    (PreVote(1, 2, 3, 4), "pre-vote #1 term=2 last=3@4"),
    (PreVoteAnswer(1, 2, True), "pre-vote-answer #1 term=2 granted=True"),
    (VoteRequest(1, 2, 3, 4), "vote-request #1 term=2 last=3@4"),
    (VoteAnswer(1, 2, 3, False), "vote-answer #1 term=2 granted=False voter_term=3"),
    (
        AppendRequest(1, 2, 3, 4, 5, 6, 7, 8, answer=False),
        "append #1 term=2 prev=3@4 entries=- commit=5 floor=6 notice",
    ),
    (
        AppendAnswer(1, 2, 3, True, 4, 5, 6, 7, quarantined=True),
        "append-answer #1 term=2 match=4 own_term=3 quarantined",
    ),
    (
        AppendAnswer(1, 2, 3, False, 4, 5, 6, -7, disk_room=DiskRoom.LOW, unsynced=True),
        "append-answer #1 term=2 mismatch hint=5@6 own_term=3 disk-low unsynced",
    ),
    (
        AppendAnswer(1, 2, 3, True, 4, 5, 6, -7, disk_room=DiskRoom.FULL, disk_hangs=True),
        "append-answer #1 term=2 match=4 own_term=3 disk-full disk-hangs",
    ),
    (TermNotice(5), "term-notice 5"),
    (TimeoutNow(5), "timeout-now term=5"),
    (BarrierRequest(5, quarantined=True), "barrier #5 quarantined"),
    (BarrierAnswer(5, 6, 7, True), "barrier-answer #5 index=7 term=6 confirmed=True"),
]  # fmt: skip


def encoded(message: Message) -> bytes:
    return b"".join(message_codec.encode(message))


@pytest.mark.parametrize(("message", "line"), MESSAGES)
def test_what_goes_in_comes_out(message: Message, line: str) -> None:
    message.session, message.sequence = 77, 88
    assert message_codec.decode(encoded(message)) == message
    assert message.describe() == line


def test_every_type_is_tried_above() -> None:
    # By name: a slotted dataclass leaves its first form behind until it is collected.
    tried = {type(message).__name__ for message, _ in MESSAGES}
    assert tried == {kind.__name__ for kind in Message.__subclasses__()}


def test_entries_travel_as_they_are() -> None:
    message = AppendRequest(1, 2, 3, 4, 5, 6, 7, payload=PAYLOAD)
    decoded = message_codec.decode(encoded(message))
    assert isinstance(decoded, AppendRequest)
    assert decoded.frames is not None
    assert bytes(decoded.frames) == b"abcdef"
    assert message.describe() == "append #1 term=2 prev=3@4 entries=8..9 commit=5 floor=6"
    assert encoded(decoded) == encoded(message)


def test_entries_that_are_not_loaded_cannot_be_encoded() -> None:
    payload = AppendPayload(LogIndex(8), LogIndex(9), Term(3), 6, None, Span(Position(0), 6))
    message = AppendRequest(1, 2, 3, 4, 5, 6, 7, payload=payload)
    with pytest.raises(ValueError, match="not loaded"):
        message_codec.encode(message)
    assert encoded(loading.with_data(message, b"abcdef"))[-6:] == b"abcdef"


@given(st.binary(max_size=300))
def test_garbage_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        message_codec.decode(data)


def test_damaged_messages_decode_to_something_or_are_value_errors() -> None:
    """No CRC of our own: the transport has one. But nothing else than ValueError may come."""
    random = Random(1)
    for message, _ in MESSAGES:
        data = encoded(message)
        for length in range(len(data)):
            with pytest.raises(ValueError):
                message_codec.decode(data[:length])
        for _ in range(300):
            broken = bytearray(data)
            broken[random.randrange(len(broken))] ^= 1 << random.randrange(8)
            with contextlib.suppress(ValueError):
                message_codec.decode(bytes(broken))


def test_numbers_above_63_bits_are_refused() -> None:
    data = bytearray(encoded(TermNotice(1)))
    data[-1] = 0x80
    with pytest.raises(ValueError, match="2\\*\\*63"):
        message_codec.decode(bytes(data))


# Loading.


class SpanLog:
    """A log of one span, whatever lies there."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_span(self, span: Span, /) -> bytes:
        return self.data[span.position - POSITION :][: span.size]


POSITION = 1_000


def frames(count: int = 3, *, chained: bool = True) -> list[bytes]:
    """Entries from 8 on of term 3, the first at `POSITION`."""
    found: list[bytes] = []
    position, crc = POSITION, 77
    for index in range(8, 8 + count):
        body = b"body %d" % index
        header, crc = frame_entry(
            EntryKind.COMMANDS, [body], index=index, term=3, time_ms=0, position=position,
            previous_crc=crc if chained else 77,
        )  # fmt: skip
        found.append(header + body)
        position += len(found[-1])
    return found


def loaded(data: bytes, *, last: int = 10, term: int = 3) -> bytes | None:
    """What a request for the entries 8..`last` becomes when its span holds `data`."""
    span = Span(Position(POSITION), len(data))
    payload = AppendPayload(LogIndex(8), LogIndex(last), Term(term), len(data), None, span)
    request = AppendRequest(1, 3, 7, 3, 5, 6, 7, payload=payload)
    message = loading.load(request, cast("CommitLog", SpanLog(data)))
    found = None if message is None else loading.payload_of(message)
    return None if found is None else b"".join(found.buffers or ())


def test_entries_are_loaded_whole_or_not_at_all() -> None:
    first, second, third = frames()
    data = first + second + third
    assert loaded(data) == data
    assert loaded(data, term=2) is None, "a replaced suffix"
    assert loaded(data, last=9) is None
    assert loaded(data, last=11) is None
    assert loaded(first + second) is None
    assert loaded(data[:-1]) is None
    assert loaded(first + third) is None
    assert loaded(second + third) is None
    assert loaded(first + third + second) is None
    assert loaded(b"".join(frames(chained=False))) is None, "each is whole, none follows"


def test_no_flipped_bit_is_loaded() -> None:
    """I15: but for the local bytes, which are this member's own and checked by nobody else."""
    data = b"".join(frames())
    local = {at + byte for at in (0, len(data) // 3, 2 * len(data) // 3) for byte in range(56, 72)}
    # Equal sizes, so the entries begin at thirds but for "body 10", which is a byte longer.
    for at in set(range(len(data))) - local:
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        assert loaded(bytes(damaged)) is None, at
