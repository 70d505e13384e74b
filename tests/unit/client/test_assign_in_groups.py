"""What a consumer with a group is told when it assigns."""

import pytest

from dledger_client import AsyncConsumer
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import run
from tests.unit.client.test_consumer_shell import check_run, config, fill, read


def test_a_consumer_that_assigns_is_told_that_it_shares_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two with one group both get everything: nobody would notice."""

    async def scenario() -> None:
        async with FakeCluster() as cluster:
            await fill(cluster, 0, 0, 10)
            async with (
                AsyncConsumer(cluster.bootstrap, config(group="g")) as first,
                AsyncConsumer(cluster.bootstrap, config(group="g")) as second,
            ):
                await first.assign("t")
                assert "of group g read; subscribe shares them" in caplog.text
                caplog.clear()
                await second.assign([("t", 0)])
                assert not caplog.text
                for consumer in (first, second):
                    check_run(await read(consumer, 10), 0)

    run(scenario())
