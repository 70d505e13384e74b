"""Snapshots of a running member: what is in them, what is not, and the cluster made of one."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger.files import OsFileSystem
from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedHardState
from dledger.log.folder import DataFolder
from dledger.log.hard_state import load_hard_state
from dledger.log.identity import parse_identity
from dledger.snapshot.making import NOBODY
from dledger.snapshot.manifest import MANIFEST_FILE
from dledger.snapshot.restoring import NoSnapshot, manifest_of, restore_to
from dledger.state.machine import StateMachine
from dledger.state.saved import SavedState
from dledger.store.lmdb_store import LmdbStore
from dledger.types import LogIndex, MemberId, Term
from dledger_broker.cli.offline.repair import find_damage
from dledger_broker.group.group_view import GroupView
from dledger_broker.snapshots.keeping import SNAPSHOTS_MAX, Snapshots
from dledger_proto.errors import Code, DledgerError
from tests.unit.cli.test_inspect_repair import write_everything
from tests.unit.log.support import SMALL, Member, frames_of

MAP_SIZE = 1 << 26
MEMBERS = ("m1", "m2", "m3")
FS = OsFileSystem()


async def confirmed() -> None:
    """See `GroupView.confirm`."""


class Running:
    """A member that runs, as far as snapshots see it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = str(folder / "m1" / "g1")
        self.member = Member(FS, self.path)
        self.store = LmdbStore(f"{self.path}/state", MAP_SIZE)
        self.machine = StateMachine(self.store, "g1")
        write_everything(self.member, self.machine)
        self.failures: list[BaseException] = []
        names = SimpleNamespace(
            cluster="c1", group="g1", member="m2", addresses=dict.fromkeys(MEMBERS, "")
        )
        view = SimpleNamespace(
            names=names, log=self.member.log, machine=self.machine,
            clock=SimpleNamespace(monotonic=lambda: 0.0, wall_ms=lambda: 7),
            host=SimpleNamespace(failed=self.failures.append), confirm=confirmed,
        )  # fmt: skip
        self.kept = Snapshots(
            cast("GroupView", view), self.store, FS, self.path,
            lambda: self.member.folder.identity, lambda path: LmdbStore(path, MAP_SIZE),
        )  # fmt: skip

    async def made(self, name: str) -> str:
        """Make a snapshot; return its folder."""
        await self.kept.create(name)
        assert self.kept._task is not None
        await self.kept._task
        assert self.kept.making is None, self.kept.making
        return f"{self.kept.folder}/{name}"

    def append_more(self, count: int = 5) -> None:
        """Append entries that are not committed, and so not applied."""
        for number in range(count):
            self.member.append(b"not committed %d" % number * 40, term=2)
        self.member.sync()

    def close(self) -> None:
        self.store.close()
        self.member.close()


def with_member(scenario: Callable[[Running], Coroutine[Any, Any, None]]) -> None:
    async def run(folder: Path) -> None:
        running = Running(folder)
        try:
            await scenario(running)
        finally:
            running.close()

    with TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder)))


def write(path: str, content: bytes) -> None:
    Path(path).write_bytes(content)


def restored(snapshot: str, to: Path, seed: int = 1) -> dict[MemberId, str]:
    """Restore a snapshot; return the folders."""
    folders = {MemberId(name): str(to / name / "g1") for name in MEMBERS}
    restore_to(FS, snapshot, "c2", folders, Random(seed))
    return folders


def log_of(path: str, cluster: str, member: str) -> tuple[DataFolder, CommitLog]:
    folder = DataFolder.open(FS, path, cluster, "g1", MemberId(member), Random(3))
    return folder, CommitLog(FS, folder, SMALL, Random(4))


def check_new_members(folders: dict[MemberId, str], running: Running) -> None:
    """All members hold the applied entries and the state behind them, and know each other."""
    log, last = running.member.log, running.machine.applied_index
    lives = {
        member: parse_identity(Path(path, "identity").read_bytes()).incarnation
        for member, path in folders.items()
    }
    assert len(set(lives.values())) == len(MEMBERS)
    assert running.member.folder.identity.incarnation not in lives.values()
    for member, path in folders.items():
        assert list(find_damage(Path(path))) == []
        hard_state = load_hard_state(FS, path)
        assert dict(hard_state.incarnations) == lives
        assert (hard_state.term, hard_state.vote, hard_state.quarantined) == (Term(2), None, False)
        folder, copy = log_of(path, "c2", member)
        assert (copy.last_index, copy.first_index) == (last, log.first_index)
        assert copy.group_id == log.group_id
        assert frames_of(copy, copy.first_index, last) == frames_of(log, copy.first_index, last)
        copy.close()
        folder.close()
        store = LmdbStore(f"{path}/state", MAP_SIZE)
        machine = StateMachine(store, "g1")
        assert (machine.applied_index, machine.digest) == (last, running.machine.digest)
        store.close()


