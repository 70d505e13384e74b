"""The demo: real rows through a real group while its members are killed, paused and started again.

Owns the course of the run. Not owned: the rows (`flights.py`), the proof (`proof.py`), the page
(`report.py`), the processes (`local/cluster.py`).
"""

import asyncio
import gc
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dledger.clock import SystemClock
from dledger_broker.demo.flights import ROWS, Departure, departures, row_number
from dledger_broker.demo.gaps import Acknowledgement, Fault, idle_faults, judged, quiet_gap
from dledger_broker.demo.proof import compare_members, read_back
from dledger_broker.demo.report import (
    Outcome,
    summarise_latency,
    table,
    write_json,
    write_page,
)
from dledger_broker.local.cluster import LocalCluster
from dledger_client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    AsyncSendFuture,
    BufferFull,
    ClientError,
    ConsumerConfig,
    ProducerConfig,
    StartAt,
)

CLUSTER = "demo"
TOPIC = "departures"
QUEUES = 8
DOWN_S = 1.0
"""How long the first leader stays down, at most."""
PAUSE_S = 3.0
"""How long the second leader is stopped, at most."""
SETTLE_S = 60.0
"""How long the group may take to serve, at the start and after all members were killed."""
BUFFER_BYTES = 8 << 20
"""Bytes of rows that wait for their acknowledgement: enough for full speed, and a short queue."""
BURST = 200
"""Rows handed over between two looks at the clock and the event loop."""


class NotADemoFolder(Exception):
    """The folder holds something that no demo made."""


class NotServing(Exception):
    """The group did not get a leader in time."""


