"""Batches that a producer sent so that nobody can decode them, and bodies that blow up when read.

Goal: such a batch is left out only where that was asked for, and is told; a damaged one never is;
what bodies unpack to counts against the consumer's bound.
"""

import logging
import random
import tracemalloc
from collections.abc import Sequence

import pytest

from dledger_client import AsyncConsumer, ConsumerConfig, CorruptData, StartAt, UnreadableData
from dledger_client._core.consumer import actions as fetch
from dledger_client._core.consumer.core import BAD_FRAMES_MAX, ConsumerCore
from dledger_client._core.members import MemberChoice
from dledger_client._core.routes import RouteTable
from dledger_client.unreadable import Unreadable
from dledger_proto.batch.codec import Compression, Record, encode_batch, parse_header
from dledger_proto.errors import Code
from dledger_proto.limits import BODY_SIZE_MAX, MIB
from dledger_proto.rpc.frames import FetchFrame, FetchRow
from dledger_proto.v1 import routes_pb2
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import run
from tests.unit.client.model_cluster import ModelGroup, topic_id, topic_message
from tests.unreadable import compressed, with_bad_bodies, with_bad_properties

PLACE = ("t", 0)


def core_of(buffer_bytes: int = MIB, *, fail: bool = True) -> ConsumerCore:
    routes = RouteTable()
    group = ModelGroup("a", ["a0", "a1", "a2"])
    topics = [topic_message("t", [("a", 2)])]
    routes.apply(
        routes_pb2.RoutesReply(full=True, cluster="c", groups=[group.route()], topics=topics)
    )
    return ConsumerCore(
        routes,
        MemberChoice(),
        random.Random(1),
        prefer="leader",
        buffer_bytes=buffer_bytes,
        fail_on_unreadable=fail,
    )


def open_at(core: ConsumerCore, offset: int = 0, queue: int = 0) -> int:
    core.assign(("t", queue), topic_id("t"), "a", offset)
    core.pump(0.0)
    return newest(core)


def newest(core: ConsumerCore) -> int:
    return [each.stream for each in core.take_actions() if isinstance(each, fetch.OpenFetch)][-1]


def frame_of(batches: Sequence[bytes], first: int = 0, assignment: int = 0) -> FetchFrame:
    rows: list[FetchRow] = []
    at = first
    for batch in batches:
        count = parse_header(batch).record_count
        rows.append(FetchRow(at, 0, count, len(batch)))
        at += count
    views = [memoryview(batch) for batch in batches]
    return FetchFrame(assignment, Code.OK, "", 0, 1_000, at, rows, views)


def sound(queue: int = 0) -> bytes:
    return compressed(topic_id("t"), queue, 3)


def tagged() -> bytes:
    rows = [Record(b"x", tag="tag")] * 3
    return encode_batch(
        rows, topic_id=topic_id("t"), queue=0, stamp=None, base_number=0, base_time_ms=1
    )


BAD = [with_bad_bodies(sound()), with_bad_properties(tagged())]


def offsets(core: ConsumerCore, count: int = 1_000) -> list[int]:
    return [record.offset for batch in core.buffer.take(count) for record in batch]


@pytest.mark.parametrize("bad", BAD, ids=["bodies", "properties"])
def test_what_cannot_be_decoded_is_named_to_who_reads_it(bad: bytes) -> None:
    core = core_of()
    core.frame(open_at(core), frame_of([sound(), bad, sound()]), 0.0)
    first, broken, last = core.buffer.take(1_000)
    assert len(first.records()) == len(last.records()) == 3
    with pytest.raises(UnreadableData) as caught:
        broken.records()
    assert "t/0 of group a: offsets 3 to 5, 3 records, cannot be decoded: " in str(caught.value)
    assert "ConsumerConfig(fail_on_unreadable=False)" in str(caught.value)
    core.seek(PLACE, broken.next_offset)
    core.pump(0.0)
    core.frame(newest(core), frame_of([sound()], 6), 0.0)
    assert offsets(core) == [6, 7, 8], "a seek goes on behind it"


