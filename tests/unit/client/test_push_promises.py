"""What a push consumer promises when something is refused, missing or late."""

import asyncio
import json
import logging
import shutil
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dledger_client import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumedRecord,
    ConsumeOrder,
    Delivery,
    InvalidRequest,
    ProducerConfig,
    PushConfig,
    PushConsumer,
)
from dledger_client._core.consumer.buffer import FetchBuffer
from dledger_client._core.consumer.state import QueueRead
from dledger_client._shell.group.calling import DaemonThreads
from dledger_client._shell.group.push import PushEngine
from dledger_client.records import RecordBatch
from dledger_client.unreadable import Unreadable
from tests.unit.client.helpers import eventually, run
from tests.unit.client.model_cluster import topic_id
from tests.unit.client.test_push_shell import push_config
from tests.unit.client.test_subscribe_shell import FAST, consumer_config, fake, fill


def engine_of(consumer: AsyncPushConsumer) -> PushEngine:
    return consumer._engine


# What is fetched.


def test_a_slow_listener_does_not_have_its_backlog_fetched_over_and_over() -> None:
    """It did: what had no room was dropped and fetched again, up to a hundred times."""
    fetched: list[int] = []

    class Counted(FetchBuffer):
        def append(self, read: QueueRead, run: RecordBatch) -> None:
            fetched.append(run.count)
            super().append(read, run)

    async def body() -> None:
        async with fake(queues=2) as (cluster, group):
            for first in range(0, 3_000, 10):
                await fill(cluster, 0, first, first + 10)
            seen: list[int] = []

            async def listener(record: ConsumedRecord) -> None:
                for _ in range(10):
                    await asyncio.sleep(0)
                seen.append(record.offset)

            config = push_config(concurrency=1)
            consumer = AsyncPushConsumer(cluster.bootstrap, "g", "t", listener, config)
            buffer = engine_of(consumer).fetching.core.buffer
            buffer.__class__ = Counted
            buffer._bytes_max = 4_000
            async with consumer:
                await eventually(lambda: group.floor("t", 0) == 3_000, "all done")
            assert sum(fetched) == 3_000, "nothing was dropped"
            assert sorted(seen) == list(range(3_000))

    run(body())


def test_a_queue_that_cannot_be_handed_out_leaves_room_for_others() -> None:
    async def body() -> None:
        async with fake(queues=2) as (cluster, group):
            for first in range(0, 1_000, 10):
                await fill(cluster, 0, first, first + 10)
            stuck = asyncio.Event()
            seen: list[int] = []

            async def listener(record: ConsumedRecord) -> None:
                if record.queue == 0:
                    await stuck.wait()
                seen.append(record.queue)

            config = push_config(order=ConsumeOrder.QUEUE, listener_ms=60_000)
            consumer = AsyncPushConsumer(cluster.bootstrap, "g", "t", listener, config)
            engine_of(consumer).fetching.core.buffer._bytes_max = 8_000
            async with consumer:
                for first in range(0, 500, 10):
                    await fill(cluster, 1, first, first + 10)
                await eventually(lambda: group.floor("t", 1) == 500, "the other queue")
                assert not seen.count(0)
                stuck.set()
                await eventually(lambda: group.floor("t", 0) == 1_000, "the first queue")

    run(body())


# What the log does not hold.


def test_records_that_were_trimmed_are_done_and_no_others() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 20)
            cluster.minimums[topic_id("t"), 0] = 5
            seen: list[int] = []

            async def listener(record: ConsumedRecord) -> None:
                seen.append(record.offset)

            async with AsyncPushConsumer(cluster.bootstrap, "g", "t", listener, push_config()):
                await eventually(lambda: group.floor("t", 0) == 20, "the floor passes the gap")
            assert seen == list(range(5, 20))

    run(body())


