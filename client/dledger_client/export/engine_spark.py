"""Spark as a scheduler of exports: its tasks write Parquet with pyarrow. Owns: jobs and partitions.

Rows never enter the JVM; a task returns what a manifest says of its file. Retries and speculation
are Spark's, and harmless: every attempt at a piece makes the same file under the same name. The
folder must be one that all executors and the driver see.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyspark
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from dledger_client.export.errors import ExportCode, ExportError
from dledger_client.export.layout import Piece
from dledger_client.export.reading import read_export as read_version
from dledger_client.export.task import Made, Work, make_one

if TYPE_CHECKING:
    from dledger_client.export.engine_local import Progress


class SparkEngine:
    """Makes files in Spark tasks, one piece each."""

    def __init__(
        self,
        session: Callable[[], SparkSession],
        progress: "Progress" = lambda _files, _rows, _bytes: None,
    ) -> None:
        """`session` is called when there is something to do: an empty run starts no JVM."""
        self._session = session
        self._progress = progress

    def run(self, work: Work, pieces: Sequence[Piece]) -> list[Made]:
        """Return what became of each piece. ExportError of the first that fails for good."""
        if not pieces:
            return []
        context = self._session().sparkContext
        numbered = context.parallelize([*pieces], len(pieces))
        try:
            results = numbered.map(lambda piece: _attempt(work, piece)).collect()
        except PythonException as error:
            raise ExportError(
                ExportCode.WORKER_DIED,
                f"Spark {pyspark.__version__} gave up a task: {str(error).splitlines()[-1]}",
                "run it again: what was made is kept",
            ) from error
        for each in results:
            if isinstance(each, ExportError):
                raise each
        made = [each for each in results if isinstance(each, Made)]
        rows = sum(each.entry.rows for each in made if each.entry is not None)
        self._progress(len(made), rows, sum(piece.size for piece in pieces))
        return made


def _attempt(work: Work, piece: Piece) -> Made | ExportError:
    """Make a piece; what a retry cannot help is returned, because Spark would hide what it is."""
    try:
        return make_one(work, piece, lambda _rows, _bytes: None)
    except ExportError as error:
        return error


def read_export(spark: SparkSession, path: str, version: int | None = None) -> DataFrame:
    """Return a version of an export as a DataFrame, by its manifests; ExportError as without Spark.

    The folders' columns (topic, dt, queue) are there, too; `dt` prunes.
    """
    found = read_version(path, version)
    return spark.read.option("basePath", path).parquet(*found.paths)
