"""What our Spark source is compared with: the same reading, its rows handed over one by one.

A module of its own, because Spark's workers import it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from dledger_client.arrow.schema import PROPERTIES
from dledger_client.spark.batch import LogPartition, LogReader, columns_of, read_partition
from dledger_client.spark.options import parse
from dledger_client.spark.source import DledgerSource


class TupleSource(DledgerSource):
    """`format("dledger_tuples")`: what a source without Arrow gives to Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "dledger_tuples"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of tuples."""
        return TupleReader(self.options, columns_of(schema))


class TupleReader(DataSourceReader):
    """Plans as ours does."""

    def __init__(self, options: Mapping[str, str], columns: tuple[str, ...]) -> None:
        self._settings = parse(options)
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        return LogReader(self._settings).partitions()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Yield records, a tuple each."""
        assert isinstance(partition, LogPartition)
        for batch in read_partition(partition, self._columns):
            columns: list[list[Any]] = [
                batch.column(place).to_pylist() for place in range(len(self._columns))
            ]
            at = self._columns.index(PROPERTIES)
            columns[at] = [dict(pairs) for pairs in columns[at]]
            yield from zip(*columns, strict=True)
