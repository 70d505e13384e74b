"""After the faults: wait until the cluster is well, then read everything there is, in every way.

Owns the final phase, which is the same for all workloads: fresh sends to every queue, a complete
read of every queue, what each member alone serves, each member's log entries, status, resources.
Everything goes into the history; whether it is good is for the checkers to say.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from dledger_client import AsyncAdmin, EntryMark, MemberStatus
from dledger_proto.errors import Code, DledgerError
from jepsen_tests.members import wait_until_well
from jepsen_tests.recorder import Process
from jepsen_tests.wire import Wire, runs_of
from jepsen_tests.workloads.clients import Worker, split_place
from jepsen_tests.workloads.values import value_of
from jepsen_tests.workloads.workload import Stage

WELL_SECONDS_MAX: Final = 90.0
"""From the last heal until all members are complete and one leads; then the reads begin anyway."""
STALLED_SECONDS_MAX: Final = 10.0
"""Of one read of one queue: so long nothing may come, then it is given up."""
POLLS_EMPTY_MAX: Final = 100


class Observer:
    """Looks at members for the history: status, resources, log entries."""

    def __init__(self, stage: Stage, admin: AsyncAdmin) -> None:
        self._stage = stage
        self._admin = admin
        self._process = Process(stage.recorder)

    async def look(self) -> None:
        """Note what every member says of itself, and what its process uses."""
        backend = self._stage.backend
        for node in backend.nodes:
            address = backend.inner_address(node)
            await self._process.do(
                "status", "", None,
                partial(self._admin.status, address, backend.group), _shown_status,
                node=node, reads=True,
            )  # fmt: skip
            used = _resources(backend.pid(node))
            if used:

                async def call(used: dict[str, int] = used) -> dict[str, int]:
                    return used

                await self._process.do("resources", "", None, call, dict, node=node, reads=True)

    async def entries(self) -> None:
        """Note every member's log."""
        backend = self._stage.backend
        for node in backend.nodes:

            async def call(node: str = node) -> tuple[list[EntryMark], MemberStatus]:
                address = backend.inner_address(node)
                status = await self._admin.status(address, backend.group)  # it holds that much
                return await self._admin.log_entries(address, backend.group), status

            await self._process.do("entries", "", None, call, _shown_entries, node=node, reads=True)


def _shown_status(status: MemberStatus) -> dict[str, Any]:
    return {
        "role": status.role,
        "term": status.term,
        "leader": status.leader,
        "commit": status.commit_index,
        "applied": status.applied_index,
        "first": status.first_index,
        "last": status.last_index,
        "incarnation": status.incarnation,
    }


def _shown_entries(found: tuple[list[EntryMark], MemberStatus]) -> dict[str, Any]:
    marks, status = found
    return {
        "first": marks[0].index if marks else 0,
        "terms": [mark.term for mark in marks],
        "crcs": [mark.crc for mark in marks],
        "applied": status.applied_index,
        "digest": status.digest.hex(),
    }


def _resources(pid: int | None) -> dict[str, int]:
    """Return what a process uses; nothing when it is gone, or was while we looked."""
    proc = Path(f"/proc/{pid}")
    try:
        lines = (proc / "status").read_text().splitlines()
        files = sum(1 for _ in (proc / "fd").iterdir())
    except OSError:
        return {}
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    if "VmRSS" not in fields:  # it has ended, and its parent has not looked yet
        return {}
    return {
        "rss": int(fields["VmRSS"].split()[0]) * 1024,
        "files": files,
        "threads": int(fields["Threads"]),
    }


async def read_all(stage: Stage, places: Sequence[str], random: Random) -> None:
    """Read every queue from its start to its end, as a consumer that knows nothing."""
    worker = Worker(stage.recorder, stage.backend.bootstrap, random)
    try:
        for place in places:
            bounds = await worker.bounds(place)
            if bounds is None:
                continue
            await worker.assign({place: bounds[0]})
            await _read_to(worker, bounds[0], bounds[1])
    finally:
        await worker.close()


async def _read_to(worker: Worker, position: int, end: int) -> None:
    empty = 0
    while position < end and empty < POLLS_EMPTY_MAX:
        batches = await worker.poll()
        if not batches:
            empty += 1
            continue
        position = max(batch.next_offset for batch in batches)


async def drain_members(stage: Stage, ends: Mapping[str, tuple[int, int]]) -> None:
    """Read every queue from each member alone."""
    process = Process(stage.recorder)
    backend = stage.backend
    for node in backend.nodes:
        async with Wire(backend.inner_address(node), backend.group) as wire:
            for place, (low, high) in ends.items():
                topic, queue = split_place(place)

                async def call(
                    wire: Wire = wire,
                    topic: str = topic,
                    queue: int = queue,
                    low: int = low,
                    high: int = high,
                ) -> list[list[Any]]:
                    runs: list[list[Any]] = []
                    try:
                        async with asyncio.timeout(STALLED_SECONDS_MAX) as limit:
                            async for frame in wire.read(topic, queue, low, high):
                                for offset, records in runs_of(frame):
                                    values = [value_of(record) for record in records]
                                    runs.append([f"{topic}/{queue}", offset, values])
                                    now = asyncio.get_running_loop().time()
                                    limit.reschedule(now + STALLED_SECONDS_MAX)
                    except TimeoutError:
                        why = f"nothing came for {STALLED_SECONDS_MAX:g} s"
                        raise DledgerError(Code.UNAVAILABLE, why) from None
                    return runs

                if high > low:
                    await process.do(
                        "drain", place, None, call, lambda runs: runs, node=node, reads=True
                    )


async def final_phase(stage: Stage, admin: AsyncAdmin, places: Sequence[str]) -> None:
    """Do all of it."""
    observer = Observer(stage, admin)
    worker = Worker(stage.recorder, stage.backend.bootstrap, stage.random)
    ends: dict[str, tuple[int, int]] = {}
    try:
        for place in places:
            await worker.send(place, 1, 50)
        for place in places:
            bounds = await worker.bounds(place)
            if bounds is not None:  # a place that can't be read is not live, says C18
                ends[place] = (bounds[0], bounds[1])
    finally:
        await worker.close()
    await read_all(stage, list(ends), stage.random)
    if ends:
        await wait_until_well(stage.backend, admin, WELL_SECONDS_MAX)
    await drain_members(stage, ends)
    await observer.entries()
    await observer.look()
