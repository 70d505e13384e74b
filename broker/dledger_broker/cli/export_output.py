"""How an export ended: the version that there is now, the plan that there would be, nothing new."""

from typing import TYPE_CHECKING, Final

import typer

from dledger_broker.cli.output import note, print_json, print_rows

if TYPE_CHECKING:
    from dledger_client.export.run import Outcome

NOTHING_NEW: Final = 7
"""Exit code."""


def print_plan(outcome: "Outcome", *, as_json: bool) -> None:
    """Show the ranges of a plan; ends the command when there is none."""
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
        note(f"version {plan.number} was planned by an earlier run and is finished first")
    columns = ("queue", "date", "start", "end", "records", "bytes")
    print_rows(rows, columns, as_json=as_json)


def print_outcome(outcome: "Outcome", *, as_json: bool) -> None:
    """Show the version that a run ended with; ends the command when there is none."""
    if outcome.manifest is None:
        raise _nothing_new()
    print_version(outcome, as_json=as_json)


def _nothing_new() -> typer.Exit:
    note("nothing new")
    return typer.Exit(NOTHING_NEW)


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
        "lost": sum(gap.end - gap.start for gap in manifest.gaps),
        "absent_queues": len(manifest.absent),
    }
    if as_json:
        print_json({"event": "published", **row})
    else:
        print_rows([row], tuple(row), as_json=False)
