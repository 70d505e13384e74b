"""Peer links over real gRPC on loopback: order, greeting, what is told when a link breaks."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from random import Random
from typing import cast

import grpc.aio
import pytest

from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedLog, SpanGone
from dledger.raft.links.peer_link import LinkIdentity, LinkSettings, PeerLink
from dledger.raft.links.peer_listener import LinkTarget, PeerListener
from dledger.raft.wire.link_frame import BadLinkFrame, encode_frame, parse_frame
from dledger.raft.wire.messages import AppendRequest, Message, TermNotice
from dledger.types import AppendPayload, EntryKind, LogIndex, MemberId, Position, Span, Term
from dledger_proto.entry import frame_entry
from dledger_proto.rpc import raw
from tests.list_trace import ListTrace
from tests.ports import free_port
from tests.waiting import until

A, B = MemberId("a"), MemberId("b")


class Events:
    """Keeps what a link told."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.received_messages: list[tuple[MemberId, Message]] = []
        self.failures: list[BaseException] = []

    def link_up(self, peer: MemberId) -> None:
        self.seen.append(f"up {peer}")

    def link_down(self, peer: MemberId) -> None:
        self.seen.append(f"down {peer}")

    def dial_failed(self, peer: MemberId) -> None:
        self.seen.append(f"failed {peer}")

    def received(self, peer: MemberId, message: Message) -> None:
        assert isinstance(message, Message)
        self.received_messages.append((peer, message))

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)


