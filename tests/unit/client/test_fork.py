"""Forks: a child has clients of its own when its parent's were closed, else an error at once."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dledger_client import Producer
from tests.unit.client.test_sync import ThreadedCluster

CALLS = 6
CHILD = """
import os, sys
from dledger_client import Consumer, Producer

address, is_used = sys.argv[1], sys.argv[2] == "used"
if is_used:
    producer = Producer(address).start()
    producer.send("t", b"parent")
    waiting = Producer("127.0.0.1:1").start().send_async("t", b"never placed")


def said(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__} {error}"
    return "nothing"


child = os.fork()
if child == 0:
    calls = [lambda: Producer(address).start().send("t", b"child")]
    if is_used:
        calls += [
            lambda: producer.send("t", b"child"),
            lambda: producer.send_async("t", b"child"),
            waiting.result,
            producer.flush,
            lambda: Consumer(address).start(),
        ]
    for call in calls:
        print(said(call), flush=True)
    os._exit(0)
os.waitpid(child, 0)
if is_used:
    print("parent", producer.send("t", b"parent").offset >= 0, flush=True)
os._exit(0)
"""


PREFORKED = """
import asyncio, multiprocessing, os, sys
from dledger_client import AsyncAdmin, Consumer, ConsumerConfig, Producer, StartAt

address, rounds = sys.argv[1], 3


async def look():
    async with AsyncAdmin(address) as admin:
        await admin.groups()


def work(number):
    asyncio.run(look())
    with Producer(address) as producer:
        offset = producer.send("t", b"%d" % number, queue=0).offset
    with Consumer(address, ConsumerConfig(start_at=StartAt.FIRST)) as consumer:
        consumer.assign({("t", 0): offset})
        [record] = consumer.poll(1, 10_000)
        assert record.body == b"%d" % number


def forked(number):
    child = os.fork()
    if child == 0:
        try:
            work(number)
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
        else:
            print("works", flush=True)
        os._exit(0)
    os.waitpid(child, 0)


for number in range(rounds):
    work(100 + number)  # kept are closed clients and what they left
    kept = Producer(address).start()
    kept.send("t", b"parent", queue=0)
    kept.close()
    forked(number)
    forked(10 + number)
    process = multiprocessing.get_context("fork").Process(target=work, args=(20 + number,))
    process.start()
    process.join()
    print("works" if process.exitcode == 0 else process.exitcode, flush=True)
"""

BUSY = """
import signal, subprocess, sys, threading
from dledger_client import Producer

address, ended = sys.argv[1], threading.Event()


def send(producer):
    while not ended.is_set():
        producer.send("t", b"busy")


with Producer(address) as producer:
    senders = [threading.Thread(target=send, args=(producer,)) for _ in range(4)]
    for sender in senders:
        sender.start()
    # A function to call in the child makes it a fork, as for the Java of a Spark session.
    run = [sys.executable, "-c", ""]
    codes = [
        subprocess.run(run, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        for _ in range(40)
    ]
    ended.set()
    for sender in senders:
        sender.join()
print({code.returncode for code in codes})
"""


@pytest.fixture
def threaded() -> Iterator[ThreadedCluster]:
    cluster = ThreadedCluster({"a": 1})
    yield cluster
    cluster.close()


def lines(cluster: ThreadedCluster, how: str) -> list[str]:
    address = ",".join(cluster.cluster.bootstrap)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "GRPC_VERBOSITY": "NONE",
    }
    environment.pop("GRPC_ENABLE_FORK_SUPPORT", None)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, address, how],
        capture_output=True, text=True, timeout=60, check=True, env=environment,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_a_child_of_a_process_with_clients_is_refused(threaded: ThreadedCluster) -> None:
    *child, parent = lines(threaded, "used")
    for said in child:
        assert said.startswith("ClientClosed CLOSED: process ")
        assert "at which its parent had a client open" in said
    assert parent == "parent True"
    assert len(child) == CALLS


def test_a_child_of_a_process_without_clients_may_have_its_own(threaded: ThreadedCluster) -> None:
    assert lines(threaded, "unused") == ["nothing"]
    with Producer(threaded.cluster.bootstrap) as producer:
        assert producer.send("t", b"last").offset >= 0


@pytest.mark.parametrize("support", ["0", "1", None])
def test_workers_of_a_parent_that_closed_its_clients_have_their_own(
    threaded: ThreadedCluster, support: str | None
) -> None:
    """Whatever gRPC's own handlers of forks are told to do."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GRPC_VERBOSITY": "NONE"}
    environment.pop("GRPC_ENABLE_FORK_SUPPORT", None)
    if support is not None:
        environment["GRPC_ENABLE_FORK_SUPPORT"] = support
    done = subprocess.run(
        [sys.executable, "-c", PREFORKED, ",".join(threaded.cluster.bootstrap)],
        capture_output=True, text=True, timeout=60, check=False, env=environment,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["works"] * 9, done.stderr
    assert done.returncode == 0


def test_programs_start_while_clients_are_busy(threaded: ThreadedCluster) -> None:
    """With gRPC's own fork handlers, one in five of these ends by a signal."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("GRPC_ENABLE_FORK_SUPPORT", None)
    done = subprocess.run(
        [sys.executable, "-c", BUSY, ",".join(threaded.cluster.bootstrap)],
        capture_output=True, text=True, timeout=120, check=True, env=environment,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["{0}"], done.stderr
