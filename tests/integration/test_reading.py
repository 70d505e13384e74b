"""Plans and ranges against a real group: members die, queues are trimmed, holds hold.

Goal: a frozen plan gives every committed record of its ranges, once, whatever happens to members;
and what a plan holds is not trimmed. Method: three processes, faults between the Arrow batches of
a range, everything compared with what was sent.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from dledger_broker.local.cluster import LocalCluster
from dledger_client import Admin, Producer, ProducerConfig
from dledger_client.errors import ClientError, Held, OffsetOutOfRange, TopicNotFound
from dledger_client.reading import (
    Edge,
    Hold,
    HoldRequest,
    Origin,
    Planner,
    RangeReader,
    ReadPlan,
    partitions,
)
from tests.integration.cluster import DEADLINE_SECONDS
from tests.waiting import wait_until

T = TypeVar("T")
ALL = Edge()
COLUMNS = ("queue_id", "queue_offset", "body", "log_position")


@contextmanager
def cluster_in(folder: Path) -> Iterator[LocalCluster]:
    """Run three members for the length of a block."""
    local = LocalCluster(folder, members=3, die_with_owner=True)
    local.prepare()
    try:
        local.start_all()
        leader_of(local)
        yield local
    finally:
        local.stop_all()


def addresses(local: LocalCluster) -> str:
    return ",".join(local.address(name) for name in local.member_names)


def fill(
    where: str, topic: str, count: int, size: int = 2_000, queues: int = 4
) -> dict[int, list[bytes]]:
    """Create a topic, send `count` messages; return the bodies by queue."""
    with Admin(where) as admin:
        admin.create_topic(topic, queues_per_group=queues)
    sent: dict[int, list[bytes]] = {}
    config = ProducerConfig(batch_bytes=64 * 1_024, timeout_ms=30_000)
    with Producer(where, config) as producer:
        for number in range(count):
            queue = number % queues
            body = b"%08d" % number + bytes(size)
            producer.send_async(topic, body, queue=queue)
            sent.setdefault(queue, []).append(body)
        producer.flush()
    return sent


def read_all(
    where: str,
    plan: ReadPlan,
    between: Callable[[int], None] = lambda _number: None,
    read_from: str = "follower",
) -> dict[int, list[bytes]]:
    """Read a plan, calling `between` after each Arrow batch; check offsets, return the bodies."""
    found: dict[int, list[bytes]] = {}
    number = 0
    for rotation, ranges in enumerate(partitions(plan.queues, size_max=256 * 1_024)):
        origin = Origin(tuple(where.split(",")), tuple(plan.groups.values()), read_from, rotation)
        with RangeReader(origin, COLUMNS) as reader:
            for each in ranges:
                rows = []
                for batch in reader.read(each):
                    rows += batch.to_pylist()
                    number += 1
                    between(number)
                assert [row["queue_offset"] for row in rows] == list(range(each.start, each.end))
                assert all(row["log_position"] > 0 for row in rows)
                for row in rows:
                    found.setdefault(row["queue_id"], [b""] * _end(plan, row["queue_id"]))
                    found[row["queue_id"]][row["queue_offset"]] = row["body"]
    return found


def _end(plan: ReadPlan, queue: int) -> int:
    return next(each.end for each in plan.queues if each.state.queue == queue)


def until(condition: Callable[[], T | None], what: str) -> T:
    """Return the first true result; AssertionError at the deadline."""
    found: list[T] = []

    def look() -> bool:
        result = condition()
        if result:
            found.append(result)
        return bool(result)

    wait_until(look, what, DEADLINE_SECONDS)
    return found[0]


def leader_of(local: LocalCluster) -> str:
    """Return the name of the member that leads, by the word of the running ones."""

    def led() -> str | None:
        try:
            with Admin(addresses(local)) as admin:
                statuses = admin.statuses().values()
        except ClientError:
            return None  # nobody serves routes yet
        names = {
            status.member
            for status in statuses
            if not isinstance(status, ClientError) and status.role == "leader"
        }
        return next(iter(names)) if len(names) == 1 else None

    return until(led, "a leader")


@pytest.mark.parametrize("read_from", ["follower", "leader", "any"])
def test_leader_and_follower_die_while_a_plan_is_read(tmp_path: Path, read_from: str) -> None:
    """Each is killed between two batches and started again later: every record comes, once."""
    with cluster_in(tmp_path) as local:
        where = addresses(local)
        sent = fill(where, "orders", 2_000)
        with Planner(where) as planner:
            plan = planner.freeze(["orders"], ALL, ALL)
        killed: list[str] = []

        def between(number: int) -> None:
            if number == 2:
                killed.append(leader_of(local))
                local.kill(killed[-1])
            if number == 6:
                local.start(killed[0])
                until(lambda: local.is_running(killed[0]), "started again")
                leader = leader_of(local)
                killed.append(next(n for n in local.member_names if n not in (leader, killed[0])))
                local.kill(killed[-1])

        assert read_all(where, plan, between, read_from) == sent
        assert len(set(killed)) == 2


def test_a_plan_is_frozen_and_held(tmp_path: Path) -> None:
    """What comes later is not in it; a trim stops at its hold, and passes once that is released."""
    with cluster_in(tmp_path) as local, Planner(where := addresses(local)) as planner:
        sent = fill(where, "orders", 200, size=10)
        hold = HoldRequest("job-1", 60_000)
        plan = planner.freeze(["orders"], ALL, ALL, hold=hold)
        fill(where, "orders", 40, size=10)
        with Admin(where) as admin:
            with pytest.raises(Held, match="job-1"):
                admin.trim("orders", 0, 20)
            assert read_all(where, plan) == sent
            planner.renew(plan)
            planner.release(plan)
            assert admin.trim("orders", 0, 20) == 20
            # More jobs than a queue has holds, of which nobody says that they have ended.
            shared = HoldRequest("", 60_000)
            for start in range(70):
                edge = Edge(offsets={"orders": {n: min(20 + start, 60) for n in range(4)}})
                kept = planner.freeze(["orders"], edge, ALL, hold=shared)
            with pytest.raises(Held, match="shared-60000"):
                admin.trim("orders", 0, 60)
            for (topic, queue), each in kept.holds.items():
                admin.hold(each.owner, topic, queue, each.offset, 60_000)
            later = planner.freeze(["orders"], ALL, ALL, hold=hold)
            assert [(each.start, each.end) for each in later.queues][:2] == [(20, 60), (0, 60)]
            with Planner(where) as other, pytest.raises(TopicNotFound):
                other.freeze(["odrers"], ALL, ALL)


def test_what_is_trimmed_under_a_plan_without_a_hold(tmp_path: Path) -> None:
    """The reader says so; where that is accepted it goes on behind the gap, and tells the gap."""
    with cluster_in(tmp_path) as local, Planner(where := addresses(local)) as planner:
        sent = fill(where, "orders", 100, size=10, queues=1)
        plan = planner.freeze(["orders"], ALL, ALL)
        with Admin(where) as admin:
            admin.trim("orders", 0, 30)

            def is_told() -> bool:
                """Every member has the trim: one that is late has the records still."""
                members = [admin.status(local.address(name)) for name in local.member_names]
                return len({member.applied_index for member in members}) == 1

            wait_until(is_told, "equal applied indexes")
        ((whole,),) = partitions(plan.queues, size_max=1 << 30)
        groups = tuple(plan.groups.values())
        with (
            RangeReader(Origin(tuple(where.split(",")), groups), COLUMNS) as reader,
            pytest.raises(OffsetOutOfRange, match="earliest is 30"),
        ):
            next(reader.read(whole))
        with RangeReader(
            Origin(tuple(where.split(",")), groups, fail_on_data_loss=False), COLUMNS
        ) as reader:
            hold = Hold("job-2", 30, 60_000)
            rows = [row for batch in reader.read(whole, hold) for row in batch.to_pylist()]
            assert [row["body"] for row in rows] == sent[0][30:]
            assert [(gap.start, gap.end) for gap in reader.gaps] == [(0, 30)]
            with Admin(where) as admin, pytest.raises(Held, match="job-2"):
                admin.trim("orders", 0, 90)
