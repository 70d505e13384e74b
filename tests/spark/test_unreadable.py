"""A batch that nobody can decode, on a real group: refused by name, or left out and the rest read.

With `spark.read`, a stream, and an export by Spark's tasks.
"""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dledger_broker.local.cluster import LocalCluster
from dledger_client.export import ExportCode, ExportError, read_export
from dledger_client.export.cluster_source import ClusterSource
from dledger_client.export.engines.spark import SparkEngine
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.manifests.records import UNREADABLE
from dledger_client.export.planning import Options
from dledger_client.export.run import export_once
from tests.integration.test_reading import addresses, fill
from tests.spark.test_batch import frame
from tests.unreadable import send_unreadable


def test_it_is_refused_or_left_out(
    spark: SparkSession, group: LocalCluster, tmp_path: Path
) -> None:
    where = addresses(group)
    sent = fill(where, "garbage", 20, queues=1, size=10)[0]
    first = send_unreadable(where, "garbage", 0, 3)
    sent += fill(where, "garbage", 10, queues=1, size=10)[0]

    with pytest.raises(PySparkException) as caught:
        frame(spark, group, "garbage").collect()
    told = str(caught.value)
    assert (
        f"DLEDGER_UNREADABLE_BATCH: garbage/0 of group {group.group}: offsets {first} to " in told
    )
    assert "failOnUnreadable=false" in told

    accepted = frame(spark, group, "garbage", failOnUnreadable="false").orderBy("queue_offset")
    assert [bytes(row.body) for row in accepted.collect()] == sent

    streamed: list[bytes] = []

    def take(found: DataFrame, _number: int) -> None:
        streamed.extend(bytes(row.body) for row in found.orderBy("queue_offset").collect())

    stream = spark.readStream.format("dledger").option("endpoints", where)
    stream = stream.option("topic", "garbage").option("startingOffsets", "earliest")
    query = (
        stream.option("failOnUnreadable", "false").load().writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert streamed == sent

    storage, engine = ExportStorage(tmp_path / "lake"), SparkEngine(lambda: spark)
    with ClusterSource(where, storage.root) as source:
        with pytest.raises(ExportError) as refused:
            export_once(storage, source, engine, Options("garbage"), lambda: 1)
        assert refused.value.code is ExportCode.UNREADABLE
        accepting = Options("garbage", accept_unreadable=True)
        outcome = export_once(storage, source, engine, accepting, lambda: 1)
    assert outcome.manifest is not None
    assert outcome.adopted
    (gap,) = outcome.manifest.gaps
    assert (gap.start, gap.end, gap.reason) == (first, first + 3, UNREADABLE)
    assert [row["body"] for row in read_export(storage.root).read().to_pylist()] == sent
