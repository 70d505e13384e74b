"""The message codec: everything that goes in comes out, anything else is a ValueError."""

import contextlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.raft import message as messages
from dledger.raft.api import AppendPayload
from dledger.raft.message import (
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
)  # fmt: skip
from dledger.types import LogIndex, Position, Span, Term

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
        AppendRequest(1, 2, 3, 4, 5, 6, 7, answer=False),
        "append #1 term=2 prev=3@4 entries=- commit=5 floor=6 notice",
    ),
    (
        AppendAnswer(1, 2, 3, True, 4, 5, 6, 7, quarantined=True),
        "append-answer #1 term=2 match=4 own_term=3 quarantined",
    ),
    (
        AppendAnswer(1, 2, 3, False, 4, 5, 6, -7, disk_low=True, disk_hangs=True),
        "append-answer #1 term=2 mismatch hint=5@6 own_term=3 disk-low disk-hangs",
    ),
    (TermNotice(5), "term-notice 5"),
    (TimeoutNow(5), "timeout-now term=5"),
    (BarrierRequest(5, quarantined=True), "barrier #5 quarantined"),
    (BarrierAnswer(5, 6, 7, True), "barrier-answer #5 index=7 term=6 confirmed=True"),
]  # fmt: skip


def encoded(message: Message) -> bytes:
    return b"".join(messages.encode(message))


@pytest.mark.parametrize(("message", "line"), MESSAGES)
def test_what_goes_in_comes_out(message: Message, line: str) -> None:
    message.session, message.sequence = 77, 88
    assert messages.decode(encoded(message)) == message
    assert message.describe() == line


def test_every_type_is_tried_above() -> None:
    # By name: a slotted dataclass leaves its first form behind until it is collected.
    tried = {type(message).__name__ for message, _ in MESSAGES}
    assert tried == {kind.__name__ for kind in Message.__subclasses__()}


def test_entries_travel_as_they_are() -> None:
    message = AppendRequest(1, 2, 3, 4, 5, 6, 7, payload=PAYLOAD)
    decoded = messages.decode(encoded(message))
    assert isinstance(decoded, AppendRequest)
    assert decoded.frames is not None
    assert bytes(decoded.frames) == b"abcdef"
    assert message.describe() == "append #1 term=2 prev=3@4 entries=8..9 commit=5 floor=6"
    assert encoded(decoded) == encoded(message)


def test_entries_that_are_not_loaded_cannot_be_encoded() -> None:
    payload = AppendPayload(LogIndex(8), LogIndex(9), Term(3), 6, None, Span(Position(0), 6))
    message = AppendRequest(1, 2, 3, 4, 5, 6, 7, payload=payload)
    with pytest.raises(ValueError, match="not loaded"):
        messages.encode(message)
    assert encoded(messages.with_data(message, b"abcdef"))[-6:] == b"abcdef"


@given(st.binary(max_size=300))
def test_garbage_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        messages.decode(data)


def test_damaged_messages_decode_to_something_or_are_value_errors() -> None:
    """No CRC of our own: the transport has one. But nothing else than ValueError may come."""
    random = Random(1)
    for message, _ in MESSAGES:
        data = encoded(message)
        for length in range(len(data)):
            with pytest.raises(ValueError):
                messages.decode(data[:length])
        for _ in range(300):
            broken = bytearray(data)
            broken[random.randrange(len(broken))] ^= 1 << random.randrange(8)
            with contextlib.suppress(ValueError):
                messages.decode(bytes(broken))


def test_numbers_above_63_bits_are_refused() -> None:
    data = bytearray(encoded(TermNotice(1)))
    data[-1] = 0x80
    with pytest.raises(ValueError, match="2\\*\\*63"):
        messages.decode(bytes(data))
