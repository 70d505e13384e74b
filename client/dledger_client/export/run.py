"""The protocol: freeze a plan, make its files, publish a manifest. Owns the order of the steps.

```
1  the newest manifest N - 1 and, if there is one, the plan N that somebody left open
2  no plan: freeze the log at its commit index, cut it, publish plan N exclusively;
   who comes second takes the plan that is there
3  make the plan's files; each is durable under its name before its task returns
4  publish manifest N exclusively: the one moment at which version N begins to exist
5  after a compaction, publish a checkpoint of version N: it tells nothing new, and may be missing
```

A process may die between any two system calls, and others may take the same steps at the same time.
Plans and files are the same for all of them, and a manifest exists once. All of this still holds if
step 4's `put_if_absent` becomes a table format's commit with N as its transaction number.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from dledger_client.export.compact import MergeSource
from dledger_client.export.errors import ExportCode, ExportError
from dledger_client.export.files.parquet import check_written
from dledger_client.export.files.storage import ExportStorage
from dledger_client.export.layout import Layout, Piece
from dledger_client.export.manifests import history
from dledger_client.export.manifests.records import (
    COMPACT,
    FileEntry,
    Manifest,
    Plan,
    check_tiles,
    dump,
    load_manifest,
    manifest_name,
    plan_name,
)
from dledger_client.export.planning import Options, check_options, make_plan
from dledger_client.export.source import FreezeRequest, FrozenLog, LogSource
from dledger_client.export.task import Made, MadeFile, Work
from dledger_proto import __version__

_LOG: Final = logging.getLogger("dledger_client.export")

Clock = Callable[[], int]
"""The time, ms since 1970. Asked again for each thing that is dated: making files takes hours."""


class Engine(Protocol):
    """Makes the files of a plan, in any order, in any process, any of them any number of times."""

    def run(self, work: Work, pieces: Sequence[Piece]) -> list[Made]:
        """Return what became of each piece, in the order of `pieces`."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    manifest: Manifest | None
    """The version that this plan became; None: nothing new."""
    plan: Plan | None = None
    adopted: bool = False
    """Another exporter, or an earlier run, had made the plan."""
    ours: bool = False
    """This run published the manifest; else another exporter did."""
    reused: int = 0
    """Files that were there."""


def export_once(
    storage: ExportStorage, source: LogSource, engine: Engine, options: Options, clock: Clock
) -> Outcome:
    """Publish the next version. ExportError changes nothing that is published.

    An open plan is finished, and is all that this run does: the next one plans what came since.
    """
    check_options(options)
    number = history.last_number(storage) + 1
    last = history.manifest_of(storage, number - 1) if number else None
    if last is not None:
        storage.settle(manifest_name(last.number))
    plan = history.open_plan(storage, number)
    frozen = source.freeze(_request(options, last, plan, clock()))
    if last is not None:
        history.check_owner(last, frozen.identity, options.layout)
    if plan is not None and plan.kind == COMPACT:
        return finish_compaction(storage, engine, plan, clock)
    adopted = plan is not None
    if plan is None:
        plan = make_plan(number, last, frozen, options)
        if plan is None:
            return Outcome(None)
        if not storage.put_if_absent(plan_name(number), dump(plan)):
            adopted = True
            plan = history.open_plan(storage, number)
            assert plan is not None, "a plan is never deleted"
            if plan.kind == COMPACT:
                return finish_compaction(storage, engine, plan, clock)
            # That plan may have been frozen later than ours: ask for what it names.
            frozen = source.freeze(_request(options, last, plan, clock()))
    check_plan(plan, last, frozen, options.layout)
    work = Work(
        storage, plan.identity, plan.columns, source.ranges(), options.accept_data_loss,
        options.accept_unreadable,
    )  # fmt: skip
    return _finish(engine, work, plan, adopted, clock)


def plan_only(storage: ExportStorage, source: LogSource, options: Options, now_ms: int) -> Outcome:
    """Return what a run would do. It writes nothing but a hold on the log."""
    check_options(options)
    number = history.last_number(storage) + 1
    last = history.manifest_of(storage, number - 1) if number else None
    plan = history.open_plan(storage, number)
    if plan is not None:
        return Outcome(None, plan, adopted=True)
    frozen = source.freeze(_request(options, last, None, now_ms))
    return Outcome(None, make_plan(number, last, frozen, options))


