"""A version of an export as a DataFrame: the files that its manifests name, and no others."""

import re
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DateType, IntegerType

_PATTERN: Final = re.compile(r"[\\{}\[\]*?]")
"""Characters with a meaning in Hadoop's patterns."""


def read_export(spark: SparkSession, path: str | Path, version: int | None = None) -> DataFrame:
    """Return a version of an export, the newest by default; ExportError as without Spark.

    The folders' columns (dt, queue) are there too; a filter by `dt` skips files. The types are
    given, for Spark would infer from a folder's name that the topic "007" is the number 7. Driver
    and executors must see the folder at the same place.
    """
    # Workers import this package too, and need none of these.
    from dledger_client.arrow import schema_of
    from dledger_client.export import read_export as read_version
    from dledger_client.export.layout import Layout

    found = read_version(path, version)
    schema = from_arrow_schema(schema_of(found.manifest.columns))
    if found.manifest.layout is Layout.DATE:
        schema = schema.add("dt", DateType())
    schema = schema.add("queue", IntegerType())
    if not found.paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", f"file:{found.root.absolute()}")
    return reader.parquet(*(_literal(Path(each).absolute()) for each in found.paths))


def _literal(path: Path) -> str:
    """Return a path as Spark takes it: of files, whatever its default file system is.

    Hadoop takes paths for patterns; a bracket in a folder's name is none.
    """
    return "file:" + _PATTERN.sub(r"\\\g<0>", str(path))
