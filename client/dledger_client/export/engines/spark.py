"""Spark as a scheduler of exports: its tasks write Parquet with pyarrow. Owns: jobs and partitions.

Rows never enter the JVM; a task returns its file's entry for the manifest. Spark retries tasks and
runs them twice at times. That is harmless: every attempt at a piece makes the same file under the
same name. All executors and the driver must see the folder.
"""

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dledger_client.errors import ClientError
from dledger_client.export.errors import ExportCode, ExportError
from dledger_client.export.layout import Piece
from dledger_client.export.task import Made, Work, make_one

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

    from dledger_client.export.engines.local import Progress


LOOK_SECONDS: Final = 0.5
"""Between two looks at what tasks have done."""


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
        """Return what became of each piece. ExportError, ClientError of the first that fails."""
        if not pieces:
            return []
        context = self._session().sparkContext
        done = Done(context.accumulator(0), context.accumulator(0), context.accumulator(0))
        numbered = context.parallelize([*pieces], len(pieces))
        try:
            with _shown(done, self._progress):
                results = numbered.map(lambda piece: _attempt(work, piece, done)).collect()
        except (PySparkException, Py4JError) as error:
            raise ExportError(
                ExportCode.WORKER_DIED,
                f"Spark {pyspark.__version__} gave up a task: {_reason(error)}",
                "run the export again: finished files are kept; executors may have too little"
                " memory",
            ) from error
        for each in results:
            if isinstance(each, ExportError | ClientError):
                raise each
        return [each for each in results if isinstance(each, Made)]


class Done(NamedTuple):
    """Rows, files and bytes of the tasks that ended. Spark adds them up on the driver."""

    files: "Accumulator[int]"
    rows: "Accumulator[int]"
    bytes: "Accumulator[int]"


def _attempt(work: Work, piece: Piece, done: Done) -> Made | ExportError | ClientError:
    """Make a piece. Return an error that no retry helps: Spark would hide what it is."""

    def watch(rows: int, size: int) -> None:
        done.rows.add(rows)
        done.bytes.add(size)

    try:
        made = make_one(work, piece, watch)
    except (ExportError, ClientError) as error:
        return error
    done.files.add(1)
    return made


@contextmanager
def _shown(done: Done, progress: "Progress") -> Generator[None]:
    """Tell how far tasks are while the block waits for them, and at its end."""
    is_over = threading.Event()

    def tell() -> None:
        progress(done.files.value, done.rows.value, done.bytes.value)

    def watch() -> None:
        while not is_over.wait(LOOK_SECONDS):
            tell()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
    tell()


def _reason(error: Exception) -> str:
    """Return one line of what Spark says: the last of a Python error, the first of Java's."""
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getMessage()).splitlines()[0]
    return str(error).splitlines()[-1]
