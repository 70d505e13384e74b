"""The command line: `python -m jepsen_tests run|list|check|suite|mutants|results`."""

import asyncio
import math
import sys
import time
import traceback
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop
from rich.console import Console
from rich.live import Live
from rich.table import Table

from dledger_proto.names import printable
from jepsen_tests.backends import BACKENDS
from jepsen_tests.backends.own import OwnBackend
from jepsen_tests.backends.process import ProcessBackend
from jepsen_tests.backends.surface import Backend, WantedCluster
from jepsen_tests.backends.troubles import namespaces
from jepsen_tests.errors import BadRequest, HarnessFailure, unknown_name
from jepsen_tests.exit_codes import (
    EXIT_FAILED,
    EXIT_UNKNOWN,
    EXIT_VALID,
    WORST_FIRST,
    exit_codes_help,
)
from jepsen_tests.history.events import Kind
from jepsen_tests.history.history_file import BadHistory
from jepsen_tests.nemeses import FAULTS
from jepsen_tests.run.phases import RunPlan, Watch, execute
from jepsen_tests.run.verdict import judge_file
from jepsen_tests.signals import StopRequest, interruptible
from jepsen_tests.suite.results import summary
from jepsen_tests.suite.runner import run_suite
from jepsen_tests.suite.suites import SUITES
from jepsen_tests.terminal import Terminal, visible
from jepsen_tests.trials.catalogue import TRIALS
from jepsen_tests.trials.report import caught_in_simulation, strength_table
from jepsen_tests.trials.runner import exit_code, prove
from jepsen_tests.workloads import WORKLOADS
from jepsen_tests.workloads.workload import Workload

