"""Whose data may be taken away: never so many that damage that nobody noticed decides."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar, cast

import pytest

from dledger_client import AsyncAdmin, MemberStatus
from dledger_proto.exit_codes import Exit
from jepsen_tests.backends.surface import Backend, CannotRepair
from jepsen_tests.history.events import Kind, Row
from jepsen_tests.history.history_file import HistoryWriter, read_rows
from jepsen_tests.nemeses import FAULTS, fault
from jepsen_tests.nemeses import old_copy as nemesis_old_copy
from jepsen_tests.nemeses.disks import wipe_one
from jepsen_tests.nemeses.fault import Fault, Scene, Skipped, Undoing
from jepsen_tests.nemeses.losing import lose_disk
from jepsen_tests.nemeses.nemesis import Nemesis
from jepsen_tests.nemeses.processes import bring_back
from jepsen_tests.run.recorder import Recorder
from jepsen_tests.run.schedule import Phase, Schedule
from tests.unit.jepsen.stories import header


@dataclass
class Said:
    role: str
    commit_index: int = 9
    applied_index: int = 9
    term: int = 1
    incarnation: str = "1"


class Group:
    """Three members with files, some of which are damaged; their own admin."""

    name, group, nodes = "none", "g", ("n1", "n2", "n3")
    parts = ()
    missing: ClassVar[dict[str, str]] = {}

    def __init__(self, folder: Path) -> None:
        self.processes = self.folders = self
        self._folder = folder
        for node in self.nodes:
            self.folder(node).mkdir(parents=True)
            (self.folder(node) / "a.log").write_bytes(b"whole")
        self.running = set(self.nodes)
        self.said: list[str] = []
        self.behind = 0
        """How often the next answers of n1 tell of less than is committed."""
        self.is_repairable = True

    def inner_address(self, node: str) -> str:
        return node

    async def status(self, node: str, group: str) -> MemberStatus:
        del group
        said = Said("leader" if node == "n3" else "follower")
        if node == "n1" and self.behind:
            self.behind -= 1
            said.applied_index = 3
        return cast("MemberStatus", said)

    def folder(self, node: str) -> Path:
        return self._folder / node

    def is_running(self, node: str) -> bool:
        return node in self.running

    def exit_code(self, node: str) -> int | None:
        return None if node in self.running else Exit.DAMAGED

    async def restarted(self) -> dict[str, list[str]]:
        return {}

    def died(self) -> dict[str, list[str]]:
        return {}

    async def start(self, node: str) -> None:
        assert node not in self.running
        self.running.add(node)
        self._say("start", node)

    async def stop(self, node: str) -> None:
        self.running.discard(node)
        self._say("stop", node)

    async def kill(self, node: str) -> None:
        self.running.discard(node)
        self._say("kill", node)

    async def is_sound(self, node: str) -> bool:
        self._say("check", node)
        return (self.folder(node) / "a.log").read_bytes() == b"whole"

    async def repair(self, node: str) -> None:
        if not self.is_repairable:
            raise CannotRepair("no")
        self._say("repair", node)
        (self.folder(node) / "a.log").write_bytes(b"whole")

    def _say(self, what: str, node: str) -> None:
        self.said.append(f"{what} {node}")


class Chosen(Random):
    """One that takes the members in turn."""

    def __init__(self, *nodes: str) -> None:
        super().__init__(1)
        self._nodes = list(nodes)

    def choice(self, seq: object) -> str:  # type: ignore[override]
        if self._nodes and "n1" in cast("list[str]", seq):
            return self._nodes.pop(0)
        return super().choice(cast("list[str]", seq))


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    monkeypatch.setattr(fault, "LEADER_SHARE", 0.0)
    return Group(tmp_path)


def scene_of(group: Group, *nodes: str, hurt: set[str] | None = None) -> Scene:
    admin = cast("AsyncAdmin", group)
    hurt = set() if hurt is None else hurt
    return Scene(cast("Backend", group), admin, Chosen(*nodes), Undoing(), hurt=hurt)


EXAMINED = ["stop n1", "check n1", "repair n1", "start n1"]


async def flip_bits(scene: Scene) -> str:
    return await FAULTS["bit-flips"].begin(scene)


def test_who_was_damaged_is_mended_before_another_one_is_damaged(group: Group) -> None:
    hurt: set[str] = set()
    asyncio.run(flip_bits(scene_of(group, "n1", hurt=hurt)))
    assert hurt == {"n1"}
    group.said.clear()
    group.behind = 3
    asyncio.run(flip_bits(scene_of(group, "n2", hurt=hurt)))
    assert group.said == [*EXAMINED, "kill n2", "start n2"]
    assert group.behind == 0, "it is waited for"
    assert hurt == {"n2"}


def test_before_another_one_is_wiped_too_and_who_is_sound_keeps_its_folder(group: Group) -> None:
    scene = scene_of(group, hurt={"n1"})
    asyncio.run(wipe_one(scene, "n2"))
    assert group.said == ["stop n1", "check n1", "start n1", "kill n2", "start n2"]
    assert scene.hurt == set()


def test_the_same_member_may_be_hurt_again_and_is_whole_when_it_was_wiped(group: Group) -> None:
    scene = scene_of(group, hurt={"n1"})
    asyncio.run(wipe_one(scene, "n1"))
    assert group.said == ["kill n1", "start n1"]
    assert scene.hurt == set()


def test_who_does_not_become_whole_spares_the_others(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault, "WHOLE_SECONDS_MAX", 0.0)
    group.behind = 1_000
    scene = scene_of(group, hurt={"n1"})
    with pytest.raises(Skipped, match="waited for n1 to be whole, in vain"):
        asyncio.run(lose_disk(scene, "n2"))
    assert (scene.lost, scene.hurt) == (set(), {"n1"})
    assert group.running == set(group.nodes)


def test_so_does_who_cannot_be_repaired_and_it_is_started_for_all_to_see(group: Group) -> None:
    group.is_repairable = False
    (group.folder("n1") / "a.log").write_bytes(b"")
    scene = scene_of(group, hurt={"n1"})
    with pytest.raises(Skipped, match="n1 cannot be repaired: no"):
        asyncio.run(lose_disk(scene, "n2"))
    assert scene.hurt == {"n1"}
    assert group.said == ["stop n1", "check n1", "start n1"]


def test_who_is_down_is_examined_only_when_damage_ended_it(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.running.discard("n1")
    asyncio.run(lose_disk(scene_of(group, hurt={"n1"}), "n2"))
    assert group.said == ["stop n1", "check n1", "start n1"]
    group.running.discard("n1")
    monkeypatch.setattr(group, "exit_code", lambda _: -9)
    with pytest.raises(Skipped, match="n1 was damaged, and another fault ended it"):
        asyncio.run(lose_disk(scene_of(group, hurt={"n1"}), "n2"))
    assert group.running == {"n2", "n3"}, "who ended it brings it back"


@pytest.mark.parametrize(
    ("act", "said"),
    [("is_sound", ["stop n1", "start n1"]), ("stop", ["kill n1", "start n1"])],
)
def test_an_examination_that_is_broken_off_leaves_the_member_running(
    group: Group, monkeypatch: pytest.MonkeyPatch, act: str, said: list[str]
) -> None:
    async def story() -> None:
        reading = asyncio.Event()

        async def hang(_node: str) -> bool:
            reading.set()
            return await asyncio.Event().wait()

        monkeypatch.setattr(group, act, hang)
        losing = asyncio.ensure_future(lose_disk(scene_of(group, hurt={"n1"}), "n2"))
        async with asyncio.timeout(20):
            await reading.wait()
        losing.cancel()
        await asyncio.gather(losing, return_exceptions=True)

    asyncio.run(story())
    assert group.said == said


def test_who_was_repaired_when_it_had_ended_is_not_examined_again(group: Group) -> None:
    group.running.discard("n1")
    scene = scene_of(group, hurt={"n1"})
    told: list[tuple[str, str, Kind]] = []
    scene.note = lambda *what: told.append(what)
    asyncio.run(bring_back(scene, "n1"))
    assert scene.hurt == set()
    assert told == [("examine", "n1 repaired", Kind.OK)]


def test_an_examination_is_a_fault_of_its_own_and_is_over_with_the_phase(
    group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.jsonl"

    async def skip(scene: Scene) -> str:
        await lose_disk(scene, "n2")
        raise Skipped("no more")

    monkeypatch.setitem(cast("dict[str, Fault]", FAULTS), "wipe", Fault("wipe", "", ["f"], skip))

    async def run() -> None:
        with HistoryWriter(path, header()) as writer:
            recorder = Recorder(writer)
            admin = cast("AsyncAdmin", group)
            nemesis = Nemesis(cast("Backend", group), recorder, admin, Random(1))
            nemesis._hurt.add("n1")
            await nemesis.run(Schedule(1.0, (Phase(0.0, 0.0, ("wipe",)),), ()))
            writer.close(recorder.now())

    asyncio.run(run())
    rows = [(row.f, row.type, row.k) for row in read_rows(path) if isinstance(row, Row)]
    assert rows == [
        ("wipe", Kind.INVOKE, ""), ("examine", Kind.INVOKE, ""), ("examine", Kind.OK, "n1 sound"),
        ("wipe", Kind.INFO, ""), ("heal", Kind.OK, ""),
    ]  # fmt: skip


def test_an_old_copy_is_put_back_when_all_others_are_whole(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the member stored after the copy is gone."""
    monkeypatch.setattr(nemesis_old_copy, "FORGOTTEN_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(fault, "WHOLE_SECONDS_MAX", 5.0)
    later = group.folder("n2") / "b.log"
    start = group.start

    async def store(node: str) -> None:
        await start(node)
        if group.said.count("start n2") == 1:
            later.write_bytes(b"later")

    monkeypatch.setattr(group, "start", store)
    told = asyncio.run(nemesis_old_copy.old_copy(scene_of(group, "n2")))
    assert told == "n2, not noticed"
    assert group.said == ["kill n2", "start n2"] * 2
    assert not later.exists()
    assert (group.folder("n2") / "a.log").read_bytes() == b"whole"


def test_no_old_copy_is_put_back_while_another_member_is_away(
    group: Group,
) -> None:
    scene = scene_of(group, "n2")
    all_whole = {name: cast("MemberStatus", Said("follower")) for name in group.nodes}
    leads = {"n3": cast("MemberStatus", Said("leader"))}
    assert nemesis_old_copy.are_ready(scene, "n2", all_whole | leads)
    assert not nemesis_old_copy.are_ready(scene, "n2", all_whole), "nobody leads"
    assert not nemesis_old_copy.are_ready(scene, "n3", all_whole | leads), "it led itself"
    assert not nemesis_old_copy.are_ready(scene, "n2", leads)
    away = {"n1": cast("MemberStatus", Said("quarantined"))}
    assert not nemesis_old_copy.are_ready(scene, "n2", all_whole | leads | away)
