"""Merges small files that lie side by side, as a version of its own. Owns: which files, and how.

A compaction merges adjacent ranges of one queue and day into one file, named for their union. It
has a plan and a manifest like an export: deterministic, exclusive, finished by any process that
finds it open. The rows stay the same; the manifest names the files it adds and those they replace.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dledger_client.export.files.parquet import read_entry
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import Piece
from dledger_client.export.manifests.checkpoint import Version
from dledger_client.export.manifests.records import COMPACT, FileEntry, Merge, Plan
from dledger_client.export.source import Compacted


@dataclass(frozen=True, slots=True)
class MergeSource:
    """Reads ranges from the files that they replace; each is checked while it is read."""

    storage: ExportStorage
    merges: tuple[Merge, ...]

    def read(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch | Compacted]:
        """Yield a merge's rows; ExportError DAMAGED."""
        (merge,) = (each for each in self.merges if each.piece == piece)
        for entry in merge.inputs:
            yield from read_entry(self.storage.path(entry.path), entry, columns)
            if compacted := entry.end - entry.start - entry.rows:
                yield Compacted(compacted)


def merges_of(files: Sequence[FileEntry], size_max: int) -> list[Merge]:
    """Return what to merge: neighbours of one queue and day, up to `size_max` bytes together."""
    found: list[Merge] = []
    run: list[FileEntry] = []
    for entry in [*sorted(files, key=lambda each: (each.queue, each.start)), None]:
        if entry is not None and run and _goes_on(run, entry, size_max):
            run.append(entry)
            continue
        if len(run) > 1:
            size = sum(each.bytes for each in run)
            piece = Piece(run[0].queue, run[0].start, run[-1].end, run[0].date, size)
            found.append(Merge(piece, tuple(run)))
        run = [entry] if entry is not None else []
    return found


def _goes_on(run: Sequence[FileEntry], entry: FileEntry, size_max: int) -> bool:
    last = run[-1]
    neighbours = (last.queue, last.date, last.end) == (entry.queue, entry.date, entry.start)
    return neighbours and sum(each.bytes for each in run) + entry.bytes <= size_max


def make_compaction(version: Version, size_max: int) -> Plan | None:
    """Return the plan of a compaction; None when nothing lies side by side."""
    merges = merges_of(list(version.files.values()), size_max)
    if not merges:
        return None
    last = version.last
    return Plan(
        last.number + 1, COMPACT, last.identity, last.layout, last.columns, last.end, last.end,
        (), tuple(merges), (),
    )  # fmt: skip
