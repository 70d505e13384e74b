"""Row groups of a file: gathered, written one at a time, and what ends a write half way."""

import errno
import io
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dledger_client.export import ExportCode, read_export, upkeep
from dledger_client.export.files import parquet
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import Piece
from dledger_client.export.manifests import history
from dledger_client.export.planning import COLUMNS as EXPORTED
from dledger_client.export.planning import MIB
from tests.unit.export.fakes import IDENTITY, FakeLog, QuickDisk, rows_of
from tests.unit.export.test_files import OPTIONS, refusal, run, storage_in

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def test_row_groups_are_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one for each batch that comes; and a new one when enough is held."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 2_500)
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 40}), replace(OPTIONS, file_bytes=64 * MIB))
    (entry,) = read_export(storage.root).files
    groups = pq.read_metadata(storage.path(entry.path)).num_row_groups
    assert 1 < groups < -(-40 // 7)


@pytest.mark.parametrize("room", range(1_000, 4_000, 200))
def test_a_disk_that_fills_up_names_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """Whichever write of a file it is that fails, while the next row group is read."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 500)

    class Filling(io.FileIO):
        def write(self, data: "ReadableBuffer", /) -> int:
            if self.tell() + memoryview(data).nbytes > room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data)

    class FillingDisk(QuickDisk):
        def create(self, path: Path) -> BinaryIO:
            super().create(path).close()
            return io.BufferedWriter(Filling(path, "wb"), 1)

    storage = ExportStorage(tmp_path / "lake", FillingDisk())
    assert refusal(storage, FakeLog({0: 40})).code is ExportCode.FOLDER_FAILED
    assert [name for name in storage.walk(".") if name.endswith(".parquet")] == []
    assert history.last_number(storage) == -1


def test_one_row_group_waits_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third would be memory that nobody has counted."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)
    under_way: list[bool] = []

    class Later(Future[None]):
        """Writes when somebody waits for it."""

        def __init__(self, write: Callable[[], None]) -> None:
            super().__init__()
            self._write = write

        def result(self, timeout: float | None = None) -> None:
            self._write()
            under_way.clear()

    class Lazy(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
            assert under_way == []
            under_way.append(True)
            return Later(partial(fn, *args))

    monkeypatch.setattr(parquet, "ThreadPoolExecutor", Lazy)
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 40}), replace(OPTIONS, file_bytes=64 << 20))
    assert upkeep.verify(storage).problems == ()
    (entry, *_) = read_export(storage.root).files
    assert pq.read_metadata(storage.path(entry.path)).num_row_groups > 2


def test_nothing_is_closed_beside_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever interrupts twice ends the wait for a write that goes on."""
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 500)
    begun, may_end, closed = Event(), Event(), list[bool]()

    class Writer(pq.ParquetWriter):
        def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
            begun.set()
            assert may_end.wait(60)
            super().write_table(table, row_group_size)

        def close(self) -> None:
            closed.append(may_end.is_set())
            super().close()

    class Impatient(ThreadPoolExecutor):
        def __exit__(self, *_: object) -> None:
            raise KeyboardInterrupt

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows_of(0, 0, 30, EXPORTED, 40)
        assert begun.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(pq, "ParquetWriter", Writer)
    monkeypatch.setattr(parquet, "ThreadPoolExecutor", Impatient)
    try:
        with (tmp_path / "a").open("wb") as file, pytest.raises(KeyboardInterrupt):
            parquet.write(file, IDENTITY, Piece(0, 0, 60), EXPORTED, batches())
        assert closed == []
    finally:
        may_end.set()
