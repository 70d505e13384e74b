"""`spark.read.format("dledger")` on a real group: rows equal the log, errors say what to do.

Goal: what a query sees is what was committed, each record once, also while members die and the
head of the log is trimmed. Method: one group of three processes for all tests, topics of their
own, one Spark session.
"""

import threading

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, Filter
from pyspark.sql.types import BinaryType, LongType, StructType

from dledger_broker.local.cluster import LocalCluster
from dledger_client import Admin, Producer
from dledger_client.errors import Held
from dledger_client.spark import DledgerSource
from dledger_client.spark.batch import LogPartition, PushingReader, reader_for
from tests.integration.test_reading import addresses, fill, leader_of, until


def frame(spark: SparkSession, local: LocalCluster, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("dledger").option("endpoints", addresses(local))
    return reader.option("topic", topic).options(**options).load()


def bodies(found: DataFrame) -> dict[int, list[bytes]]:
    """Return bodies by queue in the order of offsets; offsets are checked to be all there."""
    by_queue: dict[int, dict[int, bytes]] = {}
    for row in found.select("queue_id", "queue_offset", "body").collect():
        queue = by_queue.setdefault(row.queue_id, {})
        assert row.queue_offset not in queue, f"{row.queue_id}/{row.queue_offset} twice"
        queue[row.queue_offset] = bytes(row.body)
    for queue in by_queue.values():
        assert sorted(queue) == list(range(min(queue), min(queue) + len(queue)))
    return {number: [queue[at] for at in sorted(queue)] for number, queue in by_queue.items()}


def test_rows_equal_the_log(spark: SparkSession, group: LocalCluster) -> None:
    """All columns, as sent; `format("dledger")` is known without a word (auto-registration)."""
    where = addresses(group)
    with Admin(where) as admin:
        admin.create_topic("rich", queues_per_group=2)
    with Producer(where) as producer:
        sent = [
            producer.send(
                "rich", b"body-%d" % number, queue=0, tag="blue" if number % 2 else "",
                keys=(f"k{number}", "all"), properties={"city": "Zürich", "n": str(number)},
            )
            for number in range(5)
        ]  # fmt: skip
    found = frame(spark, group, "rich", includeProperties="true").orderBy("queue_offset").collect()
    assert [row.queue_offset for row in found] == [result.offset for result in sent]
    third = found[3].asDict()
    assert bytes(third["body"]) == b"body-3"
    assert (third["topic"], third["queue_id"], third["tag"]) == ("rich", 0, "blue")
    assert third["key"] == "k3 all"
    assert third["properties"] == {"city": "Zürich", "n": "3"}
    assert found[2].tag is None
    assert third["store_timestamp"] >= third["born_timestamp"]


def test_narrow_schemas_sql_and_empty_topics(spark: SparkSession, group: LocalCluster) -> None:
    """Fewer columns by `.schema()` or `columns`; a view; a topic without a record."""
    sent = fill(addresses(group), "plain", 100, size=10)
    narrow = StructType().add("queue_offset", LongType()).add("body", BinaryType())
    reader = spark.read.format("dledger").schema(narrow).option("endpoints", addresses(group))
    assert reader.option("topic", "plain").load().count() == 100
    only = frame(spark, group, "plain", columns="queue_offset")
    assert only.columns == ["queue_offset"]
    assert only.agg({"queue_offset": "sum"}).collect()[0][0] == 4 * sum(range(25))
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW plain USING dledger OPTIONS "
        f"(endpoints '{addresses(group)}', topic 'plain')"
    )
    assert spark.sql("SELECT count(*) FROM plain WHERE queue_id = 1").collect()[0][0] == 25
    with Admin(addresses(group)) as admin:
        admin.create_topic("empty", queues_per_group=2)
    assert frame(spark, group, "empty").count() == 0
    part = frame(spark, group, "plain", startingOffsets='{"0":20,"1":-1,"2":-1,"3":-2}')
    assert bodies(part) == {0: sent[0][20:], 3: sent[3]}


class Running:
    """A query that runs in a thread, while a test does what it does."""

    def __init__(self, query: DataFrame) -> None:
        self._query = query
        self._found: dict[int, list[bytes]] | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found = bodies(self._query)
        except BaseException as error:  # told by the test's own thread
            self._error = error

    def wait_tasks(self, count: int) -> None:
        """Wait until so many tasks are done, or all is."""
        tracker = self._query.sparkSession.sparkContext.statusTracker()

        def done() -> bool:
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            return not self.is_running or any(
                info is not None and info.numCompletedTasks >= count for info in infos
            )

        until(done, f"{count} tasks are done")

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> dict[int, list[bytes]]:
        """Return the bodies; raise what the query raised."""
        self._thread.join(120)
        if self._error is not None:
            raise self._error
        assert self._found is not None, "the query did not end"
        return self._found


def test_members_die_while_a_query_runs(spark: SparkSession, group: LocalCluster) -> None:
    """The leader and then a follower, each while tasks run: every row comes, once."""
    sent = fill(addresses(group), "stormy", 3_000)
    query = frame(spark, group, "stormy", maxBytesPerPartition="200k", readFrom="any")
    running = Running(query)
    running.wait_tasks(2)
    leader = leader_of(group)
    group.kill(leader)
    running.wait_tasks(8)
    group.start(leader)
    follower = next(name for name in group.member_names if name not in (leader, leader_of(group)))
    group.kill(follower)
    found = running.result()
    group.start(follower)
    assert found == sent


