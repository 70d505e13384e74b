"""One task: a range becomes a file, whoever else works on it. Owns: reuse, installation, gaps.

Engines may call `make_one` in any process and any number of times: the result is the same file
under the same name. Where records are missing within a range, several files take the place of the
one: one for each range between the gaps.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from dledger_client.export.errors import ExportCode, ExportError, damaged, folder_failed, is_lasting
from dledger_client.export.files.parquet import check, write
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import Piece, name_of
from dledger_client.export.manifests.records import FileEntry, Gap, Identity, unreadable_gap
from dledger_client.export.planning import WRITE_AGAIN
from dledger_client.export.source import Compacted, DataLost, RangeSource, RangeUnreadable
from dledger_client.unreadable import EXPORT_REMEDY

Watch = Callable[[int, int], None]
"""Gets rows and bytes of each batch. May wait, to keep a rate; may raise, to end the task."""


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of a plan share. Pickles."""

    storage: ExportStorage
    identity: Identity
    columns: tuple[str, ...]
    rows: RangeSource
    accept_data_loss: bool = False
    accept_unreadable: bool = False


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A file of a piece, or of a part of it."""

    entry: FileEntry
    reused: bool = False
    """An earlier attempt, or another exporter, had written the file."""
    replaced: bool = False
    """The file took the place of a damaged one. Another exporter may have replaced that at the same
    time: by the same rows, but in other bytes if its pyarrow is another."""


@dataclass(frozen=True, slots=True)
class Made:
    """What became of a piece: files and gaps cover it, each offset once."""

    files: tuple[MadeFile, ...]
    gaps: tuple[Gap, ...] = ()


def make_one(work: Work, piece: Piece, watch: Watch) -> Made:
    """Return the files of a piece, durable.

    ExportError: CONFLICT, DATA_LOSS, UNREADABLE, DAMAGED, FOLDER_FAILED.
    """
    files: list[MadeFile] = []
    gaps: list[Gap] = []
    left = [piece]
    """Parts of the piece, the last one next."""
    while left:
        part = left.pop()
        try:
            files.append(_file_of(work, part, watch))
        except OSError as error:
            # Said here, where the cause is known: Spark would try again, and name itself.
            if not is_lasting(error):
                raise
            raise folder_failed(str(work.storage.root), error) from error
        except (DataLost, RangeUnreadable) as missing:
            gap = _gap_of(work, part, missing)
            gaps.append(gap)
            # Each round has less to do: a gap is never empty.
            around = ((gap.end, part.end), (part.start, gap.start))
            left += [replace(part, start=low, end=high) for low, high in around if low < high]
    return Made(tuple(files), _joined(gaps))


def _gap_of(work: Work, part: Piece, missing: DataLost | RangeUnreadable) -> Gap:
    """Return which records of a part are missing; ExportError unless that is accepted."""
    if isinstance(missing, DataLost):
        if work.accept_data_loss:
            return Gap(part.queue, part.start, min(max(missing.minimum, part.start + 1), part.end))
        raise ExportError(
            ExportCode.DATA_LOSS,
            f"{part.describe()} were trimmed since the plan was made, the earliest is "
            f"{missing.minimum}",
            WRITE_AGAIN,
        ) from missing
    what = missing.what
    if work.accept_unreadable:
        assert part.start <= what.start < what.end <= part.end, f"{what} of {part}"
        return unreadable_gap(part.queue, what.start, what.end, what.detail)
    raise ExportError(ExportCode.UNREADABLE, what.describe(), EXPORT_REMEDY) from missing


def _joined(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Return gaps in order; gaps of one reason that follow one another become one."""
    found: list[Gap] = []
    for gap in sorted(gaps, key=lambda each: each.start):
        if found and (found[-1].end, found[-1].reason) == (gap.start, gap.reason):
            found[-1] = replace(found[-1], end=gap.end)
        else:
            found.append(gap)
    return tuple(found)


def _file_of(work: Work, piece: Piece, watch: Watch) -> MadeFile:
    storage, name = work.storage, name_of(work.identity.topic, piece)
    found = _found(work, piece)
    if found is not None:
        watch(found.rows, 0)
        return MadeFile(found, reused=True)
    with storage.stage(is_slow=True) as staged:
        batches = _watched(work.rows.read(piece, work.columns), watch)
        try:
            entry = write(staged.file, work.identity, piece, work.columns, batches)
        except ValueError as error:
            raise damaged(piece.describe(), f"the log gave other rows: {error}") from error
        if not storage.install(staged, name):
            found = _found(work, piece)
            if found is not None:
                return MadeFile(found, reused=True)
            # Whole files of others were refused above: what is left is damaged.
            storage.install(staged, name, over=True)
            return MadeFile(entry, replaced=True)
    return MadeFile(entry)


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


def _watched(
    batches: Iterator[pa.RecordBatch | Compacted], watch: Watch
) -> Iterator[pa.RecordBatch | Compacted]:
    for batch in batches:
        if not isinstance(batch, Compacted):
            watch(batch.num_rows, batch.nbytes)
        yield batch
