"""`dledger export`: a topic's committed log as Parquet files, each record exactly once.

Owns the command line of exports. `dledger_client.export` does the work; it is imported when a
command runs, because it needs pyarrow.
"""

import os
import re
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    NameServers,
    is_inside,
    parse_name_servers,
)
from dledger_broker.cli.exports.output import (
    print_outcome,
    print_plan,
    print_status,
    print_verification,
    print_version,
)
from dledger_broker.cli.exports.progress import Reporter
from dledger_broker.cli.output import (
    CommandFailed,
    JsonFlag,
    bad_input,
    note,
    print_rows,
)
from dledger_broker.cli.values import parse_duration, parse_size, parse_time
from dledger_proto.errors import DledgerError
from dledger_proto.exit_codes import Exit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dledger_client.export.cluster_source import ClusterSource
    from dledger_client.export.files.storage import ExportStorage
    from dledger_client.export.planning import Options
    from dledger_client.export.run import Engine, Outcome

_EPILOG: Final = (
    "An error of an export begins with a stable code, DLEDGER_EXPORT_..., an error of the "
    "cluster with a code such as UNAVAILABLE."
)
EVERY_MS_MIN: Final = 100
NICENESS: Final = 19
ALL_CORES: Final = "local[*]"
_NEVER: Final = Event()
"""Nobody sets this event: a wait for it lasts the whole time."""

