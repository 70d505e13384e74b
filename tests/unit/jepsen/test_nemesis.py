"""Healing: who ended is brought back, also when it ends after the heal."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any, ClassVar, cast

import pytest

from dledger_client import AsyncAdmin
from dledger_proto.exit_codes import Exit
from jepsen_tests.backends.surface import Backend, CannotRepair
from jepsen_tests.history.events import BROKEN_OFF, Row
from jepsen_tests.history.faults import faults_in_force
from jepsen_tests.history.history_file import HistoryWriter, read_history, read_rows
from jepsen_tests.nemeses import FAULTS
from jepsen_tests.nemeses import nemesis as nemesis_module
from jepsen_tests.nemeses.disks import start_empty
from jepsen_tests.nemeses.fault import CANNOT, Fault, Scene, Skipped, Undoing
from jepsen_tests.nemeses.nemesis import Nemesis
from jepsen_tests.nemeses.network import ring
from jepsen_tests.run.recorder import Recorder
from jepsen_tests.run.schedule import Phase, Schedule
from jepsen_tests.run.verdict import faults_done, faults_skipped
from tests.unit.jepsen.stories import header
from tests.waiting import until


class Members:
    """Members of which some run, and one that cannot be repaired."""

    name = "none"
    nodes = ("n1", "n2")
    parts = ()
    missing: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        self.processes = self.folders = self
        self.running = set(self.nodes)
        self.started: list[str] = []
        self.again: dict[str, list[str]] = {}
        """Who was started again by others."""
        self.dead: dict[str, list[str]] = {}
        """Who died, and has not been told."""

    def is_running(self, node: str) -> bool:
        return node in self.running

    def exit_code(self, node: str) -> int:
        return Exit.DAMAGED if node == "n2" else 74

    async def repair(self, node: str) -> None:
        raise CannotRepair(node)

    async def start(self, node: str) -> None:
        self.running.add(node)
        self.started.append(node)

    async def kill(self, node: str) -> None:
        self.running.discard(node)

    def folder(self, node: str) -> Path:
        return Path("/nowhere") / node

    def died(self) -> dict[str, list[str]]:
        dead, self.dead = self.dead, {}
        return dead

    async def restarted(self) -> dict[str, list[str]]:
        again, self.again = self.again, {}
        return again


def written(folder: Path, script: Any) -> list[tuple[str, str, str]]:
    path = folder / "history.jsonl"

    async def run() -> None:
        with HistoryWriter(path, header()) as writer:
            recorder = Recorder(writer)
            members = Members()
            admin = cast("AsyncAdmin", None)
            nemesis = Nemesis(cast("Backend", members), recorder, admin, Random(1))
            await script(members, nemesis)
            writer.close(recorder.now())

    asyncio.run(run())
    return [(row.f, row.k, row.err) for row in read_rows(path) if isinstance(row, Row)]


def test_who_ends_after_the_heal_is_brought_back_and_said_to_have_died(tmp_path: Path) -> None:
    async def script(members: Members, nemesis: Nemesis) -> None:
        await nemesis.heal()
        members.running.remove("n1")
        await nemesis.revive()
        await nemesis.revive()
        assert members.started == ["n1"]
        members.running.remove("n1")
        await nemesis.revive()
        assert members.started == ["n1", "n1"]

    died = ("died", "n1", "exit 74")
    assert written(tmp_path, script) == [("heal", "", ""), died, died]


def test_who_others_brought_back_after_the_heal_is_said_to_have_died(tmp_path: Path) -> None:
    async def script(members: Members, nemesis: Nemesis) -> None:
        await nemesis.heal()
        members.again = {"n1": ["exit 74", "exit 75"]}
        await nemesis.revive()
        await nemesis.revive()
        assert members.started == []

    told = [("died", "n1", "exit 74"), ("died", "n1", "exit 75")]
    assert written(tmp_path, script) == [("heal", "", ""), *told]


def test_who_cannot_be_repaired_is_said_once(tmp_path: Path) -> None:
    async def script(members: Members, nemesis: Nemesis) -> None:
        members.running.remove("n2")
        for _ in range(3):
            await nemesis.revive()
        assert members.started == []

    assert written(tmp_path, script) == [("died", "n2", f"exit {Exit.DAMAGED}")]


def test_a_death_is_told_when_it_happens_and_once_though_it_is_healed_or_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nemesis_module, "WATCH_SECONDS", 0.0)

    async def script(members: Members, nemesis: Nemesis) -> None:
        async def begin(scene: Scene) -> str:
            members.dead = {"n1": ["exit 74, life 1"], "n2": ["exit 74, life 1"]}
            members.running.discard("n2")  # n1 is brought back by who healed its fault
            await until(lambda: not members.dead, "it is told")
            return scene.backend.nodes[0]

        monkeypatch.setitem(
            cast("dict[str, Fault]", FAULTS), "kill", Fault("kill", "", [""], begin)
        )
        await nemesis.run(Schedule(1.0, (Phase(0.0, 0.0, ("kill",)),), ()))
        await nemesis.revive()

    assert written(tmp_path, script) == [
        ("kill", "", ""), ("died", "n1", "exit 74, life 1"), ("died", "n2", "exit 74, life 1"),
        ("kill", "n1", ""), ("heal", "", ""),
    ]  # fmt: skip


def test_a_fault_broken_off_is_in_force_and_not_done(tmp_path: Path) -> None:
    async def begun(scene: Scene) -> str:
        scene.undo.push_async_callback(asyncio.sleep, 0)
        raise Skipped("nobody leads")

    async def whole(scene: Scene) -> str:
        return scene.backend.nodes[0]

    async def script(members: Members, nemesis: Nemesis) -> None:
        backend, admin = cast("Backend", members), cast("AsyncAdmin", None)
        async with Undoing() as undo:
            scene = Scene(backend, admin, Random(1), undo)
            for name, begin in (("half", begun), ("whole", whole)):
                assert await nemesis._begin(Fault(name, "", ["processes"], begin), scene)

    said = written(tmp_path, script)
    assert ("half", "", f"{BROKEN_OFF}nobody leads") in said
    history = read_history(tmp_path / "history.jsonl")
    assert [fault.name for fault in faults_in_force(history)] == ["half", "whole"]
    assert faults_done(history) == {"whole": 1}


def test_what_cannot_be_done_at_all_is_the_reason_that_stays(tmp_path: Path) -> None:
    cannot = f"{CANNOT}none, disks: no root"
    raised = {"wipe": ["nobody leads", cannot, "no member runs"], "kill": ["first", "last"]}

    async def script(members: Members, nemesis: Nemesis) -> None:
        async with Undoing() as undo:
            scene = Scene(cast("Backend", members), cast("AsyncAdmin", None), Random(1), undo)
            for name, reasons in raised.items():
                for why in reasons:

                    async def skip(_: Scene, why: str = why) -> str:
                        raise Skipped(why)

                    assert not await nemesis._begin(Fault(name, "", ["processes"], skip), scene)

    written(tmp_path, script)
    history = read_history(tmp_path / "history.jsonl")
    assert faults_skipped(history) == {"wipe": cannot, "kill": "last"}


def test_three_members_can_make_no_ring() -> None:
    backend = cast("Backend", Members())
    scene = Scene(backend, cast("AsyncAdmin", None), Random(1), Undoing())
    with pytest.raises(Skipped, match=f"^{CANNOT}none: a ring of majorities needs 5"):
        asyncio.run(ring(scene))


def test_who_has_no_folder_yet_can_be_wiped() -> None:
    members = Members()
    scene = Scene(cast("Backend", members), cast("AsyncAdmin", None), Random(1), Undoing())
    assert asyncio.run(start_empty(scene, "n1")) == "n1"
    assert members.started == ["n1"]
