"""One run of an export, or runs without end; and the engine that does the work."""

import time
from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, Final, NoReturn

from dledger_broker.cli.exports.opening import not_installed, now_ms
from dledger_broker.cli.exports.progress import Reporter
from dledger_broker.cli.output import bad_input, note
from dledger_proto.errors import DledgerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dledger_client.export.cluster_source import ClusterSource
    from dledger_client.export.files.storage import ExportStorage
    from dledger_client.export.planning import Options
    from dledger_client.export.run import Engine, Outcome

_NEVER: Final = Event()
"""Nobody sets this event: a wait for it lasts the whole time."""


def make_engine(name: str, master: str, jobs: int, rate: int, reporter: Reporter) -> "Engine":
    """Return what does the work of a run; end the command when its packages are missing."""
    if name == "local":
        from dledger_client.export.engines.local import LocalEngine

        return LocalEngine(jobs, rate, reporter.advance)
    return _spark_engine(master, reporter)


def _spark_engine(master: str, reporter: Reporter) -> "Engine":
    try:
        from dledger_client.export.engines.spark import SparkEngine
        from dledger_client.spark import NoJavaError, session
    except ModuleNotFoundError as error:
        not_installed(error, "spark")

    def begin() -> "SparkSession":
        try:
            return session("dledger export", master=master)
        except NoJavaError as error:
            bad_input(error.what, error.remedy)

    # Called when there is something to do: a JVM takes seconds to start.
    return SparkEngine(begin, reporter.advance)


def run_once(
    storage: "ExportStorage",
    source: "ClusterSource",
    engine: "Engine",
    options: "Options",
    reporter: Reporter,
) -> "Outcome":
    """Run once, and say so when the run finished what another had planned."""
    from dledger_client.export.run import export_once

    with reporter.running(engine):
        outcome = export_once(storage, source, reporter, options, now_ms)
    if outcome.adopted and outcome.manifest is not None:
        note(
            f"version {outcome.manifest.number} was planned by another run, by that one's --since, "
            "--until and --file-bytes; what came since is the next run's"
        )
    return outcome


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
