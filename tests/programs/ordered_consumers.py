"""Ordered consumers on two broker groups, while leaders and a consumer are killed.

`python -m tests.programs.ordered_consumers FOLDER --messages 100000` starts two broker groups of
three members each and four consumers, all processes of their own. It sends keyed messages to eight
queues. Meanwhile it kills leaders, kills a consumer, and starts one more. The harness's checkers
judge what the consumers tell: the order of each key, loss, and that nothing comes again that was
committed. The last line is JSON with what was measured.
"""

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import uvloop

from dledger_client import AsyncAdmin, ConsumeOrder, StartFrom
from dledger_proto.errors import DledgerError
from jepsen_tests.backends.process import ProcessBackend
from jepsen_tests.backends.surface import WantedCluster
from jepsen_tests.checkers.delivery.attempts import attempts
from jepsen_tests.checkers.delivery.calls import by_record, calls_of
from jepsen_tests.checkers.delivery.delivered import delivered
from jepsen_tests.checkers.delivery.order import delivery_order
from jepsen_tests.checkers.shared.judgement import Valid
from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import Header, Kind
from jepsen_tests.history.history_file import HistoryWriter, read_history
from jepsen_tests.run.recorder import Process, Recorder
from jepsen_tests.workloads.clients import CONNECTION, Worker, place_of
from jepsen_tests.workloads.delivery.child import Child, Lanes, child
from jepsen_tests.workloads.delivery.consumer import ConsumerPlan

TOPIC: Final = "chaos-ordered"
GROUP: Final = "ordered"
QUEUES: Final = 8
"""In two broker groups together."""
KEYS_PER_QUEUE: Final = 25
BATCH: Final = 20
CONSUMERS: Final = 4
FINISH_SECONDS: Final = 120.0
"""So long the consumers may finish nothing."""
LOOK_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run did."""

    messages: int
    leaders_killed: int
    calls: int
    again: int
    """Calls beyond the first one for a message."""
    seconds: float
    floors: int
    """How often the group was asked how far it is."""
    wrong: list[str]


class PlainBackend(ProcessBackend):
    """Processes without disks and control groups of their own."""

    def __init__(self, wanted: WantedCluster) -> None:
        super().__init__(wanted)
        self._loop_disks = None
        self._member_cgroups = None


@dataclass
class Scene:
    """All that acts."""

    backend: ProcessBackend
    recorder: Recorder
    admin: AsyncAdmin
    folder: Path
    messages: int
    names: int = 0

    @property
    def handled(self) -> int:
        """Return how many calls have ended."""
        return self.recorder.counts["handle", Kind.OK]

    @asynccontextmanager
    async def consumer(self, lanes: Lanes) -> AsyncGenerator[Child]:
        """Run one more consumer."""
        self.names += 1
        plan = ConsumerPlan(
            self.backend.bootstrap, GROUP, TOPIC, "key", 2, 0.0, self.recorder.began,
            float(self.names), 0.0,
        )  # fmt: skip
        name = f"consumer-{self.names}"
        async with child(
            self.recorder, lanes, name, plan, folder=self.folder, mutant=""
        ) as running:
            yield running

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait for a condition as long as something goes on."""
        known, since = -1, time.monotonic()
        while not await self._holds(condition):
            if self.handled != known:
                known, since = self.handled, time.monotonic()
            if time.monotonic() - since > FINISH_SECONDS:
                raise AssertionError(f"nothing went on for {FINISH_SECONDS:g} s before {what}")
            await asyncio.sleep(LOOK_SECONDS)

    async def _holds(self, condition: Callable[[], Awaitable[bool]]) -> bool:
        try:
            return await condition()
        except DledgerError:
            return False

    async def until_handled(self, share: float) -> None:
        """Wait until so many messages were handled."""

        async def is_there() -> bool:
            return self.handled >= share * self.messages

        await self.until(is_there, f"{share:.0%} of the messages were handled")