app = typer.Typer(
    help="A black-box chaos harness for dledger clusters.",
    epilog=exit_codes_help(),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
REFRESH_SECONDS: Final = 0.5
TIME_MAX: Final = 7 * 86_400
"""Seconds. The checkers judge a whole run at once, in memory."""
SEED_MAX: Final = (1 << 63) - 1
ROUNDS_MAX: Final = 1_000
JOBS_MAX: Final = 64
SAID_MAX: Final = 2_000
"""Characters of a failure that are printed."""
OUT: Final = Path("out")
OutFolder = Annotated[Path, typer.Option(help="Where each run makes a folder of its own.")]


def _known(what: str, names: str, known: Collection[str]) -> list[str]:
    """Return the names in a list; BadRequest with the nearest name for one that is not known."""
    if names == "all":
        return sorted(known)
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    for name in chosen:
        if name not in known:
            raise unknown_name(what, name, known)
    return list(dict.fromkeys(chosen))


@app.command("list")
def list_() -> None:
    """Show all workloads, faults and backends."""
    console = Console()
    workloads = Table("workload", "what it does", title="Workloads")
    for name, make in WORKLOADS.items():
        workloads.add_row(name, make().what)
    faults = Table("fault", "what it does", "needs", title="Faults")
    for fault in FAULTS.values():
        faults.add_row(fault.name, fault.what, ", ".join(fault.handles))
    backends = Table("backend", "what it is", title="Backends")
    for name, make_backend in BACKENDS.items():
        backends.add_row(name, (make_backend.__doc__ or "").split("\n")[0])
    for table in (workloads, faults, backends):
        console.print(table)


@app.command(epilog=exit_codes_help())
def run(
    workload: Annotated[str, typer.Option(help=f"One of {', '.join(WORKLOADS)}.")] = "log",
    nemesis: Annotated[
        str, typer.Option(help="Faults, separated by commas. `all`: every one. Empty: none.")
    ] = "kill,pause,isolate",
    backend: Annotated[str, typer.Option(help=f"One of {', '.join(BACKENDS)}.")] = "process",
    seconds: Annotated[
        float, typer.Option("--time", min=1, max=TIME_MAX, help="Seconds under faults.")
    ] = 60.0,
    seed: Annotated[
        int | None, typer.Option(min=0, max=SEED_MAX, help="Decides the faults. Default: the time.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, max=7, help="Members; default: 3.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=100, help="Number of workers.")] = 10,
    mutant: Annotated[str, typer.Option(help="A known bug to put into the members.")] = "",
    secure: Annotated[bool, typer.Option("--secure", help="With TLS, mutual, everywhere.")] = False,
    bootstrap: Annotated[
        str, typer.Option(help="Backend own: your name servers, host:port,host:port.")
    ] = "",
    group: Annotated[str, typer.Option(help="Backend own: which of several groups.")] = "",
    commands: Annotated[
        Path | None, typer.Option(help="Backend own: a TOML file: how to hurt your members.")
    ] = None,
    out: OutFolder = OUT,
) -> None:
    """Run a workload under faults on a new cluster or your own, and judge the history."""
    console = Terminal(stderr=True)
    try:
        if not math.isfinite(seconds):  # typer's bounds let NaN through
            raise BadRequest(f"--time {seconds}: must be a number of seconds")
        if nodes is not None and nodes % 2 == 0:
            raise BadRequest(f"--nodes {nodes}: must be an odd number, mostly 3 or 5")
        _known("workload", workload, WORKLOADS)
        _known("backend", backend, BACKENDS)
        names = _known("nemesis", nemesis, FAULTS)
        seed = int(time.time()) if seed is None else seed
        folder = (out / f"{time.strftime('%Y%m%d-%H%M%S')}-{workload}-{seed}").absolute()
        # It checks its arguments before anything is made.
        plan = RunPlan(WORKLOADS[workload](), names, seconds, seed, concurrency, folder, mutant)
        _check_groups(plan.workload, backend)
        _check_able(backend, mutant, secure=secure)
        _check_together(backend, nodes, bootstrap=bootstrap, group=group, commands=commands)
        namespaces.become(
            BACKENDS[backend].own_namespaces(),
            [sys.executable, "-m", "jepsen_tests", *sys.argv[1:]],
        )
        wanted = WantedCluster(
            folder, nodes or 3, plan.workload.broker_groups, plan.workload.settings, secure,
            mutant, bootstrap, group, commands,
        )  # fmt: skip
        history = uvloop.run(_watched(plan, BACKENDS[backend](wanted), console))
    except asyncio.CancelledError:
        console.print("the run ended at once; its history is not complete")
        raise typer.Exit(EXIT_FAILED) from None
    if history is None:
        console.print("a signal ended the run before the cluster started")
        raise typer.Exit(EXIT_UNKNOWN)
    console.print(f"history: {history}", markup=False, highlight=False)
    with interruptible():  # the event loop has removed its signal handlers
        raise typer.Exit(judge_file(history, console))


def _check_groups(workload: Workload, backend: str) -> None:
    """Refuse a workload of several broker groups where there is one."""
    if workload.broker_groups > 1 and backend != ProcessBackend.name:
        raise BadRequest(
            f"workload {workload.name} needs {workload.broker_groups} broker groups: only backend "
            f"{ProcessBackend.name} has them"
        )


def _check_able(backend: str, mutant: str, *, secure: bool) -> None:
    """Refuse what the backend cannot do with its members."""
    if mutant and not BACKENDS[backend].has_mutants:
        able = ", ".join(name for name, each in BACKENDS.items() if each.has_mutants)
        raise BadRequest(
            f"--mutant {mutant}: backend {backend} cannot put known bugs into its members; "
            f"take one of {able}"
        )
    if secure and not BACKENDS[backend].can_be_secure:
        able = ", ".join(name for name, each in BACKENDS.items() if each.can_be_secure)
        raise BadRequest(
            f"--secure: backend {backend} cannot start its members with TLS; take one of {able}"
        )


def _check_together(backend: str, nodes: int | None, **of_own: object) -> None:
    """Refuse options that the backend ignores: the user would believe that they work."""
    if nodes is not None and backend == OwnBackend.name:
        raise BadRequest(f"--nodes {nodes}: backend {backend} takes the members that it finds")
    for option, value in of_own.items():
        if value and backend != OwnBackend.name:
            raise BadRequest(f"--{option} {value}: only backend {OwnBackend.name} takes it")


def check_possible(names: Collection[str], backend: Backend) -> None:
    """Refuse a run whose faults the backend can do on no machine.

    A fault that only this machine cannot do is skipped and named: suites go on without root.
    """
    reasons: list[str] = []
    for name in names:
        lacking = next((handle for handle in FAULTS[name].handles if handle in backend.never), "")
        if not lacking:
            return
        reasons.append(f"{name} ({lacking}: {backend.missing[lacking]})")
    if reasons:
        raise BadRequest(f"backend {backend.name} cannot do {', '.join(reasons)}")


async def _watched(plan: RunPlan, backend: Backend, console: Console) -> Path | None:
    """Run it and show its progress; return None when a signal ended it before it began."""
    check_possible(plan.nemeses, backend)
    watch, stop = Watch(), StopRequest()
    warn = partial(console.print, style="yellow", markup=False)
    stop.listen()
    if not await stop.unless_asked(backend.prepare()):
        return None
    console.print(
        f"{plan.workload.name} on {backend.describe()}, seed {plan.seed}", markup=False,
        highlight=False,
    )  # fmt: skip
    for handle, why in backend.missing.items():
        warn(f"cannot do {handle} here: {why}")
    if plan.schedule.left_out:
        warn(f"no time for {', '.join(plan.schedule.left_out)}: use a longer --time")
    if backend.is_kept and plan.workload.settings:
        wanted = ", ".join(f"{key} = {each}" for key, each in plan.workload.settings.items())
        warn(f"{plan.workload.name} needs members with {wanted}: set this in your cluster")
    plan.folder.mkdir(parents=True)
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        showing = asyncio.ensure_future(_show(live, watch))
        try:
            history = await execute(plan, backend, watch, stop)
        finally:
            showing.cancel()
    for name, why in watch.nemesis.skipped.items() if watch.nemesis is not None else ():
        warn(f"skipped {name}: {why}")
    return history


async def _show(live: Live, watch: Watch) -> None:
    while True:
        recorder, nemesis = watch.recorder, watch.nemesis
        if recorder is not None:
            totals = dict.fromkeys(Kind, 0)
            for (_, kind), count in recorder.counts.items():
                totals[kind] += count
            faults = ", ".join(nemesis.now) if nemesis is not None else ""
            live.update(
                f"{recorder.seconds:6.1f} s  {watch.phase:8}  ok {totals[Kind.OK]}  "
                f"fail {totals[Kind.FAIL]}  info {totals[Kind.INFO]}  {faults}"
            )
        await asyncio.sleep(REFRESH_SECONDS)


@app.command(epilog=exit_codes_help())
def suite(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(SUITES)}.")],
    seed: Annotated[
        int,
        typer.Option(min=0, max=SEED_MAX, help="Seed of the first run. Each later run adds one."),
    ] = 1,
    rounds: Annotated[
        int,
        typer.Option(min=1, max=ROUNDS_MAX, help="How often to run the suite. A night is 3."),
    ] = 1,
    jobs: Annotated[
        int, typer.Option(min=1, max=JOBS_MAX, help="Runs at a time: one for each core.")
    ] = 1,
    out: OutFolder = OUT,
) -> None:
    """Make the runs of a suite. The worst verdict is the verdict of the suite.

    The file coverage.md says which faults the runs did. If no run did a fault that its backend can
    do, the exit code is 2.
    """
    raise typer.Exit(run_suite(name, seed, rounds, jobs, out, Terminal(stderr=True)))