def test_a_batch_that_is_left_out_at_the_end_is_done(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 3)
            seen: list[int] = []

            async def listener(record: ConsumedRecord) -> None:
                seen.append(record.offset)

            async with AsyncPushConsumer(
                cluster.bootstrap, "g", "t", listener, push_config()
            ) as consumer:
                await eventually(lambda: len(seen) == 3, "all records")
                fetching = engine_of(consumer).fetching
                what = Unreadable("a", "t", 0, 5, 8, "zeros")
                fetching.core.buffer._passed_over.append((what, 2))
                fetching.wake()
                await eventually(lambda: group.floor("t", 0) == 8, "the floor passes the batch")

    with caplog.at_level(logging.ERROR):
        run(body())


def test_a_member_that_is_behind_moves_no_consumer() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 9)
            seen: list[int] = []

            async def listener(record: ConsumedRecord) -> None:
                seen.append(record.offset)

            async with AsyncPushConsumer(
                cluster.bootstrap, "g", "t", listener, push_config()
            ) as consumer:
                await eventually(lambda: len(seen) == 9, "all records")
                fetching = engine_of(consumer).fetching
                read = fetching.core.read(("t", 0))
                fetching.core._lose(read, "9 of 0..4")
                fetching.wake()
                await eventually(lambda: not read.is_lost, "it goes on")
                assert read.fetch_at == 9, "where it was, not at the beginning"
                await fill(cluster, 0, 9, 12)
                await eventually(lambda: group.floor("t", 0) == 12, "all done")
            assert seen == list(range(12))

    run(body())


# Order per key.


def test_messages_of_one_ordering_key_go_one_after_another_whatever_their_keys_are() -> None:
    async def body() -> None:
        async with fake(order=ConsumeOrder.KEY, lease_ms=2_000, queues=1) as (cluster, group):
            config = ProducerConfig(idempotent=False, connection=FAST)
            async with AsyncProducer(cluster.bootstrap, config) as producer:
                for at in range(6):
                    await producer.send("t", b"%d" % at, key=f"m{at}", ordering_key="ab"[at % 2])
            seen: list[tuple[str, int, int]] = []

            async def listener(record: ConsumedRecord, delivery: Delivery) -> None:
                seen.append((record.ordering_key, record.offset, delivery.attempts))
                if (record.offset, delivery.attempts) == (0, 0):
                    raise ValueError("not yet")

            async with AsyncPushConsumer(
                cluster.bootstrap, "g", "t", listener, push_config(order=ConsumeOrder.KEY)
            ):
                await eventually(lambda: group.floor("t", 0) == 6, "all done")
            by_key = {key: [each[1:] for each in seen if each[0] == key] for key in "ab"}
            assert by_key["a"] == [(0, 0), (0, 1), (2, 0), (4, 0)], "2 waits for 0"
            assert by_key["b"] == [(1, 0), (3, 0), (5, 0)]

    run(body())


# The end.


def test_a_function_that_listens_may_close_its_consumer() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 1)
            inside = threading.Event()

            def listener(_record: ConsumedRecord) -> None:
                consumer.close()
                assert not group.events[-1].startswith("leave"), "it does not wait for the end"
                inside.set()

            consumer = PushConsumer(cluster.bootstrap, "g", "t", listener, push_config())

            def program() -> None:
                with consumer:
                    consumer.run()
                assert inside.is_set()
                assert group.events[-1].startswith("leave"), "the block ends after the consumer"

            await asyncio.to_thread(program)
            assert group.floor("t", 0) == 1, "the record is done and committed"

    run(body())


