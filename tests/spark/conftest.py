"""One Spark session and one group for all tests here: a session takes eight seconds to start."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from dledger_broker.local.cluster import LocalCluster
from tests.integration.test_reading import cluster_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three members, of which each test has topics of its own."""
    with cluster_in(tmp_path_factory.mktemp("group")) as local:
        yield local


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A session with two slots and no user interface; tasks are tried three times."""
    from dledger_client.spark import session

    found = session(
        "dledger-tests",
        master="local[2,3]",
        conf={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.log.level": "ERROR",
        },
    )
    yield found
    found.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything here, so that it can be left out."""
    for item in items:
        item.add_marker(pytest.mark.spark)
