"""W5: offsets of consumer groups as registers: committed, reset and read by several at once.

At any member, and each call is tried once: what a client repeats may take effect more than once.
"""

from collections.abc import Mapping
from contextlib import aclosing
from random import Random
from typing import ClassVar, Final

from jepsen_tests.run.recorder import Process
from jepsen_tests.workloads.clients import place_of, split_place
from jepsen_tests.workloads.wire import Wire, wires_to
from jepsen_tests.workloads.workload import LeastOk, Stage, Workload

TOPIC: Final = "chaos-offsets"
QUEUES: Final = 2
GROUPS: Final = ("billing", "audit")
REGISTER_OPERATIONS_MAX: Final = 1_500
"""Of one register. A new group's name makes a new one: checking takes more than linear time."""
ACTIONS: Final = {"commit": 5, "reset": 1, "committed": 6}
READ_SECONDS: Final = 2.0
COMMIT_SECONDS: Final = 4.0
SENDS_BEFORE: Final = 200
"""Offsets from 0 to this are there to be committed."""


class OffsetsWorkload(Workload):
    """Commits never go back unless told to; reads see the newest."""

    name = "offsets"
    what = "W5: commit, reset and read group offsets concurrently: linearizable registers"
    topics: ClassVar[Mapping[str, int]] = {TOPIC: QUEUES}
    least_ok: ClassVar[LeastOk] = {
        "commit": (50, 0.05), "committed": (100, 0.3), "reset": (10, 0.3),
    }  # fmt: skip
    _operations = 0

    async def setup(self, stage: Stage) -> None:
        async with aclosing(stage.worker(stage.random)) as worker:
            for queue in range(QUEUES):
                await worker.send(place_of(TOPIC, queue), SENDS_BEFORE, 20)

    async def work(self, stage: Stage, random: Random) -> None:
        process = Process(stage.recorder)
        async with wires_to(stage.backend, stage.addresses) as wires:
            while not stage.over.is_set():
                self._operations += 1
                life = self._operations // (REGISTER_OPERATIONS_MAX * QUEUES * len(GROUPS))
                group = f"{random.choice(GROUPS)}-{life}"
                place = place_of(TOPIC, random.randrange(QUEUES))
                action = random.choices(list(ACTIONS), list(ACTIONS.values()))[0]
                wire = random.choice(wires)
                if action == "committed":
                    await _read(process, wire, group, place)
                else:
                    is_reset, offset = action == "reset", random.randint(0, SENDS_BEFORE)
                    await _commit(process, wire, group, place, offset, is_reset=is_reset)
                await stage.pause(random)


async def _read(process: Process, wire: Wire, group: str, place: str) -> None:
    """Ask any member: it may lead no more, or not yet."""
    topic, queue = split_place(place)
    await process.do(
        "committed", _register(group, place), None,
        lambda: wire.committed(group, topic, queue, READ_SECONDS), lambda found: found,
        reads=True,
    )  # fmt: skip


async def _commit(
    process: Process, wire: Wire, group: str, place: str, offset: int, *, is_reset: bool
) -> None:
    queue = split_place(place)
    await process.do(
        "reset" if is_reset else "commit", _register(group, place), offset,
        lambda: wire.commit(group, queue, offset, COMMIT_SECONDS, reset=is_reset), lambda _: None,
    )  # fmt: skip


def _register(group: str, place: str) -> str:
    return f"{group}@{place}"
