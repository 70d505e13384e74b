"""Consumers of a group as processes: shared, killed, in order; and the examples."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from dledger_broker.local.cluster import LocalCluster
from dledger_client import Admin, ConsumerGroupNotFound, Producer

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


class Consumer:
    """A consumer's process and what it has said."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self._path = folder / f"{name}.out"
        with self._path.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=output, cwd=ROOT
            )

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


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Wait until `holds()` is true."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


def floors(admin: Admin, group: str, topic: str) -> dict[int, int]:
    """Return the floors of a group; of a queue without one, and before there is a group, none."""
    try:
        rows = admin.group_progress(group, topic)
    except ConsumerGroupNotFound:
        return {}
    return {queue: each.floor for queue, each in rows.items() if each.floor is not None}


@pytest.mark.parametrize("order", ["CONCURRENT", "KEY"])
def test_a_killed_consumer_loses_nothing(name_server: str, tmp_path: Path, order: str) -> None:
    """Three consumers, one is killed: all is handled, twice only what it had not committed."""
    topic, group = f"work-{order}", f"group-{order}"
    with Admin(name_server) as admin, Producer(name_server) as producer:
        admin.create_topic(topic, queues_per_group=6)
        arguments = (str(PROGRAM), name_server, group, topic, order)
        consumers = [Consumer(tmp_path, f"{order}{number}", *arguments) for number in range(3)]
        wait_until(lambda: all(each.lines() for each in consumers), "three consumers")

        def send(first: int, last: int) -> None:
            for number in range(first, last):
                key = f"k{number % KEYS}"
                producer.send_async(topic, b"%d" % number, key=key, ordering_key=key)
            producer.flush()

        send(0, RECORDS // 2)
        victim = max(consumers, key=lambda each: len(each.handled()))
        wait_until(lambda: len(victim.handled()) > 20, "the victim works")
        committed = floors(admin, group, topic)
        victim.end(signal.SIGKILL)
        send(RECORDS // 2, RECORDS)
        ends = {queue: each.maximum for queue, each in admin.queue_offsets(topic).items()}
        wait_until(lambda: floors(admin, group, topic) == ends, "all is committed")
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


def test_the_push_example_shares_a_topic(name_server: str, tmp_path: Path) -> None:
    example = str(ROOT / "examples" / "push_consumer.py")
    with Admin(name_server) as admin, Producer(name_server) as producer:
        admin.create_topic("orders", queues_per_group=4)
        both = [Consumer(tmp_path, f"push{number}", example, name_server) for number in range(2)]
        wait_until(lambda: len(floors(admin, "billing", "orders")) == 4, "a group with floors")
        for number in range(40):
            producer.send("orders", b"order %d" % number, queue=number % 4)
        wait_until(lambda: sum(len(each.lines()) for each in both) == 40, "all orders")
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
        wait_until(lambda: len(one.lines()) == 30, "all payments")
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