def test_a_snapshot_holds_what_is_applied_and_nothing_behind_it() -> None:
    async def scenario(running: Running) -> None:
        running.append_more()
        snapshot = await running.made("daily")
        assert manifest_of(FS, snapshot).last_index == running.machine.applied_index
        with SavedState(f"{snapshot}/state") as state:
            assert state.applied.index == running.machine.applied_index
        check_new_members(restored(snapshot, running.folder / "new"), running)

    with_member(scenario)


def test_the_log_keeps_its_head_while_a_snapshot_is_made() -> None:
    async def scenario(running: Running) -> None:
        log = running.member.log
        with log.head_kept():
            assert log.trim_head(log.last_position, log.last_index) == []
        running.append_more(40)
        await running.kept.create("daily")
        await asyncio.sleep(0)  # it has begun
        tried: list[list[str]] = []
        while log._keepers:
            tried.append(log.trim_head(log.last_position, log.last_index))
            await asyncio.sleep(0)
        assert tried
        assert not any(tried)
        assert log.trim_head(log.last_position, log.last_index) != []

    with_member(scenario)


def test_segments_that_the_member_lets_go_stay_in_the_snapshot() -> None:
    async def scenario(running: Running) -> None:
        snapshot = await running.made("daily")
        log, first = running.member.log, running.member.log.first_index
        running.append_more(60)
        assert log.trim_head(log.last_position, LogIndex(log.last_index)) != []
        running.member.sync()
        assert log.first_index > first
        assert manifest_of(FS, snapshot).first_index == first
        assert (
            list(find_damage(Path(restored(snapshot, running.folder / "new")[MemberId("m1")])))
            == []
        )

    with_member(scenario)


def test_no_member_starts_with_a_snapshot() -> None:
    async def scenario(running: Running) -> None:
        snapshot = await running.made("daily")
        folder = DataFolder.open(FS, snapshot, "c1", "g1", MemberId("m1"), Random(1))
        assert folder.identity.incarnation == NOBODY
        with pytest.raises(DamagedHardState):
            folder.load_hard_state()
        folder.close()

    with_member(scenario)


def test_two_restores_make_members_of_different_lives() -> None:
    async def scenario(running: Running) -> None:
        snapshot = await running.made("daily")
        one, two = (
            restored(snapshot, running.folder / "1", 1),
            restored(snapshot, running.folder / "2", 2),
        )
        known = [
            load_hard_state(FS, folders[MemberId("m1")]).incarnations for folders in (one, two)
        ]
        assert not set(known[0].values()) & set(known[1].values())

    with_member(scenario)


def test_what_an_earlier_process_did_not_finish_is_removed() -> None:
    async def scenario(running: Running) -> None:
        snapshot = await running.made("daily")
        await running.made("weekly")
        FS.unlink(f"{snapshot}/{MANIFEST_FILE}")
        assert [each.name for each in await running.kept.listed()] == ["weekly"]
        with pytest.raises(NoSnapshot, match="not whole"):
            manifest_of(FS, snapshot)
        running.kept.begin()
        assert not FS.exists(snapshot)
        await running.kept.delete("weekly")
        assert FS.names(running.kept.folder) == []
        with pytest.raises(DledgerError) as refused:
            await running.kept.delete("weekly")
        assert refused.value.code is Code.NOT_FOUND

    with_member(scenario)


def test_a_low_disk_makes_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(running: Running) -> None:
        monkeypatch.setattr(running.member.log.space, "can_spare", lambda _: False)
        await running.kept.create("daily")
        assert running.kept._task is not None
        await running.kept._task
        assert running.kept.making is not None
        assert "would make the disk low" in running.kept.making.problem
        assert FS.names(running.kept.folder) == []
        assert running.failures == []
        monkeypatch.undo()
        await running.made("daily")

    with_member(scenario)


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "x" * 65, "a.part", "a b"])
def test_bad_names_are_refused(name: str) -> None:
    async def scenario(running: Running) -> None:
        for call in (running.kept.create, running.kept.delete):
            with pytest.raises(DledgerError, match="name"):
                await call(name)
        assert not FS.exists(running.kept.folder)

    with_member(scenario)


def test_a_taken_name_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(running: Running) -> None:
        await running.made("daily")
        with pytest.raises(DledgerError, match="there is a snapshot of this name"):
            await running.kept.create("daily")
        monkeypatch.setattr("dledger_broker.snapshots.keeping.SNAPSHOTS_MAX", 1)
        with pytest.raises(DledgerError, match="1 snapshots, at most 1"):
            await running.kept.create("weekly")
        assert SNAPSHOTS_MAX > 1

    with_member(scenario)


def test_a_damaged_manifest_or_checkpoint_is_said() -> None:
    async def scenario(running: Running) -> None:
        snapshot = await running.made("daily")
        write(f"{snapshot}/checkpoint", b"short")
        with pytest.raises(NoSnapshot, match="checkpoint"):
            restored(snapshot, running.folder / "new")
        write(f"{snapshot}/{MANIFEST_FILE}", b"{}")
        with pytest.raises(NoSnapshot, match=MANIFEST_FILE):
            manifest_of(FS, snapshot)

    with_member(scenario)