def test_a_function_that_hangs_does_not_keep_the_process() -> None:
    program = (
        "import threading\n"
        "from dledger_client._shell.group.calling import DaemonThreads\n"
        "threads, here = DaemonThreads(1, 'x'), threading.Event()\n"
        "threads.submit(lambda: (here.set(), threading.Event().wait()))\n"
        "here.wait()\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


def test_threads_are_bounded_and_give_what_a_function_returns_or_raises() -> None:
    threads, gate = DaemonThreads(2, "x"), threading.Event()
    names: set[str] = set()

    def work(at: int) -> int:
        names.add(threading.current_thread().name)
        gate.wait()
        if at == 3:
            raise ValueError("bad")
        return at

    futures = [threads.submit(partial(work, at)) for at in range(5)]
    gate.set()
    assert [futures[at].result(10) for at in (0, 1, 2, 4)] == [0, 1, 2, 4]
    assert str(futures[3].exception(10)) == "bad"
    assert names == {"x 0", "x 1"}
    assert not threads.is_here()
    assert threads.submit(threads.is_here).result(10) is True
    gate.clear()
    running, waiting = [threads.submit(partial(work, at)) for at in range(2)], []
    waiting = [threads.submit(partial(work, at)) for at in range(2)]
    while not all(future.running() for future in running):
        pass
    threads.end()
    assert all(future.cancelled() for future in waiting)
    gate.set()
    assert [future.result(10) for future in running] == [0, 1]


# Without a group.


def broadcast(file: str) -> PushConfig:
    return PushConfig(consumer=consumer_config(), broadcast=True, offsets_file=file)


def test_a_broadcast_makes_the_folder_of_its_file_and_fails_at_once_without(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, _group):
            await fill(cluster, 0, 0, 3)
            seen: list[int] = []

            async def listener(record: ConsumedRecord) -> None:
                seen.append(record.offset)

            file = tmp_path / "deep" / "folder" / "offsets.json"
            async with AsyncPushConsumer(
                cluster.bootstrap, "g", "t", listener, broadcast(str(file))
            ):
                assert file.exists(), "it can be written: that is sure from the start"
                await eventually(lambda: len(seen) == 3, "all records")
            assert json.loads(file.read_text())["offsets"] == {f"{topic_id('t').hex()}/0": 3}
            (tmp_path / "file").touch()
            for bad in (tmp_path / "file" / "offsets.json", tmp_path):
                consumer = AsyncPushConsumer(
                    cluster.bootstrap, "g", "t", listener, broadcast(str(bad))
                )
                with pytest.raises(InvalidRequest, match=f"offsets_file: {bad}: "):
                    await consumer.start()
            assert len(seen) == 3

    run(body())


def test_a_file_that_cannot_be_written_later_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, _group):
            seen: list[int] = []

            async def listener(record: ConsumedRecord) -> None:
                seen.append(record.offset)

            file = tmp_path / "gone" / "offsets.json"
            async with AsyncPushConsumer(
                cluster.bootstrap, "g", "t", listener, broadcast(str(file))
            ):
                shutil.rmtree(file.parent)
                await fill(cluster, 0, 0, 3)
                await eventually(lambda: "cannot be written" in caplog.text, "it is told")
                file.parent.mkdir()
                await eventually(file.exists, "the next write succeeds")
            assert json.loads(file.read_text())["offsets"] == {f"{topic_id('t').hex()}/0": 3}

    run(body())


def test_patterns_of_a_broadcast_mean_topics_of_users_and_take_bounded_time() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, _group):
            for topic in ("%RETRY%g", "%DLQ%g", "x" * 60):
                cluster.topics[topic] = [("a", 1)]
            cluster.push_routes()
            consumer = AsyncPushConsumer(
                cluster.bootstrap, "g", (), str, broadcast(""), patterns=[".*", "(x+x+)+y"]
            )
            async with consumer:
                assert sorted(consumer.assignment()) == [("t", 0), ("x" * 60, 0)]
            with pytest.raises(InvalidRequest, match=r"pattern '\(': .* at character"):
                AsyncPushConsumer(cluster.bootstrap, "g", (), str, broadcast(""), patterns="(")

    run(body())


@pytest.mark.parametrize("listener", [None, "print", 5])
def test_what_cannot_be_called_is_no_listener(listener: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"listener: {listener!r}, must be a function"):
        PushConsumer("127.0.0.1:1", "g", "t", listener)
