"""Schedules in real processes: each time gives one message, also when leaders die meanwhile."""

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest

from dledger_client import AsyncAdmin, AsyncConsumer, StartAt
from dledger_client.errors import ClientError, InvalidRequest
from dledger_proto.errors import Code
from tests.integration.cluster import Cluster, eventually, running_cluster

TOPIC = "again"
EACH_SECOND = "* * * * * *"
LEADERS_KILLED = 3


def bootstrap_of(cluster: Cluster) -> str:
    return ",".join(member.address for member in cluster.members)


def test_each_time_gives_one_message_although_leaders_die(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            await cluster.leader()
            await cluster.create_topic(TOPIC, 1)
            bootstrap = bootstrap_of(cluster)
            async with AsyncAdmin(bootstrap) as admin, AsyncConsumer(bootstrap) as consumer:
                set_ms = time.time_ns() // 1_000_000
                schedule = await admin.set_schedule(
                    TOPIC, "tick", EACH_SECOND, b"tick", tag="t", keys=("k",)
                )
                await consumer.assign(TOPIC, StartAt.FIRST)
                seen: list[tuple[int, int]] = []

                async def some_seen(end: int) -> bool:
                    for each in await consumer.poll(timeout_ms=200):
                        assert (bytes(each.body), each.tag, each.keys) == (b"tick", "t", ("k",))
                        assert each.message_id[:16] == schedule.schedule_id
                        seen.append((each.time_ms, each.store_time_ms))
                    return len(seen) >= end

                for _ in range(LEADERS_KILLED):
                    leader = await cluster.leader()
                    await eventually(partial(some_seen, len(seen) + 1), "a message")
                    cluster.local.kill(leader.name)
                    await eventually(partial(some_seen, len(seen) + 2), "messages of the next")
                    cluster.local.start(leader.name)
                await admin.delete_schedule(TOPIC, "tick")
                with pytest.raises(ClientError) as missing:
                    await admin.delete_schedule(TOPIC, "tick")
                assert missing.value.code is Code.NOT_FOUND
                bounds = await admin.queue_offsets(TOPIC)
                (end,) = [each.maximum for each in bounds.values()]
                await eventually(partial(some_seen, end), "what was sent before the end")
                assert not await consumer.poll(timeout_ms=1_500), "deleted"
                due = [due_ms for due_ms, _ in seen]
                assert due == sorted(set(due)), "once, and in order"
                assert all(due_ms % 1_000 == 0 and due_ms > set_ms for due_ms in due)
                assert all(stored_ms >= due_ms for due_ms, stored_ms in seen), "never early"
                await cluster.assert_identical()

    asyncio.run(scenario())


def test_a_schedule_is_listed_replaced_and_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_cluster(tmp_path) as cluster:
            await cluster.leader()
            await cluster.create_topic(TOPIC, 4)
            async with AsyncAdmin(bootstrap_of(cluster)) as admin:
                first = await admin.set_schedule(TOPIC, "report", "30 6 * * *", b"1", queue=2)
                assert (first.queue, first.record.body) == (2, b"1")
                second = await admin.set_schedule(
                    TOPIC, "report", "0 7 * * *", b"2", time_zone="Europe/Berlin",
                    ordering_key="a", properties={"p": "v"},
                )  # fmt: skip
                assert second.schedule_id == first.schedule_id
                assert await admin.schedules(TOPIC) == await admin.schedules() == [second]
                assert (second.cron, second.time_zone) == ("0 7 * * *", "Europe/Berlin")
                assert second.record.properties["p"] == "v"
                assert second.next_due_ms > time.time_ns() // 1_000_000
                refused: list[tuple[tuple[str, str, str, bytes], dict[str, object], str]] = [
                    ((TOPIC, "x", "* * * *", b""), {}, "cron '\\* \\* \\* \\*'"),
                    ((TOPIC, "x", EACH_SECOND, b""), {"time_zone": "Here"}, "time_zone 'Here'"),
                    ((TOPIC, "x y", EACH_SECOND, b""), {}, "name 'x y'"),
                    ((TOPIC, "x", EACH_SECOND, b"b" * 70_000), {}, "a schedule holds 65536"),
                    ((TOPIC, "x", EACH_SECOND, b""), {"queue": 9}, "no queue 9"),
                    (("none", "x", EACH_SECOND, b""), {}, "none"),
                ]
                for given, more, words in refused:
                    with pytest.raises(ClientError, match=words):
                        await admin.set_schedule(*given, **more)  # type: ignore[arg-type]
                with pytest.raises(InvalidRequest, match="ordering_key and queue"):
                    await admin.set_schedule(
                        TOPIC, "x", EACH_SECOND, b"", ordering_key="k", queue=1
                    )
                assert await admin.schedules() == [second]

    asyncio.run(scenario())
