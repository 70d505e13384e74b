"""Looks after an export: compaction, verification, collection of files that nobody names.

Owns: what may be deleted, what verification believes. Not: the protocol (`run.py`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from dledger_client.arrow import schema_of
from dledger_client.arrow.columns import Int64s
from dledger_client.errors import ClientError
from dledger_client.export.compact import make_compaction
from dledger_client.export.errors import ExportCode, ExportError, damaged
from dledger_client.export.files.content import ContentSum
from dledger_client.export.files.parquet import check, check_written, read_entry
from dledger_client.export.files.storage import TEMPORARY, ExportStorage
from dledger_client.export.layout import FILE_NAME, day_of, topic_folder
from dledger_client.export.manifests import history
from dledger_client.export.manifests.checkpoint import CHECKPOINTS, Version
from dledger_client.export.manifests.records import (
    COMPACT,
    OFFSET,
    FileEntry,
    Gap,
    Manifest,
    dump,
    plan_name,
)
from dledger_client.export.run import Clock, Engine, Outcome, finish_compaction
from dledger_client.export.source import Compacted, DataLost, RangeSource, RangeUnreadable

GRACE_MS_MIN: Final = 60_000
"""With less, a file that was made a moment ago would count as forgotten."""
_NO_OFFSETS: Final[Int64s] = np.empty(0, np.int64)


def compact(storage: ExportStorage, engine: Engine, size_max: int, clock: Clock) -> Outcome:
    """Publish a version of fewer files; Outcome without a manifest when there is nothing to merge.

    If a compaction was left open, this finishes it instead. ExportError CONFLICT while a plan of an
    export is open, for its files are not there yet. ExportError DAMAGED, with nothing planned, when
    a file to be merged is not whole.
    """
    version = history.load(storage)
    number = version.last.number + 1
    plan = history.open_plan(storage, number)
    if plan is None:
        plan = make_compaction(version, size_max)
        if plan is None:
            return Outcome(None)
        # An open plan must be finished before anything else. With a damaged input nobody could
        # finish this one, and all exports would wait.
        for entry in (entry for merge in plan.merges for entry in merge.inputs):
            check_written(storage.path(entry.path), entry)
        if not storage.put_if_absent(plan_name(number), dump(plan)):
            plan = history.open_plan(storage, number)
            assert plan is not None, "a plan is never deleted"
    if plan.kind != COMPACT:
        raise ExportError(
            ExportCode.CONFLICT,
            f"{storage.root} has an open plan {number} of an export",
            "finish it first with: dledger export",
        )
    return finish_compaction(storage, engine, plan, clock)


@dataclass(slots=True)
class Verification:
    """What was looked at, and what is wrong."""

    files: int = 0
    rows: int = 0
    compared: int = 0
    """Files whose rows the log still holds, and which were compared with it."""
    gaps: tuple[Gap, ...] = ()
    """What the export does not hold of what was planned."""
    problems: tuple[ExportError, ...] = ()


def verify(
    storage: ExportStorage,
    log: RangeSource | None = None,
    retained_from: Callable[[int], int] = lambda _queue: 0,
) -> Verification:
    """Read every live file whole; with a log, compare with it what it still holds.

    `retained_from` gives a queue's earliest offset in the log. The verdict lists all problems: one
    damaged file must not hide the next, nor must a log that cannot be read any more.
    """
    version = history.load(storage, whole=True)
    found = Verification()
    found.gaps = tuple(version.gaps)
    problems = list(_order(version))
    if history.load(storage, version.last.number).files != version.files:
        problems.append(damaged(CHECKPOINTS, "the last checkpoint differs from the manifests"))
    for entry in sorted(version.files.values(), key=lambda each: (each.queue, each.start)):
        try:
            _check_entry(storage, version.last, entry)
            found.rows += entry.rows
            if log is not None and entry.start >= retained_from(entry.queue):
                found.compared += _compare(storage, log, version.last.columns, entry)
        except ExportError as error:
            problems.append(error)
        except ClientError as error:
            remedy = "verify again when the cluster answers, or with --no-log"
            problems.append(ExportError(ExportCode.NOT_COMPARED, f"{entry.path}: {error}", remedy))
            if error.retriable:
                log = None  # nobody answers: each other file would wait as long
        found.files += 1
    found.problems = tuple(problems)
    return found


def _order(version: Version) -> Iterator[ExportError]:
    """Yield which offsets are missing or twice, by the manifests alone."""
    spans = [(each.queue, each.start, each.end) for each in version.files.values()]
    spans += [(gap.queue, gap.start, gap.end) for gap in version.gaps]
    at = dict(version.start)
    for queue, start, end in sorted(spans):
        if start != at.get(queue):
            yield damaged("manifests", f"queue {queue}: offset {start} follows {at.get(queue)}")
        at[queue] = end
    for queue, end in version.last.end.items():
        if at.get(queue) != end:
            yield damaged(
                "manifests", f"queue {queue} ends at {at.get(queue)}, it must end at {end}"
            )


def _check_entry(storage: ExportStorage, last: Manifest, entry: FileEntry) -> None:
    path = storage.path(entry.path)
    if not path.exists():
        raise damaged(entry.path, "is missing")
    found = check(path, last.identity, entry.piece, last.columns)
    if found is None:
        raise damaged(
            entry.path, "is not whole, or the checksum of its rows differs from its footer"
        )
    if replace(found, file_crc=entry.file_crc) != entry:
        raise damaged(entry.path, "is whole, but is not the file that the manifest names")
    if entry.file_crc != found.file_crc:
        raise damaged(
            entry.path,
            "its rows are whole, but not its statistics or indexes: other readers may misread it",
        )
    days = {day_of(entry.time_min_ms), day_of(entry.time_max_ms)}
    if entry.date and entry.rows and days != {entry.date}:
        told = " to ".join(sorted(days))
        raise damaged(
            entry.path, f"holds records stored on {told}: readers that skip files by date miss them"
        )


def _compare(
    storage: ExportStorage, log: RangeSource, columns: tuple[str, ...], entry: FileEntry
) -> bool:
    """Compare a file's rows with the log's; False when the log lost them meanwhile.

    What the log compacted since the file was written is in the file alone.
    """
    total = ContentSum(schema_of(columns))
    offsets: list[Int64s] = []
    compacted = 0
    try:
        for batch in log.read(entry.piece, columns):
            if isinstance(batch, Compacted):
                compacted += batch.offsets
                continue
            total.update(batch)
            offsets.append(batch.column(OFFSET).to_numpy())
    except DataLost:
        return False
    except RangeUnreadable as error:
        raise ExportError(
            ExportCode.NOT_COMPARED,
            f"{entry.path}: the log's rows cannot be compared: {error.what.describe()}",
            "they could be decoded when they were exported; find out by which version of dledger",
        ) from error
    found, count = entry.crc, entry.end - entry.start
    if compacted or entry.rows < count:
        left = _sum_at(storage, columns, entry, np.concatenate([_NO_OFFSETS, *offsets]))
        if left.rows < total.rows and entry.rows < count:
            raise ExportError(
                ExportCode.NOT_COMPARED,
                f"{entry.path}: the log gave {total.rows - left.rows} records that were compacted "
                "when the file was written",
                "a member that is behind has them for a while: verify again later",
            )
        found = left.digest() if total.rows + compacted == count else entry.crc
    if total.digest() != found:
        raise ExportError(
            ExportCode.WRONG_ROWS,
            f"{entry.path}: the log's rows sum to {total.digest():08x}, the file's to {found:08x}",
            "one of the two was changed; export into a new folder and compare",
        )
    return True


def _sum_at(
    storage: ExportStorage, columns: tuple[str, ...], entry: FileEntry, offsets: Int64s
) -> ContentSum:
    """Return the sum of those rows of a file that lie at some offsets, which grow."""
    total = ContentSum(schema_of(columns))
    for batch in read_entry(storage.path(entry.path), entry, columns):
        found = batch.column(OFFSET).to_numpy()
        first, last = np.searchsorted(offsets, (found[0], found[-1] + 1))
        total.update(batch.filter(pa.array(np.isin(found, offsets[first:last]))))
    return total


def collect(
    storage: ExportStorage, grace_ms: int, now_ms: int, *, dry_run: bool = False
) -> list[str]:
    """Delete what no version needs, once it is older than the grace time; return the names.

    It keeps every live file, every file that somebody is writing, every file that a compaction
    replaced less than `grace_ms` ago (readers of an older version may read it), and every file that
    is not named like a file of this topic's export. While a plan is open it keeps all files: who
    finishes the plan may reuse them, also those of a range that lost its head since, whose name the
    plan does not know. A range is planned once, so a forgotten name is never planned again.
    NOT_AN_EXPORT without a version and a plan: if `_dledger` was lost, nothing tells which files
    are still needed.
    """
    if grace_ms < GRACE_MS_MIN:
        raise ExportError(
            ExportCode.BAD_OPTION, f"--grace: {grace_ms} ms", f"must be {GRACE_MS_MIN} or more"
        )
    # The files first: what is installed after this look is not in it.
    written = [name for name in storage.walk(".") if FILE_NAME.fullmatch(name)]
    temporary = [name for name in storage.walk(TEMPORARY) if name.rpartition("/")[0] == TEMPORARY]
    temporary += history.replaced_checkpoints(storage)
    topic, is_open, kept, replaced_ms = _named(storage)
    written = [name for name in written if name.startswith(f"{topic_folder(topic)}/")]
    dead = [
        name
        for name in (temporary if is_open else (*temporary, *written))
        if name not in kept
        and max(storage.modified(name) * 1_000, replaced_ms.get(name, 0)) + grace_ms <= now_ms
        # The age first: asking for the lock of a file that was just made may take the lock away.
        and not (name.startswith(TEMPORARY) and storage.is_being_written(name))
    ]
    for name in dead if not dry_run else ():
        storage.delete(name)
    return dead


def _named(storage: ExportStorage) -> tuple[str, bool, set[str], dict[str, int]]:
    """Return the topic, whether a plan is open, what versions name, when what was replaced was."""
    kept: set[str] = set()
    replaced: dict[str, int] = {}
    number = history.last_number(storage) + 1
    # The plan before the version: a plan that ends between the two looks is in the version.
    plan = history.open_plan(storage, number)
    topic = "" if plan is None else plan.identity.topic
    if number or plan is None:
        version = history.load(storage)
        topic = version.last.identity.topic
        kept.update(version.files)
        replaced = version.removed_ms
    return topic, plan is not None, kept, replaced
