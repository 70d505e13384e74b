"""The phases of a run: setup, faults, heal, final. After them the history is complete.

Owns also what happens when the harness itself fails: it ends the cluster, the history gets no end,
and nothing is said about the product. How a signal ends a run: `signals.py`.
"""

import asyncio
import contextlib
import importlib
import subprocess
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final

from dledger_client import AsyncAdmin
from dledger_proto import __version__
from dledger_proto.errors import Code, DledgerError
from jepsen_tests.backends.surface import Backend, each_group, places_of
from jepsen_tests.errors import BadRequest, HarnessFailure, unknown_name
from jepsen_tests.history.events import EXAMINE, INTERRUPTED, Header, Kind
from jepsen_tests.history.history_file import HistoryWriter
from jepsen_tests.nemeses import FAULTS, LOSING
from jepsen_tests.nemeses.fault import BORNE_SECONDS
from jepsen_tests.nemeses.nemesis import Nemesis
from jepsen_tests.run.final import final_phase
from jepsen_tests.run.members import wait_until_well
from jepsen_tests.run.observer import Observer
from jepsen_tests.run.recorder import Recorder
from jepsen_tests.run.schedule import Schedule, draw_schedule
from jepsen_tests.signals import StopRequest
from jepsen_tests.workloads.clients import place_of
from jepsen_tests.workloads.workload import TOPIC_PREFIX, Stage, Workload

SERVING_SECONDS_MAX: Final = 60.0
HEALED_SECONDS_MAX: Final = 90.0
LOOK_SECONDS: Final = 5.0
AFTER_HEAL_SECONDS: Final = 3.0
"""The workload goes on for so long after the last heal."""
MUTANTS: Final = "tests.mutants.catalogue"
"""The list of known bugs, shared with the simulation. It is outside the wheel, like the harness."""
ENDING_SECONDS_MAX: Final = 30.0
"""The time for the workers' last operations."""


@dataclass(slots=True)
class RunPlan:
    """What a run does. It checks itself before anything starts."""

    workload: Workload
    nemeses: Sequence[str]
    seconds: float
    seed: int
    concurrency: int
    folder: Path
    mutant: str = ""
    schedule: Schedule = field(init=False)

    def __post_init__(self) -> None:
        losing = sorted(LOSING & set(self.nemeses))
        if losing and self.workload.trims:
            raise BadRequest(
                f"workload {self.workload.name} trims the log's head, so the leader cannot fill a "
                f"member that lost its data: leave out {', '.join(losing)}"
            )
        kinds = [FAULTS[name].kind for name in self.nemeses]
        self.schedule = draw_schedule(kinds, self.seconds, Random(self.seed))
        if self.nemeses and not self.schedule.phases:
            names = ", ".join(self.nemeses)
            raise BadRequest(f"no time for {names} in {self.seconds:g} s: use a longer --time")
        if self.mutant:
            known = importlib.import_module(MUTANTS).by_name()
            if self.mutant not in known:
                raise unknown_name("mutant", self.mutant, known)


@dataclass(slots=True)
class Watch:
    """The state of a run for somebody who watches it."""

    recorder: Recorder | None = None
    nemesis: Nemesis | None = None
    phase: str = "starting"


