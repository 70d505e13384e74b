"""The final phase: wait until the cluster works, then read everything in every way.

The phase is the same for all workloads: fresh sends to each queue, a complete read of each queue,
what each member alone serves, each member's log entries, status and resources. A call that fails is
repeated until a deadline, because an election may come at any moment: only a lasting failure is
wrong. Everything goes into the history, and the checkers judge it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from dledger_client import AsyncAdmin
from dledger_proto.errors import Code, DledgerError
from jepsen_tests.backends.surface import Backend
from jepsen_tests.run.members import wait_until_well
from jepsen_tests.run.observer import Observer
from jepsen_tests.run.patience import Patience, Revive
from jepsen_tests.run.recorder import Process
from jepsen_tests.workloads.clients import Worker, split_place
from jepsen_tests.workloads.values import value_of
from jepsen_tests.workloads.wire import Wire, runs_of, wires_to
from jepsen_tests.workloads.workload import Stage

WELL_SECONDS_MAX: Final = 90.0
"""So long the phase waits, after consumers have read everything, until one member leads and all are
complete. Then it reads each member alone in any case."""
STALLED_SECONDS_MAX: Final = 10.0
"""One try to read a queue ends when nothing came for so long."""
POLLS_EMPTY_MAX: Final = 100


async def read_all(stage: Stage, ends: Mapping[str, tuple[int, int]], revive: Revive) -> None:
    """Read each queue from its start to its end with a new consumer."""
    patience = Patience(revive)
    async with aclosing(stage.worker(stage.random)) as worker:
        for place, (low, high) in ends.items():
            await patience.until(partial(_read_place, worker, place, low, high))


async def _read_place(worker: Worker, place: str, position: int, end: int) -> bool:
    """Read one queue; return whether the consumer came to its end."""
    empty = 0
    if not await worker.assign({place: position}):
        return False
    while position < end and empty < POLLS_EMPTY_MAX:
        batches = await worker.poll()
        if not batches:
            empty += 1
            continue
        position = max(batch.next_offset for batch in batches)
    return position >= end


async def drain_members(stage: Stage, ends: Mapping[str, tuple[int, int]], revive: Revive) -> None:
    """Read each queue from each member of its group alone, from where it begins at that time.

    A trim of unknown outcome may take effect meanwhile, and an election may confirm more. So the
    bounds are asked for again when a read fails, and at the end. What then was not read is read.
    """
    for part, mine in stage.by_group(ends):
        await _drain_group(stage, part, {place: ends[place] for place in mine}, revive)


async def _drain_group(
    stage: Stage, backend: Backend, ends: Mapping[str, tuple[int, int]], revive: Revive
) -> None:
    process, patience = Process(stage.recorder), Patience(revive)
    worker = stage.worker(stage.random)
    now = dict(ends)

    async def attempt(wire: Wire, node: str, place: str) -> bool:
        low, high = now[place]
        if high <= low or await _drain(process, wire, node, place, low, high):
            return True
        await _look(worker, now, place)
        return False

    async def drain(places: Sequence[str]) -> None:
        for node in backend.nodes:
            async with wires_to(backend, [backend.inner_address(node)]) as (wire,):
                for place in places:
                    await patience.until(partial(attempt, wire, node, place))

    async with aclosing(worker):
        await drain(list(now))
        for place in ends:
            await patience.until(partial(_look, worker, now, place))
        await drain([place for place, (_, high) in now.items() if high > ends[place][1]])


async def _look(worker: Worker, found: dict[str, tuple[int, int]], place: str) -> bool:
    """Note the bounds of a place; return whether a quorum confirmed them."""
    bounds = await worker.bounds(place)
    if bounds is not None:
        found[place] = (bounds[0], bounds[1])
    return bounds is not None


async def _drain(process: Process, wire: Wire, node: str, place: str, low: int, high: int) -> bool:
    """Read one queue from one member; return whether the member served all that it holds."""
    topic, queue = split_place(place)

    async def call() -> list[list[Any]]:
        runs: list[list[Any]] = []
        try:
            async with asyncio.timeout(STALLED_SECONDS_MAX) as limit:
                async for frame in wire.read(topic, queue, low, high):
                    for offset, records in runs_of(frame):
                        runs.append([place, offset, [value_of(record) for record in records]])
                        limit.reschedule(asyncio.get_running_loop().time() + STALLED_SECONDS_MAX)
        except TimeoutError:
            why = f"nothing came for {STALLED_SECONDS_MAX:g} s"
            raise DledgerError(Code.UNAVAILABLE, why) from None
        return runs

    done, _ = await process.do("drain", place, None, call, list, node=node, reads=True)
    return done


async def _ends(stage: Stage, places: Sequence[str], revive: Revive) -> dict[str, tuple[int, int]]:
    """Send to each place, then ask for its bounds. C18 judges places that do not answer."""
    ends: dict[str, tuple[int, int]] = {}
    async with aclosing(stage.worker(stage.random)) as worker:
        patience = Patience(revive)
        for place in places:
            await patience.until(partial(worker.send, place, 1, 50))
        patience = Patience(revive)
        for place in places:
            await patience.until(partial(_look, worker, ends, place))
    return ends


async def final_phase(
    stage: Stage, admin: AsyncAdmin, places: Sequence[str], revive: Revive
) -> None:
    """Carry out the final phase. `revive` is as in `Patience`."""
    observer = Observer(stage, admin)
    ends = await _ends(stage, places, revive)
    await read_all(stage, ends, revive)
    if ends:
        await wait_until_well(stage.backend, admin, WELL_SECONDS_MAX, revive)
    await drain_members(stage, ends, revive)
    await observer.entries(revive)
    await observer.agreement(revive)
    await revive()  # notes members that died since the last time
