"""The seam to PySyncObj: the audited source, its parts that are off, its clock and its chance."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pysyncobj import syncobj as library

from dledger.raft.api import Role
from dledger.raft.engine import _pysyncobj as seam
from dledger.raft.engine._pysyncobj import (
    PYSYNCOBJ_VERSION,
    SOURCE_SHA256,
    WrongLibrary,
    check_source,
)
from dledger.types import MemberId
from tests.unit.raft.harness import World

FOLDER = Path(library.__file__).parent


def test_the_installed_library_is_the_audited_one() -> None:
    check_source(FOLDER, PYSYNCOBJ_VERSION)


def test_another_version_is_refused() -> None:
    with pytest.raises(WrongLibrary, match=r"0\.3\.16"):
        check_source(FOLDER, "0.3.16")


@pytest.mark.parametrize("name", sorted(SOURCE_SHA256))
def test_a_changed_file_is_named(name: str, tmp_path: Path) -> None:
    for each in SOURCE_SHA256:
        shutil.copy(FOLDER / each, tmp_path / each)
    with (tmp_path / name).open("a") as file:
        file.write("# changed\n")
    with pytest.raises(WrongLibrary, match=re.escape(str(tmp_path / name))):
        check_source(tmp_path, PYSYNCOBJ_VERSION)


def test_the_check_is_made_at_import(tmp_path: Path) -> None:
    """A copy of the library with one changed file is found first: the import fails, naming it."""
    shutil.copytree(FOLDER, tmp_path / "pysyncobj")
    with (tmp_path / "pysyncobj" / "syncobj.py").open("a") as file:
        file.write("# changed\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import dledger.raft.engine._pysyncobj"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.returncode != 0
    assert "WrongLibrary" in done.stderr
    assert "syncobj.py" in done.stderr.splitlines()[-1]


def test_outside_of_calls_the_library_has_its_own_clock() -> None:
    World()  # virtual time 100 s
    before = seam._own_monotonic()
    assert before <= library.monotonicTime() <= seam._own_monotonic()


def test_create_journal_is_the_librarys_own_again() -> None:
    World()
    assert library.createJournal.__module__ == "pysyncobj.journal"


def test_groups_with_different_clocks_live_in_one_thread() -> None:
    early, late = World(seed=1), World(seed=2)
    late.now += 10_000
    for _ in range(300):
        early.run(0.01)
        late.run(0.01)
    for world in (early, late):
        assert len(world.leaders) == 1
        assert world.leader.put(b"x")


def test_the_parts_that_are_unsafe_are_never_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """F4-F7, F9, F12, F18: each of these raises if anything calls it in a full life."""

    def never(*_arguments: object, **_named: object) -> None:
        raise AssertionError("a part of the library that is off was called")

    names = [
        "_SyncObj__loadDumpFile", "_SyncObj__doChangeCluster", "_SyncObj__changeCluster",
        "_SyncObj__deleteEntriesTo", "_SyncObj__doApplyCommand", "_SyncObj__callErrCallback",
        "_SyncObj__parseChangeClusterRequest", "_applyCommand", "setCodeVersion",
    ]  # fmt: skip
    for name in names:
        assert hasattr(library.SyncObj, name), name
        monkeypatch.setattr(library.SyncObj, name, never)
    monkeypatch.setattr(library, "pickle", None)
    world = World()
    leader = world.elect("a")
    leader.propose(b"1", b"2")
    world.isolate("a")
    leader.put(b"3")
    world.run(3.0)
    world.heal()
    world.elect("b")
    world["c"].kill()
    world["c"].wipe()
    world["c"].start()
    world.run(3.0)
    world.assert_equal_logs()


def test_chance_is_the_groups_own() -> None:
    """Two runs of one seed are equal, message by message; the library's random is not asked."""

    def life(seed: int) -> list[str]:
        world = World("abcde", seed=seed)
        world.elect()
        world.leader.put(b"x")
        world.leader.kill()
        world.run(3.0)
        return [f"{s} {t} {m.describe()}" for s, t, m in world.sent]

    assert life(1) == life(1)
    assert life(1) != life(2)


def test_the_core_takes_timeout_now_from_its_leader_only() -> None:
    world = World()
    leader = world.elect("a")
    world.run(0.3)
    engine = world["b"].group._context.engine
    assert not engine.timeout_now(MemberId("c"), leader.group.term, world.now)
    assert engine.role is Role.FOLLOWER
    assert engine.timeout_now(MemberId("a"), leader.group.term, world.now)
