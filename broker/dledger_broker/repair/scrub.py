"""Reads everything of a group's log that this member has on its disk, and mends what is damaged.

Owns: when that happens and how fast, in which order, and what follows from a damage that is met in
between. A scrub begins by itself, once in `scrub.every_ms`, or when somebody asks for it. Its jobs
run in a thread of its own, a piece at a time. A damage is mended as soon as it is found:

- entries: a peer is asked for exactly these, they are checked and written in place;
- the header of a segment and the local stamp of an entry: this member knows them itself;
- an index, identity, hard state, checkpoint: the next write round writes them again;

The saved state is not read: see docs/decisions/repair.md.

Whoever reads the log and finds damage tells `takes`. The call fails, the member goes on, and the
place is mended at once. What no peer has whole stays damaged: it is said in `dledger status` and in
the log lines, tried again every few seconds, and never served.

Not owned: what is damage and what fits (`dledger.repair`), whom to ask (`refill.givers`).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, TypeVar

import structlog

from dledger.log.errors import DamagedLog, LogFailed, NewerFormat
from dledger.log.folder import DataFolder
from dledger.log.reading.part import Part
from dledger.log.space import is_full
from dledger.raft.driver.worker import StartWorker, Worker
from dledger.raft.links.greeting import LinkIdentity
from dledger.repair.mend import fitting, mend_alone, mend_entries
from dledger.repair.scan import MISSING, Damage, Kind, scan, scan_at
from dledger.repair.small_files import damaged_files
from dledger.types import LogIndex, Position
from dledger_broker.cluster.channels import Channels
from dledger_broker.config.sections import ScrubConfig
from dledger_broker.group.group_view import GroupView
from dledger_broker.read.batches import DamagedBatch
from dledger_broker.refill.givers import givers_of
from dledger_broker.repair.fetching import MENDED_BYTES_MAX, fetch
from dledger_proto.entry import CorruptEntry
from dledger_proto.errors import DledgerError

AGAIN_SECONDS: Final = 5.0
"""How often a member tries to mend what is left."""
UNSEEN_MAX: Final = 3
"""So many looks that find nothing at a place that cannot be read are said."""
REPORTED_MAX: Final = 1_000
"""So many places wait to be looked at; a scrub finds the others."""
BAD_PEER: Final = (DledgerError, CorruptEntry, TimeoutError)
"""What a peer may do that cannot give."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Scrubbing:
    """What a scrub takes from its member."""

    view: GroupView
    folder: DataFolder
    identity: LinkIdentity
    channels: Channels
    start_worker: StartWorker


