"""`path=`: the folder of a stopped member gives the rows that the cluster gave.

Goal: the same DataFrame without any member running; what was never committed is not in it; what is
damaged is refused in words that reach the user. Method: one group of three real members. Its rows
are read over the network, two members are killed, something is sent that therefore is never
committed, and the third is stopped; tests read copies of its folder.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from dledger.state.saved import SavedState
from dledger_broker.local.cluster import LocalCluster
from dledger_client import Admin, Compression, Producer, ProducerConfig
from dledger_client.errors import ClientError
from dledger_offline.folder import EntryFound, segment_files, walk_segments
from dledger_proto.entry import SEGMENT_HEADER_SIZE
from tests.integration.test_reading import addresses, cluster_in, fill, leader_of, until

TOPICS = ("plain", "packed", "trimmed")
GONE = "gone"
UNCOMMITTED = b"never committed"
COLUMNS = (
    "topic", "queue_id", "queue_offset", "store_timestamp", "born_timestamp", "key", "tag", "body",
    "properties", "producer_id", "producer_epoch", "sequence", "message_id", "tag_hash",
    "log_position", "body_size", "key_hashes",
)  # fmt: skip
QUERIES = (
    "queue_id = 2",
    "queue_id IN (1, 3) AND queue_offset >= 30 AND queue_offset < 40",
    "queue_offset > 95 OR queue_id = 0",
    "queue_id = 9",
)


@dataclass
class Stopped:
    """What the network gave, and the folders that were left."""

    rows: dict[str, list[Row]]
    leader: Path
    killed: Path
    """Of a follower that got SIGKILL."""


def network(spark: SparkSession, local: LocalCluster, topic: str) -> DataFrame:
    reader = spark.read.format("dledger").option("endpoints", addresses(local))
    return reader.option("topic", topic).option("columns", ",".join(COLUMNS)).load()


def by_path(spark: SparkSession, folder: Path, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("dledger").option("path", str(folder)).option("topic", topic)
    return reader.options(**{"columns": ",".join(COLUMNS), **options}).load()


def rows_of(found: DataFrame) -> list[Row]:
    return found.orderBy("queue_id", "queue_offset").collect()


def write(where: str) -> None:
    """Plain and compressed batches with everything a record has; a trim; a topic that goes."""
    fill(where, "plain", 400, size=200)
    fill(where, "trimmed", 80, size=10)
    fill(where, GONE, 10, size=10)
    with Admin(where) as admin:
        admin.create_topic("packed", queues_per_group=2)
        admin.create_topic("unread", queues_per_group=1)
        assert admin.trim("trimmed", 1, 7) == 7
        admin.delete_topic(GONE)
    config = ProducerConfig(compression=Compression.ZSTD)
    with Producer(where, config) as producer:
        for number in range(60):
            producer.send_async(
                "packed", b"%d" % number * 400, queue=number % 2, tag="blue" if number % 3 else "",
                keys=(f"k{number}", "all"), properties={"city": "Zürich", "n": str(number)},
            )  # fmt: skip
        producer.flush()


def send_in_vain(local: LocalCluster, leader: str) -> None:
    """Send what the leader writes and nobody else does, and stop the leader."""
    folder = data_of(local, leader)
    others = [name for name in local.member_names if name != leader]

    def is_written() -> bool:
        return any(UNCOMMITTED in path.read_bytes() for path in segment_files(folder))

    with Producer(local.address(leader), ProducerConfig(timeout_ms=3_000)) as producer:
        producer.send("unread", b"registers the producer while there is somebody to agree")
        for name in others:
            local.pause(name)
        sent = producer.send_async("plain", UNCOMMITTED, queue=0)
        until(is_written, "the leader writes what it cannot commit")
        for name in others:
            local.kill(name)
        local.stop(leader)
        with pytest.raises(ClientError):
            sent.result()


def data_of(local: LocalCluster, name: str) -> Path:
    return next((local.folder / name / "data").glob("*"))


@pytest.fixture(scope="module")
def stopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    """Rows of all topics by the network, then the folders."""
    with cluster_in(tmp_path_factory.mktemp("group")) as local:
        write(addresses(local))
        rows = {topic: rows_of(network(spark, local, topic)) for topic in TOPICS}
        leader = leader_of(local)
        with pytest.raises(PySparkException, match="DLEDGER_FOLDER_IN_USE: "):
            by_path(spark, data_of(local, leader), "plain").collect()
        send_in_vain(local, leader)
        killed = next(name for name in local.member_names if name != leader)
        yield Stopped(rows, data_of(local, leader), data_of(local, killed))


@pytest.fixture
def folder(stopped: Stopped, tmp_path: Path) -> Path:
    """A copy of the folder of the member that led."""
    copy = tmp_path / "copy"
    shutil.copytree(stopped.leader, copy)
    return copy


def entries(folder: Path) -> list[EntryFound]:
    return [each for each in walk_segments(folder) if isinstance(each, EntryFound)]


def test_rows_equal_those_of_the_network(
    spark: SparkSession, stopped: Stopped, folder: Path
) -> None:
    """All columns of all topics, over several partitions; a trimmed head begins where it begins."""
    for topic in TOPICS:
        found = by_path(spark, folder, topic, maxBytesPerPartition="10k")
        assert rows_of(found) == stopped.rows[topic]
        assert stopped.rows[topic]
    assert next(row.queue_offset for row in stopped.rows["trimmed"] if row.queue_id == 1) == 7
    assert by_path(spark, folder, "plain", maxBytesPerPartition="10k").rdd.getNumPartitions() > 4
    both = spark.read.format("dledger").option("topicsPattern", "p.*").load(str(folder))
    assert both.count() == len(stopped.rows["plain"]) + len(stopped.rows["packed"])


def test_what_was_never_committed_is_not_a_row(
    spark: SparkSession, stopped: Stopped, folder: Path
) -> None:
    """Though it lies in the leader's log, sound and synced; nor is a tail that is torn."""
    with SavedState(str(folder / "state")) as state:
        applied = state.applied.index
    tail = entries(folder)[-1]
    assert tail.entry.header.index > applied
    assert UNCOMMITTED in b"".join(tail.entry.payloads)
    assert rows_of(by_path(spark, folder, "plain")) == stopped.rows["plain"]
    header = tail.entry.header
    base = int(tail.path.stem)
    with tail.path.open("r+b") as file:
        file.seek(SEGMENT_HEADER_SIZE + header.position - base + header.size // 2)
        file.write(b"\xa5" * 40)
    assert len(entries(folder)) < len(entries(stopped.leader))
    assert rows_of(by_path(spark, folder, "plain")) == stopped.rows["plain"]


def test_a_killed_member_s_folder_is_a_beginning(spark: SparkSession, stopped: Stopped) -> None:
    """What it had saved, whole from the first offset on; never anything else."""
    found = rows_of(by_path(spark, stopped.killed, "plain"))
    by_queue: dict[int, list[Row]] = {}
    for row in found:
        by_queue.setdefault(row.queue_id, []).append(row)
    for queue, rows in by_queue.items():
        of_network = [row for row in stopped.rows["plain"] if row.queue_id == queue]
        assert rows == of_network[: len(rows)]


def test_a_deleted_topic_is_refused(spark: SparkSession, folder: Path) -> None:
    """Its records lie in the log still."""
    with pytest.raises(PySparkException, match="DLEDGER_TOPIC_NOT_FOUND"):
        by_path(spark, folder, GONE).collect()


def test_damage_is_named_with_file_and_position(
    spark: SparkSession, stopped: Stopped, folder: Path
) -> None:
    """One flipped bit of a batch, told by the task; a topic that it is not of is read."""
    wanted = stopped.rows["plain"][10].log_position
    segment = max(
        (each for each in segment_files(folder) if int(each.stem) <= wanted),
        key=lambda each: each.name,
    )
    with segment.open("r+b") as file:
        place = SEGMENT_HEADER_SIZE + wanted - int(segment.stem) + 150
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes((byte ^ 4,)))
    with pytest.raises(PySparkException) as caught:
        by_path(spark, folder, "plain").collect()
    assert f"DLEDGER_FOLDER_DAMAGED: {segment}: the batch at position {wanted}," in str(
        caught.value
    )
    assert rows_of(by_path(spark, folder, "packed")) == stopped.rows["packed"]


