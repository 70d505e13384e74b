"""Spark in a cluster that asks for users: tasks log in on their own, and no plan has a secret.

Method: a real cluster with TLS; a batch read, and a stream with a checkpoint, by a user with the
right, without it, and with a wrong secret.
"""

import asyncio
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dledger_proto.network.tls_files import FOLDER_VARIABLE
from tests.integration.cluster import Cluster
from tests.integration.test_users import SUBSCRIBE, in_cluster, put, secret_file, topic_policy
from tests.integration.test_users_in_exports import fill_topics


def options(cluster: Cluster, user: str, topic: str) -> dict[str, str]:
    return {
        "endpoints": cluster.local.name_server, "tlsFolder": cluster.local.tls_folder,
        "user": user, "secretFile": str(cluster.local.folder / f"secret-{user}"), "topic": topic,
    }  # fmt: skip


def bodies(found: DataFrame) -> list[bytes]:
    rows = found.select("queue_offset", "body").orderBy("queue_offset").collect()
    return [bytes(row.body) for row in rows]


def test_only_users_with_the_right_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)

    async def body(cluster: Cluster) -> None:
        sent = await fill_topics(cluster, "orders", "bank")
        await put(cluster, "lake", topic_policy("orders", SUBSCRIBE))
        await asyncio.to_thread(reads, cluster, sent)

    def read(cluster: Cluster, user: str, topic: str) -> DataFrame:
        return spark.read.format("dledger").options(**options(cluster, user, topic)).load()

    def reads(cluster: Cluster, sent: list[bytes]) -> None:
        found = read(cluster, "lake", "orders")
        assert bodies(found) == sent
        plan = found._jdf.queryExecution().toString()
        assert "secret of" not in plan
        with pytest.raises(PySparkException, match="TOPIC_NOT_FOUND"):
            read(cluster, "lake", "bank").count()
        secret_file(cluster, "nobody", "secret of nobody")
        with pytest.raises(PySparkException, match="UNAUTHENTICATED"):
            read(cluster, "nobody", "orders").count()

        stream = spark.readStream.format("dledger").options(**options(cluster, "lake", "orders"))
        took: list[list[bytes]] = []
        query = (
            stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "150")
            .load().writeStream.foreachBatch(lambda part, _number: took.append(bodies(part)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(120)
        assert [row for part in took for row in part] == sent
        files = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
        assert files
        assert not [path for path in files if b"secret of" in path.read_bytes()]

        # A wrong secret from now on: what is planned is not read either.
        found = read(cluster, "lake", "orders")
        assert found.columns
        secret_file(cluster, "lake", "guessed")
        with pytest.raises(PySparkException, match="UNAUTHENTICATED"):
            found.count()

    in_cluster(tmp_path / "cluster", body)
