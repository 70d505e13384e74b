"""Targets: what members of a group say to each other."""

import asyncio
import struct
from collections.abc import Sequence
from typing import Any, Final, cast

from dledger.raft.links.frame_stream import FrameStream
from dledger.raft.links.greeting import (
    BadGreeting,
    LinkIdentity,
    encode_answer,
    encode_greeting,
    parse_answer,
    parse_greeting,
)
from dledger.raft.replication.follower import parse_run
from dledger.raft.wire import link_frame, message_codec
from dledger.raft.wire.link_frame import BadLinkFrame
from dledger.raft.wire.messages import (
    AppendAnswer,
    AppendRequest,
    BarrierAnswer,
    Hello,
    Message,
    PreVote,
    VoteAnswer,
)
from dledger.types import Buffer, MemberId
from dledger_proto.entry import CorruptEntry, encode_genesis, parse_genesis
from tests.fuzz.target import Target
from tests.fuzz.targets import reseal
from tests.fuzz.targets.entries import chain

LIFE: Final = bytes(range(16))
GENESIS: Final = encode_genesis("c1", "g1", LIFE, [("m1", LIFE), ("m2", LIFE)])
FRAME_SIZE_MAX: Final = 200_000
"""Of the streams here; a frame of it does not fit the stream's buffer."""


def messages() -> Sequence[bytes]:
    """Return messages of every form."""
    said: list[Message] = [
        Hello("c1", "g1", "m1", LIFE, 3, 4),
        Hello(
            "c1", "g1", "m1", LIFE, 3, 4, group_id=LIFE, recorded=LIFE, met={"m1": LIFE},
            genesis=GENESIS,
        ),
        PreVote(1, 2, 3, 4),
        VoteAnswer(1, 2, 3, False),
        BarrierAnswer(1, 2, 3, True),
        AppendAnswer(1, 2, 3, True, 4, 5, 6, 7),
        AppendRequest(1, 2, 3, 4, 5, 6, 7, 8),
        AppendRequest(1, 4, 0, 0, 5, 6, 7, 8, frames=memoryview(b"".join(chain()))),
    ]  # fmt: skip
    for message in said:
        message.session, message.sequence = 7, 8
    return [b"".join(message_codec.encode(message)) for message in said]


def _message(data: bytes) -> None:
    message = message_codec.decode(data)
    again = b"".join(message_codec.encode(message))
    assert message_codec.decode(again) == message
    message.describe()


def _run(data: bytes) -> None:
    """A follower's look at the entries of an append request."""
    request = AppendRequest(1, 4, 0, 0, 5, 6, 7, 8, frames=memoryview(data))
    if data:
        parse_run(request)


def _greeting(data: bytes) -> None:
    parse_answer(data)
    pairs = parse_greeting(data)
    assert parse_greeting(encode_greeting(tuple(pairs.items()))) == pairs


def _frame(data: bytes) -> None:
    found = link_frame.parse_frame(data)
    assert b"".join(link_frame.encode_frame([[each] for each in found])) == data


class _Kept:
    """Keeps what a stream tells."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def opened(self, stream: FrameStream) -> None: ...

    def frame_came(self, frame: Buffer) -> None:
        self.frames.append(bytes(frame))

    def writable(self) -> None: ...

    def too_large(self, reason: str) -> None: ...

    def closed(self, reason: str) -> None: ...


class _Wire:
    """A transport that ends when the stream says so."""

    def __init__(self) -> None:
        self.is_open = True

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_extra_info(self, _name: str) -> None: ...

    def is_closing(self) -> bool:
        return not self.is_open

    def abort(self) -> None:
        self.is_open = False


def _cut(data: bytes, sizes: Sequence[int]) -> tuple[list[bytes], bool]:
    """Let a stream read bytes that come in pieces of these sizes; is it open at the end?"""
    kept, wire = _Kept(), _Wire()
    stream = FrameStream(kept, FRAME_SIZE_MAX)
    stream.connection_made(cast("asyncio.BaseTransport", cast("Any", wire)))
    turn = 0
    while data and wire.is_open:
        room = stream.get_buffer(-1)
        assert len(room), "no room for the next bytes"
        size = min(len(room), max(sizes[turn % len(sizes)], 1), len(data))
        room[:size] = data[:size]
        data = data[size:]
        stream.buffer_updated(size)
        turn += 1
    return kept.frames, wire.is_open


def _stream(data: bytes) -> None:
    """Frames are the same, however their bytes come: the first eight bytes say how."""
    sizes, rest = list(data[:8]), data[8:]
    # A byte above 200 stands for a frame that no buffer holds.
    if sizes and sizes[0] > 200:
        rest = struct.pack("<I", FRAME_SIZE_MAX - sizes[0]) + rest * 800
    whole = _cut(rest, [len(rest)])
    assert _cut(rest, [7 * size for size in sizes] or [1]) == whole
    frames, is_open = whole
    told = bytearray()
    for frame in frames:
        told += struct.pack("<I", len(frame)) + frame
    assert rest.startswith(told)
    left = rest[len(told) :]
    assert not is_open or len(left) < 4 or int.from_bytes(left[:4], "little") > len(left) - 4


def _stream_seeds() -> Sequence[bytes]:
    frames = [link_frame.encode_frame([[each]]) for each in messages()[:3]]
    said = b"".join(struct.pack("<I", sum(map(len, frame))) + b"".join(frame) for frame in frames)
    return [bytes(range(1, 9)) + said, bytes((255,) * 8) + said, bytes(8) + said + bytes(9)]


TARGETS: Final = (
    Target(
        "peer-message", _message, (ValueError,), messages,
        ("dledger.raft.wire.message_codec:decode",),
    ),
    Target(
        "peer-run", _run, (CorruptEntry,), lambda: [b"".join(chain()), chain()[0]],
        ("dledger.raft.replication.follower:parse_run",), reseal.entries, multiple=64,
    ),
    Target(
        "peer-frame", _frame, (BadLinkFrame,),
        lambda: [b"".join(link_frame.encode_frame([[each] for each in messages()])), b"DLK1"],
        ("dledger.raft.wire.link_frame:parse_frame",),
    ),
    Target(
        "peer-greeting", _greeting, (BadGreeting,),
        lambda: [
            encode_greeting(LinkIdentity("c1", "g1", MemberId("m1"), LIFE).greeting(MemberId("b"))),
            encode_answer("not this group"),
        ],
        (
            "dledger.raft.links.greeting:parse_greeting",
            "dledger.raft.links.greeting:parse_answer",
        ),
    ),
    Target(
        "peer-stream", _stream, (), _stream_seeds,
        ("dledger.raft.links.frame_stream:FrameStream",),
        multiple=8_000, allowance=4 << 20, tries=600,
    ),
    Target(
        "genesis", lambda data: parse_genesis(data), (CorruptEntry,), lambda: [GENESIS],
        ("dledger_proto.entry:parse_genesis",),
    ),
)  # fmt: skip