def test_a_trim_while_tasks_run_takes_nothing_from_them(
    spark: SparkSession, group: LocalCluster
) -> None:
    """It stops at the hold; one that holds nothing is told what it lost, and never less."""
    sent = fill(addresses(group), "trimmed", 3_000)
    ends = {queue: len(of_queue) for queue, of_queue in sent.items()}
    with Admin(addresses(group)) as admin:
        running = Running(frame(spark, group, "trimmed", maxBytesPerPartition="200k"))
        running.wait_tasks(2)
        for queue, end in ends.items():
            with pytest.raises(Held, match="shared-600000-0"):
                admin.trim("trimmed", queue, end)
        assert running.is_running, "the trims came while tasks ran"
        assert running.result() == sent
        fill(addresses(group), "loose", 3_000)
        loose = frame(spark, group, "loose", maxBytesPerPartition="200k", holdMs="0")
        running = Running(loose)
        running.wait_tasks(2)
        for queue, end in ends.items():
            assert admin.trim("loose", queue, end) == end
        with pytest.raises(PySparkException, match=r"OFFSET_OUT_OF_RANGE.*load\(\) again"):
            running.result()


def test_a_query_holds_what_it_reads(spark: SparkSession, group: LocalCluster) -> None:
    """A trim under a query is refused, and done when its hold is gone."""
    sent = fill(addresses(group), "held", 80, size=10)
    with Admin(addresses(group)) as admin:
        assert bodies(frame(spark, group, "held", holdOwner="a-job")) == sent
        with pytest.raises(Held, match="a-job"):
            admin.trim("held", 0, 10)
        admin.hold("a-job", "held", 0, 0, 0)
        assert admin.trim("held", 0, 10) == 10
    assert bodies(frame(spark, group, "held"))[0] == sent[0][10:]
    lost = frame(
        spark, group, "held", startingOffsets='{"0":0,"1":0,"2":0,"3":0}', failOnDataLoss="false"
    )
    assert bodies(lost)[0] == sent[0][10:]


def test_filters_are_pushed_down(spark: SparkSession, group: LocalCluster) -> None:
    """Asked for, what a filter leaves out is not read; the answer is the same as without."""
    fill(addresses(group), "sifted", 400, size=10)
    plain = frame(spark, group, "sifted")
    middle = plain.agg({"store_timestamp": "avg"}).collect()[0][0]
    conditions = [
        "queue_id = 2",
        "queue_id IN (1, 3) AND queue_offset >= 30 AND queue_offset < 40",
        "queue_offset = 7",
        f"store_timestamp > timestamp_micros({int(middle * 1_000_000)})",
        "queue_offset > 95 OR queue_id = 0",
        "queue_id = 9",
    ]
    for condition in conditions:
        pushed = frame(spark, group, "sifted", pushdown="true")
        assert bodies(pushed.where(condition)) == bodies(plain.where(condition)), condition


def test_few_records_of_a_key_are_read_alone(spark: SparkSession, group: LocalCluster) -> None:
    """What is near to them is read, and the rest is not; a key that many have narrows nothing."""
    where = addresses(group)
    with Admin(where) as admin:
        admin.create_topic("keyed", queues_per_group=2)
    with Producer(where) as producer:
        for number in range(1_000):
            keys = (f"k{number % 500}", "tab\there", "even" if number % 2 == 0 else "odd")
            producer.send_async("keyed", b"%d" % number, queue=number % 2, keys=keys)
        producer.flush()
    options = {"endpoints": where, "topic": "keyed", "pushdown": "true", "columns": "queue_offset"}

    def planned(key: str) -> int:
        reader = reader_for(options, StructType().add("queue_offset", LongType()))
        assert isinstance(reader, PushingReader)
        filters: list[Filter] = [EqualTo(("key",), key)]
        assert list(reader.pushFilters(filters)) == filters
        parts = [part for part in reader.partitions() if isinstance(part, LogPartition)]
        return sum(each.records for part in parts for each in part.ranges)

    assert [planned(key) for key in ("k7", "k7 odd", "no", "tab\there k7", "even")] == [
        251, 251, 0, 1_000, 1_000
    ]  # fmt: skip
    found = frame(spark, group, "keyed", pushdown="true").where("key = 'k7 tab\there odd'")
    assert sorted(bytes(row.body) for row in found.collect()) == [b"507", b"7"]


WRONG = [
    ({"startingOffset": "earliest"}, "DLEDGER_INVALID_ARGUMENT: option 'startingoffset'"),
    ({"startingOffsets": '{"0":1}'}, "misses wrong/1"),
    ({"startingOffsets": '{"0":1,"1":99}'}, "DLEDGER_OFFSET_OUT_OF_RANGE"),
    ({"columns": "boddy"}, "did you mean 'body'"),
]


@pytest.mark.parametrize(("options", "says"), WRONG)
def test_errors_say_what_to_do(
    spark: SparkSession, group: LocalCluster, options: dict[str, str], says: str
) -> None:
    """The code and the remedy reach the user through Spark's own exceptions."""
    fill(addresses(group), "wrong", 10, size=10, queues=2)
    with pytest.raises(PySparkException) as caught:
        frame(spark, group, "wrong", **options).collect()
    assert says in str(caught.value)


def test_unknown_topics_schemas_and_clusters(spark: SparkSession, group: LocalCluster) -> None:
    """A topic that is not there, a column of another type, nobody at the address."""
    with pytest.raises(PySparkException, match="DLEDGER_TOPIC_NOT_FOUND"):
        frame(spark, group, "never").collect()
    reader = spark.read.format("dledger").option("endpoints", addresses(group))
    with pytest.raises(PySparkException, match="column body is string, it must be BINARY"):
        reader.option("topic", "plain").schema("body STRING").load().collect()
    with pytest.raises(PySparkException, match="DLEDGER_NOT_PROPOSED: no routes"):
        spark.read.format("dledger").option("endpoints", "127.0.0.1:1").option(
            "topic", "x"
        ).load().collect()
    assert DledgerSource.name() == "dledger"
