"""W13: two broker groups. A topic has queues in both; topics are created and deleted meanwhile.

Faults hit the members of one group at a time, the control group or the other one. Each group is
judged by itself, as if it were alone; only the topics of both must be the same in the end.
"""

import itertools
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from random import Random
from typing import Any, ClassVar, Final

from dledger_client import AsyncAdmin
from jepsen_tests.backends.surface import Backend, Setting
from jepsen_tests.run.patience import Patience, Revive
from jepsen_tests.run.recorder import Process
from jepsen_tests.workloads.clients import place_of
from jepsen_tests.workloads.metadata import change_existence, delete_all
from jepsen_tests.workloads.wire import wires_to
from jepsen_tests.workloads.workload import TOPIC_PREFIX, LeastOk, Stage, Workload

TOPIC: Final = "chaos-groups"
QUEUES: Final = 2
"""In each group."""
GROUPS: Final = 2
PLACES: Final = tuple(place_of(TOPIC, queue) for queue in range(GROUPS * QUEUES))
BATCH_MAX: Final = 5
ACTIONS: Final = {"send": 40, "batch": 12, "poll": 40, "bounds": 6, "assign": 4, "crash": 1}
CHANGERS: Final = 3
"""Workers that create and delete topics."""
CHANGE_PAUSE_SECONDS: Final = 0.2
LIST_SECONDS: Final = 5.0


class GroupsWorkload(Workload):
    """What each group stores stays, and both have the same topics."""

    name = "groups"
    what = "W13: two broker groups with a topic in both, while topics are created and deleted"
    topics: ClassVar[Mapping[str, int]] = {TOPIC: QUEUES}
    broker_groups = GROUPS
    settings: ClassVar[Mapping[str, Setting]] = {"topics.auto_create": False}
    least_ok: ClassVar[LeastOk] = {
        "send": (50, 0.2), "poll": (50, 0.2), "set": (20, 0.1), "get": (20, 0.1),
        "topics": (3, 0.1),
    }  # fmt: skip

    async def setup(self, stage: Stage) -> None:
        async with AsyncAdmin(stage.backend.bootstrap, stage.connection) as admin:
            await delete_all(Process(stage.recorder), admin)

    def workers(self, stage: Stage) -> Sequence[Coroutine[Any, Any, None]]:
        randoms = (Random(stage.random.random()) for _ in itertools.count())
        clients = max(1, stage.concurrency - CHANGERS)
        return [
            *(self.work(stage, next(randoms)) for _ in range(clients)),
            *(self._change(stage, next(randoms)) for _ in range(CHANGERS)),
        ]

    async def _change(self, stage: Stage, random: Random) -> None:
        process = Process(stage.recorder)
        async with AsyncAdmin(stage.backend.bootstrap, stage.connection) as admin:
            while not stage.over.is_set():
                await change_existence(process, admin, random)
                await stage.pause(random, CHANGE_PAUSE_SECONDS)

    async def work(self, stage: Stage, random: Random) -> None:
        async with aclosing(stage.worker(random)) as worker:
            await worker.assign(dict.fromkeys(PLACES, 0))
            while not stage.over.is_set():
                place = random.choice(PLACES)
                match random.choices(list(ACTIONS), list(ACTIONS.values()))[0]:
                    case "send":
                        await worker.send(place, 1, 200)
                    case "batch":
                        await worker.send(place, random.randint(2, BATCH_MAX), 200)
                    case "poll":
                        await worker.poll()
                    case "bounds":
                        await worker.bounds(place)
                    case "assign":
                        chosen = random.sample(PLACES, random.randint(1, len(PLACES)))
                        await worker.assign(dict.fromkeys(chosen, 0))
                    case _:
                        await worker.crash()
                        await worker.assign(dict.fromkeys(PLACES, 0))
                await stage.pause(random)

    async def finish(self, stage: Stage, revive: Revive) -> None:
        """Ask each member for the topics of its group, until all have the same ones."""
        process = Process(stage.recorder)

        async def attempt() -> bool:
            found = [
                await _topics(process, part, node)
                for part in stage.backend.parts
                for node in part.nodes
            ]
            return None not in found and all(each == found[0] for each in found)

        await Patience(revive).until(attempt)


async def _topics(process: Process, part: Backend, node: str) -> dict[str, str] | None:
    async with wires_to(part, [part.inner_address(node)]) as (wire,):
        answer = await process.do(
            "topics", "", None, partial(wire.topics, LIST_SECONDS), _ours, node=node, reads=True
        )
    return None if answer[1] is None else _ours(answer[1])


def _ours(topics: Mapping[str, str]) -> dict[str, str]:
    return {name: each for name, each in topics.items() if name.startswith(TOPIC_PREFIX)}
