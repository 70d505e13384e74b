"""After the faults: wait until the cluster is well, then read everything there is, in every way.

Owns the final phase, which is the same for all workloads: fresh sends to every queue, a complete
read of every queue, what each member alone serves, each member's log entries, status, resources.
What fails is tried until a deadline: an election may come at any moment, and only what lasts is
wrong. Everything goes into the history; whether it is good is for the checkers to say.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from dledger_client import AsyncAdmin, EntryMark, MemberStatus
from dledger_proto.errors import Code, DledgerError
from jepsen_tests.members import are_well, wait_until_well
from jepsen_tests.recorder import Process
from jepsen_tests.wire import Wire, runs_of
from jepsen_tests.workloads.clients import Worker, split_place
from jepsen_tests.workloads.values import value_of
from jepsen_tests.workloads.workload import Stage

WELL_SECONDS_MAX: Final = 90.0
"""After consumers have read all until all members are complete and one leads: each is then read
alone in any case."""
STALLED_SECONDS_MAX: Final = 10.0
"""Of one read of one queue: so long nothing may come, then this try is given up."""
POLLS_EMPTY_MAX: Final = 100
PATIENCE_SECONDS: Final = 45.0
"""For all tries of one kind that fail: longer than any fault's healing and the election after."""
AGAIN_SECONDS: Final = 0.5
"""Between two tries."""


Revive = Callable[[], Awaitable[None]]


class Patience:
    """Tries again what fails, until a deadline that all tries of one kind share.

    Each thing is tried once at least: many that fail do not take many times as long. `revive`
    brings back who ended meanwhile: a member may find damage only when all of it is read.
    """

    def __init__(self, revive: Revive) -> None:
        self._revive = revive
        self._until = asyncio.get_running_loop().time() + PATIENCE_SECONDS

    async def until(self, attempt: Callable[[], Awaitable[bool]]) -> bool:
        """Try until it is done; return whether it is."""
        while not await attempt():
            if asyncio.get_running_loop().time() >= self._until:
                return False
            await self._revive()
            await asyncio.sleep(AGAIN_SECONDS)
        return True


class Observer:
    """Looks at members for the history: status, resources, log entries."""

    def __init__(self, stage: Stage, admin: AsyncAdmin) -> None:
        self._stage = stage
        self._admin = admin
        self._process = Process(stage.recorder)

    async def look(self) -> list[MemberStatus]:
        """Note what every member says of itself, and what its process uses; return the former."""
        backend = self._stage.backend
        statuses: list[MemberStatus] = []
        for node in backend.nodes:
            address = backend.inner_address(node)
            answer = await self._process.do(
                "status", "", None,
                partial(self._admin.status, address, backend.group), _shown_status,
                node=node, reads=True,
            )  # fmt: skip
            if answer[1] is not None:
                statuses.append(answer[1])
            used = _resources(backend.pid(node))
            if used:

                async def call(used: dict[str, int] = used) -> dict[str, int]:
                    return used

                await self._process.do("resources", "", None, call, dict, node=node, reads=True)
        return statuses

    async def agreement(self, revive: Revive) -> None:
        """Look until all members agree, or patience ends: the last look is what counts.

        Where others write, too, nobody stands still: then all have what anybody had a look before.
        """
        patience, members = Patience(revive), len(self._stage.backend.nodes)
        others_write = self._stage.backend.is_kept
        before = await self.look() if others_write else []

        async def attempt() -> bool:
            nonlocal before
            earlier, before = before, await self.look()
            return caught_up(earlier, before, members) if others_write else agree(before, members)

        await patience.until(attempt)

    async def entries(self, revive: Revive) -> None:
        """Note every member's log; one that is too long is not asked for again."""
        patience = Patience(revive)
        for node in self._stage.backend.nodes:
            await patience.until(partial(self._entries_of, node))

    async def _entries_of(self, node: str) -> bool:
        backend, is_too_long = self._stage.backend, False

        async def call() -> tuple[list[EntryMark], MemberStatus]:
            nonlocal is_too_long
            address = backend.inner_address(node)
            status = await self._admin.status(address, backend.group)  # it holds that much
            try:
                return await self._admin.log_entries(address, backend.group), status
            except DledgerError as error:
                is_too_long = error.code is Code.INVALID_ARGUMENT
                raise

        done, _ = await self._process.do(
            "entries", "", None, call, _shown_entries, node=node, reads=True
        )
        return done or is_too_long


def agree(found: Sequence[MemberStatus], members: int) -> bool:
    """Tell whether one leads, all are of its term, and have committed and applied the same."""
    ends = {(status.term, status.commit_index, status.applied_index) for status in found}
    applied = max((status.commit_index for status in found), default=0)
    return len(ends) == 1 and are_well(found, members, applied)


def caught_up(before: Sequence[MemberStatus], found: Sequence[MemberStatus], members: int) -> bool:
    """Tell whether one leads, all are of its term, and have applied what was committed before."""
    applied = max((status.commit_index for status in before), default=0)
    return len({status.term for status in found}) == 1 and are_well(found, members, applied)


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


async def read_all(stage: Stage, ends: Mapping[str, tuple[int, int]], revive: Revive) -> None:
    """Read every queue from its start to its end, as a consumer that knows nothing."""
    worker = Worker(stage.recorder, stage.backend.bootstrap, stage.random)
    patience = Patience(revive)
    try:
        for place, (low, high) in ends.items():
            await patience.until(partial(_read_place, worker, place, low, high))
    finally:
        await worker.close()


async def _read_place(worker: Worker, place: str, position: int, end: int) -> bool:
    """Read one; return whether it was read to its end."""
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
    """Read every queue from each member alone."""
    process, patience = Process(stage.recorder), Patience(revive)
    backend = stage.backend
    for node in backend.nodes:
        async with Wire(backend.inner_address(node), backend.group) as wire:
            for place, (low, high) in ends.items():
                if high > low:
                    await patience.until(partial(_drain, process, wire, node, place, low, high))


async def _drain(process: Process, wire: Wire, node: str, place: str, low: int, high: int) -> bool:
    """Read one queue from one member; return whether it gave all up that it holds of it."""
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
    """Send to every place, then ask for its bounds; who can't be read is not live, says C18."""
    worker = Worker(stage.recorder, stage.backend.bootstrap, stage.random)
    ends: dict[str, tuple[int, int]] = {}

    async def ask(place: str) -> bool:
        bounds = await worker.bounds(place)
        if bounds is not None:
            ends[place] = (bounds[0], bounds[1])
        return bounds is not None

    try:
        patience = Patience(revive)
        for place in places:
            await patience.until(partial(worker.send, place, 1, 50))
        patience = Patience(revive)
        for place in places:
            await patience.until(partial(ask, place))
    finally:
        await worker.close()
    return ends


async def final_phase(
    stage: Stage, admin: AsyncAdmin, places: Sequence[str], revive: Revive
) -> None:
    """Do all of it; `revive` as in `Patience`."""
    observer = Observer(stage, admin)
    ends = await _ends(stage, places, revive)
    await read_all(stage, ends, revive)
    if ends:
        await wait_until_well(stage.backend, admin, WELL_SECONDS_MAX, revive)
    await drain_members(stage, ends, revive)
    await observer.entries(revive)
    await observer.agreement(revive)
    await revive()  # who ended since the last time is said to have died
