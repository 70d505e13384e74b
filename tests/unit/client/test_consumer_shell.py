"""`AsyncConsumer` against members in this process: exact offsets after every kind of break."""

import asyncio

import pytest

from dledger_client import (
    AsyncConsumer,
    ClientClosed,
    ConnectionConfig,
    ConsumedRecord,
    ConsumerConfig,
    CorruptData,
    InvalidRequest,
    OffsetBehind,
    OffsetOutOfRange,
    QueueBounds,
    QueueNotFound,
    StartAt,
    TopicNotFound,
    Unavailable,
)
from dledger_client._core.routes import RouteChange
from dledger_proto.limits import FETCH_ASSIGNMENTS_MAX, KIB
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import eventually, run
from tests.unit.client.model_cluster import topic_id, topic_message

FAST = ConnectionConfig(try_timeout_ms=300, connect_timeout_ms=500, call_timeout_ms=3_000)


def config(
    *, group: str = "", start_at: StartAt = StartAt.FIRST, prefer: str = "leader"
) -> ConsumerConfig:
    return ConsumerConfig(
        group=group, start_at=start_at, prefer=prefer, wait_ms=50, connection=FAST
    )


async def fill(cluster: FakeCluster, queue: int, first: int, last: int, size: int = 10) -> None:
    for at in range(first, last, size):
        await cluster.store("t", queue, [b"%d" % i for i in range(at, min(at + size, last))])


async def read(consumer: AsyncConsumer, count: int) -> list[ConsumedRecord]:
    records: list[ConsumedRecord] = []
    while len(records) < count:
        records += await consumer.poll(count - len(records), 5_000)
    return records


async def at_position(consumer: AsyncConsumer, position: int) -> None:
    await eventually(lambda: consumer.position("t", 0) == position, f"position {position}")


def check_run(records: list[ConsumedRecord], first: int) -> None:
    assert [record.offset for record in records] == list(range(first, first + len(records)))
    assert [record.body for record in records] == [b"%d" % record.offset for record in records]


def test_reading_from_the_beginning_the_end_and_an_offset() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncConsumer(cluster.bootstrap, config()) as consumer:
            await fill(cluster, 0, 0, 95)
            await consumer.assign([("t", 0)])
            check_run(await read(consumer, 95), 0)
            assert consumer.position("t", 0) == 95
            assert await consumer.poll(10, 20) == []
            assert await consumer.poll(10, 0) == []
            await consumer.assign([("t", 0)], StartAt.LAST)
            await fill(cluster, 0, 95, 100)
            check_run(await read(consumer, 5), 95)
            await consumer.assign({("t", 0): 17})
            check_run(await read(consumer, 83), 17)
            await consumer.seek("t", 0, 94)
            check_run(await read(consumer, 3), 94)
            await consumer.seek("t", 0, StartAt.FIRST)
            check_run(await read(consumer, 100), 0)
            await consumer.seek_to_time("t", 1_000)
            assert consumer.position("t", 0) == 0
            await consumer.seek_to_time("t", 9_000, 0)
            assert consumer.position("t", 0) == 100

    run(body())


def test_records_show_everything() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncConsumer(cluster.bootstrap, config()) as consumer:
            await cluster.store("t", 1, [b"a", b"b"], tag="x")
            await consumer.assign("t")
            record = (await read(consumer, 2))[1]
            assert (record.topic, record.queue, record.offset) == ("t", 1, 1)
            assert (record.body, record.tag, tuple(record.keys)) == (b"b", "x", ())
            assert record.properties == {}
            assert record.time_ms == 1_000
            assert record.store_time_ms == 5_000
            assert record.message_id == bytes(16) + (1).to_bytes(8, "big")
            assert repr(record) == "<ConsumedRecord t/1@1>"
            await consumer.seek("t", 1, 0)
            batch = (await consumer.poll_batches())[0]
            assert (len(batch), batch.base_offset, batch.next_offset) == (2, 0, 2)
            assert batch.bodies() == [b"a", b"b"]
            assert [each.tag for each in batch.records()] == ["x", "x"]
            assert batch[1].offset == 1
            assert repr(batch) == "<RecordBatch t/1 0..1>"
            with pytest.raises(IndexError):
                batch[2]

    run(body())


