"""How runs end before their time: in order at the first signal, at once at the second."""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from jepsen_tests import cli
from jepsen_tests.backends.surface import Backend
from jepsen_tests.cli import main
from jepsen_tests.exit_codes import EXIT_FAILED, EXIT_UNKNOWN
from jepsen_tests.history.history_file import read_history
from jepsen_tests.processes.child import Children, tool
from jepsen_tests.run.phases import RunPlan, Watch, execute
from jepsen_tests.signals import StopRequest, handled, interruptible
from jepsen_tests.suite.runner import FinishedRun, repeated
from jepsen_tests.suite.suites import SuiteEntry
from jepsen_tests.workloads import WORKLOADS
from tests.unit.jepsen.stories import Story, judged

HOLDS_SIGNALS = "import os,signal,sys;signal.pthread_sigmask(signal.SIG_BLOCK,[signal.SIGTERM]);"


def ended(asked: int, work: Coroutine[Any, Any, None], stop: StopRequest) -> bool | None:
    """Let so many signals come while the work goes on; None when it was ended at once."""

    async def run() -> bool | None:
        stop.listen()
        for _ in range(asked):
            asyncio.get_running_loop().call_soon(stop.hear, "SIGTERM")
        try:
            return await stop.unless_asked(work)
        except asyncio.CancelledError:
            return None

    return asyncio.run(run())


class Work:
    """What was done of some work that never ends by itself."""

    def __init__(self) -> None:
        self.cleaned_up = False

    async def go_on(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await nothing()
            self.cleaned_up = True


async def nothing() -> None:
    return


async def broken() -> None:
    raise ZeroDivisionError


def test_work_that_nobody_breaks_off_is_done() -> None:
    assert ended(0, nothing(), StopRequest()) is True
    with pytest.raises(ZeroDivisionError):
        ended(0, broken(), StopRequest())


def test_the_first_signal_lets_work_clean_up() -> None:
    work, stop = Work(), StopRequest()
    assert ended(1, work.go_on(), stop) is False
    assert work.cleaned_up
    assert (stop.signal, stop.at_once) == ("SIGTERM", False)


def test_the_second_signal_does_not_wait_and_the_third_changes_nothing() -> None:
    stop = StopRequest()
    assert ended(3, Work().go_on(), stop) is None
    assert stop.at_once


def test_an_error_while_cleaning_up_is_not_lost() -> None:
    async def fail_late() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await broken()

    with pytest.raises(ZeroDivisionError):
        ended(1, fail_late(), StopRequest())


class Cluster:
    """A backend that only notes what is asked of it."""

    tls_folder = ""
    name, group, nodes, is_kept, parts = "none", "g", ("n1",), False, ()

    def __init__(self, stop: StopRequest, signals_at_start: int, signals_at_stop: int = 0) -> None:
        self.done: list[str] = []
        self._ending, self._at = stop, {"start": signals_at_start, "stop": signals_at_stop}

    async def _note(self, what: str) -> None:
        for _ in range(self._at.get(what, 0)):
            self._ending.hear("SIGINT")
        if self._at.get(what):
            await asyncio.Event().wait()
        self.done.append(what)

    async def start(self) -> None:
        await self._note("start")

    async def stop(self) -> None:
        await self._note("stop")

    async def abort(self) -> None:
        await self._note("abort")


def run(folder: Path, stop: StopRequest, cluster: Cluster) -> Path | None:
    async def within() -> Path | None:
        stop.listen()
        plan = RunPlan(WORKLOADS["log"](), [], 5, 1, 1, folder)
        try:
            return await execute(plan, cast("Backend", cluster), Watch(), stop)
        except asyncio.CancelledError:
            return None

    return asyncio.run(within())


def test_a_run_that_is_broken_off_keeps_its_history_and_is_never_valid(tmp_path: Path) -> None:
    stop = StopRequest()
    cluster = Cluster(stop, 1)
    path = run(tmp_path, stop, cluster)
    assert path is not None
    assert cluster.done == ["stop"]
    assert [(row.f, row.k) for row in read_history(path).faults] == [("interrupted", "SIGINT")]
    assert main(["check", str(path)]) == EXIT_UNKNOWN


def test_what_was_seen_before_a_run_was_broken_off_counts() -> None:
    story = Story().lose(1, "1-1").lose(2, "2-1").poll(3, (0, "1-1")).poll(4, (0, "2-1"))
    story.fault("interrupted", "SIGTERM")
    judgements = judged(story.history())
    assert judgements["C4"].count == 1
    assert judgements["C19"].why == "SIGTERM ended the run early"


@pytest.mark.parametrize(("at_start", "at_stop", "done"), [(2, 0, ["abort"]), (1, 1, ["abort"])])
def test_a_run_that_is_ended_at_once_aborts_its_cluster(
    tmp_path: Path, at_start: int, at_stop: int, done: list[str]
) -> None:
    stop = StopRequest()
    cluster = Cluster(stop, at_start, at_stop)
    assert run(tmp_path, stop, cluster) is None
    assert cluster.done == done
    assert main(["check", str(tmp_path / "history.jsonl")]) == EXIT_FAILED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_judging_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def interrupted(_path: Path, _console: object) -> int:
        os.kill(os.getpid(), number)
        return 0

    monkeypatch.setattr(cli, "judge_file", interrupted)
    assert main(["check", "history.jsonl"]) == EXIT_FAILED


def test_signals_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interruptible():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_children_get_the_signal_end_in_order_and_none_begins_after_it(tmp_path: Path) -> None:
    children = Children()
    ready = tmp_path / "ready"
    script = f"{HOLDS_SIGNALS}open({str(ready)!r},'w').close();os.kill({os.getpid()},15);"
    script += "signal.sigwait([signal.SIGTERM]);sys.exit(7)"
    with handled(children.hear):
        ran = children.run(["-c", script], [sys.executable])
        assert ran is not None
        assert ran.code == 7
        assert ready.exists()
        assert children.run(["-c", ""], [sys.executable]) is None
    assert children.asked == 1


def test_a_tool_that_takes_too_long_is_killed() -> None:
    async def run() -> None:
        with pytest.raises(TimeoutError):
            await tool(sys.executable, "-c", "import signal; signal.pause()", seconds=0.2)
        done = await tool(sys.executable, "-c", "print('said')", seconds=60)
        assert (done.code, done.said) == (0, "said\n")

    asyncio.run(run())


def _done(code: int, seed: int, *, broken_off: bool = False) -> FinishedRun:
    return FinishedRun(
        SuiteEntry("log", ("kill",), 5), seed, code, "", {}, was_broken_off=broken_off
    )


def test_only_what_told_nothing_is_repeated_and_once() -> None:
    first = [_done(code, code) for code in (0, 1, 2, 3)]
    first += [_done(2, 4, broken_off=True), _done(2, 5)]
    asked: list[int] = []

    def again(number: int) -> FinishedRun:
        asked.append(number)
        return _done(Random(number).choice([2, 1]), number)

    attempts = repeated(first, again)
    assert asked == [2, 5]
    assert [len(each) for each in attempts] == [1, 1, 2, 1, 1, 2]
    assert [each[0] for each in attempts] == first


def test_each_outcome_of_a_run_has_a_name() -> None:
    assert _done(3, 1).verdict == "harness failed"
    assert _done(2, 1, broken_off=True).verdict == "unknown, broken off"
    assert _done(2, 1).verdict == "unknown"
