"""What we use of pyarrow.parquet."""

from collections.abc import Iterator, Mapping, Sequence
from io import RawIOBase
from pathlib import Path
from types import TracebackType
from typing import Self

from pyarrow import RecordBatch, Schema, Table

class SortingColumn:
    def __init__(
        self, column_index: int, descending: bool = False, nulls_first: bool = False
    ) -> None: ...

class ColumnChunk:
    path_in_schema: str
    compression: str
    encodings: tuple[str, ...]
    is_stats_set: bool
    has_offset_index: bool

class RowGroup:
    num_rows: int
    total_byte_size: int
    def column(self, i: int) -> ColumnChunk: ...

class Metadata:
    num_rows: int
    num_columns: int
    num_row_groups: int
    metadata: dict[bytes, bytes] | None
    def row_group(self, i: int) -> RowGroup: ...

class ParquetWriter:
    is_open: bool
    def __init__(
        self,
        where: RawIOBase | Path,
        schema: Schema,
        *,
        compression: str = "snappy",
        compression_level: int | None = None,
        use_dictionary: Sequence[str] = ...,
        column_encoding: Mapping[str, str] | None = None,
        write_statistics: bool = True,
        write_page_index: bool = False,
        sorting_columns: Sequence[SortingColumn] | None = None,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def write_table(self, table: Table, row_group_size: int | None = None) -> None: ...
    def add_key_value_metadata(self, key_value_metadata: Mapping[str, str]) -> None: ...
    def close(self) -> None: ...

class ParquetFile:
    num_row_groups: int
    metadata: Metadata
    def __init__(self, source: Path) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def iter_batches(
        self, batch_size: int, row_groups: Sequence[int], *, columns: Sequence[str]
    ) -> Iterator[RecordBatch]: ...

def read_metadata(where: Path) -> Metadata: ...
def read_table(
    source: Path | str | Sequence[str], *, partitioning: str | None = "hive"
) -> Table: ...
