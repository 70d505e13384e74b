"""Consumer groups over two broker groups: from the client and from the command line."""

import asyncio
import json
from pathlib import Path

import pytest

from dledger_broker.cli import main
from dledger_client import (
    Admin,
    AsyncAdmin,
    AsyncProducer,
    ConsumeOrder,
    ConsumerGroupExists,
    ConsumerGroupNotFound,
    InvalidRequest,
    NoPermission,
    StartFrom,
    TopicNotFound,
)
from tests.integration.test_groups import GROUPS, two_groups


def test_a_group_lives_in_all_broker_groups(tmp_path: Path) -> None:
    async def run() -> None:
        async with two_groups(tmp_path) as groups:
            address = groups["red"]["n1"].address
            async with AsyncAdmin(address) as admin:
                await check_life(admin, address)

    asyncio.run(run())


async def check_life(admin: AsyncAdmin, address: str) -> None:
    made = await admin.create_consumer_group("billing", order=ConsumeOrder.KEY, retries_max=3)
    assert made.coordinator in GROUPS
    assert (made.order, made.retries_max, made.session_ms) == (ConsumeOrder.KEY, 3, 10_000)
    again = await admin.create_consumer_group("billing", order=ConsumeOrder.KEY, retries_max=3)
    assert again == made
    with pytest.raises(ConsumerGroupExists, match="order KEY, not CONCURRENT"):
        await admin.create_consumer_group("billing")
    for name in (made.retry_topic, made.dead_letter_topic):
        route = await admin.describe_topic(name)
        assert sorted(route.parts) == [("blue", 1), ("red", 1)]
        bounds = await admin.queue_offsets(name)
        assert {queue: each.maximum for queue, each in bounds.items()} == {0: 0, 1: 0}
        with pytest.raises(InvalidRequest, match="consumer group"):
            await admin.delete_topic(name)
        with pytest.raises(InvalidRequest, match="consumer group"):
            await admin.create_topic(name)
    changed = await admin.update_consumer_group("billing", paused=True, start=StartFrom.FIRST)
    assert changed.paused
    assert changed.start is StartFrom.FIRST
    assert changed.retries_max == 3
    assert await admin.consumer_group("billing") == changed
    await admin.create_consumer_group("audit")
    assert [each.name for each in await admin.consumer_groups()] == ["audit", "billing"]
    async with AsyncProducer(address) as producer:
        with pytest.raises(NoPermission):
            await producer.send(made.dead_letter_topic, b"x")
    deleted = await admin.delete_consumer_group("billing")
    assert deleted.id == made.id
    with pytest.raises(ConsumerGroupNotFound):
        await admin.consumer_group("billing")
    with pytest.raises(ConsumerGroupNotFound):
        await admin.update_consumer_group("billing", paused=False)
    with pytest.raises(TopicNotFound):
        await admin.describe_topic(made.dead_letter_topic)
    reborn = await admin.create_consumer_group("billing")
    assert reborn.id != made.id
    with pytest.raises(InvalidRequest, match="lease_ms 5"):
        await admin.update_consumer_group("billing", lease_ms=5)


def blocking_calls(address: str) -> None:
    with Admin(address) as admin:
        assert admin.create_consumer_group("audit", retries_max=2).retries_max == 2
        assert admin.update_consumer_group("audit", retries_max=5).retries_max == 5
        assert [each.name for each in admin.consumer_groups()] == ["audit", "billing"]
        assert admin.delete_consumer_group("audit").name == "audit"


def test_the_command_line_does_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        async with two_groups(tmp_path) as groups:
            at = "--name-servers", groups["red"]["n1"].address

            async def dledger(*arguments: str) -> object:
                code = await asyncio.to_thread(main, [*arguments, *at, "--json"])
                out = capsys.readouterr()
                if code != 0:
                    return code, out.err
                # The members of this process write their lines to the same stream, also later.
                lines = out.out.splitlines()
                return next(json.loads(line) for line in lines if line.startswith(("{", "[")))

            made = await dledger(
                "group", "create", "billing", "--order", "queue", "--retry-delays", "1s,1m",
                "--start", "first", "--no-dead-letters",
            )  # fmt: skip
            assert isinstance(made, dict)
            assert made["order"] == "queue"
            assert made["retry_delays_ms"] == [1_000, 60_000]
            assert made["missing_groups"] == []
            shown = await dledger("group", "show", "billing")
            assert isinstance(shown, dict)
            assert not any(shown.pop(key) for key in ("consumers", "problems"))
            assert shown.pop("queues") == [
                {"topic": "%RETRY%billing", "queue": queue, "holder": None, "target": None}
                for queue in (0, 1)
            ]
            assert shown == {key: made[key] for key in made if key != "missing_groups"}
            listed = await dledger("group", "list")
            assert listed == [shown]
            assert await dledger("topic", "list") == []
            topics = await dledger("topic", "list", "--all")
            assert isinstance(topics, list)
            assert [row["topic"] for row in topics] == ["%DLQ%billing", "%RETRY%billing"]
            changed = await dledger("group", "update", "billing", "--lease", "5s", "--paused")
            assert isinstance(changed, dict)
            assert (changed["lease_ms"], changed["paused"]) == (5_000, True)
            assert "nothing to change" in str(await dledger("group", "update", "billing"))
            await asyncio.to_thread(blocking_calls, at[1])
            await dledger("group", "delete", "billing", "--yes")
            assert await dledger("group", "list") == []
            refused = await dledger("group", "show", "billing")
            assert "no consumer group is called billing" in str(refused)

    asyncio.run(run())