def test_all_queues_are_read_in_turn() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 1, "b": 1}, {"t": [("a", 2), ("b", 1)]}) as cluster,
            AsyncConsumer(cluster.bootstrap, config()) as consumer,
        ):
            await fill(cluster, 0, 0, 50)
            await fill(cluster, 1, 0, 50)
            await consumer.assign("t")
            assert consumer.assignment() == [("t", 0), ("t", 1), ("t", 2)]
            records = await read(consumer, 100)
            for queue in (0, 1):
                check_run([record for record in records if record.queue == queue], 0)
            await consumer.assign(["t"], 10)
            await consumer.assign({("t", 0): None, ("t", 1): 40}, 45)
            records = await read(consumer, 15)
            check_run([record for record in records if record.queue == 0], 45)
            check_run([record for record in records if record.queue == 1], 40)

    run(body())


def test_iteration_and_its_positions() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncConsumer(cluster.bootstrap, config()) as consumer:
            await fill(cluster, 0, 0, 30)
            await consumer.assign([("t", 0)])
            seen = 0
            async for record in consumer:
                assert record.offset == seen
                seen += 1
                assert consumer.position("t", 0) == seen
                if seen == 12:
                    break
            await consumer.seek("t", 0, 3)
            async for record in consumer:
                assert record.offset == 3
                break

    run(body())


def test_breaks_are_resumed_at_the_exact_offset() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 3}) as cluster,
            AsyncConsumer(cluster.bootstrap, config()) as consumer,
        ):
            await fill(cluster, 0, 0, 300)
            for member in cluster.members.values():
                member.break_fetch_after = 5
            await consumer.assign([("t", 0)])
            check_run(await read(consumer, 100), 0)
            await cluster.leader().stop()
            check_run(await read(consumer, 100), 100)
            await cluster.members["a1"].stop()
            check_run(await read(consumer, 100), 200)

    run(body())


def test_a_new_leader_is_read_from() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 2}) as cluster,
            AsyncConsumer(cluster.bootstrap, config()) as consumer,
        ):
            await fill(cluster, 0, 0, 20)
            await consumer.assign([("t", 0)])
            check_run(await read(consumer, 20), 0)
            assert not cluster.members["a1"].fetches
            cluster.elect("a1")
            await eventually(lambda: cluster.members["a1"].fetches, "a stream to the new leader")
            await fill(cluster, 0, 20, 40)
            check_run(await read(consumer, 20), 20)
            assert cluster.members["a1"].fetches[0].assignments[0].offset == 20

    run(body())


@pytest.mark.parametrize(("group", "error"), [("a", "leader, follower, a0"), ("b", "not known")])
def test_a_preferred_member_is_refused_when_all_are_known(group: str, error: str) -> None:
    """Nobody knows the members of group b: one of them may be the preferred one."""

    async def body() -> None:
        async with (
            FakeCluster({"a": 3}, {"t": [(group, 1)]}) as cluster,
            AsyncConsumer(cluster.bootstrap, config(prefer="nobody")) as consumer,
        ):
            with pytest.raises(InvalidRequest if group == "a" else Unavailable, match=error):
                await consumer.assign("t")
            assert consumer.assignment() == []

    run(body())


def test_a_topic_that_was_made_anew_is_found_without_a_push() -> None:
    """What the client knows by the name is an older topic, whose end it has not been told."""

    async def stale(consumer: AsyncConsumer) -> None:
        old = topic_message("t", [("a", 2)])
        old.id = b"o" * 16
        cluster = consumer._engine.cluster
        await cluster.wait_loaded(5)
        cluster.routes.drop_topic("t", RouteChange())
        cluster.apply_topic(old)

    async def body() -> None:
        async with FakeCluster() as cluster, AsyncConsumer(cluster.bootstrap, config()) as consumer:
            await fill(cluster, 0, 0, 20)
            await stale(consumer)
            assert (await consumer.offsets("t"))[0] == QueueBounds(0, 20)
            await stale(consumer)
            await consumer.assign([("t", 0)])  # asks for the bounds, and learns of it
            check_run(await read(consumer, 20), 0)
            await stale(consumer)
            await consumer.assign({("t", 0): 5})  # asks nobody
            with pytest.raises(TopicNotFound):
                await read(consumer, 1)
            await consumer.assign({("t", 0): 5})
            check_run(await read(consumer, 15), 5)

    run(body())


def test_more_queues_of_a_group_than_one_stream_reads_are_refused() -> None:
    async def body() -> None:
        topics = {"t": [("a", 2)], "u": [("a", FETCH_ASSIGNMENTS_MAX)]}
        async with (
            FakeCluster({"a": 1}, topics) as cluster,
            AsyncConsumer(cluster.bootstrap, config()) as consumer,
        ):
            await consumer.assign("t")
            with pytest.raises(InvalidRequest, match="1026 queues of group a, at most 1024"):
                await consumer.assign(["t", "u"])
            assert consumer.assignment() == [("t", 0), ("t", 1)]
            await consumer.assign("u")

    run(body())


