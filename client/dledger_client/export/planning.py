"""Makes a plan of a frozen log, or decides that there is nothing to do yet. Pure."""

from dataclasses import dataclass
from typing import Final

from dledger_client.arrow import DEFAULT_COLUMNS
from dledger_client.export.errors import ExportCode, ExportError
from dledger_client.export.layout import FrozenQueue, Layout, bytes_before, pieces_of
from dledger_client.export.manifests.history import check_owner, position_of
from dledger_client.export.manifests.records import EXPORT, Gap, Manifest, Plan
from dledger_client.export.source import FrozenLog

MIB: Final = 1 << 20
FILE_BYTES: Final = 256 * MIB
FILE_BYTES_MIN: Final = MIB
FILE_BYTES_MAX: Final = 4_096 * MIB
COLUMNS: Final = (*DEFAULT_COLUMNS, "properties")
"""All fields of a message. An archive without properties could not be sent again."""
WRITE_AGAIN: Final = "to export the rest and record the gap, use --accept-data-loss"


@dataclass(frozen=True, slots=True)
class Options:
    """What a user asks of a run. Checked by `check_options`."""

    topic: str
    layout: Layout | None = None
    """None: as the export was begun; by date at first."""
    since_ms: int | None = None
    """Store time at which the first run begins; later ones go on where the last one ended."""
    until_ms: int | None = None
    """Store time at which this run ends."""
    min_bytes: int = 0
    """Less is left for a later run ..."""
    max_delay_ms: int = 0
    """... unless something waits for longer than this; 0: it may wait for ever."""
    file_bytes: int = FILE_BYTES
    """Of the log, for one file, about."""
    accept_data_loss: bool = False
    """Export the rest where records are trimmed, and record the gap."""
    accept_unreadable: bool = False
    """Export the rest where a batch cannot be decoded, and record the gap."""


def check_options(options: Options) -> None:
    """Raise BAD_OPTION with the value and the limit."""
    if not FILE_BYTES_MIN <= options.file_bytes <= FILE_BYTES_MAX:
        _bad("--file-bytes", options.file_bytes, f"{FILE_BYTES_MIN} to {FILE_BYTES_MAX}")
    if options.min_bytes < 0:
        _bad("--min-bytes", options.min_bytes, "0 or more")
    if options.max_delay_ms < 0:
        _bad("--max-delay", options.max_delay_ms, "0 or more")
    if options.max_delay_ms and not options.min_bytes:
        _bad("--max-delay", options.max_delay_ms, "given together with --min-bytes")
    since, until = options.since_ms, options.until_ms
    if since is not None and until is not None and since >= until:
        _bad("--until", until, f"later than --since, {since}")


def _bad(option: str, value: object, limit: str) -> None:
    raise ExportError(ExportCode.BAD_OPTION, f"{option}: {value}", f"must be {limit}")


def make_plan(
    number: int, last: Manifest | None, frozen: FrozenLog, options: Options
) -> Plan | None:
    """Return the next plan; None when there is nothing, or too little to be worth a file.

    ExportError when the folder is not this log's, or when records were trimmed unexported.
    """
    if last is not None:
        check_owner(last, frozen.identity, options.layout)
    gaps = _lost(last, frozen, options)
    layout = last.layout if last is not None else options.layout or Layout.DATE
    moved = [each for each in frozen.queues if each.end > each.start]
    waiting = sum(_waiting_bytes(each) for each in moved)
    if not moved or (waiting < options.min_bytes and not frozen.is_overdue):
        return None
    start = dict(position_of(last)) | {each.queue: each.start for each in frozen.queues}
    end = start | {each.queue: each.end for each in moved}
    pieces = [
        piece for each in frozen.queues for piece in pieces_of(each, layout, options.file_bytes)
    ]
    # The largest first: the task that ends last then has a small file.
    pieces.sort(key=lambda piece: (-piece.size, piece.queue, piece.start))
    columns = last.columns if last is not None else COLUMNS
    absent = tuple(sorted(start.keys() - {each.queue for each in frozen.queues}))
    return Plan(
        number,
        EXPORT,
        frozen.identity,
        layout,
        columns,
        start,
        end,
        tuple(pieces),
        (),
        gaps,
        absent,
    )


def _waiting_bytes(frozen: FrozenQueue) -> int:
    first = max(frozen.start, frozen.minimum)
    return round(bytes_before(frozen, frozen.end) - bytes_before(frozen, first))


def _check_queues(last: Manifest | None, frozen: FrozenLog, options: Options) -> None:
    """Raise unless the exported queues exist, as far as they were exported."""
    there = {each.queue: each for each in frozen.queues}
    for queue, position in sorted(position_of(last).items()):
        found = there.get(queue)
        if found is None:
            if not options.accept_data_loss:
                raise ExportError(
                    ExportCode.DATA_LOSS,
                    f"the topic has no queue {queue} any more, it was exported up to offset"
                    f" {position}",
                    "open the queue again, or use --accept-data-loss",
                )
        elif found.maximum < position:
            raise ExportError(
                ExportCode.LOG_SHORTER,
                f"queue {queue} ends at offset {found.maximum}, but it was exported up to"
                f" {position}",
                "the cluster has lost its log or is another one; export into a new folder",
            )


def _lost(last: Manifest | None, frozen: FrozenLog, options: Options) -> tuple[Gap, ...]:
    """Return what was trimmed before it was exported; DATA_LOSS unless that is accepted."""
    _check_queues(last, frozen, options)
    gaps = [
        Gap(each.queue, each.start, min(each.minimum, each.end))
        for each in frozen.queues
        # The first version begins with what there is.
        if last is not None and each.start < min(each.minimum, each.end)
    ]
    if gaps and not options.accept_data_loss:
        first = gaps[0]
        raise ExportError(
            ExportCode.DATA_LOSS,
            f"queue {first.queue} offsets {first.start} to {first.end - 1} were trimmed before "
            f"they were exported, {sum(gap.end - gap.start for gap in gaps)} records in all",
            WRITE_AGAIN,
        )
    return tuple(gaps)