def product_version() -> str:
    """Return the version that is installed and, in a clone, its commit."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"], check=True, capture_output=True, text=True,
            cwd=Path(__file__).parents[1],
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{__version__} {found.stdout.strip()}"


def _header(plan: RunPlan, backend: Backend) -> Header:
    workload = plan.workload
    return Header(
        workload=workload.name,
        nemeses=tuple(plan.nemeses),
        backend=backend.name,
        nodes=backend.nodes,
        seed=plan.seed,
        seconds=plan.seconds,
        began=datetime.now(UTC).isoformat(),
        product=product_version(),
        mutant=plan.mutant,
        settings=dict(workload.settings),
        notes={
            "topics": dict(workload.topics),
            "least_ok": {f: list(least) for f, least in workload.least_ok.items()},
            "errors": [code.name for code in Code] + ["CANCELLED"],
            "budgets": {
                **{fault.name: fault.budget_seconds for fault in FAULTS.values()},
                EXAMINE: BORNE_SECONDS,
            },
            "concurrency": plan.concurrency,
            "secure": bool(backend.tls_folder),
            "others_write": backend.is_kept,
            "groups": {
                part.group: [list(part.nodes), _places(plan, backend)[part.group]]
                for part in backend.parts
            },
            "left_out": list(plan.schedule.left_out),
        },
    )


def _places(plan: RunPlan, backend: Backend) -> dict[str, list[str]]:
    """Return the places that the workload sends to, by broker group."""
    found = places_of(backend, plan.workload.topics)
    return {group: [place_of(*queue) for queue in queues] for group, queues in found.items()}


async def execute(plan: RunPlan, backend: Backend, watch: Watch, stop: StopRequest) -> Path:
    """Make the run, or as much as a signal lets it make; return the path of the history."""
    path = plan.folder / "history.jsonl"
    with HistoryWriter(path, _header(plan, backend)) as writer:
        recorder = watch.recorder = Recorder(writer)
        try:
            if not await stop.unless_asked(_phases(plan, backend, recorder, watch)):
                recorder.nemesis(INTERRUPTED, stop.signal, Kind.OK)
        except DledgerError as error:
            raise HarnessFailure(f"{watch.phase}: {error}") from error
        finally:
            watch.phase = "stopping"
            await _stop(backend, stop)
        writer.close(recorder.now())
    watch.phase = "over"
    return path


async def _stop(backend: Backend, stop: StopRequest) -> None:
    """End the cluster in order, or at once if a second signal asked for it."""
    async with contextlib.AsyncExitStack() as ending:
        ending.push_async_callback(backend.abort)
        if not stop.at_once:
            await backend.stop()
            ending.pop_all()


async def _phases(plan: RunPlan, backend: Backend, recorder: Recorder, watch: Watch) -> None:
    await backend.start()
    random = Random(plan.seed + 1)
    stage = Stage(
        backend, recorder, random, plan.concurrency, plan.folder, plan.workload.topics, plan.mutant
    )
    places = [place for mine in _places(plan, backend).values() for place in mine]

    def enter(phase: str) -> None:
        watch.phase = phase
        recorder.phase(phase)

    async with (
        AsyncAdmin(backend.bootstrap, stage.connection) as admin,
        _borrowed(admin) if backend.is_kept else contextlib.nullcontext(),
    ):
        enter("setup")
        await _set_up(plan, stage, admin)
        observer = Observer(stage, admin)
        await observer.look()
        enter("faults")
        nemesis = watch.nemesis = Nemesis(backend, recorder, admin, random)
        async with _working(plan.workload, stage, observer):
            began = recorder.seconds
            try:
                await nemesis.run(plan.schedule)
                await asyncio.sleep(max(0.0, plan.seconds - (recorder.seconds - began)))
                enter("heal")
            finally:
                await nemesis.heal()
            await wait_until_well(backend, admin, HEALED_SECONDS_MAX, nemesis.revive)
            await asyncio.sleep(AFTER_HEAL_SECONDS)
        enter("final")
        await plan.workload.finish(stage, nemesis.revive)
        await final_phase(stage, admin, places, nemesis.revive)


@contextlib.asynccontextmanager
async def _borrowed(admin: AsyncAdmin) -> AsyncGenerator[None]:
    """Refuse a cluster of the user that has topics of ours; delete ours at the end."""
    if left := await _our_topics(admin):
        raise HarnessFailure(
            f"the cluster has topics of another run: {', '.join(left)}. If it is over, delete "
            "them with `dledger topic delete NAME`"
        )
    try:
        yield
    finally:
        for name in await _our_topics(admin):
            await admin.delete_topic(name)


async def _our_topics(admin: AsyncAdmin) -> list[str]:
    names = (topic.name for topic in await admin.list_topics())
    return sorted(name for name in names if name.startswith(TOPIC_PREFIX))


async def _set_up(plan: RunPlan, stage: Stage, admin: AsyncAdmin) -> None:
    """Wait until the cluster answers, and create the topics."""
    until = asyncio.get_running_loop().time() + SERVING_SECONDS_MAX
    while True:
        try:
            for topic, queues in plan.workload.topics.items():
                groups = [part.group for part in each_group(stage.backend)]
                route = await admin.create_topic(topic, queues_per_group=queues, groups=groups)
                if list(route.parts) != [(group, queues) for group in groups]:
                    raise HarnessFailure(f"{topic} has its queues elsewhere: {route.parts}")
            break
        except DledgerError as error:
            if asyncio.get_running_loop().time() > until:
                raise HarnessFailure(f"the cluster takes no topics: {error}") from error
            await asyncio.sleep(0.2)
    await plan.workload.setup(stage)


@contextlib.asynccontextmanager
async def _working(workload: Workload, stage: Stage, observer: Observer) -> AsyncGenerator[None]:
    """Run the tasks of a workload and of the observer for the length of a block."""
    work = (*workload.workers(stage), _look(stage, observer))
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        stage.over.set()
        _, late = await asyncio.wait(tasks, timeout=ENDING_SECONDS_MAX)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for task in tasks:
            if not task.cancelled() and task.exception() is not None:
                raise HarnessFailure(f"a worker failed: {task.exception()!r}") from task.exception()


async def _look(stage: Stage, observer: Observer) -> None:
    while not stage.over.is_set():
        await observer.look()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await stage.over.wait()
