"""`spark.read.format("dledger")`: what Spark sees first. The reading is in `batch.py`.

Spark imports this module in every Python process to look up a format. One module that cannot be
imported hides the formats of all others. So this module imports nothing that may be missing.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DledgerSource(DataSource):
    """Committed records of topics as a table; options in `options.py`, columns in `arrow`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "dledger"

    def schema(self) -> "StructType | str":
        """Return the columns that the options ask for."""
        from dledger_client.spark.batch import schema_for

        return schema_for(self.options)

    def reader(self, schema: "StructType") -> DataSourceReader:
        """Return a reader of these columns."""
        from dledger_client.spark.batch import reader_for

        return reader_for(self.options, schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return a streaming reader of these columns."""
        from dledger_client.spark.stream import stream_reader_for

        return stream_reader_for(self.options, schema)