def test_filters_and_edges(spark: SparkSession, stopped: Stopped, folder: Path) -> None:
    """The same answers with pushdown and without; offsets as everywhere."""
    plain = by_path(spark, folder, "plain")
    middle = plain.agg({"store_timestamp": "avg"}).collect()[0][0]
    by_time = f"store_timestamp > timestamp_micros({int(middle * 1_000_000)})"
    for condition in (*QUERIES, by_time):
        pushed = by_path(spark, folder, "plain", pushdown="true")
        assert rows_of(pushed.where(condition)) == rows_of(plain.where(condition)), condition
    part = by_path(spark, folder, "plain", startingOffsets='{"0":20,"1":-1,"2":-1,"3":-2}')
    assert rows_of(part) == [
        row
        for row in stopped.rows["plain"]
        if (row.queue_id == 0 and row.queue_offset >= 20) or row.queue_id == 3
    ]


def test_spark_keeps_the_plan_of_the_last_filter(
    spark: SparkSession, stopped: Stopped, folder: Path
) -> None:
    """Why `pushdown` wants a `load()` for each query. When this fails Spark is mended: say so."""
    used = by_path(spark, folder, "plain", pushdown="true")
    of_queue = used.where("queue_id = 2").count()
    assert 0 < of_queue < len(stopped.rows["plain"])
    assert used.count() == of_queue
    again = by_path(spark, folder, "plain", pushdown="true")
    assert again.count() == len(stopped.rows["plain"])