class Scrub:
    """The scrub of one group on one member."""

    def __init__(self, parts: Scrubbing, settings: ScrubConfig) -> None:
        self._view = parts.view
        self._folder = parts.folder
        self._identity = parts.identity
        self._channels = parts.channels
        self._start_worker = parts.start_worker
        self._settings = settings
        # Of its own: what others draw does not depend on it. Members do not scrub together.
        self._random = Random(parts.folder.identity.incarnation)  # noqa: S311 - no secret
        self._findings = parts.view.findings
        self._worker: Worker | None = None
        self._wanted: int | None = None
        """Somebody asks for a scrub, with so many bytes in a second."""
        self._reported: set[Position] = set()
        self._left: dict[tuple[str, Position, Position], Damage] = {}
        """What could not be mended yet, and is tried again."""
        self._free_at = 0.0
        """When the rate allows the next piece."""
        self._try_at = 0.0
        """Before that nothing that is left is tried again."""
        self._unseen: dict[Position, int] = {}
        """How often a scan found nothing at a place that could not be read."""
        self._job: asyncio.Future[None] | None = None
        """Done when the newest job of the thread has ended, also when nobody waits for it."""
        self._news = asyncio.Event()
        names = parts.view.names
        self._log = structlog.get_logger().bind(group=names.group, member=names.member)

    # What others call.

    def takes(self, error: BaseException) -> bool:
        """Tell whether an error of reading the log is damage that is mended; then it is, at once.

        The member goes on. A member that is alone has nobody to ask, and ends.
        """
        if not isinstance(error, DamagedLog | DamagedBatch):
            return False
        position = Position(error.position)
        if len(self._view.names.addresses) == 1 or self._part_at(position) is None:
            return False
        self.look_at(position)
        return True

    def look_at(self, position: int) -> None:
        """Look at a place as soon as may be: something there could not be read.

        What is known to be damaged is tried again anyway. Else members with the same damage, which
        ask each other, would wake each other without end.
        """
        if len(self._reported) < REPORTED_MAX and not self._is_left(Position(position)):
            self._reported.add(Position(position))
            self._news.set()

    def begin(self, bytes_per_second: int) -> int:
        """Begin a scrub now, instead of one that is under way; return its number. 0: no bound."""
        self._wanted = bytes_per_second
        self._news.set()
        return self._findings.scrub.number + 1

    async def run(self) -> None:
        """Go on until cancelled."""
        every = self._settings.every_ms / 1000
        clock = self._view.clock
        next_at = clock.monotonic() + self._random.uniform(0.0, every) if every else float("inf")
        try:
            while True:
                if self._wanted is None:
                    await self._wait(next_at)
                await self._mend_what_waits()
                if self._wanted is not None or clock.monotonic() >= next_at:
                    if self._wanted is None:
                        next_at = clock.monotonic() + every
                    await self._scrub()
        except (OSError, LogFailed, NewerFormat) as error:
            self._view.host.failed(error)  # the disk refuses (I16)

    async def stop(self) -> None:
        """Wait for the job that is under way. The task of `run` has been cancelled before.

        A job that hangs keeps this waiting: it may still write, so nothing may be closed.
        """
        if self._job is not None:
            await self._job
        if self._worker is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._worker.stop)

    # When.

    async def _wait(self, next_at: float) -> None:
        """Wait for news, for the next scrub, or until what is left is tried again."""
        if self._left or self._view.host.group.waits_for_mending:
            next_at = min(next_at, self._try_at)
        seconds = next_at - self._view.clock.monotonic()
        try:
            async with asyncio.timeout(None if seconds == float("inf") else max(seconds, 0.0)):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    async def _keep_rate(self, size: int, bytes_per_second: int) -> None:
        """Wait until the rate allows the next piece; what is met meanwhile is mended."""
        if not bytes_per_second:
            return
        clock = self._view.clock
        self._free_at = max(self._free_at, clock.monotonic()) + size / bytes_per_second
        while self._wanted is None and clock.monotonic() < self._free_at:
            await self._mend_what_waits()
            await self._wait(self._free_at)

    # A scrub.

    async def _scrub(self) -> None:
        """Read everything once, unless another scrub is asked for meanwhile."""
        rate, self._wanted = self._wanted, None
        if rate is None:
            rate = self._settings.bytes_per_second
        parts = self._parts()
        findings, clock = self._findings, self._view.clock
        findings.begin(clock.wall_ms(), sum(part.end - part.base for part in parts))
        self._log.info("scrub begins", bytes=findings.scrub.total_bytes)
        await self._mend_small_files()
        for part in parts:
            if not await self._scrub_part(part, rate):
                return
        self._left = {key: left for key, left in self._left.items() if key in findings.left}
        findings.end(clock.wall_ms())
        done = findings.scrub
        self._log.info(
            "scrub ended", bytes=done.read_bytes, found=done.found, mended=done.mended,
            left=len(findings.left),
        )  # fmt: skip

    async def _scrub_part(self, part: Part, rate: int) -> bool:
        """Read one segment; False: another scrub is asked for."""
        has_index = True
        async with aclosing(self._damages(scan(self._folder.fs, part), rate)) as damages:
            async for damage in damages:
                if damage is None:
                    if self._wanted is not None:
                        return False
                    await self._mend_what_waits()
                elif damage.kind is Kind.INDEX and not damage.content:
                    has_index = False
                    self._findings.found(damage.key)
                else:
                    await self._mend(damage)
        if not has_index:
            await self._make_index(part)
        return True

    async def _make_index(self, part: Part) -> None:
        """Read a segment again whose entries were mended: now they tell what its index holds."""
        async with aclosing(self._damages(scan(self._folder.fs, part), 0)) as damages:
            async for damage in damages:
                if damage is not None and damage.kind is Kind.INDEX:
                    await self._mend(damage)

    async def _damages(
        self, found: Generator[int | Damage], rate: int
    ) -> AsyncGenerator[Damage | None]:
        """Yield what a scan finds, and None from time to time."""
        take: Callable[[], int | Damage | None] = partial(next, found, None)
        try:
            while (piece := await self._do(take)) is not None:
                if isinstance(piece, Damage):
                    yield piece
                else:
                    self._findings.read(piece)
                    await self._keep_rate(piece, rate)
                    yield None
        finally:
            with suppress(ValueError):  # the thread is in it: the file closes behind its job
                found.close()

    def _parts(self) -> list[Part]:
        """Return what is committed and on this member's own disk: all else may still be cut."""
        return self._view.log.parts(self._committed)

    @property
    def _committed(self) -> LogIndex:
        view = self._view
        return LogIndex(min(view.host.group.commit_index, view.log.durable_index))

    def _part_at(self, position: Position) -> Part | None:
        return next((each for each in self._parts() if each.base <= position < each.end), None)

    # Mending.

    async def _mend_small_files(self) -> None:
        names = await self._do(partial(damaged_files, self._folder))
        if not names:
            return
        self._view.log.rewrite(names)
        self._view.host.log_mended()
        for name in names:
            self._findings.found(name)
            self._findings.mended(name)
            self._log.warning("damage mended", what=name, by="what this member knows itself")

    async def _mend_what_waits(self) -> None:
        """Mend what was reported; try again what is left, if it is time."""
        while self._reported:
            await self._look_at(self._reported.pop())
        if self._view.clock.monotonic() >= self._try_at:
            self._try_at = self._view.clock.monotonic() + AGAIN_SECONDS
            await self._try_again()
            await self._give_away()
        self._go_on()

    async def _look_at(self, position: Position) -> None:
        """Look at a place that somebody could not read, and mend it."""
        part = self._part_at(position)
        if part is None or self._is_left(position):
            return  # it was trimmed meanwhile, or is tried again anyway
        is_seen = False
        async with aclosing(self._damages(scan_at(self._folder.fs, part, position), 0)) as damages:
            async for damage in damages:
                if damage is not None and self._may_mend(damage):
                    is_seen = True
                    await self._mend(damage)
        self._note_look(position, is_seen=is_seen)

    def _note_look(self, position: Position, *, is_seen: bool) -> None:
        """Say it when reads fail again and again at a place where a scan finds nothing."""
        if is_seen or len(self._unseen) > REPORTED_MAX:
            self._unseen.clear()
            return
        self._unseen[position] = self._unseen.get(position, 0) + 1
        if self._unseen[position] == UNSEEN_MAX:
            what = f"reads fail at position {position}, and a scan finds nothing there"
            self._findings.leave(("unseen", position, position), what)
            self._log.error("damage not found", what=what)

    def _is_left(self, position: Position) -> bool:
        """Tell whether a place is known to be damaged."""
        return any(left.start <= position < left.end for left in self._left_entries())

    def _left_entries(self) -> list[Damage]:
        return [left for left in self._left.values() if left.kind is Kind.ENTRIES]

    async def _try_again(self) -> None:
        for damage in list(self._left.values()):
            if damage.kind is not Kind.INDEX or self._is_trimmed(damage):
                await self._mend(damage)
            elif not any(left.part.path == damage.part.path for left in self._left_entries()):
                await self._make_index(damage.part)

    def _may_mend(self, damage: Damage) -> bool:
        """Tell whether a damage that a read met is mended.

        The member ends when it needs what is damaged and no peer can vouch for it.
        """
        if damage.last <= self._committed:
            return True
        if damage.kind is Kind.ENTRIES:
            what = f"{damage.describe()}: {damage.why}, and not all of it is committed"
            self._view.host.end_by(DamagedLog(damage.part.path, damage.start, "READ", what))
        return False

    def _go_on(self) -> None:
        """Let apply go on, unless it waits for an entry that is still damaged."""
        view = self._view
        if not view.host.group.waits_for_mending:
            return
        index = view.machine.applied_index + 1
        if not any(left.first <= index <= left.last for left in self._left_entries()):
            view.host.log_mended()

    async def _mend(self, damage: Damage) -> None:
        """Mend one damage; what stays damaged is said."""
        key = damage.key
        if self._is_trimmed(damage):
            self._left.pop(key, None)
            self._findings.left.pop(key, None)
            return
        self._findings.found(key)
        try:
            why_not, by = await self._mend_by_kind(damage)
        except FileNotFoundError:
            if not self._is_trimmed(damage):
                raise
            return
        except OSError as error:
            if not is_full(error):
                raise
            why_not, by = f"the disk is full: {error}", ""
        if why_not:
            self._left[key] = damage
            if self._findings.leave(key, f"{damage.describe()}: {why_not}"):
                self._log.error(
                    "damage not mended", what=damage.describe(), found=damage.why, reason=why_not
                )
            return
        self._left.pop(key, None)
        self._findings.mended(key)
        self._log.warning("damage mended", what=damage.describe(), found=damage.why, by=by)
        self._go_on()

    async def _give_away(self) -> None:
        """Let another member lead, when this one cannot apply and so answers no write."""
        view = self._view
        if view.leads and view.host.group.waits_for_mending:
            with suppress(DledgerError):  # it leads on; its followers may be worse
                await view.host.transfer(None, drains=False)  # what waits can't be applied

    def _is_trimmed(self, damage: Damage) -> bool:
        return damage.part.base < self._view.log.first_position

    async def _mend_by_kind(self, damage: Damage) -> tuple[str, str]:
        """Return why a damage was not mended, or who mended it."""
        fs, itself = self._folder.fs, "what this member knows itself"
        if damage.kind is Kind.ENTRIES:
            return await self._mend_entries(damage)
        if damage.kind is Kind.INDEX:
            if not damage.content:
                return "its entries are damaged", ""
            self._view.log.store_index(damage.part.base, damage.content)
            self._view.host.log_mended()
        elif damage.why == MISSING and not damage.part.index_path:
            what = "the file of the newest segment is gone: rounds write into what has no name"
            self._view.host.end_by(DamagedLog(damage.part.path, damage.start, "READ", what))
            return what, ""
        else:
            await self._do(partial(mend_alone, fs, damage))
        return "", itself

    async def _mend_entries(self, damage: Damage) -> tuple[str, str]:
        size = damage.end - damage.start
        if damage.last > self._committed:
            return "not all of it is committed yet", ""
        if size > MENDED_BYTES_MAX:
            return f"{size} bytes are damaged together, at most {MENDED_BYTES_MAX} are mended", ""
        if len(self._view.names.addresses) == 1:
            return "this member is alone", ""
        refusals: list[str] = []
        for giver in givers_of(self._view, self._identity, self._random):
            try:
                content = fitting(damage, await fetch(self._channels, giver, damage))
            except BAD_PEER as error:
                refusals.append(f"{giver.member}: {error or type(error).__name__}")
                continue
            await self._do(partial(mend_entries, self._folder.fs, damage, content))
            return "", giver.member
        return "no peer has it whole: " + "; ".join(sorted(refusals)), ""

    async def _do(self, job: Callable[[], Result]) -> Result:
        """Run a job in a thread of its own; one at a time."""
        if self._worker is None:
            self._worker = self._start_worker(f"scrub {self._view.names.group}")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        ended = self._job = loop.create_future()

        def done(result: Result | None, error: BaseException | None) -> None:
            ended.set_result(None)
            if future.done():
                return
            if error is None:
                future.set_result(result)  # type: ignore[arg-type]
            else:
                future.set_exception(error)

        self._worker.submit(job, done)
        return await future
