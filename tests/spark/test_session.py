"""`session()` where one runs already."""

import pytest
from pyspark.sql import SparkSession

from dledger_client.spark import session


def test_another_master_than_the_running_one_is_told(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark has one session of a process, and takes it without a word."""
    assert session(master="local[2,3]").sparkContext is spark.sparkContext
    assert not caplog.records
    assert session(master="local[9]").sparkContext is spark.sparkContext
    assert (
        "master local[9] is not used: a Spark session with master local[2,3] runs already"
        in caplog.text
    )
