"""`spark.readStream.format("dledger")` on a real group: each record in one batch, limits kept."""

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from dledger_broker.local.cluster import LocalCluster
from dledger_client import Admin, Producer, QueueNotFound
from tests.integration.test_reading import addresses, fill
from tests.waiting import wait_until


def takes(producer: Producer, queue: int) -> bool:
    """Send one message to a queue; tell whether the producer knows of that queue yet."""
    try:
        producer.send("flow", b"new", queue=queue)
    except QueueNotFound:
        return False
    return True


def test_available_now_by_portions_and_from_a_checkpoint(
    spark: SparkSession, group: LocalCluster, tmp_path: Path
) -> None:
    """Batches within the limit; a second query goes on where the first ended, a new queue too."""
    where = addresses(group)
    batches: list[list[tuple[int, int]]] = []

    def take(found: DataFrame, _number: int) -> None:
        rows = found.select("queue_id", "queue_offset").collect()
        batches.append([(row.queue_id, row.queue_offset) for row in rows])

    ends: list[object] = []

    def run() -> None:
        stream = spark.readStream.format("dledger").option("endpoints", where)
        stream = stream.option("topic", "flow").option("startingOffsets", "earliest")
        query = (
            stream.option("maxOffsetsPerTrigger", "40").load().writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(120)
        sources = [progress["sources"][0] for progress in query.recentProgress]
        ends.extend(json.loads(source["latestOffset"])["q"] for source in sources)

    fill(where, "flow", 100, size=10)
    run()
    assert [len(batch) for batch in batches if batch] == [40, 40, 20]
    # The end of the log, which the first batches lag behind.
    assert ends
    assert all(end == {"flow": {str(queue): 25 for queue in range(4)}} for end in ends)
    fill(where, "flow", 20, size=10)
    with Admin(where) as admin:
        admin.update_topic("flow", layout=[(group.group, 5)], read_queues=5)
    with Producer(where) as producer:
        # A route from before the change says that there is no such queue: it renews itself.
        wait_until(lambda: takes(producer, 4), "the new queue takes messages")
        assert [producer.send("flow", b"new", queue=4).offset for _ in range(2)] == [1, 2]
    run()
    rows = [row for batch in batches for row in batch]
    assert len(rows) == len(set(rows)) == 123
    old = {(queue, offset) for queue in range(4) for offset in range(30)}
    assert set(rows) == old | {(4, 0), (4, 1), (4, 2)}