async def send(scene: Scene, queue: int, count: int) -> None:
    """Send the messages of one queue in batches, one after the other."""
    random = Random(queue)
    place = place_of(TOPIC, queue)
    async with aclosing(Worker(scene.recorder, scene.backend.bootstrap, random)) as worker:
        for number in range(count // BATCH):  # a send of unknown outcome may be missing
            key = f"key-{queue}-{number % KEYS_PER_QUEUE}"
            await worker.send(place, BATCH, 40, order_key=key)


async def kill_leaders(scene: Scene, kills: int) -> None:
    """Kill the leader of one broker group after the other, evenly over the messages."""
    backend, processes = scene.backend, scene.backend.processes
    assert processes is not None, "members of this backend can be killed"
    for number in range(kills):
        await scene.until_handled((number + 1) / (kills + 2))
        group = backend.parts[number % len(backend.parts)].group
        leader = ""

        async def is_led(group: str = group) -> bool:
            nonlocal leader
            routes = {route.name: route.leader for route in await scene.admin.groups()}
            leader = routes[group]
            return leader in backend.nodes

        await scene.until(is_led, f"{group} has a leader")
        scene.recorder.nemesis("kill-leader", leader, Kind.INVOKE)
        await processes.kill(leader)
        scene.recorder.nemesis("kill-leader", leader, Kind.OK)
        await asyncio.sleep(2 * LOOK_SECONDS)
        await processes.start(leader)


async def change_consumers(scene: Scene, lanes: Lanes, running: list[Child], stack: Any) -> None:
    """Kill a consumer, and later start one more."""
    await scene.until_handled(0.4)
    running.pop().kill()
    await scene.until_handled(0.6)
    running.append(await stack.enter_async_context(scene.consumer(lanes)))


async def look(scene: Scene) -> None:
    """Ask how far the group is, until somebody ends this."""
    process = Process(scene.recorder)
    while True:
        await process.do(
            "floors", GROUP, None, lambda: scene.admin.group_progress(GROUP, TOPIC),
            lambda found: {place_of(TOPIC, at): each.floor or 0 for at, each in found.items()},
            reads=True,
        )  # fmt: skip
        await asyncio.sleep(LOOK_SECONDS)


async def finished(scene: Scene) -> bool:
    """Note the ends of the queues if the group has come there; return whether it has."""
    found = await scene.admin.group_progress(GROUP, TOPIC)
    if any((each.floor or 0) < each.maximum for each in found.values()):
        return False

    async def ends() -> dict[str, int]:
        return {place_of(TOPIC, at): each.maximum for at, each in found.items()}

    await Process(scene.recorder).do("caught-up", GROUP, None, ends, dict, reads=True)
    return True


async def act(scene: Scene, kills: int) -> None:
    """Send and consume, while things are killed; return when everything is consumed."""
    lanes = Lanes(scene.recorder)

    async def is_made() -> bool:
        groups = [part.group for part in scene.backend.parts]
        await scene.admin.create_topic(TOPIC, queues_per_group=QUEUES // 2, groups=groups)
        await scene.admin.create_consumer_group(
            GROUP, order=ConsumeOrder.KEY, start=StartFrom.FIRST, session_ms=3_000, lease_ms=3_000,
            pause_failures=0,
        )  # fmt: skip
        return True

    await scene.until(is_made, "the topic and the consumer group are there")
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(scene.consumer(lanes)) for _ in range(CONSUMERS)]
        looking = asyncio.create_task(look(scene))
        async with asyncio.TaskGroup() as tasks:
            for queue in range(QUEUES):
                tasks.create_task(send(scene, queue, scene.messages // QUEUES))
            tasks.create_task(kill_leaders(scene, kills))
            tasks.create_task(change_consumers(scene, lanes, running, stack))
        scene.recorder.phase("final")
        await scene.until(partial(finished, scene), "all is consumed")
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await asyncio.gather(*(each.leave() for each in running))


async def run(folder: Path, messages: int, kills: int) -> Measured:
    """Make one run and judge it."""
    backend = PlainBackend(WantedCluster(folder, broker_groups=2))
    header = Header(
        workload="consume", nemeses=("kill-leader",), backend="process", nodes=backend.nodes,
        seed=0, seconds=0.0, began=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), product="",
    )  # fmt: skip
    path = folder / "history.jsonl"
    began = time.monotonic()
    with HistoryWriter(path, header) as writer:
        recorder = Recorder(writer)
        await backend.start()
        try:
            async with AsyncAdmin(backend.bootstrap, CONNECTION) as admin:
                await act(Scene(backend, recorder, admin, folder, messages), kills)
        finally:
            with contextlib.suppress(DledgerError):
                await backend.stop()
        writer.close(recorder.now())
    return judged(path, kills, time.monotonic() - began)


def judged(path: Path, kills: int, seconds: float) -> Measured:
    """Return what the history of a run shows."""
    view = View(read_history(path))
    judgements = [check(view) for check in (delivered, delivery_order, attempts)]
    wrong = [finding.text for each in judgements for finding in each.findings]
    wrong += [each.why for each in judgements if each.valid is Valid.UNKNOWN]
    calls = calls_of(view)
    records = by_record(calls)
    acknowledged = sum(len(op.asked) for op in view.ops("send") if op.is_ok)
    if len(records) < acknowledged:
        wrong.append(f"{acknowledged} messages were acknowledged, {len(records)} were handed out")
    return Measured(
        len(records), kills, len(calls), len(calls) - len(records), round(seconds, 1),
        len(view.ops("floors")), wrong,
    )  # fmt: skip


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=5)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True)
    measured = uvloop.run(run(asked.folder, asked.messages, asked.kills))
    print(json.dumps(asdict(measured)))
    return 1 if measured.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
