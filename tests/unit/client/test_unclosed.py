"""Producers that nobody closes, and blocking calls where nobody may block. Run as processes."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from dledger_client import AsyncProducer, Consumer, Producer, ProducerConfig, SendFuture
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import run
from tests.unit.client.test_sync import ThreadedCluster
from tests.waiting import until, wait_until

SYNC = """
import sys
from dledger_client import Producer, ProducerConfig

producer = Producer(sys.argv[1], ProducerConfig(timeout_ms=int(sys.argv[2]))).start()
for i in range(1_000):
    producer.send_async("t", b"%d" % i, queue=0)
"""
ASYNC = """
import asyncio, sys
from dledger_client import AsyncProducer, ProducerConfig

async def main():
    global producer
    producer = await AsyncProducer(sys.argv[1], ProducerConfig(timeout_ms=int(sys.argv[2]))).start()
    for i in range(7):
        producer.submit("t", b"%d" % i, queue=0)

asyncio.run(main())
"""
NOBODY = "127.0.0.1:1"


@pytest.fixture
def threaded() -> Iterator[ThreadedCluster]:
    cluster = ThreadedCluster({"a": 1})
    yield cluster
    cluster.close()


def ended(program: str, address: str, timeout_ms: int, *options: str) -> str:
    """Run a program to its end; return what it wrote to standard error."""
    done = subprocess.run(
        [sys.executable, *options, "-c", program, address, str(timeout_ms)],
        capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GRPC_VERBOSITY": "NONE"},
    )  # fmt: skip
    return done.stderr


def test_the_end_of_the_process_flushes(threaded: ThreadedCluster) -> None:
    address = ",".join(threaded.cluster.bootstrap)
    assert ended(SYNC, address, 20_000, "-W", "default::ResourceWarning") == ""
    assert threaded.cluster.log("t", 0) == [b"%d" % i for i in range(1_000)]


def test_the_end_of_the_process_tells_what_is_left_after_the_budget() -> None:
    assert "closed while 1000 of its messages were not acknowledged" in ended(SYNC, NOBODY, 200)


def test_the_end_of_the_loop_tells_what_is_left() -> None:
    left = "a producer was not closed: 7 messages that it took are not acknowledged"
    assert ended(ASYNC, NOBODY, 10_000).strip() == left
    warned = ended(ASYNC, NOBODY, 10_000, "-W", "default::ResourceWarning")
    assert f"ResourceWarning: {left}; use `with`, or call close()" in warned


def test_garbage_tells_what_is_left_and_sends_it(
    threaded: ThreadedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(threaded.cluster.bootstrap).start()
    producer.send("t", b"0", queue=0)
    threaded.hold_answers(hold=True)
    future = producer.send_async("t", b"1", queue=0)
    with pytest.warns(ResourceWarning, match="not closed: 1 messages"):
        del producer
    assert "not closed: 1 messages that it took are not acknowledged" in caplog.text
    threaded.hold_answers(hold=False)
    assert future.result().offset == 1


def test_garbage_on_a_running_loop_is_closed_after_it_was_sent() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            producer = await AsyncProducer(cluster.bootstrap).start()
            await producer.send("t", b"0", queue=0)
            engine, future = producer._engine, producer.submit("t", b"1", queue=0)
            with pytest.warns(ResourceWarning):
                del producer
            assert (await future).offset == 1
            await until(lambda: engine.driver.is_stopped, "it ended")

    run(body())


@pytest.mark.filterwarnings(
    "error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning"
)
def test_a_closed_producer_says_nothing(threaded: ThreadedCluster) -> None:
    with Producer(threaded.cluster.bootstrap) as producer:
        producer.send("t", b"0")
    Producer(threaded.cluster.bootstrap)
    del producer
    gc.collect()


def test_no_blocking_call_is_taken_on_the_loops_thread(threaded: ThreadedCluster) -> None:
    """None hangs, and none that is refused has sent anything."""
    with (
        Producer(threaded.cluster.bootstrap, ProducerConfig(timeout_ms=5_000)) as producer,
        Consumer(threaded.cluster.bootstrap) as consumer,
    ):
        consumer.assign("t")
        said: list[str] = []
        heard = threading.Event()

        def call_all(_done: SendFuture) -> None:
            later = producer.send_async("t", b"taken", queue=0)
            calls: list[Callable[[], object]] = [
                lambda: producer.send("t", b"refused"),
                lambda: producer.send_many("t", [b"refused"]),
                later.result, later.wait,
                producer.flush, producer.close, producer.wait_for_room,
                consumer.poll, lambda: next(consumer), lambda: consumer.assign("t"),
                consumer.commit, consumer.close,
                lambda: Producer(threaded.cluster.bootstrap).start(),
            ]  # fmt: skip
            for call in calls:
                try:
                    said.append(f"returned {call()}")
                except Exception as error:
                    said.append(f"{type(error).__name__}: {error}")
            heard.set()

        producer.send_async("t", b"first", queue=0, on_done=call_all)
        assert heard.wait(20), "a call hangs"
        refused = "RuntimeError: a callback of this client must not call its blocking methods"
        assert len(said) == 13
        assert [each for each in said if not each.startswith(refused)] == [
            "InvalidRequest: INVALID_ARGUMENT: ConsumerConfig.group: empty, name a consumer group"
        ]
        wait_until(lambda: len(threaded.cluster.log("t", 0)) == 2, "the one that may be is sent")
        assert threaded.cluster.log("t", 0) == [b"first", b"taken"]
        wait_until(lambda: producer.status().batches == 0, "nothing waits")


def test_the_loops_thread_of_a_producer_may_look_at_what_is_done(threaded: ThreadedCluster) -> None:
    with Producer(threaded.cluster.bootstrap) as producer:
        offsets: list[int] = []
        future = producer.send_async(
            "t", b"x", queue=0, on_done=lambda done: offsets.append(done.result().offset)
        )
        assert future.result().offset == 0
        assert offsets == [0]
        assert asyncio.run(_other_loop(producer)) == 1


async def _other_loop(producer: Producer) -> int:
    """A loop of the user's own is no loop of ours: to block it is his choice."""
    return producer.send("t", b"y", queue=0).offset