@app.command(epilog=exit_codes_help())
def mutants(
    seed: Annotated[int, typer.Option(min=0, max=SEED_MAX, help="Seed of every run.")] = 1,
    jobs: Annotated[
        int, typer.Option(min=1, max=JOBS_MAX, help="Bugs at a time: one for each core.")
    ] = 1,
    only: Annotated[str, typer.Option(help="Try this known bug alone.")] = "",
    out: OutFolder = OUT,
) -> None:
    """Put known bugs into members, one at a time, and show which bugs the checkers find.

    Beside each bug the same run is made without it. That run must be valid.
    """
    console = Terminal(stderr=True)
    if only and only not in {trial.mutant for trial in TRIALS}:
        raise unknown_name("trial of a mutant", only, [trial.mutant for trial in TRIALS])
    outcomes = prove(seed, jobs, out, only, console)
    sys.stdout.write(strength_table(outcomes, caught_in_simulation()))
    asked = sum(only in ("", trial.mutant) for trial in TRIALS)
    raise typer.Exit(exit_code(outcomes, asked))


@app.command(epilog=exit_codes_help())
def check(history: Annotated[Path, typer.Argument(help="The history.jsonl of a run.")]) -> None:
    """Judge an old history again. Needs no cluster."""
    if history.exists() and not history.is_file():
        raise BadRequest(f"{history}: not a file; name the history.jsonl of a run")
    try:
        code = judge_file(history, Terminal(stderr=True))
    except (BadHistory, HarnessFailure):
        raise
    except OSError as error:
        raise HarnessFailure(f"{error.filename or history}: {error.strerror or error}") from error
    except Exception as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        raise HarnessFailure(
            f"{history}: a bug of the harness keeps it from being judged: "
            f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"
        ) from error
    raise typer.Exit(code)


@app.command(epilog=exit_codes_help())
def results(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs or suites.")],
) -> None:
    """Judge many runs again, and sum up as Markdown what they did and found.

    The exit code is 3 if a run has no verdict: it left no history, or a history without an end.
    """
    page, unjudged = summary(folders)
    sys.stdout.write(page)
    raise typer.Exit(EXIT_FAILED if unjudged else EXIT_VALID)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code. A failure is no verdict: it gives 3."""
    sys.setswitchinterval(0.0005)
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        with interruptible():  # for the code outside the event loop
            result: object = app(args=given, prog_name="jepsen_tests", standalone_mode=False)
    except BadHistory as error:
        return _failed(printable(str(error)))  # a value in it may hold line ends
    except (HarnessFailure, OSError) as error:
        return _failed(str(error))
    except typer.TyperException as error:
        return _failed(error.format_message() or "see --help")
    except typer.Exit as ended:
        return ended.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return _failed("interrupted")
    except Exception:  # noqa: BLE001 - Python's own exit code would say "invalid"
        sys.stderr.write(visible(traceback.format_exc()))
        return EXIT_FAILED
    code = result if isinstance(result, int) else EXIT_VALID
    return code if code in WORST_FIRST else _failed("interrupted")  # typer's code after Ctrl-C


def _failed(why: str) -> int:
    if len(why) > SAID_MAX:  # values of a history may be long
        why = f"{why[: SAID_MAX // 2]} ... {why[-SAID_MAX // 2 :]}"
    Terminal(stderr=True).print(f"harness: {why}", style="red", markup=False)
    return EXIT_FAILED