Folder = Annotated[Path, typer.Argument(help="Folder of the export.", show_default=False)]
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
Jobs = Annotated[int, typer.Option(min=0, max=64, help="Processes; 0: one for each processor.")]
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

    An export may be killed at any moment and run again, also from two places at once: every message
    is in the export exactly once. Times are like 2026-01-31T12:00:00 (local) or
    2026-01-31T12:00:00Z.
    """
    if context.invoked_subcommand is not None:
        return
    _check_words(topic, to, engine, layout, read_from)
    pause = _pause(every, is_told_once=watch and dry_run)
    rate = _rate(max_rate, engine, master, jobs)
    with _expected_failures():
        from dledger_client.export.layout import Layout
        from dledger_client.export.planning import Options, check_options

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
        storage = _storage(to)
        reporter = Reporter(as_json=as_json)
        maker = _engine(engine, master, jobs, rate, reporter)
        with _source(name_servers, storage, read_from, is_exporter=not dry_run) as source:
            if watch:
                run = partial(_run, storage, source, maker, options, reporter)
                repeat(run, pause, partial(print_version, as_json=as_json))
            outcome = (_plan_only if dry_run else _run)(storage, source, maker, options, reporter)
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


def _engine(name: str, master: str, jobs: int, rate: int, reporter: Reporter) -> "Engine":
    if name == "local":
        from dledger_client.export.engines.local import LocalEngine

        return LocalEngine(jobs, rate, reporter.advance)
    return _spark_engine(master, reporter)


def _spark_engine(master: str, reporter: Reporter) -> "Engine":
    try:
        from dledger_client.export.engines.spark import SparkEngine
        from dledger_client.spark import NoJavaError, session
    except ModuleNotFoundError as error:
        bad_input(
            f"{error.name} is not installed",
            "install dledger with the extra spark, from a checkout or a wheel",
        )

    def begin() -> "SparkSession":
        try:
            return session("dledger export", master=master)
        except NoJavaError as error:
            bad_input(error.what, error.remedy)

    # Called when there is something to do: a JVM takes seconds to start.
    return SparkEngine(begin, reporter.advance)


def _run(
    storage: "ExportStorage",
    source: "ClusterSource",
    engine: "Engine",
    options: "Options",
    reporter: Reporter,
) -> "Outcome":
    from dledger_client.export.run import export_once

    with reporter.running(engine):
        outcome = export_once(storage, source, reporter, options, _now_ms)
    if outcome.adopted and outcome.manifest is not None:
        note(
            f"version {outcome.manifest.number} was planned by another run, by that one's --since, "
            "--until and --file-bytes; what came since is the next run's"
        )
    return outcome


def _plan_only(
    storage: "ExportStorage",
    source: "ClusterSource",
    _engine: "Engine",
    options: "Options",
    _reporter: Reporter,
) -> "Outcome":
    from dledger_client.export.run import plan_only

    return plan_only(storage, source, options, _now_ms())


def repeat(
    run: Callable[[], "Outcome"],
    pause: float,
    tell: Callable[["Outcome"], None],
    wait: Callable[[float], object] = _NEVER.wait,
    now: Callable[[], float] = time.monotonic,
) -> NoReturn:
    """Run for ever, every `pause` seconds; run at once when a run only finished another run's plan.

    While the cluster cannot be reached, try again; every other error ends the command. An unknown
    outcome does not end it: an export writes only holds to the cluster, and those can be repeated.
    """
    while True:
        begun = now()
        try:
            outcome = run()
        except DledgerError as error:
            if not error.retriable:
                raise
            note(f"{error}; trying again in {pause:g} s")
            wait(pause)
            continue
        if outcome.manifest is not None:
            tell(outcome)
        if not outcome.adopted:
            wait(max(begun + pause - now(), 0.0))


def status(
    folder: Folder,
    as_json: JsonFlag = False,
) -> None:
    """Show what an export holds and whether a run is unfinished. Needs no cluster."""
    with _expected_failures():
        from dledger_client.export.manifests import history

        storage = _storage(str(folder))
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
    with _expected_failures():
        from dledger_client.errors import TopicNotFound
        from dledger_client.export import upkeep
        from dledger_client.export.manifests import history
        from dledger_client.export.source import FreezeRequest

        storage = _storage(str(folder))
        if against_log:
            version = history.load(storage)
            last = version.last
            with _source(name_servers, storage, "follower", is_exporter=False) as source:
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
    with _expected_failures():
        from dledger_client.export import upkeep
        from dledger_client.export.engines.local import LocalEngine

        reporter = Reporter(as_json=as_json)
        engine = LocalEngine(jobs, 0, reporter.advance)
        size = parse_size(file_bytes, "--file-bytes")
        with reporter.running(engine):
            outcome = upkeep.compact(_storage(str(folder)), reporter, size, _now_ms)
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
    with _expected_failures():
        from dledger_client.export import upkeep

        names = upkeep.collect(
            _storage(str(folder)), parse_duration(grace, "--grace"), _now_ms(), dry_run=dry_run
        )
        rows = [{"deleted": name} for name in names]
        print_rows(rows, ("deleted",), as_json=as_json)


def _choice(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        bad_input(f"{option}: {value}, must be {' or '.join(each for each in known if each)}")


def _now_ms() -> int:
    return int(time.time() * 1_000)


def _storage(folder: str) -> "ExportStorage":
    from dledger_client.export.files.storage import ExportStorage

    if re.match(r"[a-z][a-z0-9+.-]*://", folder, re.IGNORECASE):
        bad_input(
            f"{folder} is not a folder: exports cannot write to object stores",
            "export to a file system with hard links, and copy from there",
        )
    root = Path(folder).absolute()
    if not root.parent.is_dir():
        bad_input(f"{root.parent} is not a folder", "create it first")
    if root.exists() and not root.is_dir():
        bad_input(f"{root} is not a folder")
    return ExportStorage(root)


@contextmanager
def _source(
    name_servers: str, storage: "ExportStorage", read_from: str, *, is_exporter: bool = True
) -> "Generator[ClusterSource]":
    from dledger_client.config import ConnectionConfig
    from dledger_client.export.cluster_source import ClusterSource

    config = ConnectionConfig(inside=is_inside())
    addresses = parse_name_servers(name_servers)
    with ClusterSource(
        addresses, storage.root, config, read_from, is_exporter=is_exporter
    ) as source:
        yield source


@contextmanager
def _expected_failures() -> Generator[None]:
    """End the command with one line and an exit code for the failures that an export expects."""
    try:
        from dledger_client.export.errors import ExportCode, ExportError, folder_failed
    except ModuleNotFoundError as error:
        bad_input(
            f"{error.name} is not installed",
            "install dledger with the extra arrow, from a checkout or a wheel",
        )
    codes = {
        ExportCode.BAD_OPTION: Exit.BAD_INPUT,
        ExportCode.FOREIGN_CLUSTER: Exit.CONFLICT,
        ExportCode.OTHER_TOPIC: Exit.CONFLICT,
        ExportCode.OTHER_LAYOUT: Exit.CONFLICT,
        ExportCode.LOG_SHORTER: Exit.CONFLICT,
        ExportCode.CONFLICT: Exit.CONFLICT,
        ExportCode.DATA_LOSS: Exit.DATA_LOSS,
        ExportCode.UNREADABLE: Exit.DATA_LOSS,
    }
    try:
        try:
            yield
        except (ConnectionError, TimeoutError):  # no folder says so; a broken pipe is one of them
            raise
        except OSError as error:
            raise folder_failed("the folder", error) from error
    except ExportError as error:
        what = f"DLEDGER_EXPORT_{error.code}: {error.what}"
        raise CommandFailed(what, error.remedy, code=codes.get(error.code, Exit.FAILED)) from error
