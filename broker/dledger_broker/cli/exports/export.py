"""`dledger export`: a topic's committed log as Parquet files, each record exactly once.

Owns the options of a run. `dledger_client.export` does the work; it is imported when a command
runs, because it needs pyarrow.
"""

import os
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final

import typer

from dledger_broker.cli.connect import DEFAULT_NAME_SERVERS, NameServers
from dledger_broker.cli.exports.opening import expected_failures, now_ms, open_source, open_storage
from dledger_broker.cli.exports.output import print_outcome, print_plan, print_version
from dledger_broker.cli.exports.progress import Reporter
from dledger_broker.cli.exports.runs import make_engine, repeat, run_once
from dledger_broker.cli.exports.upkeep import compact, gc, status, verify
from dledger_broker.cli.output import JsonFlag, bad_input
from dledger_broker.cli.values import parse_duration, parse_size, parse_time

_EPILOG: Final = (
    "An error of an export begins with a stable code, DLEDGER_EXPORT_..., an error of the "
    "cluster with a code such as UNAVAILABLE."
)
EVERY_MS_MIN: Final = 100
NICENESS: Final = 19
ALL_CORES: Final = "local[*]"

TopicOption = Annotated[str, typer.Option("--topic", "-t", help="Topic to export.")]
To = Annotated[
    str, typer.Option("--to", help="Folder of the export; its file system must have hard links.")
]
EngineName = Annotated[str, typer.Option(help="Who writes: local processes, or spark's tasks.")]
Master = Annotated[str, typer.Option(help="Spark's master.")]
LayoutName = Annotated[str, typer.Option(help="Folders by date or by queue; at first by date.")]
Since = Annotated[
    str, typer.Option(help="Store time at which the first run begins; default: the beginning.")
]
Until = Annotated[str, typer.Option(help="Store time at which this run ends.")]
MinBytes = Annotated[str, typer.Option(help="Leave less than this for a later run, like 64m.")]
MaxDelay = Annotated[
    str, typer.Option(help="Export messages that waited longer than this all the same, like 10m.")
]
FileBytes = Annotated[str, typer.Option(help="About how many bytes of the log make one file.")]
MaxRate = Annotated[
    str,
    typer.Option(
        help="At most this many bytes per second, like 20m; 0: no limit. One process does it, "
        "unless --jobs says more, at the lowest priority (nice 19). Not for Spark."
    ),
]
ReadFrom = Annotated[str, typer.Option(help="Members to ask first: follower, leader or any.")]
AcceptDataLoss = Annotated[
    bool,
    typer.Option(
        "--accept-data-loss",
        help="Where messages were trimmed, export the rest and record the gap.",
    ),
]
AcceptUnreadable = Annotated[
    bool,
    typer.Option(
        "--accept-unreadable",
        help="Where a batch cannot be decoded, export the rest and record the gap.",
    ),
]
Watch = Annotated[bool, typer.Option("--watch", help="Repeat until interrupted.")]
Every = Annotated[str, typer.Option(help="With --watch: time between two runs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")]
ExportJobs = Annotated[
    int,
    typer.Option(min=0, max=64, help="Processes; 0: one for each processor; one with --max-rate."),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(
        help="Write a topic's committed messages to Parquet files, exactly once.",
        epilog=_EPILOG,
        invoke_without_command=True,
    )
    group.callback(epilog=_EPILOG)(export)
    for function in (status, verify, compact, gc):
        group.command(epilog=_EPILOG)(function)
    app.add_typer(group, name="export")


def export(
    context: typer.Context,
    topic: TopicOption = "",
    to: To = "",
    engine: EngineName = "local",
    master: Master = ALL_CORES,
    layout: LayoutName = "",
    since: Since = "",
    until: Until = "",
    min_bytes: MinBytes = "0",
    max_delay: MaxDelay = "0s",
    file_bytes: FileBytes = "256m",
    jobs: ExportJobs = 0,
    max_rate: MaxRate = "0",
    read_from: ReadFrom = "follower",
    accept_data_loss: AcceptDataLoss = False,
    accept_unreadable: AcceptUnreadable = False,
    watch: Watch = False,
    every: Every = "10s",
    dry_run: DryRun = False,
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    as_json: JsonFlag = False,
) -> None:
    """Export what was committed since the last run, or finish what a run left open.

    An export may be killed and run again, also from two places at once: every message is in it
    exactly once. Times are like 2026-01-31T12:00:00 (local) or 2026-01-31T12:00:00Z.
    """
    if context.invoked_subcommand is not None:
        return
    _check_words(topic, to, engine, layout, read_from)
    pause = _pause(every, is_told_once=watch and dry_run)
    rate = _rate(max_rate, engine, master, jobs)
    with expected_failures():
        from dledger_client.export.layout import Layout
        from dledger_client.export.planning import Options, check_options
        from dledger_client.export.run import plan_only

        options = Options(
            topic,
            Layout(layout) if layout else None,
            parse_time(since, "--since") if since else None,
            parse_time(until, "--until") if until else None,
            parse_size(min_bytes, "--min-bytes"),
            parse_duration(max_delay, "--max-delay"),
            parse_size(file_bytes, "--file-bytes"),
            accept_data_loss,
            accept_unreadable,
        )
        check_options(options)
        storage = open_storage(to)
        reporter = Reporter(as_json=as_json)
        maker = make_engine(engine, master, jobs, rate, reporter)
        with open_source(name_servers, storage, read_from, is_exporter=not dry_run) as source:
            run = partial(run_once, storage, source, maker, options, reporter)
            if watch:
                repeat(run, pause, partial(print_version, as_json=as_json))
            outcome = plan_only(storage, source, options, now_ms()) if dry_run else run()
        # Behind the block, which lets go of the log: that nothing is new is a good end, too.
        (print_plan if dry_run else print_outcome)(outcome, as_json=as_json)


def _check_words(topic: str, to: str, engine: str, layout: str, read_from: str) -> None:
    if not topic or not to:
        bad_input("--topic and --to are needed", "name the topic and the folder")
    _choice("--engine", engine, ("local", "spark"))
    _choice("--layout", layout, ("", "date", "queue"))
    _choice("--read-from", read_from, ("follower", "leader", "any"))


def _check_engine(name: str, master: str, jobs: int, rate: int) -> None:
    """Refuse options of one engine that are given to the other."""
    if name == "local":
        if master != ALL_CORES:
            bad_input(f"--master {master}: only of --engine spark", "leave one of them out")
        return
    if jobs:
        bad_input(f"--jobs {jobs}: Spark's master decides how many", "leave one of them out")
    if rate:
        bad_input("--max-rate: only the local engine can limit its rate", "leave one of them out")


def _pause(every: str, *, is_told_once: bool) -> float:
    """Return the seconds between two runs of --watch."""
    if is_told_once:
        bad_input("--watch and --dry-run exclude each other", "leave one of them out")
    if (pause_ms := parse_duration(every, "--every")) < EVERY_MS_MIN:
        bad_input(f"--every {every}", f"must be {EVERY_MS_MIN}ms or more")
    return pause_ms / 1_000


def _rate(text: str, engine: str, master: str, jobs: int) -> int:
    """Return bytes per second (0: no limit); with a limit, take the lowest priority.

    All worker processes inherit the priority: members may run on the same machine. It is set before
    the imports, which cost a second of CPU. The idle class would be too low: on a busy machine
    calls would time out and holds would not be renewed.
    """
    rate = parse_size(text, "--max-rate")
    _check_engine(engine, master, jobs, rate)
    if rate:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    return rate


def _choice(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        bad_input(f"{option}: {value}, must be {' or '.join(each for each in known if each)}")
