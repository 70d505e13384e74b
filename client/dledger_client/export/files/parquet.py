"""One range as one Parquet file, and back. Owns: encodings, row groups, the footer, the check.

The footer says what the file is: range, topic id, cluster, form of its columns, sum of its rows.
A file is believed only when all of it was read and agrees with its own footer.
"""

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dledger_client.arrow import schema_of
from dledger_client.export.errors import ExportCode, ExportError, damaged
from dledger_client.export.files.content import ContentSum
from dledger_client.export.layout import Piece, name_of
from dledger_client.export.manifests.records import (
    OFFSET,
    STORED,
    FileEntry,
    Identity,
    known,
    other_format,
)
from dledger_client.export.source import Compacted

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FOOTER: Final = "dledger"
"""Key of the footer's metadata; the value is JSON."""
SCHEMA_VERSION: Final = 1
ROW_GROUP_BYTES: Final = 64 << 20
ROW_GROUP_ROWS: Final = 1_000_000
ZSTD_LEVEL: Final = 3
READ_BYTES: Final = 4 << 20
"""Of a row group, about, in what is read at once."""
DAMAGE: Final = (
    OSError, pa.ArrowException, ValueError, TypeError, KeyError, OverflowError, RecursionError,
)  # fmt: skip
"""Errors of pyarrow, json and this module for bytes that are not those that were written."""
_DELTA: Final = (OFFSET, STORED, "born_timestamp")
"""Growing numbers: a few bits each."""
_DICTIONARY: Final = ("topic", "queue_id", "tag", "properties.key_value.key")
"""Few values, many times. Bodies never: a dictionary of them is a copy."""


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file says of itself."""

    cluster: str
    topic: str
    topic_id: str
    queue: int
    start: int
    end: int
    date: str
    columns: tuple[str, ...]
    schema: int
    crc: int


class Summary:
    """Checks the rows of a range as they pass: in order, within it, and of which times.

    Where records were compacted, there are fewer rows than offsets. Who wrote the file was told how
    many, and `finish` holds it against that. Who reads the file back has the sum of its rows.
    """

    def __init__(self, piece: Piece, columns: Sequence[str]) -> None:
        self._piece = piece
        self._sum = ContentSum(schema_of(columns))
        self._compacted = 0
        self.offset_min = piece.start
        self.offset_max = piece.start - 1
        self.time_min_ms = 0
        self.time_max_ms = 0

    @property
    def rows(self) -> int:
        """How many have passed."""
        return self._sum.rows

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch; ValueError when its offsets do not follow."""
        if not batch.num_rows:
            return
        offsets = pc.fill_null(batch.column(OFFSET), -1).to_numpy()
        low, high = int(offsets[0]), int(offsets[-1])
        follows = self.offset_max < low and high < self._piece.end
        if not (follows and bool((np.diff(offsets) > 0).all())):
            raise ValueError(
                f"offsets {low} to {high}, {batch.num_rows} rows, where offsets that grow should "
                f"be, above {self.offset_max} and below {self._piece.end}"
            )
        times = pc.min_max(pc.cast(batch.column(STORED), pa.int64())).as_py()
        earliest, latest = times["min"] // 1_000, times["max"] // 1_000
        first = not self.rows
        self.time_min_ms = earliest if first else min(self.time_min_ms, earliest)
        self.time_max_ms = latest if first else max(self.time_max_ms, latest)
        self.offset_min = low if first else self.offset_min
        self.offset_max = high
        self._sum.update(batch)

    def leave_out(self, compacted: Compacted) -> None:
        """Take offsets for those that the source says hold nothing any more."""
        self._compacted += compacted.offsets

    def finish(self) -> int:
        """Return the sum of the rows; ValueError when some are missing."""
        there, wanted = self.rows + self._compacted, self._piece.end - self._piece.start
        if there != wanted:
            raise ValueError(
                f"{self.rows} rows and {self._compacted} offsets whose records are compacted, of "
                f"{wanted} offsets"
            )
        return self.digest()

    def digest(self) -> int:
        """Return the sum of the rows that have passed."""
        return self._sum.digest()


def write(
    file: BinaryIO,
    identity: Identity,
    piece: Piece,
    columns: Sequence[str],
    batches: Iterable[pa.RecordBatch | Compacted],
) -> FileEntry:
    """Write a range; return its entry for a manifest. ValueError when rows are missing.

    While a row group is encoded and written, the next is read: each is about half of the work, and
    both let go of the interpreter. So two row groups at most are held.
    """
    schema = schema_of(columns)
    summary = Summary(piece, columns)
    summed = Summed(file)
    writer = pq.ParquetWriter(
        summed,
        schema,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        use_dictionary=[*_DICTIONARY],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _DELTA if name in columns},
        write_statistics=True,
        write_page_index=True,
        sorting_columns=[pq.SortingColumn(list(columns).index(OFFSET))],
    )
    try:
        with ThreadPoolExecutor(1) as behind:
            writing: Future[None] | None = None
            for group in _groups(batches, summary):
                if writing is not None:
                    writing.result()
                table = pa.Table.from_batches(group, schema)
                writing = behind.submit(writer.write_table, table, ROW_GROUP_ROWS)
            if writing is not None:
                writing.result()
        crc = summary.finish()
    except BaseException:
        # Nobody may close the writer, not even its finalizer: after a second interrupt the other
        # thread may still write. The file is thrown away.
        writer.is_open = False
        raise
    footer = {
        "cluster": identity.cluster, "topic": identity.topic, "topic_id": identity.topic_id,
        "queue": piece.queue, "start": piece.start, "end": piece.end, "date": piece.date,
        "columns": list(columns), "schema": SCHEMA_VERSION, "crc": crc,
    }  # fmt: skip
    writer.add_key_value_metadata({FOOTER: json.dumps(footer, sort_keys=True)})
    writer.close()
    file.flush()
    return _entry(identity, piece, summary, crc, (summed.size, summed.crc))


