"""Bytes that are not what was written, by whatever hand: damage, or a later program's.

Goal: each has its own code and remedy, nothing that may be of use is replaced, and no error of a
library comes through. Method: exports of a log in memory, then changed.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from dledger_client.export import ExportCode, ExportError, parquet, read_export, upkeep
from tests.unit.export.fakes import FakeLog
from tests.unit.export.test_files import run, storage_in


@pytest.mark.parametrize(
    "error",
    [
        pa.ArrowInvalid("x"), pa.ArrowNotImplementedError("x"), pa.ArrowKeyError("x"),
        pa.ArrowMemoryError("x"), OSError("x"), TypeError("x"), KeyError("x"),
    ],
)  # fmt: skip
def test_whatever_a_reader_says_of_damage_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Flipped bits make pyarrow say all of these: such a file is made again, or named."""
    storage = storage_in(tmp_path)
    run(storage, FakeLog({0: 5}))
    version = read_export(storage.root)

    def read(_path: Path, _columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        raise error
        yield

    monkeypatch.setattr(parquet, "read_batches", read)
    (problem,) = upkeep.verify(storage).problems
    assert problem.code is ExportCode.DAMAGED
    with pytest.raises(ExportError, match="DAMAGED"):
        version.read()
