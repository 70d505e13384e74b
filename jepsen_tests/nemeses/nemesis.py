"""Carries a schedule out: begins the faults of each phase, waits, and undoes them.

Owns the rows of the nemesis in the history. A fault that cannot be done becomes a row "skipped". An
error of a tool is a failure of the harness, after everything was undone.
"""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from dledger_client import AsyncAdmin
from dledger_proto.errors import DledgerError
from jepsen_tests.backends.surface import Backend, each_group
from jepsen_tests.history.events import BROKEN_OFF, HEAL, SKIPPED, Kind
from jepsen_tests.nemeses import FAULTS
from jepsen_tests.nemeses.fault import Fault, NoEffect, Scene, Skipped, Undoing
from jepsen_tests.nemeses.processes import bring_back
from jepsen_tests.run.recorder import Recorder
from jepsen_tests.run.schedule import Phase, Schedule

WATCH_SECONDS: Final = 0.1
TURNS: Final = 20
"""After so many looks the nemesis asks, for example an engine, which members it restarted."""


class Nemesis:
    """One run's faults."""

    def __init__(
        self, backend: Backend, recorder: Recorder, admin: AsyncAdmin, random: Random
    ) -> None:
        self._backend = backend
        self._recorder = recorder
        self._admin = admin
        self._random = random
        self.skipped: dict[str, str] = {}
        """By fault, why it was not done the last time."""
        self.now: tuple[str, ...] = ()
        """The faults in force."""
        self._hurt: set[str] = set()
        """See `Scene.hurt`."""
        self._noted: list[str] = []
        """What the faults of this phase did besides their main act."""
        self._late = Undoing()
        """How to undo the late faults."""
        self._away: set[str] = set()
        """Members that were found dead and have not run since."""
        self._told: set[str] = set()
        """Such members whose death is in the history."""

    async def run(self, schedule: Schedule) -> None:
        """Carry the schedule out; times count from now. Notes at once which members end."""
        watching = asyncio.ensure_future(self._watch())
        try:
            await self._carry_out(schedule)
            if watching.done():
                watching.result()  # it ends by failing alone, and deaths were missed
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        """Look again and again which members died, so that the history shows the faults in force.

        Healing starts members that are down, and nobody could see their end any more.
        """
        for turn in itertools.count():
            self._tell_deaths()
            if not turn % TURNS:
                await self._tell_restarts()
            await asyncio.sleep(WATCH_SECONDS)

    def _tell_deaths(self) -> None:
        processes = self._backend.processes
        if processes is not None:
            self._told.update(died := processes.died())
            self._tell(died)

    async def _tell_restarts(self) -> None:
        processes = self._backend.processes
        if processes is not None:
            self._tell(await processes.restarted())

    def _tell(self, ended: Mapping[str, Sequence[str]]) -> None:
        for node, ends in ended.items():
            for how in ends:
                self._recorder.nemesis("died", node, Kind.OK, how)

    async def _carry_out(self, schedule: Schedule) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        for phase in schedule.phases:
            if now() - began > schedule.seconds:
                for name in phase.faults:
                    self._skip(name, "those before it took too long")
                continue
            await asyncio.sleep(began + phase.at - now())
            async with Undoing() as undo:
                if await self._begin_all(phase, undo):
                    await asyncio.sleep(phase.seconds)
            if self.now:
                await self.heal()
        if schedule.late is not None:
            await asyncio.sleep(began + schedule.late.at - now())
            await self._begin_all(schedule.late, self._late)

    async def _begin_all(self, phase: Phase, undo: Undoing) -> bool:
        """Begin the faults of a phase in one broker group; return whether one was done."""
        parts = each_group(self._backend)
        part = self._random.choice(parts) if len(parts) > 1 else parts[0]
        scene = self._scene(part, undo)
        self._noted.clear()
        begun = [name for name in phase.faults if await self._begin(FAULTS[name], scene)]
        self.now = (*begun, *self._noted)
        return bool(begun)

    def _scene(self, backend: Backend, undo: Undoing) -> Scene:
        return Scene(backend, self._admin, self._random, undo, hurt=self._hurt, note=self._note)

    def _note(self, fault: str, targets: str, kind: Kind) -> None:
        self._recorder.nemesis(fault, targets, kind)
        if kind is Kind.OK:
            self._noted.append(fault)

    async def _begin(self, fault: Fault, scene: Scene) -> bool:
        self._recorder.nemesis(fault.name, "", Kind.INVOKE)
        before = scene.undo.pushed
        try:
            targets, broken_off = await fault.begin(scene), ""
        except (Skipped, DledgerError) as error:
            if scene.undo.pushed == before or isinstance(error, NoEffect):
                self._skip(fault.name, str(error))
                return False
            # Something was done. If nothing says to whom, it may have hit every member.
            targets = error.targets if isinstance(error, Skipped) else ""
            broken_off = f"{BROKEN_OFF}{error}"
        self._recorder.nemesis(fault.name, targets, Kind.OK, broken_off)
        return True

    def _skip(self, name: str, why: str) -> None:
        self.skipped[name] = why
        self._recorder.nemesis(name, "", Kind.INFO, f"{SKIPPED}{why}")

    async def heal(self) -> None:
        """Undo the late faults, and start members that ended by themselves."""
        self._tell_deaths()
        await self._late.aclose()
        await self.revive()
        self.now = ()
        self._recorder.nemesis(HEAL, "", Kind.OK)

    async def revive(self) -> None:
        """Start members that ended by themselves (a failed disk, damage found late); note that.

        Notes also restarts by others. A member that cannot be repaired stays down; the history
        says once that it died.
        """
        processes = self._backend.processes
        if processes is None:
            return
        self._tell_deaths()
        await self._tell_restarts()
        async with Undoing() as undo:
            scene = self._scene(self._backend, undo)
            for node in self._backend.nodes:
                if processes.is_running(node):
                    self._away.discard(node)
                    self._told.discard(node)
                elif node not in self._away:
                    if node not in self._told:
                        code = processes.exit_code(node)
                        self._recorder.nemesis("died", node, Kind.OK, f"exit {code}")
                    self._away.add(node)
                    await bring_back(scene, node)