def test_sql_and_what_contradicts(spark: SparkSession, stopped: Stopped, folder: Path) -> None:
    """A view with a path; a path beside endpoints; a stream."""
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW copied USING dledger OPTIONS "
        f"(path '{folder}', topic 'plain')"
    )
    count = spark.sql("SELECT count(*) FROM copied WHERE queue_id = 1").collect()[0][0]
    assert count == sum(row.queue_id == 1 for row in stopped.rows["plain"])
    with pytest.raises(PySparkException, match="path, endpoints: "):
        by_path(spark, folder, "plain", endpoints="127.0.0.1:1").collect()
    stream = spark.readStream.format("dledger").option("topic", "plain").load(str(folder))
    writer = stream.writeStream.format("noop").option("checkpointLocation", f"{folder}-checkpoint")
    query = writer.start()
    with pytest.raises(PySparkException, match="path: not for a stream"):
        query.processAllAvailable()


def test_a_table_s_options_do_not_reach_a_select(
    spark: SparkSession, stopped: Stopped, folder: Path
) -> None:
    """Spark gives them to CREATE TABLE alone; the refusal says so, and what it names works."""
    spark.sql(f"CREATE TABLE bare USING dledger OPTIONS (path '{folder}', topic 'plain')")
    try:
        with pytest.raises(PySparkException) as caught:
            spark.sql("SELECT * FROM bare").collect()
        assert "Spark gives the OPTIONS of CREATE TABLE to that statement alone" in str(
            caught.value
        )
        said = spark.sql(
            f"SELECT count(*) FROM bare WITH (path = '{folder}', topic = 'plain')"
        ).collect()
        assert said[0][0] == len(stopped.rows["plain"])
    finally:
        spark.sql("DROP TABLE bare")
