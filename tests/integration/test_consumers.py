"""Consumers of a group as processes: shared, killed, in order; and the examples."""

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dledger_broker.local.cluster import LocalCluster
from dledger_client import (
    Admin,
    ConsumedRecord,
    ConsumeOrder,
    ConsumerConfig,
    ConsumerGroupNotFound,
    DeadLetter,
    Delivery,
    Producer,
    PushConfig,
    PushConsumer,
    Retry,
    StartAt,
)
from tests.integration.test_up import eventually

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "programs" / "group_consumer.py"
DEADLINE_SECONDS = 40.0
RECORDS = 2_000
KEYS = 50


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    cluster = LocalCluster(tmp_path_factory.mktemp("consumers") / "data", die_with_owner=True)
    cluster.prepare()
    try:
        cluster.start_all()
        yield cluster.name_server
    finally:
        cluster.stop_all()


_started: list[subprocess.Popen[bytes]] = []


@pytest.fixture(autouse=True)
def no_process_left() -> Generator[None]:
    """Kill what a test that failed has left running."""
    yield
    while _started:
        _started.pop().kill()


class Consumer:
    """A consumer's process and what it has said."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self._path = folder / f"{name}.out"
        with self._path.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=output, cwd=ROOT
            )

        _started.append(self.process)

    def lines(self) -> list[str]:
        """Return what it has said in whole lines."""
        text = self._path.read_text()
        return text[: text.rfind("\n") + 1].splitlines()

    def handled(self) -> list[tuple[int, int, int, str, int]]:
        """Return (time, queue, offset, key, attempts) of what it has handled."""
        said: list[Any] = [json.loads(line) for line in self.lines()]
        return [tuple(each) for each in said if each != "begun"]

    def end(self, number: signal.Signals | None = None) -> int:
        """End it, by a signal or by the end of its input; return its code."""
        if number is not None:
            self.process.send_signal(number)
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(DEADLINE_SECONDS)


def floors(admin: Admin, group: str, topic: str) -> dict[int, int]:
    """Return the floors of a group; of a queue without one, and before there is a group, none."""
    try:
        rows = admin.group_progress(group, topic)
    except ConsumerGroupNotFound:
        return {}
    return {queue: each.floor for queue, each in rows.items() if each.floor is not None}


@pytest.mark.parametrize("order", ["CONCURRENT", "KEY"])
def test_a_killed_consumer_loses_nothing(name_server: str, tmp_path: Path, order: str) -> None:
    """Three consumers, one is killed while the leader changes: all is handled.

    Twice only what the killed one had not committed.
    """
    topic, group = f"work-{order}", f"group-{order}"
    with Admin(name_server) as admin, Producer(name_server) as producer:
        admin.create_topic(topic, queues_per_group=6)
        arguments = (str(PROGRAM), name_server, group, topic, order)
        consumers = [Consumer(tmp_path, f"{order}{number}", *arguments) for number in range(3)]
        eventually(lambda: all(each.lines() for each in consumers), "three consumers")

        def send(first: int, last: int) -> None:
            for number in range(first, last):
                key = f"k{number % KEYS}"
                producer.send_async(topic, b"%d" % number, key=key, ordering_key=key)
            producer.flush()

        send(0, RECORDS // 2)
        victim = max(consumers, key=lambda each: len(each.handled()))
        eventually(lambda: len(victim.handled()) > 20, "the victim works")
        committed = floors(admin, group, topic)
        victim.end(signal.SIGKILL)
        admin.transfer_leadership(admin.groups()[0].name)
        send(RECORDS // 2, RECORDS)
        ends = {queue: each.maximum for queue, each in admin.queue_offsets(topic).items()}
        eventually(lambda: floors(admin, group, topic) == ends, "all is committed")
        assert [each.end() for each in consumers if each is not victim] == [0, 0]
    check(consumers, victim, committed, ends, is_ordered=order == "KEY")


def check(
    consumers: list[Consumer],
    victim: Consumer,
    committed: dict[int, int],
    ends: dict[int, int],
    *,
    is_ordered: bool,
) -> None:
    handled = sorted(row for each in consumers for row in each.handled())
    places = [(queue, offset) for _, queue, offset, *_ in handled]
    assert set(places) == {(queue, at) for queue, end in ends.items() for at in range(end)}
    twice = {place for place in places if places.count(place) > 1}
    of_victim = {(queue, offset) for _, queue, offset, *_ in victim.handled()}
    assert twice <= of_victim, "only what the victim had is handled twice"
    assert all(offset >= committed.get(queue, 0) for queue, offset in twice), "it was committed"
    assert {row[4] for row in handled} == {0}, "a death is no failure"
    if is_ordered:
        by_key: dict[str, list[int]] = {}
        for _, _, offset, key, _ in handled:
            seen = by_key.setdefault(key, [])
            if offset not in seen:
                seen.append(offset)
        assert len(by_key) == KEYS
        assert all(seen == sorted(seen) for seen in by_key.values()), "order of a key"


@pytest.mark.parametrize("order", [ConsumeOrder.CONCURRENT, ConsumeOrder.QUEUE])
def test_what_fails_comes_again_with_its_attempts(name_server: str, order: ConsumeOrder) -> None:
    """A record that fails twice is handled at last, one that never succeeds is a dead letter."""
    topic, group = f"fails-{order}", f"failing-{order}"
    seen: list[tuple[bytes, int]] = []

    def listener(record: ConsumedRecord, delivery: Delivery) -> object:
        seen.append((record.body, delivery.attempts))
        if record.body == b"twice" and delivery.attempts < 2:
            return Retry(delay_ms=100, error="not yet")
        if record.body == b"never":
            return Retry(delay_ms=100) if delivery.attempts < 1 else DeadLetter("no use")
        return None

    with Admin(name_server) as admin, Producer(name_server) as producer:
        admin.create_topic(topic, queues_per_group=1)
        for body in (b"first", b"twice", b"never", b"last"):
            producer.send(topic, body)
        config = PushConfig(consumer=ConsumerConfig(order=order, start_at=StartAt.FIRST))
        with PushConsumer(name_server, group, topic, listener, config):
            dead = f"%DLQ%{group}"
            eventually(lambda: len(seen) == 7, "all deliveries")
            eventually(lambda: admin.queue_offsets(dead)[0].maximum == 1, "the dead letter")
            eventually(lambda: floors(admin, group, topic) == {0: 4}, "all is done")
    assert sorted(seen) == [
        (b"first", 0), (b"last", 0), (b"never", 0), (b"never", 1),
        (b"twice", 0), (b"twice", 1), (b"twice", 2),
    ]  # fmt: skip
    if order is ConsumeOrder.QUEUE:
        assert [body for body, _ in seen] == [b"first", *[b"twice"] * 3, *[b"never"] * 2, b"last"]


def test_consumers_that_run_follow_a_reset(name_server: str) -> None:
    """Three are online and have nothing to do: all that was done comes once more (S113)."""
    seen: list[tuple[int, int]] = []

    def listener(record: ConsumedRecord) -> None:
        seen.append((record.queue, record.offset))

    with Admin(name_server) as admin, Producer(name_server) as producer, ExitStack() as running:
        admin.create_topic("again", queues_per_group=3)
        for number in range(30):
            producer.send("again", b"x", queue=number % 3)
        config = PushConfig(consumer=ConsumerConfig(start_at=StartAt.FIRST))
        consumers = [
            running.enter_context(PushConsumer(name_server, "again", "again", listener, config))
            for _ in range(3)
        ]
        mine = [("again", queue) for queue in range(3)]
        eventually(
            lambda: sorted(
                place for each in consumers for place in each.assignment() if place[0] == "again"
            ) == mine,
            "each queue has a consumer",
        )  # fmt: skip
        done = dict.fromkeys(range(3), 10)
        eventually(lambda: floors(admin, "again", "again") == done, "all is committed")
        first = len(seen)
        admin.reset_offsets("again", "again", to="earliest")
        eventually(lambda: len(seen) == first + 30, "all of it again")
        eventually(lambda: floors(admin, "again", "again") == done, "it is committed again")
    assert sorted(seen[first:]) == [(queue, at) for queue in range(3) for at in range(10)]


def test_the_push_example_shares_a_topic(name_server: str, tmp_path: Path) -> None:
    example = str(ROOT / "examples" / "push_consumer.py")
    with Admin(name_server) as admin, Producer(name_server) as producer:
        admin.create_topic("orders", queues_per_group=4)
        both = [Consumer(tmp_path, f"push{number}", example, name_server) for number in range(2)]
        eventually(lambda: len(floors(admin, "billing", "orders")) == 4, "a group with floors")
        for number in range(40):
            producer.send("orders", b"order %d" % number, queue=number % 4)
        eventually(lambda: sum(len(each.lines()) for each in both) == 40, "all orders")
        assert [each.end(signal.SIGINT) for each in both] == [0, 0]
    bodies = sorted(line.split(": ")[1] for each in both for line in each.lines())
    assert bodies == sorted(f"order {number}" for number in range(40))


def test_the_ordered_example_books_each_payment_once(name_server: str, tmp_path: Path) -> None:
    example = str(ROOT / "examples" / "ordered_consumer.py")
    database = tmp_path / "balances.sqlite"
    with Admin(name_server) as admin, Producer(name_server) as producer:
        admin.create_topic("payments", queues_per_group=4)
        one = Consumer(tmp_path, "ordered", example, name_server, str(database))
        for number in range(30):
            producer.send("payments", b"5", key=f"c{number % 3}", ordering_key=f"c{number % 3}")
        eventually(lambda: len(one.lines()) == 30, "all payments")
        one.end(signal.SIGTERM)
    with sqlite3.connect(database) as read:
        rows = read.execute("select customer, cents from balance order by customer").fetchall()
    assert rows == [("c0", 50), ("c1", 50), ("c2", 50)]


def test_the_command_consumes_and_commits(name_server: str) -> None:
    command = [str(Path(sys.executable).parent / "dledger"), "consume", "lines", "--group", "tools"]
    with Admin(name_server) as admin, Producer(name_server) as producer:
        admin.create_topic("lines", queues_per_group=2)
        for number in range(6):
            producer.send("lines", b"line %d" % number, queue=number % 2)

    def consume(limit: str) -> list[str]:
        done = subprocess.run(
            [*command, "--raw", "--limit", limit, "--name-servers", name_server],
            capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=True,
        )  # fmt: skip
        return done.stdout.splitlines()

    assert sorted(consume("4") + consume("2")) == [f"line {number}" for number in range(6)]
