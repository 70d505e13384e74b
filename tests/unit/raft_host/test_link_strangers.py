"""What anybody may do on the port of links: bytes that are no frames, floods, two connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from random import Random

import pytest

from dledger.raft.links import peer_listener
from dledger.raft.links.frame_stream import BUFFER_BYTES, SIZE, FrameStream
from dledger.raft.links.greeting import (
    GREETING_SIZE_MAX,
    BadGreeting,
    encode_greeting,
    parse_greeting,
)
from dledger.raft.links.line_budget import LINE_SECONDS, LINES_MAX, LineBudget
from dledger.raft.links.peer_link import LinkSettings
from dledger.raft.links.peer_listener import LinkTarget, _Accepted
from dledger.raft.wire import message_codec
from dledger.raft.wire.link_frame import encode_frame
from dledger.raft.wire.messages import AppendRequest
from dledger.types import AppendPayload, Buffer, LogIndex, MemberId, Position, Span, Term
from dledger_proto.errors import DledgerError
from dledger_proto.limits import FRAME_SIZE_MAX
from tests.link_caller import Caller
from tests.ports import free_port
from tests.unit.raft_host.link_sides import A, B, Side, notice, pair
from tests.waiting import until

C = MemberId("c")
TURNS_MAX = 200
"""So often messages are sent that nobody reads: far more than the kernel's buffers take."""
GREETING = (
    ("dledger-cluster", "c"), ("dledger-group", "g"), ("dledger-member", "a"),
    ("dledger-to", "b"), ("dledger-incarnation", "00"),
)  # fmt: skip


@asynccontextmanager
async def listening() -> AsyncIterator[Side]:
    side = Side(B, A, free_port())
    await side.listen()
    try:
        yield side
    finally:
        side.stop()


def terms_of(side: Side) -> list[int]:
    return [getattr(message, "term", -1) for _, message in side.events.received_messages]


def test_bytes_that_are_no_greeting_are_refused_and_told_once() -> None:
    """With the reason, for people; and nothing else is read."""

    async def run() -> None:
        async with listening() as side:
            for frame in (b"\xff" * 100, b"GET / HTTP/1.1\r\n", b"DLG1\xff", b"DLG1no line"):
                for _ in range(3):
                    caller = await Caller.dial(side.port)
                    caller.send_frame(frame)
                    caller.send_messages(notice(1))
                    assert await caller.answer()
                    caller.close()
            assert len(side.trace.named("link_refused")) == 4
            assert side.events.received_messages == []

    asyncio.run(run())


def test_a_stranger_that_announces_much_is_cut_off_before_it_is_read() -> None:
    async def run() -> None:
        async with listening() as side:
            for size in (GREETING_SIZE_MAX + 1, FRAME_SIZE_MAX, (1 << 32) - 1):
                caller = await Caller.dial(side.port)
                await until(lambda: bool(side.listener._strangers), "it is taken")
                (stranger,) = side.listener._strangers
                assert stranger._timer is not None
                stranger._timer.cancel()  # or it would be closed for its silence
                caller.send(SIZE.pack(size))
                assert await caller.is_closed()
                caller.close()
                await until(lambda: not side.listener._strangers, "it is forgotten")
            (told,) = side.trace.named("link_refused")
            assert told["reason"] == "a frame of 4097 bytes, at most 4096"

    asyncio.run(run())


def test_made_up_reasons_do_not_silence_the_next_for_ever() -> None:
    """Twenty at once, each once; then one a minute, whatever comes."""
    lines = LineBudget()
    said = [number for number in range(1_000) for _ in range(2) if lines.may_say(f"{number}", 5.0)]
    assert said == list(range(LINES_MAX))
    for minute in range(1, 100):
        now = 5.0 + minute * LINE_SECONDS
        said = [number for number in range(3) if lines.may_say(f"{minute} {number}", now)]
        assert said == [0]
    assert len(lines._said) == LINES_MAX


def test_a_peer_that_announces_more_than_any_frame_has_is_cut_off() -> None:
    async def run() -> None:
        async with listening() as side:
            caller = await Caller.dial(side.port)
            assert await caller.greet(GREETING) == ""
            caller.send(SIZE.pack(FRAME_SIZE_MAX + 1))
            assert await caller.is_closed()
            caller.close()
            await until(lambda: not side.listener._current, "it is forgotten")
            assert len(side.trace.named("link_garbled")) == 1

    asyncio.run(run())


