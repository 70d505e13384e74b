"""A folder of 60 batches over two queues, and the data source's readers of it, without Java.

As Spark's workers call them: the schema comes back, each partition travels pickled.
"""

import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from dledger_client.arrow.schema import schema_of
from dledger_client.spark.batch import LogReader, reader_for
from dledger_client.spark.failures import DledgerReadError
from dledger_client.spark.options import parse
from tests.unit.reading.data_folder import WrittenFolder, topic_id

BATCHES = 60
ORDERS = topic_id("orders")
Row = dict[str, Any]


def write(path: Path, swapped: int = 0) -> WrittenFolder:
    """Make a folder of several segments, all committed; `swapped` exchanges the queues."""
    folder = WrittenFolder(path)
    folder.topic("orders")
    for number in range(BATCHES):
        bodies = [b"%d-%d" % (number, each) + bytes(60) for each in range(5)]
        folder.batch(ORDERS, (number + swapped) % 2, bodies)
    folder.save()
    return folder


def reader_of(folder: Path, **options: str) -> LogReader:
    given = {"path": str(folder), **options}
    if not {"topics", "topicspattern", "assign"} & set(given):
        given.setdefault("topic", "orders")
    found = reader_for(given, schema(given))
    assert isinstance(found, LogReader)
    return found


def schema(given: dict[str, str]) -> StructType:
    """Return the columns that options ask for, as Spark would hand them back."""
    return from_arrow_schema(schema_of(parse(given).columns))


def rows_of(reader: LogReader) -> list[Row]:
    """Return the rows of a reader, planned here and read as if elsewhere."""
    rows: list[Row] = []
    for partition in reader.partitions():
        travelled = pickle.loads(pickle.dumps((reader, partition)))
        for batch in travelled[0].read(travelled[1]):
            rows += batch.to_pylist()
    return rows


def read(folder: Path, **options: str) -> list[Row]:
    return rows_of(reader_of(folder, **options))


def bodies(rows: list[Row]) -> dict[int, list[bytes]]:
    """Return bodies by queue; offsets are checked to follow one another."""
    by_queue: dict[int, dict[int, bytes]] = {}
    for row in rows:
        queue = by_queue.setdefault(row["queue_id"], {})
        assert row["queue_offset"] not in queue
        queue[row["queue_offset"]] = row["body"]
    for queue in by_queue.values():
        assert sorted(queue) == list(range(min(queue), min(queue) + len(queue)))
    return {number: [queue[at] for at in sorted(queue)] for number, queue in by_queue.items()}


def refused(folder: Path, **options: str) -> str:
    """Return what a read is refused with."""
    with pytest.raises(DledgerReadError) as caught:
        read(folder, **options)
    return str(caught.value)