def test_a_deleted_topic_stops_no_other_one() -> None:
    """Its error names it, comes when nothing else is there, and ends with a pause."""

    async def body() -> None:
        topics = {"t": [("a", 2)], "u": [("a", 1)]}
        async with (
            FakeCluster({"a": 1}, topics) as cluster,
            AsyncConsumer(cluster.bootstrap, config()) as consumer,
        ):
            await fill(cluster, 0, 0, 20)
            await consumer.assign({("u", 0): 0, ("t", 0): 0})
            check_run(await read(consumer, 20), 0)
            del cluster.topics["u"]
            await consumer.seek("t", 0, 20)  # another stream, that begins without the topic
            with pytest.raises(TopicNotFound, match=r"u/0: .* no topic has the id"):
                await consumer.poll(timeout_ms=5_000)
            await consumer.pause("u")
            await fill(cluster, 0, 20, 40)
            check_run(await read(consumer, 20), 20)

    run(body())


@pytest.mark.parametrize("prefer", ["follower", "a2"])
def test_followers_are_read_from(prefer: str) -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 3}) as cluster,
            AsyncConsumer(cluster.bootstrap, config(prefer=prefer)) as consumer,
        ):
            await fill(cluster, 0, 0, 20)
            await consumer.assign([("t", 0)])
            check_run(await read(consumer, 20), 0)
            assert not cluster.leader().fetches
            if prefer == "a2":
                assert cluster.members["a2"].fetches
            for member in ("a1", "a2"):
                await cluster.members[member].stop()
            await fill(cluster, 0, 20, 40)
            check_run(await read(consumer, 20), 20)
            assert cluster.leader().fetches, "nobody else is left"

    run(body())


def test_a_silent_member_is_left() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 2}) as cluster,
            AsyncConsumer(cluster.bootstrap, config()) as consumer,
        ):
            cluster.leader().hang_fetch = True
            await fill(cluster, 0, 0, 10)
            await consumer.assign([("t", 0)])
            check_run(await read(consumer, 10), 0)
            assert cluster.members["a1"].fetches

    run(body())


def test_damage_is_read_from_another_member() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 2}) as cluster,
            AsyncConsumer(cluster.bootstrap, config()) as consumer,
        ):
            await fill(cluster, 0, 0, 20)
            cluster.leader().damage_fetch = True
            await consumer.assign([("t", 0)])
            check_run(await read(consumer, 20), 0)

    run(body())


def test_damage_everywhere_is_raised_behind_what_is_sound() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 2}) as cluster,
            AsyncConsumer(cluster.bootstrap, config()) as consumer,
        ):
            await fill(cluster, 0, 0, 10)
            await consumer.assign([("t", 0)])
            check_run(await read(consumer, 10), 0)
            for member in cluster.members.values():
                member.damage_fetch = True
            await fill(cluster, 0, 10, 20)
            with pytest.raises(CorruptData, match="offset 10"):
                await read(consumer, 1)
            for member in cluster.members.values():
                member.damage_fetch = False
            await consumer.seek("t", 0, 10)
            check_run(await read(consumer, 10), 10)

    run(body())


def test_offsets_out_of_range() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            await fill(cluster, 0, 0, 50)
            cluster.minimums[topic_id("t"), 0] = 20
            for policy, position in ((StartAt.FIRST, 20), (StartAt.LAST, 50)):
                async with AsyncConsumer(cluster.bootstrap, config(start_at=policy)) as consumer:
                    await consumer.assign([("t", 0)], 70)
                    await at_position(consumer, position)
                    # Below the minimum: nothing that exists may be skipped, whatever the policy.
                    await consumer.seek("t", 0, 5)
                    records = await read(consumer, 10)
                    assert records[0].offset == 20
            async with AsyncConsumer(cluster.bootstrap, config(start_at=StartAt.ERROR)) as consumer:
                await consumer.assign([("t", 0)], 70)
                with pytest.raises(OffsetOutOfRange, match="70"):
                    await consumer.poll(10, None)
                await consumer.seek("t", 0, 45)
                check_run(await read(consumer, 5), 45)
                with pytest.raises(OffsetOutOfRange, match="no committed offset"):
                    await consumer.assign([("t", 1)])

    run(body())


