"""A child that was forked after a client had been used gets an error at once, whatever it calls."""

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
        # gRPC's own fork handlers, half of them skipped while its threads are busy, end one child
        # in six by SIGSEGV, wherever it is: nothing that runs in the child can help that.
        "GRPC_ENABLE_FORK_SUPPORT": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD, address, how],
        capture_output=True, text=True, timeout=60, check=True, env=environment,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_a_child_of_a_process_with_clients_is_refused(threaded: ThreadedCluster) -> None:
    *child, parent = lines(threaded, "used")
    for said in child:
        assert said.startswith("ClientClosed CLOSED: process ")
        assert "forked from one that had used a client" in said
    assert parent == "parent True"
    assert len(child) == CALLS


def test_a_child_of_a_process_without_clients_may_have_its_own(threaded: ThreadedCluster) -> None:
    assert lines(threaded, "unused") == ["nothing"]
    with Producer(threaded.cluster.bootstrap) as producer:
        assert producer.send("t", b"last").offset >= 0