@pytest.mark.parametrize("bad", BAD, ids=["bodies", "properties"])
def test_it_is_passed_over_where_that_is_asked_for_and_told(bad: bytes) -> None:
    core = core_of(fail=False)
    core.frame(open_at(core), frame_of([sound(), bad, sound(), bad]), 0.0)
    assert offsets(core, 2) == [0, 1]
    assert offsets(core) == [2, 6, 7, 8]
    told = [each.what for each in core.take_actions() if isinstance(each, fetch.TellUnreadable)]
    detail = told[0].detail
    assert told == [Unreadable("a", "t", 0, first, first + 3, detail) for first in (3, 9)]
    assert core.read(PLACE).position == 12, "also behind the last one"
    assert core.buffer.buffered_bytes == 0


@pytest.mark.parametrize("fail", [True, False])
def test_damage_is_never_passed_over(fail: bool) -> None:
    core = core_of(fail=fail)
    stream = open_at(core)
    flipped = bytearray(sound())
    flipped[-1] ^= 1
    for attempt in range(BAD_FRAMES_MAX):
        core.frame(stream, frame_of([bytes(flipped), sound()]), 0.0)
        core.tick(attempt + 1.0)
        opened = [each for each in core.take_actions() if isinstance(each, fetch.OpenFetch)]
        stream = opened[-1].stream if opened else stream
    with pytest.raises(CorruptData) as caught:
        core.buffer.take(1_000)
    assert caught.value.code is Code.CORRUPT_BATCH
    assert core.read(PLACE).position == 0


def test_bodies_count_as_large_as_they_are_decompressed() -> None:
    """Frames of a few KiB that unpack to a thousand times that."""
    bomb = encode_batch(
        [Record(bytes(BODY_SIZE_MAX))], topic_id=topic_id("t"), queue=0, stamp=None,
        base_number=0, base_time_ms=1, compression=Compression.ZSTD,
    )  # fmt: skip
    assert 1_000 * len(bomb) < BODY_SIZE_MAX
    count, limit = 40, 2 * BODY_SIZE_MAX + MIB
    core = core_of(limit)
    stream = open_at(core)
    core.frame(stream, frame_of([bomb] * 3), 0.0)
    assert not core.buffer.wants_more(), "no more is read: three are above the bound"
    core.frame(stream, frame_of([bomb] * (count - 3), 3), 0.0)
    got = 0
    tracemalloc.start()
    try:
        while taken := core.buffer.take(1_000):
            got += len(taken)
            assert all(each.view.body(0) == bytes(BODY_SIZE_MAX) for each in taken)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert got == count
    assert peak < limit + 2 * BODY_SIZE_MAX, "what one poll hands out, and what is compared"
    assert kept < MIB
    assert core.buffer.buffered_bytes == 0


def test_a_large_run_has_its_turn() -> None:
    large = encode_batch(
        [Record(bytes(BODY_SIZE_MAX))], topic_id=topic_id("t"), queue=1, stamp=None,
        base_number=0, base_time_ms=1, compression=Compression.LZ4,
    )  # fmt: skip
    core = core_of()
    open_at(core)
    stream = open_at(core, queue=1)
    core.frame(stream, frame_of([sound()] * 3), 0.0)
    core.frame(stream, frame_of([large], assignment=1), 0.0)
    queues = [[batch.queue for batch in core.buffer.take(3)] for _ in range(4)]
    assert sorted(queue for each in queues for queue in each) == [0, 0, 0, 1]
    assert [1] in queues, "it is more than the bound, and is handed out alone"


@pytest.mark.parametrize("fail", [True, False])
def test_a_consumer_goes_on_behind_it(fail: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        config = ConsumerConfig(start_at=StartAt.FIRST, wait_ms=50, fail_on_unreadable=fail)
        async with (
            FakeCluster({"a": 2}) as cluster,
            AsyncConsumer(cluster.bootstrap, config) as consumer,
        ):
            key = topic_id("t"), 0
            cluster.groups["a"].queues[key] = [b"?"] * 3
            cluster.batches[key] = [(0, 3, BAD[0])]
            await cluster.store("t", 0, [b"next"])
            await consumer.assign([PLACE])
            got: list[bytes] = []
            refused = 0
            while b"next" not in got:
                for record in await consumer.poll(500, 5_000):
                    try:
                        got.append(record.body)
                    except UnreadableData:
                        refused += 1
            assert got == [b"next"]
            assert refused == (3 if fail else 0)
            assert consumer.position("t", 0) == 4
            assert consumer.passed_over() == ({} if fail else {PLACE: 3})

    with caplog.at_level(logging.WARNING, "dledger_client"):
        run(body())
    told = [each.message for each in caplog.records if "cannot be decoded" in each.message]
    assert len(told) == (0 if fail else 1)
