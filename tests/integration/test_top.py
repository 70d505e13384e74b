"""`dledger top` on a real cluster."""

import asyncio
import json
from pathlib import Path

import pytest

from dledger_broker.cli import main
from tests.integration.cluster import running_cluster
from tests.integration.test_metrics import used


def test_members_topics_and_consumer_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            await used(cluster, leader)
            options = ["--count", "2", "--every", "0.1", "-n", cluster.local.name_server]
            assert await asyncio.to_thread(main, ["top", "--json", *options]) == 0
            looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert len(looks) == 2
            roles = {row["member"]: row["role"] for row in looks[-1]["members"]}
            assert roles[leader.name] == "leader"
            assert len(roles) == 3
            (topic,) = looks[-1]["topics"]
            assert (topic["topic"], topic["messages"]) == ("orders", 10)
            assert looks[0]["topics"][0]["in_per_second"] is None
            assert topic["in_per_second"] == 0.0
            names = {row["consumer_group"] for row in looks[-1]["consumer_groups"]}
            assert names == {"billing"}
            assert await asyncio.to_thread(main, ["top", *options]) == 0
            shown = capsys.readouterr().out
            assert "orders" in shown
            assert leader.name in shown

    asyncio.run(run())