def test_pause_and_resume() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncConsumer(cluster.bootstrap, config()) as consumer:
            await consumer.assign("t")
            await consumer.pause("t", 0)
            await fill(cluster, 0, 0, 20)
            await fill(cluster, 1, 0, 20)
            records = await read(consumer, 20)
            assert {record.queue for record in records} == {1}
            assert await consumer.poll(10, 30) == []
            await consumer.pause("t")
            await consumer.resume("t", 0)
            check_run(await read(consumer, 20), 0)
            await consumer.resume("t")
            with pytest.raises(InvalidRequest, match="not assigned"):
                await consumer.pause("t", 9)

    run(body())


def test_the_buffer_is_bounded() -> None:
    async def body() -> None:
        limit = 1_024 * KIB
        small = ConsumerConfig(start_at=StartAt.FIRST, buffer_bytes=limit, wait_ms=50)
        async with FakeCluster() as cluster, AsyncConsumer(cluster.bootstrap, small) as consumer:
            for _ in range(200):
                await cluster.store("t", 0, [bytes(64 * KIB)])
            await consumer.assign([("t", 0)])
            core = consumer._engine.core
            await eventually(lambda: not core.buffer.wants_more(), "a full buffer")
            await asyncio.sleep(0.2)
            assert core.buffer.buffered_bytes <= limit + 65 * KIB
            assert core.read(("t", 0)).fetch_at < 200, "the stream is not read on"
            assert len(await read(consumer, 200)) == 200
            assert core.buffer.buffered_bytes == 0

    run(body())


def test_commit_and_start_from_what_was_committed() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            await fill(cluster, 0, 0, 50)
            async with AsyncConsumer(cluster.bootstrap, config(group="g")) as consumer:
                await consumer.assign([("t", 0)])
                await read(consumer, 30)
                await consumer.commit()
                assert await consumer.committed("t") == {0: 30}
                with pytest.raises(
                    OffsetBehind, match="offset 10 is not stored, the stored one is 30"
                ):
                    await consumer.commit({("t", 0): 10})
                await consumer.commit({("t", 0): 25}, reset=True)
            async with AsyncConsumer(cluster.bootstrap, config(group="g")) as consumer:
                await consumer.assign("t")
                check_run(await read(consumer, 25), 25)
            async with AsyncConsumer(cluster.bootstrap, config()) as consumer:
                with pytest.raises(InvalidRequest, match="group"):
                    await consumer.commit({("t", 0): 1})
                with pytest.raises(InvalidRequest):
                    await consumer.committed("t")

    run(body())


def test_offsets_and_errors_of_names() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncConsumer(cluster.bootstrap, config()) as consumer:
            await fill(cluster, 1, 0, 7)
            assert await consumer.offsets("t") == {0: QueueBounds(0, 0), 1: QueueBounds(0, 7)}
            assert await consumer.offset_by_time("t", 1, 9_000) == 7
            with pytest.raises(TopicNotFound):
                await consumer.assign("nothing")
            with pytest.raises(QueueNotFound):
                await consumer.assign([("t", 2)])
            for offset in (-1, 1 << 63):
                with pytest.raises(InvalidRequest, match=f"offset: {offset}, must be an integer"):
                    await consumer.assign({("t", 0): offset})
            with pytest.raises(InvalidRequest, match="max_records"):
                await consumer.poll(0)
            with pytest.raises(InvalidRequest, match="not assigned"):
                consumer.position("t", 0)
            with pytest.raises(InvalidRequest):
                await consumer.seek("t", 0, 1)
        with pytest.raises(ClientClosed):
            await consumer.poll()
        with pytest.raises(ValueError, match="wait_ms"):
            ConsumerConfig(wait_ms=1)
        with pytest.raises(ValueError, match="prefer"):
            ConsumerConfig(prefer="")

    run(body())


def test_a_poll_without_an_assignment_is_refused() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncConsumer(cluster.bootstrap, config()) as consumer:
            for was_assigned in (False, True):
                if was_assigned:
                    await consumer.assign("t")
                    assert await consumer.poll(10, 0) == []
                    await consumer.assign([])
                for call in (
                    lambda: consumer.poll(),
                    lambda: consumer.poll(timeout_ms=None),
                    lambda: consumer.poll_batches(timeout_ms=0),
                    lambda: anext(consumer),
                ):
                    with pytest.raises(InvalidRequest, match="no queue is assigned, call assign"):
                        await call()

    run(body())


def test_close_wakes_a_poll() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            consumer = await AsyncConsumer(cluster.bootstrap, config()).start()
            await consumer.assign("t")
            waiting = asyncio.create_task(consumer.poll(1, None))
            await asyncio.sleep(0.05)
            await consumer.close()
            with pytest.raises(ClientClosed):
                await waiting

    run(body())
