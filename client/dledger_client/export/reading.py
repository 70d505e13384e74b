"""Reading a version of an export back, by its manifests alone. Files beside them are not looked at.

```
table = read_export("/lake/orders", version=3).read()  # a version is a list of files
```

`dledger_client.spark.read_export` gives the same as a DataFrame.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dledger_client.arrow import schema_of
from dledger_client.export.errors import ExportCode, ExportError
from dledger_client.export.files.parquet import read_entry
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.manifests import history
from dledger_client.export.manifests.records import FileEntry, Manifest


@dataclass(frozen=True, slots=True)
class ExportVersion:
    """One version: which files, what is in them."""

    root: Path
    manifest: Manifest
    files: tuple[FileEntry, ...]
    """In order of queue and offset."""

    @property
    def paths(self) -> list[str]:
        """Where the files are; for any reader of Parquet."""
        return [str(self.root / entry.path) for entry in self.files]

    @property
    def rows(self) -> int:
        """How many records, by the manifests."""
        return sum(entry.rows for entry in self.files)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order of queue and offset; each file is checked against its manifest.

        ExportError DAMAGED, possibly behind rows of the damaged file.
        """
        for entry in self.files:
            yield from read_entry(self.root / entry.path, entry, self.manifest.columns)

    def read(self) -> pa.Table:
        """Return all rows in memory, checked."""
        return pa.Table.from_batches(self.batches(), schema_of(self.manifest.columns))


def read_export(path: Path | str, version: int | None = None) -> ExportVersion:
    """Return a version of an export, the newest by default.

    ExportError: NOT_AN_EXPORT, VERSION_UNKNOWN, VERSION_GONE, DAMAGED, NEWER_FORMAT.
    """
    root = Path(path)
    found = history.load(ExportStorage(root), version)
    files = sorted(found.files.values(), key=lambda each: (each.queue, each.start))
    missing = [entry.path for entry in files if not (root / entry.path).exists()]
    if missing and version is not None and version < history.last_number(ExportStorage(root)):
        raise ExportError(
            ExportCode.VERSION_GONE,
            f"{root}: {missing[0]}, {len(missing)} files of version {version} in all, were "
            "collected after a compaction",
            "read a later version",
        )
    return ExportVersion(root, found.last, tuple(files))