class SpanLog:
    """The part of a log that a link reads: spans of one byte string."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        self.error: BaseException | None = None
        self.damage: DamagedLog | None = None

    def entries(self, first: LogIndex, last: LogIndex, max_bytes: int, /) -> list[object]:
        """Another log by now, unless it is damaged."""
        raise self.damage or SpanGone(f"{first}..{last} of {max_bytes} bytes")

    def read_span(self, span: Span, /) -> bytes:
        if self.error is not None:
            raise self.error
        return self.data[span.position : span.position + span.size]


class Side:
    """One process: a server with a listener, and a link to the other."""

    def __init__(self, member: MemberId, peer: MemberId, port: int, cluster: str = "c") -> None:
        self.member, self.peer, self.port = member, peer, port
        self.events = Events()
        self.trace = ListTrace()
        self.log = SpanLog()
        self.identity = LinkIdentity(cluster, "g", member, bytes(16))
        self.listener = PeerListener("c", self.trace)
        self.server: grpc.aio.Server | None = None

    def link(self, address: str, settings: LinkSettings | None = None) -> PeerLink:
        return PeerLink(
            self.identity,
            self.peer,
            address,
            self.events,
            cast("CommitLog", self.log),
            ThreadPoolExecutor(1),
            Random(1),
            self.trace,
            settings or LinkSettings(redial_timeout=1.0),
        )

    async def listen(self) -> None:
        self.listener.add_group(
            "g", LinkTarget(self.member, frozenset({self.peer}), self.events, {})
        )
        self.server = grpc.aio.server(options=[*raw.MESSAGE_SIZE_OPTIONS, ("grpc.so_reuseport", 0)])
        self.server.add_generic_rpc_handlers((self.listener.handlers(),))
        assert self.server.add_insecure_port(f"127.0.0.1:{self.port}") == self.port
        await self.server.start()

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop(0)
            self.server = None


@asynccontextmanager
async def pair(
    cluster: str = "c", settings: LinkSettings | None = None
) -> AsyncIterator[tuple[Side, Side, PeerLink]]:
    """Yield a dialling side, a listening side and the link between them, started."""
    dialler = Side(A, B, free_port(), cluster)
    listener = Side(B, A, free_port())
    await listener.listen()
    link = dialler.link(f"127.0.0.1:{listener.port}", settings)
    link.start()
    try:
        yield dialler, listener, link
    finally:
        await link.stop()
        await listener.stop()


def notice(term: int) -> TermNotice:
    return TermNotice(term, session=1, sequence=term)


def entry(index: int, term: int, body: bytes) -> bytes:
    header, _ = frame_entry(
        EntryKind.COMMANDS, [body], index=index, term=term, time_ms=0, position=0, previous_crc=0
    )
    return header + body


def append(first: int, last: int, term: int, span: Span) -> AppendRequest:
    payload = AppendPayload(LogIndex(first), LogIndex(last), Term(term), span.size, None, span)
    return AppendRequest(1, term, 0, 0, 0, 0, 0, payload=payload, session=1, sequence=1)


def test_messages_arrive_in_order() -> None:
    async def run() -> None:
        async with pair() as (dialler, listener, link):
            await until(lambda: dialler.events.seen == ["up b"], "the link is up")
            for term in range(500):
                link.send(notice(term))
            got = listener.events.received_messages
            await until(lambda: len(got) == 500, "all messages")
            assert [message for _, message in got] == [notice(term) for term in range(500)]
            assert {peer for peer, _ in got} == {A}

    asyncio.run(run())


def test_a_broken_link_is_told_redialled_and_up_again() -> None:
    async def run() -> None:
        async with pair() as (dialler, listener, link):
            await until(lambda: link._up, "the link is up")
            await listener.stop()
            await until(lambda: "failed b" in dialler.events.seen, "the redial failed")
            assert dialler.events.seen == ["up b", "down b", "failed b"]
            link.send(notice(1))  # while down: dropped, not kept
            again = Side(B, A, listener.port)
            await again.listen()
            await until(lambda: dialler.events.seen[-1] == "up b", "the link is up again")
            link.send(notice(2))
            await until(lambda: bool(again.events.received_messages), "a message")
            assert again.events.received_messages == [(A, notice(2))]
            await again.stop()

    asyncio.run(run())


def test_an_answered_redial_is_no_failure() -> None:
    async def run() -> None:
        async with pair(settings=LinkSettings(redial_timeout=5.0, queue_bytes_max=10_000)) as (
            dialler,
            _,
            link,
        ):
            await until(lambda: link._up, "the link is up")
            for term in range(200):  # over the bound: the link is reset
                link.send(notice(term))
            await until(lambda: dialler.events.seen == ["up b", "down b", "up b"], "a reset")
            assert "at most 10000" in str(dialler.trace.named("link_down")[0]["reason"])

    asyncio.run(run())


def test_hearing_the_peer_ends_the_back_off() -> None:
    async def run() -> None:
        port = free_port()
        dialler = Side(A, B, free_port())
        link = dialler.link(f"127.0.0.1:{port}")
        link.start()
        await until(lambda: bool(dialler.trace.named("peer_not_reached")), "a refused dial")
        assert dialler.events.seen == []  # never up, so nothing was lost
        listener = Side(B, A, port)
        await listener.listen()
        link.peer_heard()
        await until(lambda: link._up, "the link is up")
        await link.stop()
        await listener.stop()

    asyncio.run(run())


def test_another_cluster_is_refused_and_told_once() -> None:
    async def run() -> None:
        async with pair("other") as (dialler, listener, link):
            await until(lambda: bool(dialler.trace.named("peer_not_reached")), "a refusal")
            link.peer_heard()
            await until(lambda: bool(listener.trace.named("link_refused")), "the listener tells")
            (told,) = listener.trace.named("link_refused")
            assert "cluster is 'other', this member expects c" in str(told["reason"])
            reasons = [str(each["reason"]) for each in dialler.trace.named("peer_not_reached")]
            assert len(reasons) == 1
            assert dialler.events.seen == []

    asyncio.run(run())


def test_entries_on_disk_are_read_just_before_sending() -> None:
    async def run() -> None:
        async with pair() as (dialler, listener, link):
            await until(lambda: link._up, "the link is up")
            data = entry(5, 2, b"x" * 100)
            dialler.log.data = data
            span = Span(Position(0), len(data))
            link.send(append(5, 5, 2, span))
            link.send(append(5, 5, 3, span))  # the log holds an entry of another term there
            dialler.log.error = None
            link.send(notice(9))
            got = listener.events.received_messages
            await until(lambda: len(got) == 2, "an append and a notice")
            first = got[0][1]
            assert isinstance(first, AppendRequest)
            assert first.frames is not None
            assert bytes(first.frames) == data
            assert got[1][1] == notice(9)

    asyncio.run(run())


def test_a_trimmed_span_is_dropped_and_a_failing_disk_is_told() -> None:
    async def run() -> None:
        async with pair() as (dialler, listener, link):
            await until(lambda: link._up, "the link is up")
            dialler.log.error = SpanGone("trimmed")
            link.send(append(5, 5, 2, Span(Position(0), 10)))
            link.send(notice(1))
            await until(lambda: len(listener.events.received_messages) == 1, "the notice")
            assert dialler.events.failures == []
            dialler.log.error = OSError(5, "EIO")
            link.send(append(5, 5, 2, Span(Position(0), 10)))
            await until(lambda: bool(dialler.events.failures), "the failure")

    asyncio.run(run())


def test_damaged_entries_are_told_and_not_sent() -> None:
    """I15: a log that says it holds them is asked; its answer names file and position."""

    async def run() -> None:
        async with pair() as (dialler, listener, link):
            await until(lambda: link._up, "the link is up")
            data = bytearray(entry(5, 2, b"x" * 100))
            data[-1] ^= 1
            dialler.log.data = bytes(data)
            dialler.log.damage = DamagedLog("file", Position(0), "READ", "crc")
            link.send(append(5, 5, 2, Span(Position(0), len(data))))
            await until(lambda: bool(dialler.events.failures), "the failure")
            assert dialler.events.failures == [dialler.log.damage]
            assert listener.events.received_messages == []

    asyncio.run(run())


def test_a_garbled_frame_closes_the_link_and_is_told() -> None:
    async def run() -> None:
        async with pair() as (_, listener, link):
            await until(lambda: link._up, "the link is up")
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{listener.port}")
            metadata = (
                ("dledger-cluster", "c"),
                ("dledger-group", "g"),
                ("dledger-member", "a"),
                ("dledger-to", "b"),
                ("dledger-incarnation", "00"),
            )
            call = raw.raw_stream(channel, raw.LINK)(metadata=metadata)
            await call.read()
            await call.write(b"\xff" * 100)
            await until(lambda: bool(listener.trace.named("link_garbled")), "it is told")
            assert await raw.read_frame(call) is None
            again = raw.raw_stream(channel, raw.LINK)(metadata=metadata)
            await again.read()
            await again.write(b"\xfe" * 100)
            assert await raw.read_frame(again) is None
            assert len(listener.trace.named("link_garbled")) == 1, "once, whatever the bytes are"
            assert listener.events.received_messages == []
            await channel.close(None)

    asyncio.run(run())


def test_frames_round_trip_and_refuse_nonsense() -> None:
    frame = encode_frame([[b"ab", b"c"], [b""], [b"d"]])
    assert [bytes(view) for view in parse_frame(frame)] == [b"abc", b"", b"d"]
    assert parse_frame(encode_frame([])) == []
    for damaged in (b"", frame[:-1], frame + b"x", b"XXXX" + frame[4:], frame[:9]):
        with pytest.raises(BadLinkFrame):
            parse_frame(damaged)
