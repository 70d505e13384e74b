"""Peer links over real connections on loopback: order, greeting, what is told when one breaks."""

import asyncio
from concurrent.futures import Executor, Future
from typing import Any, cast

import pytest

from dledger.log.errors import DamagedLog, SpanGone
from dledger.raft.links.peer_link import LinkSettings
from dledger.raft.wire.link_frame import BadLinkFrame, encode_frame, parse_frame
from dledger.raft.wire.messages import AppendRequest, Message
from dledger.types import AppendPayload, EntryKind, LogIndex, Position, Span, Term
from dledger_proto.entry import frame_entry
from tests.ports import free_port
from tests.unit.raft_host.link_sides import A, B, Side, notice, pair
from tests.waiting import until


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
            await until(lambda: link.is_up, "the link is up")
            listener.stop()
            await until(lambda: "failed b" in dialler.events.seen, "the redial failed")
            assert dialler.events.seen == ["up b", "down b", "failed b"]
            link.send(notice(1))  # while down: dropped, not kept
            again = Side(B, A, listener.port)
            await again.listen()
            await until(lambda: dialler.events.seen[-1] == "up b", "the link is up again")
            link.send(notice(2))
            await until(lambda: bool(again.events.received_messages), "a message")
            assert again.events.received_messages == [(A, notice(2))]
            again.stop()

    asyncio.run(run())


def test_an_answered_redial_is_no_failure() -> None:
    async def run() -> None:
        async with pair(settings=LinkSettings(redial_timeout=5.0, queue_bytes_max=10_000)) as (
            dialler,
            _,
            link,
        ):
            await until(lambda: link.is_up, "the link is up")
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
        await until(lambda: link.is_up, "the link is up")
        await link.stop()
        listener.stop()

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
            await until(lambda: link.is_up, "the link is up")
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
            await until(lambda: link.is_up, "the link is up")
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
            await until(lambda: link.is_up, "the link is up")
            data = bytearray(entry(5, 2, b"x" * 100))
            data[-1] ^= 1
            dialler.log.data = bytes(data)
            dialler.log.damage = DamagedLog("file", Position(0), "READ", "crc")
            link.send(append(5, 5, 2, Span(Position(0), len(data))))
            await until(lambda: bool(dialler.events.failures), "the failure")
            assert dialler.events.failures == [dialler.log.damage]
            assert listener.events.received_messages == []

    asyncio.run(run())


class CancellingPool(Executor):
    """A pool that is shut down: it cancels what waits in it."""

    def submit(self, *_arguments: Any, **_named: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        future.cancel()
        return future


def test_a_read_that_is_cancelled_does_not_stop_the_link() -> None:
    """Its message is dropped, as one whose entries are gone; the next ones are sent."""

    async def run() -> None:
        async with pair() as (dialler, listener, _):
            dialler.pool = CancellingPool()
            link = dialler.link(f"127.0.0.1:{listener.port}")
            link.start()
            await until(lambda: link.is_up, "the link is up")
            link.send(append(5, 5, 2, Span(Position(0), 10)))
            link.send(notice(1))
            await until(lambda: bool(listener.events.received_messages), "the notice")
            assert dialler.events.failures == []
            await link.stop()

    asyncio.run(run())


def test_an_error_that_nobody_thought_of_ends_the_member() -> None:
    """In the task that dials, in what the loop calls, at either end: none goes on silently."""

    async def run() -> None:
        error = RuntimeError("a bug")
        async with pair() as (dialler, listener, link):
            await until(lambda: link.is_up, "the link is up")
            listener.events.error = error
            link.send(notice(1))
            await until(lambda: listener.events.failures == [error], "the receiver fails")
            link.send(cast("Message", "no message"))
            await until(lambda: bool(dialler.events.failures), "the sender fails")
        dialler = Side(A, B, free_port())
        dialler.events.error = error
        listener = Side(B, A, free_port())
        await listener.listen()
        link = dialler.link(f"127.0.0.1:{listener.port}")
        link.start()
        await until(lambda: dialler.events.failures == [error], "the dialler fails")
        await link.stop()
        listener.stop()

    asyncio.run(run())


def test_frames_round_trip_and_refuse_nonsense() -> None:
    frame = b"".join(encode_frame([[b"ab", b"c"], [b""], [b"d"]]))
    assert [bytes(view) for view in parse_frame(frame)] == [b"abc", b"", b"d"]
    assert parse_frame(b"".join(encode_frame([]))) == []
    for damaged in (b"", frame[:-1], frame + b"x", b"XXXX" + frame[4:], frame[:9]):
        with pytest.raises(BadLinkFrame):
            parse_frame(damaged)
