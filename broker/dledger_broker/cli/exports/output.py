"""What the export commands print: how a run ended, what a folder holds, what was verified."""

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from dledger_broker.cli.output import note, print_json, print_rows
from dledger_proto.exit_codes import Exit

if TYPE_CHECKING:
    from dledger_client.export.manifests.checkpoint import Version
    from dledger_client.export.manifests.records import Gap, Plan
    from dledger_client.export.run import Outcome
    from dledger_client.export.upkeep import Verification


def print_plan(outcome: "Outcome", *, as_json: bool) -> None:
    """Show the ranges of a plan; end the command when there is none."""
    plan = outcome.plan
    if plan is None:
        raise _nothing_new()
    rows = [
        {
            "queue": piece.queue, "start": piece.start, "end": piece.end, "date": piece.date,
            "bytes": piece.size, "records": piece.end - piece.start,
        }
        for piece in plan.pieces or [merge.piece for merge in plan.merges]
    ]  # fmt: skip
    if outcome.adopted:
        note(f"version {plan.number} was planned by an earlier run; it is finished first")
    columns = ("queue", "date", "start", "end", "records", "bytes")
    print_rows(rows, columns, as_json=as_json)


def print_outcome(outcome: "Outcome", *, as_json: bool) -> None:
    """Show the version that a run published; end the command when there is none."""
    if outcome.manifest is None:
        raise _nothing_new()
    print_version(outcome, as_json=as_json)


def _nothing_new() -> typer.Exit:
    note("nothing new")
    return typer.Exit(Exit.NOTHING_NEW)


def print_version(outcome: "Outcome", *, as_json: bool) -> None:
    """Show a version that was published."""
    manifest = outcome.manifest
    assert manifest is not None
    row = {
        "version": manifest.number,
        "kind": manifest.kind,
        "files": len(manifest.added),
        "rows": sum(entry.rows for entry in manifest.added),
        "bytes": sum(entry.bytes for entry in manifest.added),
        "reused": outcome.reused,
        "by": "this run" if outcome.ours else "another exporter",
        **_missing(manifest.gaps),
        "absent_queues": len(manifest.absent),
    }
    if as_json:
        print_json({"event": "published", **row})
    else:
        print_rows([row], tuple(row), as_json=False)


def print_status(version: "Version", plan: "Plan | None", *, as_json: bool) -> None:
    """Show what an export holds, how far each queue is, and every gap."""
    last = version.last
    row = {
        "version": last.number,
        "topic": last.identity.topic,
        "cluster": last.identity.cluster,
        "files": len(version.files),
        "rows": version.rows,
        "bytes": sum(entry.bytes for entry in version.files.values()),
        **_missing(version.gaps),
        "published": dt.datetime.fromtimestamp(last.time_ms / 1_000, dt.UTC).isoformat(),
        "open_plan": None if plan is None else plan.kind,
    }
    gaps = _rows_of(version.gaps)
    if as_json:
        print_json({**row, "position": last.end, "gaps": gaps})
        return
    print_rows([row], tuple(row), as_json=False)
    queues = [
        {"queue": queue, "from": version.start[queue], "up_to": end}
        for queue, end in sorted(last.end.items())
    ]
    print_rows(queues, ("queue", "from", "up_to"), as_json=False)
    if gaps:
        print_rows(gaps, tuple(gaps[0]), as_json=False)


def print_verification(found: "Verification", *, as_json: bool) -> None:
    """Show what was verified, and which records the export lacks."""
    row = {
        "files": found.files,
        "rows": found.rows,
        "compared_with_log": found.compared,
        **_missing(found.gaps),
        "problems": [str(problem) for problem in found.problems],
    }
    if as_json:
        row["gaps"] = _rows_of(found.gaps)
    print_rows([row], tuple(row), as_json=as_json)
    for gap in found.gaps if not as_json else ():
        note(f"not exported: {gap.describe()}")


def _missing(gaps: "Sequence[Gap]") -> dict[str, Any]:
    """Return how many records gaps stand for, by reason."""
    from dledger_client.export.manifests.records import TRIMMED, UNREADABLE

    return {
        name: sum(gap.records for gap in gaps if gap.reason == reason)
        for name, reason in (("lost", TRIMMED), ("unreadable", UNREADABLE))
    }


def _rows_of(gaps: "Sequence[Gap]") -> list[dict[str, Any]]:
    return [
        {
            "queue": gap.queue, "first": gap.start, "records": gap.records, "reason": gap.reason,
            "detail": gap.detail,
        }
        for gap in sorted(gaps, key=lambda each: (each.queue, each.start))
    ]  # fmt: skip