def test_strangers_that_say_nothing_make_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes; a peer is served meanwhile. After a while each goes by itself."""
    monkeypatch.setattr(peer_listener, "STRANGERS_MAX", 3)

    async def run() -> None:
        async with listening() as side:
            silent = [await Caller.dial(side.port) for _ in range(5)]
            peer = await Caller.dial(side.port)
            assert await peer.greet(GREETING) == ""
            assert await silent[0].is_closed()
            assert await silent[1].is_closed()
            assert len(side.listener._strangers) <= 3
            monkeypatch.setattr(peer_listener, "GREETING_SECONDS", 0.01)
            late = await Caller.dial(side.port)
            assert await late.is_closed()
            peer.send_messages(notice(7))
            await until(lambda: terms_of(side) == [7], "the peer is heard")
            for each in (*silent, peer, late):
                each.close()

    asyncio.run(run())


def test_the_newest_connection_of_a_peer_counts() -> None:
    """The older one is closed, and nothing of it is delivered any more."""

    async def run() -> None:
        async with listening() as side:
            older = await Caller.dial(side.port)
            assert await older.greet(GREETING) == ""
            older.send_messages(notice(1))
            await until(lambda: terms_of(side) == [1], "the first link is heard")
            kept = next(iter(side.listener._current.values()))
            newer = await Caller.dial(side.port)
            assert await newer.greet(GREETING) == ""
            assert await older.is_closed()
            frame = b"".join(encode_frame([message_codec.encode(notice(2))]))
            kept.frame_came(frame)  # as if it had been under way
            newer.send_messages(notice(3), notice(4))
            await until(lambda: len(terms_of(side)) >= 3, "the second link is heard")
            assert terms_of(side) == [1, 3, 4]
            older.close()
            newer.close()

    asyncio.run(run())


def test_a_garbled_frame_closes_the_link_and_is_told_once() -> None:
    async def run() -> None:
        async with listening() as side:
            for garbage in (b"\xff" * 100, b"\xfe" * 100, b""):
                caller = await Caller.dial(side.port)
                assert await caller.greet(GREETING) == ""
                caller.send_frame(garbage)
                assert await caller.is_closed()
                caller.close()
            assert len(side.trace.named("link_garbled")) == 1, "once, whatever the bytes are"
            assert side.events.received_messages == []

    asyncio.run(run())


def test_a_peer_that_reads_nothing_resets_the_link() -> None:
    """What waits for it is bounded; the others are served."""

    body = bytes(20_000)
    payload = AppendPayload(
        LogIndex(1), LogIndex(1), Term(1), len(body), [body], Span(Position(0), len(body))
    )
    large = AppendRequest(1, 1, 0, 0, 0, 0, 0, payload=payload, session=1, sequence=1)

    async def run() -> None:
        port = free_port()

        async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
            await reader.readexactly(size)
            writer.write(SIZE.pack(0))
            await asyncio.Event().wait()

        server = await asyncio.start_server(stall, "127.0.0.1", port, limit=1)
        side = Side(A, B, free_port())
        link = side.link(f"127.0.0.1:{port}", LinkSettings(1.0, queue_bytes_max=1_000_000))
        link.start()
        await until(lambda: link.is_up, "the link is up")

        turns = 0

        def is_reset() -> bool:
            nonlocal turns
            turns += 1
            for _ in range(30):
                link.send(large)
            return "down b" in side.events.seen or turns == TURNS_MAX

        await until(is_reset, "the link is reset")
        assert "at most 1000000" in str(side.trace.named("link_down")[0]["reason"])
        await link.stop()
        server.close()

    asyncio.run(run())


class Owner:
    """Keeps the frames of a stream."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def opened(self, stream: FrameStream) -> None: ...

    def frame_came(self, frame: Buffer) -> None:
        self.frames.append(bytes(frame))

    def too_large(self, reason: str) -> None: ...

    def writable(self) -> None: ...

    def closed(self, reason: str) -> None: ...


class DeadSocket:
    """The socket of a connection that its dialler has reset."""

    def setsockopt(self, *_arguments: int) -> None:
        raise OSError(22, "Invalid argument")


class Wire(asyncio.Transport):
    """A transport that only stands, until it is aborted. The loop tells the end a turn later."""

    def __init__(self, sock: object = None) -> None:
        super().__init__({"socket": sock, "peername": ("h", 1)})
        self.is_aborted = False

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


def taken_at_once(side: Side, count: int) -> list[Wire]:
    """Let a listener take connections in one turn of the loop."""
    wires = [Wire() for _ in range(count)]
    for wire in wires:
        _Accepted(side.listener).stream.connection_made(wire)
    return wires