def _groups(
    batches: Iterable[pa.RecordBatch | Compacted], summary: Summary
) -> Iterator[Sequence[pa.RecordBatch]]:
    """Yield the rows of one row group each: every call of pyarrow's writer makes one."""
    held: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        if isinstance(batch, Compacted):
            summary.leave_out(batch)
            continue
        summary.add(batch)
        held.append(batch)
        size, rows = size + batch.nbytes, rows + batch.num_rows
        if size >= ROW_GROUP_BYTES or rows >= ROW_GROUP_ROWS:
            yield held
            held, size, rows = [], 0, 0
    if held:
        yield held


def _entry(
    identity: Identity, piece: Piece, summary: Summary, crc: int, written: tuple[int, int]
) -> FileEntry:
    """Return the entry for a manifest; `written` is the size and the sum of the file."""
    return FileEntry(
        name_of(identity.topic, piece), piece.queue, piece.start, piece.end, piece.date,
        summary.rows, written[0], crc, summary.offset_min, summary.offset_max,
        summary.time_min_ms, summary.time_max_ms, written[1],
    )  # fmt: skip


class Summed(io.RawIOBase):
    """A file that is written once, from its beginning to its end, and summed on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0
        self.crc = 0

    def writable(self) -> bool:
        """Tell pyarrow what it may do."""
        return True

    def write(self, data: "ReadableBuffer", /) -> int:
        """Write all of it."""
        view = memoryview(data)
        self.crc = crc32c.crc32c(view, self.crc)
        self.size += view.nbytes
        self._file.write(view)
        return view.nbytes


def size_and_sum(path: Path) -> tuple[int, int]:
    """Return how many bytes a file has, and their CRC-32C; OSError."""
    size = crc = 0
    with path.open("rb") as file:
        while data := file.read(READ_BYTES):
            size, crc = size + len(data), crc32c.crc32c(data, crc)
    return size, crc


def read_footer(path: Path) -> Footer:
    """Return a file's footer; ValueError when the file is not an export's, or not whole.

    ExportError NEWER_FORMAT when a later program wrote it.
    """
    try:
        found = pq.read_metadata(path).metadata or {}
        said = json.loads(found[FOOTER.encode()])
        if said["schema"] > SCHEMA_VERSION:
            raise other_format(f"{path} has schema", said["schema"], SCHEMA_VERSION)
        said["columns"] = tuple(said["columns"])
        return known(Footer, said)
    except DAMAGE as error:
        raise ValueError(
            f"not a whole file of an export: {type(error).__name__} {error}"
        ) from error


def check(path: Path, identity: Identity, piece: Piece, columns: Sequence[str]) -> FileEntry | None:
    """Read all of a file; return its entry, None when it is not whole.

    ExportError CONFLICT when the file is whole and of another export, NEWER_FORMAT when a later
    program wrote it: such a file is never replaced.
    """
    try:
        footer = read_footer(path)
    except ValueError:
        return None
    wanted = (identity.cluster, identity.topic_id, piece.queue, piece.start, piece.end)
    found = (footer.cluster, footer.topic_id, footer.queue, footer.start, footer.end)
    if found != wanted or footer.columns != tuple(columns) or footer.schema != SCHEMA_VERSION:
        raise ExportError(
            ExportCode.CONFLICT,
            f"{path} holds {footer.topic} {footer.topic_id} of {footer.cluster}, columns "
            f"{', '.join(footer.columns)}: this export would write something else there",
            "move the file away, or export into another folder",
        )
    summary = Summary(piece, columns)
    try:
        for batch in read_batches(path, columns):
            summary.add(batch)
        crc = summary.digest()
        written = size_and_sum(path)
    except DAMAGE:
        return None
    if crc != footer.crc:
        return None
    return _entry(identity, piece, summary, crc, written)


def read_batches(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows as they were written; one of DAMAGE when it is damaged.

    In portions of about READ_BYTES, and never of more than a row group: a number of rows alone is
    no bound, for bodies may have 4 MiB each.
    """
    schema = schema_of(columns)
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            rows = max(READ_BYTES * group.num_rows // max(group.total_byte_size, 1), 1)
            for batch in file.iter_batches(rows, [number], columns=list(columns)):
                yield batch if batch.schema.equals(schema) else batch.cast(schema)


def read_entry(path: Path, entry: FileEntry, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a manifest names; ExportError DAMAGED when the file holds others."""
    summary = Summary(entry.piece, columns)
    try:
        for batch in read_batches(path, columns):
            summary.add(batch)
            yield batch
        crc = summary.digest()
    except FileNotFoundError:
        raise damaged(entry.path, "is missing") from None
    except DAMAGE as error:
        raise damaged(entry.path, f"cannot be read: {error}") from error
    if crc != entry.crc:
        raise damaged(
            entry.path, f"the checksum of its rows is {crc:08x}, the manifest says {entry.crc:08x}"
        )


def check_written(path: Path, entry: FileEntry) -> None:
    """Raise DAMAGED unless a file has the bytes that its writer wrote."""
    try:
        written = size_and_sum(path)
    except FileNotFoundError:
        raise damaged(entry.path, "is missing") from None
    except OSError as error:
        raise damaged(entry.path, f"cannot be read: {error}") from error
    if written != (entry.bytes, entry.file_crc):
        raise damaged(entry.path, "its bytes differ from those that were written")