@dataclass(slots=True)
class _Stream:
    """What the writer and the reader have done so far."""

    start_s: float
    acknowledged: int = 0
    wanted: int = 0
    """Rows acknowledged at which `reached` is set."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    followed: int = 0
    follower_order_breaks: int = 0
    acknowledgements: list[Acknowledgement] = field(default_factory=list[Acknowledgement])
    failures: list[str] = field(default_factory=list[str])


def run(folder: Path, report_folder: Path, console: Console) -> int:
    """Run the demo in `folder` (emptied first) and return the exit code: 0 when all was proven.

    `demo-report.json` and `demo-report.html` are written to `report_folder`.
    """
    _empty(folder)
    console.print(f"reading {ROWS:,} departures")
    rows = departures()
    gc.freeze()  # so that no collection walks a third of a million rows
    cluster = LocalCluster(
        folder,
        cluster=CLUSTER,
        settings={"storage.segment_size_bytes": 64 << 20},
        die_with_owner=True,
    )
    cluster.take_folder()
    cluster.prepare()
    try:
        cluster.start_all()
        outcome, acknowledgements = asyncio.run(_Demo(cluster, rows, console).run())
    finally:
        cluster.stop_all()
        cluster.give_folder()
    report_folder.mkdir(parents=True, exist_ok=True)
    write_json(outcome, report_folder / "demo-report.json")
    write_page(outcome, acknowledgements, report_folder / "demo-report.html")
    console.print(table(outcome))
    console.print(f"report: {report_folder / 'demo-report.html'}")
    return 0 if outcome.is_good else 1


def _empty(folder: Path) -> None:
    """Remove what an earlier demo left; refuse a folder that holds anything else."""
    if not folder.exists():
        return
    record = folder / "cluster.json"
    names = sorted(path.name for path in folder.iterdir())
    if names and not (record.exists() and json.loads(record.read_text())["cluster"] == CLUSTER):
        raise NotADemoFolder(f"{folder} holds {names[0]} and was not made by a demo; name another")
    shutil.rmtree(folder)


class _Demo:
    """One run."""

    def __init__(self, cluster: LocalCluster, rows: Sequence[Departure], console: Console) -> None:
        self._cluster = cluster
        self._rows = rows
        self._console = console
        self._now = SystemClock().monotonic
        self._faults: list[Fault] = []
        self._stream = _Stream(self._now())

    async def run(self) -> tuple[Outcome, Sequence[Acknowledgement]]:
        """Stream, break, compare."""
        async with AsyncAdmin(self._cluster.name_server) as admin:
            await self._leader(admin)
            await admin.create_topic(TOPIC, queues_per_group=QUEUES)
            with self._progress() as progress:
                task = progress.add_task("acknowledged", total=len(self._rows))
                stream = self._stream = _Stream(self._now())
                done = asyncio.Event()
                writer = asyncio.create_task(self._write())
                follower = asyncio.create_task(self._follow(done))
                nemesis = asyncio.create_task(self._break(admin))
                ticker = asyncio.create_task(self._show(progress, task))
                await writer
                seconds = self._now() - stream.start_s
                await nemesis
                done.set()
                await follower
                ticker.cancel()
            outcome = Outcome(
                seconds=seconds,
                rows_per_second=round(stream.acknowledged / seconds, 1),
                latency_ms=summarise_latency(stream.acknowledgements),
                faults=judged(self._faults, stream.acknowledgements),
                quiet_gap_s=quiet_gap(self._faults, stream.acknowledgements),
                followed=stream.followed,
                problems=stream.failures[:10] + idle_faults(self._faults, stream.acknowledgements),
            )
            if stream.follower_order_breaks:
                outcome.problems.append(
                    f"{stream.follower_order_breaks} rows followed out of order"
                )
            await self._prove(admin, outcome)
        return outcome, stream.acknowledgements

    async def _write(self) -> None:
        config = ProducerConfig(name="demo", timeout_ms=120_000, buffer_bytes=BUFFER_BYTES)
        async with AsyncProducer(self._cluster.name_server, config) as producer:
            for first in range(0, len(self._rows), BURST):
                burst = self._rows[first : first + BURST]
                sent_s = self._now()
                futures: list[AsyncSendFuture] = []
                for row in burst:
                    while True:
                        try:
                            futures.append(
                                producer.submit(
                                    TOPIC, row.body, key=row.tail, ordering_key=row.tail
                                )
                            )
                            break
                        except BufferFull:
                            await producer.wait_for_room()
                self._note_when_settled(futures, sent_s)
                await asyncio.sleep(0)
            await producer.flush()

    def _note_when_settled(self, futures: Sequence[AsyncSendFuture], sent_s: float) -> None:
        """Note rows handed over together as acknowledged when the last of them is."""
        stream, left = self._stream, len(futures)

        def settled(future: AsyncSendFuture) -> None:
            nonlocal left
            error = future.exception()
            if error is None:
                stream.acknowledged += 1
                if stream.acknowledged == stream.wanted:
                    stream.reached.set()
            else:
                stream.failures.append(str(error))
            left -= 1
            if left == 0:
                now = self._now()
                stream.acknowledgements.append(
                    Acknowledgement(now - stream.start_s, len(futures), now - sent_s)
                )

        for future in futures:
            future.add_done_callback(settled)

    async def _follow(self, done: asyncio.Event) -> None:
        """Read everything while it is written, checking the order of each aircraft."""
        stream = self._stream
        newest: dict[str, int] = {}
        config = ConsumerConfig(start_at=StartAt.FIRST)
        async with AsyncConsumer(self._cluster.name_server, config) as consumer:
            await consumer.assign(TOPIC, StartAt.FIRST)
            while stream.followed < len(self._rows):
                records = await consumer.poll(max_records=5_000, timeout_ms=500)
                if not records and done.is_set():
                    return
                for record in records:
                    number = row_number(bytes(record.body))
                    tail = record.keys[0]
                    if newest.get(tail, -1) >= number:
                        stream.follower_order_breaks += 1
                    newest[tail] = number
                stream.followed += len(records)

    async def _break(self, admin: AsyncAdmin) -> None:
        """Kill the leader at a third, pause the next at two thirds, kill all near the end."""
        total = len(self._rows)
        await self._reach(total // 3)
        leader = await self._leader(admin)
        self._fault("leader killed", leader, lambda: self._cluster.kill(leader))
        await self._reach(total * 2 // 3, DOWN_S)
        self._cluster.start(leader)
        await self._reach(total * 2 // 3)
        paused = await self._leader(admin)
        self._fault("leader paused", paused, lambda: self._cluster.pause(paused))
        await self._reach(total * 9 // 10, PAUSE_S)
        self._cluster.resume(paused)
        await self._reach(total * 9 // 10)
        self._fault("all killed", "n1, n2, n3", self._kill_all)
        for name in self._cluster.member_names:
            self._cluster.start(name)

    def _kill_all(self) -> None:
        for name in self._cluster.member_names:
            self._cluster.kill(name)

    async def _reach(self, rows: int, limit_s: float | None = None) -> None:
        """Wait until so many rows are acknowledged, but no longer than `limit_s` seconds."""
        self._stream.wanted = rows
        self._stream.reached.clear()
        if self._stream.acknowledged < rows:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._stream.reached.wait()

    def _fault(self, name: str, member: str, act: Callable[[], None]) -> None:
        at_s = self._now() - self._stream.start_s
        act()
        self._faults.append(Fault(at_s, name, member))

    async def _leader(self, admin: AsyncAdmin) -> str:
        """Return the group's leader once there is one; NotServing when none comes in time."""
        end = self._now() + SETTLE_S
        while self._now() < end:
            with suppress(ClientError):
                for group in await admin.groups():
                    if group.name == self._cluster.group and group.leader:
                        return group.leader
            await asyncio.sleep(0.02)
        raise NotServing(f"no leader within {SETTLE_S:.0f} s")

    async def _prove(self, admin: AsyncAdmin, outcome: Outcome) -> None:
        self._console.print("reading every row back from every member")
        await self._leader(admin)
        for member in self._cluster.member_names:
            found = await read_back(self._cluster.name_server, TOPIC, self._rows, member)
            outcome.rows = found.distinct
            outcome.lost += found.lost
            outcome.duplicated += found.duplicated
            outcome.out_of_order += found.out_of_order
        addresses = {name: self._cluster.address(name) for name in self._cluster.member_names}
        same = await compare_members(admin, addresses, SETTLE_S)
        outcome.members_identical = same.identical
        outcome.members_compared = len(addresses)
        outcome.log_entries = same.entries
        outcome.digest = same.digest
        outcome.problems.extend(same.differences)

    async def _show(self, progress: Progress, task: object) -> None:
        while True:
            progress.update(task, completed=self._stream.acknowledged)  # type: ignore[arg-type]
            await asyncio.sleep(0.1)

    def _progress(self) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
        )
