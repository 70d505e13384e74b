"""One task: a range becomes a file, whoever else is at it. Owns: reuse, installation, lost ranges.

Engines call `make_one` in whatever process they like, as often as they like: the result is the same
file under the same name.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from dledger_client.export.errors import ExportCode, ExportError, damaged, folder_failed, is_lasting
from dledger_client.export.layout import Piece, name_of
from dledger_client.export.parquet import check, write
from dledger_client.export.planning import WRITE_AGAIN
from dledger_client.export.records import FileEntry, Gap, Identity
from dledger_client.export.source import DataLost, RangeSource
from dledger_client.export.storage import Storage

Watch = Callable[[int, int], None]
"""Hears of each batch: its rows and bytes. May wait, to keep a rate; may raise, to end the task."""


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of a plan share. Pickles."""

    storage: Storage
    identity: Identity
    columns: tuple[str, ...]
    rows: RangeSource
    accept_data_loss: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """What became of a piece."""

    entry: FileEntry | None
    """None: all of it is lost."""
    gap: Gap | None = None
    reused: bool = False
    """An earlier attempt, or another exporter, had written it."""
    replaced: bool = False
    """It took the place of a damaged one, which another exporter may have replaced at once: by the
    same rows, but in other bytes if its pyarrow is another."""


def make_one(work: Work, piece: Piece, watch: Watch) -> Made:
    """Return the file of a piece, durable.

    ExportError: CONFLICT, DATA_LOSS, DAMAGED, FOLDER_FAILED.
    """
    first = piece.start
    while True:
        try:
            made = _file_of(work, piece, watch)
        except OSError as error:
            # Said here, where it is known what it is: Spark would try again, and speak of itself.
            if not is_lasting(error):
                raise
            raise folder_failed(str(work.storage.root), error) from error
        except DataLost as lost:
            if not work.accept_data_loss:
                raise ExportError(
                    ExportCode.DATA_LOSS,
                    f"{piece.describe()} were trimmed since the plan was made, the earliest is "
                    f"{lost.minimum}",
                    WRITE_AGAIN,
                ) from lost
            minimum = max(lost.minimum, piece.start + 1)  # each round is shorter
            if minimum >= piece.end:
                return Made(None, Gap(piece.queue, first, piece.end))
            piece = replace(piece, start=minimum)
            continue
        gap = Gap(piece.queue, first, piece.start) if piece.start > first else None
        return replace(made, gap=gap)


def _file_of(work: Work, piece: Piece, watch: Watch) -> Made:
    storage, name = work.storage, name_of(work.identity.topic, piece)
    found = _found(work, piece)
    if found is not None:
        watch(found.rows, 0)
        return Made(found, reused=True)
    with storage.stage(is_slow=True) as staged:
        batches = _watched(work.rows.read(piece, work.columns), watch)
        try:
            entry = write(staged.file, work.identity, piece, work.columns, batches)
        except ValueError as error:
            raise damaged(piece.describe(), f"the log gave other rows: {error}") from error
        if not storage.install(staged, name):
            found = _found(work, piece)
            if found is not None:
                return Made(found, reused=True)
            # Whole files of others were refused above: what is left is damaged.
            storage.install(staged, name, over=True)
            return Made(entry, replaced=True)
    return Made(entry)


def _found(work: Work, piece: Piece) -> FileEntry | None:
    """Return the file that is there for a piece, if it is whole, and made durable."""
    name = name_of(work.identity.topic, piece)
    path = work.storage.path(name)
    if not path.exists():
        return None
    found = check(path, work.identity, piece, work.columns)
    if found is not None:
        work.storage.settle(name)
    return found


def _watched(batches: Iterator[pa.RecordBatch], watch: Watch) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        watch(batch.num_rows, batch.nbytes)
        yield batch
