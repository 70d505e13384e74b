"""`dledger export status`, `verify`, `compact` and `gc`: what one does with an export's folder."""

from pathlib import Path
from typing import Annotated

import typer

from dledger_broker.cli.connect import DEFAULT_NAME_SERVERS, NameServers
from dledger_broker.cli.exports.opening import (
    expected_failures,
    now_ms,
    open_source,
    open_storage,
)
from dledger_broker.cli.exports.output import print_outcome, print_status, print_verification
from dledger_broker.cli.exports.progress import Reporter
from dledger_broker.cli.output import CommandFailed, JsonFlag, print_rows
from dledger_broker.cli.values import parse_duration, parse_size

Folder = Annotated[Path, typer.Argument(help="Folder of the export.", show_default=False)]
Jobs = Annotated[int, typer.Option(min=0, max=64, help="Processes; 0: one for each processor.")]


def status(
    folder: Folder,
    as_json: JsonFlag = False,
) -> None:
    """Show what an export holds and whether a run is unfinished. Needs no cluster."""
    with expected_failures():
        from dledger_client.export.manifests import history

        storage = open_storage(str(folder))
        version = history.load(storage)
        plan = history.open_plan(storage, version.last.number + 1)
        print_status(version, plan, as_json=as_json)


def verify(
    folder: Folder,
    against_log: Annotated[
        bool,
        typer.Option("--log/--no-log", help="Compare the files with what the log still holds."),
    ] = True,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    as_json: JsonFlag = False,
) -> None:
    """Check counts, order and sums of the newest version's files; compare them with the log."""
    with expected_failures():
        from dledger_client.errors import TopicNotFound
        from dledger_client.export import upkeep
        from dledger_client.export.manifests import history
        from dledger_client.export.source import FreezeRequest

        storage = open_storage(str(folder))
        if against_log:
            version = history.load(storage)
            last = version.last
            with open_source(name_servers, storage, "follower", is_exporter=False) as source:
                try:
                    frozen = source.freeze(
                        FreezeRequest(last.identity.topic, version.start, with_days=False)
                    )
                except TopicNotFound as error:
                    raise CommandFailed(
                        f"{error}", "use --no-log to check only the files"
                    ) from error
                history.check_owner(last, frozen.identity, None)
                minimums = {each.queue: each.minimum for each in frozen.queues}
                found = upkeep.verify(
                    storage, source.ranges(), lambda queue: minimums.get(queue, 1 << 62)
                )
        else:
            found = upkeep.verify(storage)
        print_verification(found, as_json=as_json)
        if found.problems:
            first = found.problems[0]
            raise CommandFailed(f"{len(found.problems)} problems, the first: {first}")


def compact(
    folder: Folder,
    file_bytes: Annotated[str, typer.Option(help="Maximum size of a merged file.")] = "256m",
    jobs: Jobs = 0,
    as_json: JsonFlag = False,
) -> None:
    """Merge adjacent small files of one queue and day. No row changes."""
    with expected_failures():
        from dledger_client.export import upkeep
        from dledger_client.export.engines.local import LocalEngine

        reporter = Reporter(as_json=as_json)
        engine = LocalEngine(jobs, 0, reporter.advance)
        size = parse_size(file_bytes, "--file-bytes")
        with reporter.running(engine):
            outcome = upkeep.compact(open_storage(str(folder)), reporter, size, now_ms)
        print_outcome(outcome, as_json=as_json)


def gc(
    folder: Folder,
    grace: Annotated[
        str, typer.Option(help="Keep files younger than this, like 24h; at least 1m.")
    ] = "24h",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted; delete nothing.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Delete files that no version needs: leftovers of dead runs, files that were compacted."""
    with expected_failures():
        from dledger_client.export import upkeep

        names = upkeep.collect(
            open_storage(str(folder)), parse_duration(grace, "--grace"), now_ms(), dry_run=dry_run
        )
        rows = [{"deleted": name} for name in names]
        print_rows(rows, ("deleted",), as_json=as_json)