def test_a_burst_of_strangers_is_bounded_within_one_turn() -> None:
    """Beside the peers of all groups, which may all dial at once."""
    most = peer_listener.STRANGERS_MAX + 5 * 2

    async def run() -> None:
        side = Side(B, A, free_port())
        for number in range(5):
            target = LinkTarget(B, frozenset({A, C}), side.events, {})
            side.listener.add_group(f"g{number}", target)
        wires = taken_at_once(side, most)
        assert not any(wire.is_aborted for wire in wires)
        wires += taken_at_once(side, 100)
        assert [wire.is_aborted for wire in wires] == [True] * 100 + [False] * most

    asyncio.run(run())


def test_a_stranger_that_is_gone_before_it_is_taken_is_no_error() -> None:
    async def run() -> None:
        side = Side(B, A, free_port())
        wire = Wire(DeadSocket())
        stream = _Accepted(side.listener).stream
        stream.connection_made(wire)
        assert wire.is_aborted
        stream.connection_lost(None)
        assert not side.listener._strangers

    asyncio.run(run())


def test_a_peer_that_dials_before_the_groups_are_open_is_refused_without_a_line() -> None:
    """It dials again. Every start would warn of it."""

    async def run() -> None:
        side = Side(B, A, free_port())
        await side.listener.listen(f"127.0.0.1:{side.port}")
        caller = await Caller.dial(side.port)
        assert "none yet" in await caller.greet(GREETING)
        caller.close()
        assert side.trace.events == []
        side.stop()

    asyncio.run(run())


def test_a_closed_listener_takes_nothing_that_waited() -> None:
    """Or a peer's link would be up to a member that has ended, after a start in this process."""

    async def run() -> None:
        async with listening() as side:
            side.listener.close()
            (wire,) = taken_at_once(side, 1)
            assert wire.is_aborted
            with pytest.raises(DledgerError, match="none yet"):
                side.listener.greet(dict(GREETING), frozenset())

    asyncio.run(run())


def test_frames_are_whole_however_their_bytes_come() -> None:
    """Of any size up to and above the buffer's, in parts of any size."""
    random = Random(5)
    for _ in range(30):
        owner = Owner()
        stream = FrameStream(owner, 4 * BUFFER_BYTES)
        stream.connection_made(Wire())
        edges = (0, 1, 3, 4, 70, BUFFER_BYTES - 5, BUFFER_BYTES - 4, BUFFER_BYTES - 3, 200_000)
        frames = [random.randbytes(random.choice(edges)) for _ in range(25)]
        data = b"".join(SIZE.pack(len(frame)) + frame for frame in frames)
        at = 0
        while at < len(data):
            room = stream.get_buffer(-1)
            size = min(len(room), len(data) - at, random.choice((1, 5, 1_000, 100_000)))
            room[:size] = data[at : at + size]
            stream.buffer_updated(size)
            at += size
        # Short values, for a difference of long ones takes minutes to print.
        assert [_name(frame) for frame in owner.frames] == [_name(frame) for frame in frames]


def _name(frame: bytes) -> tuple[int, str]:
    return len(frame), sha256(frame).hexdigest()


def test_the_greeting_round_trips_and_refuses_nonsense() -> None:
    assert parse_greeting(encode_greeting(GREETING)) == dict(GREETING)
    for damaged in (b"", b"DLG", b"DLG2a=b", b"DLG1a", b"DLG1a=b\nc", b"DLG1\xff=\xff"):
        with pytest.raises(BadGreeting):
            parse_greeting(damaged)


def test_a_listener_on_all_addresses_of_both_families_takes_the_older_one() -> None:
    """As gRPC does on the port beside it."""

    async def run() -> None:
        side = Side(B, A, free_port())
        side.listener.add_group("g", LinkTarget(B, frozenset({A}), side.events, {}))
        await side.listener.listen(f"[::]:{side.port}")
        caller = await Caller.dial(side.port)
        assert await caller.greet(GREETING) == ""
        caller.close()
        side.stop()

    asyncio.run(run())


def test_a_link_survives_a_listener_that_says_too_much() -> None:
    """A listener says one thing. More closes the connection, and the link dials again."""

    async def run() -> None:
        async with pair() as (dialler, listener, link):
            await until(lambda: link.is_up, "the link is up")
            accepted = next(iter(listener.listener._current.values()))
            accepted.stream.write([b"more"])
            await until(lambda: dialler.events.seen == ["up b", "down b", "up b"], "a new link")

    asyncio.run(run())