def _request(
    options: Options, last: Manifest | None, plan: Plan | None, now_ms: int
) -> FreezeRequest:
    position = plan.start if plan is not None else history.position_of(last)
    layout = last.layout if last is not None else options.layout or Layout.DATE
    older = now_ms - options.max_delay_ms if options.max_delay_ms else None
    return FreezeRequest(
        options.topic,
        position,
        is_first=last is None,
        with_days=plan is None and layout is Layout.DATE,
        since_ms=options.since_ms,
        until_ms=options.until_ms if plan is None else None,
        older_than_ms=older,
    )


def check_plan(
    plan: Plan, last: Manifest | None, frozen: FrozenLog, layout: Layout | None = None
) -> None:
    """Raise unless a plan that was found goes on where the last version ends, in this log."""
    history.check_owner(plan, frozen.identity, layout)
    for queue, offset in history.position_of(last).items():
        if plan.start.get(queue) != offset:
            raise ExportError(
                ExportCode.CONFLICT,
                f"plan {plan.number} begins queue {queue} at {plan.start.get(queue)}, the last "
                f"version ends at {offset}",
                "files of two exports are mixed in this folder; put it back from a copy",
            )
    ends = {each.queue: each.end for each in frozen.queues}
    for queue, end in plan.end.items():
        if end > plan.start[queue] and queue in ends and ends[queue] < end:
            raise ExportError(
                ExportCode.LOG_SHORTER,
                f"queue {queue} ends at offset {ends[queue]}, planned up to {end}",
                "the cluster has lost its log or is another one; export into a new folder",
            )


def finish_compaction(storage: ExportStorage, engine: Engine, plan: Plan, clock: Clock) -> Outcome:
    """Make a compaction's files of those they replace, publish it, and what there is then."""
    work = Work(storage, plan.identity, plan.columns, MergeSource(storage, plan.merges))
    outcome = _finish(engine, work, plan, True, clock)
    history.keep_checkpoint(storage, plan.number)
    return outcome


def _finish(engine: Engine, work: Work, plan: Plan, adopted: bool, clock: Clock) -> Outcome:
    pieces = [merge.piece for merge in plan.merges] if plan.kind == COMPACT else plan.pieces
    made = engine.run(work, pieces)
    files = [file for each in made for file in each.files]
    entries = tuple(file.entry for file in files)
    gaps = (*plan.gaps, *(gap for each in made for gap in each.gaps))
    check_tiles(plan, entries, gaps)
    _check_there(work.storage, entries)
    _check_replaced(work.storage, files)
    manifest = Manifest(
        plan.number,
        plan.kind,
        plan.identity,
        plan.layout,
        plan.columns,
        plan.start,
        plan.end,
        tuple(sorted(entries, key=lambda each: (each.queue, each.start))),
        tuple(each.path for merge in plan.merges for each in merge.inputs),
        tuple(sorted(gaps, key=lambda each: (each.queue, each.start))),
        f"dledger {__version__}",
        clock(),
        plan.absent,
    )
    name = manifest_name(plan.number)
    ours = work.storage.put_if_absent(name, dump(manifest))
    if not ours:
        data = work.storage.read(name)
        assert data is not None, "a manifest is never deleted"
        manifest = load_manifest(name, data)
    for gap in manifest.gaps:
        _LOG.warning("not exported: %s", gap.describe())
    for queue in manifest.absent:
        _LOG.warning(
            "the topic has no queue %s any more: its records from offset %s on are missing",
            queue, manifest.end[queue],
        )  # fmt: skip
    reused = sum(each.reused for each in files)
    return Outcome(manifest, plan, adopted, ours, reused)


def _check_there(storage: ExportStorage, entries: Sequence[FileEntry]) -> None:
    """Raise CONFLICT unless every file is in this folder: tasks may have run on other hosts."""
    for entry in entries:
        size = storage.size(entry.path)
        if size != entry.bytes:
            found = "is not there" if size is None else f"has {size} bytes"
            raise ExportError(
                ExportCode.CONFLICT,
                f"{entry.path} was made with {entry.bytes} bytes, and {found} where the manifest is"
                f" to be published, in {storage.root}",
                "all machines that write files must see this folder: share it, or use --engine"
                " local",
            )


def _check_replaced(storage: ExportStorage, files: Sequence[MadeFile]) -> None:
    """Raise CONFLICT unless what replaced a damaged file is what lies there still."""
    for each in files:
        if each.replaced:
            try:
                check_written(storage.path(each.entry.path), each.entry)
            except ExportError as error:
                raise ExportError(
                    ExportCode.CONFLICT,
                    f"another exporter replaced a damaged file at the same time: {error.what}",
                    "run the export again: it uses the file that is there",
                ) from error
