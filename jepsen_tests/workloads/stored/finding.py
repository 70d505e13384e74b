"""Records as lookups show them, and the store times of a whole queue."""

import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from dledger_client import AsyncAdmin, FoundRecord
from dledger_proto.errors import Code, DledgerError
from jepsen_tests.run.patience import Patience, Revive
from jepsen_tests.run.recorder import Process
from jepsen_tests.workloads.clients import place_of, split_place
from jepsen_tests.workloads.values import value_of
from jepsen_tests.workloads.wire import Wire, wires_to
from jepsen_tests.workloads.workload import Stage

Lookup = Callable[[], Awaitable[list[FoundRecord]]]
GONE = (Code.NOT_FOUND, Code.OFFSET_OUT_OF_RANGE)
"""How a member says that it has no such record."""


async def look_up(process: Process, f: str, k: str, asked: Any, lookup: Lookup) -> list[list[Any]]:
    """Do one lookup; return what it found, nothing also when it failed."""

    async def call() -> list[FoundRecord]:
        try:
            return await lookup()
        except DledgerError as error:
            if error.code in GONE:
                return []
            raise

    answer = await process.do(f, k, asked, call, _shown, reads=True)
    return _shown(answer[1] or [])


async def look_at(process: Process, admin: AsyncAdmin, place: str, offset: int) -> list[list[Any]]:
    """Look up the record at an offset."""
    lookup = partial(admin.lookup_offset, *split_place(place), offset)
    return await look_up(process, "lookup", place, offset, lookup)


def _shown(found: Iterable[FoundRecord]) -> list[list[Any]]:
    return [
        [place_of(each.topic, each.queue), each.offset, value_of(each.record), each.store_time_ms]
        for each in found
    ]


async def show_stamps(stage: Stage, places: Sequence[str], revive: Revive) -> None:
    """Note the store times of all records of these places."""
    process, patience = Process(stage.recorder), Patience(revive)
    async with (
        aclosing(stage.worker(stage.random)) as worker,
        wires_to(stage.backend, stage.addresses) as wires,
    ):
        turns = itertools.cycle(wires)

        async def attempt(place: str) -> bool:
            bounds = await worker.bounds(place)
            if bounds is None:
                return False
            call = partial(_stamps, next(turns), place, *bounds)
            done, _ = await process.do("stamps", place, None, call, list, reads=True)
            return done

        for place in places:
            await patience.until(partial(attempt, place))


async def _stamps(wire: Wire, place: str, low: int, high: int) -> list[list[int]]:
    """Return [first offset, how many, store time] of each run of one store time."""
    runs: list[list[int]] = []
    if low >= high:
        return runs
    async for frame in wire.read(*split_place(place), low, high):
        for row in frame.rows:
            last = runs[-1] if runs else [0, 0, 0]
            if sum(last[:2]) == row.base_offset and last[2] == row.store_time_ms and last[1]:
                last[1] += row.record_count
            else:
                runs.append([row.base_offset, row.record_count, row.store_time_ms])
    return runs
