"""Snapshots of a running member: what is in them, what is not, and the cluster made of one."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
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
from dledger.repair.findings import Findings
from dledger.snapshot.making import NOBODY
from dledger.snapshot.manifest import MANIFEST_FILE
from dledger.snapshot.restoring import NoSnapshot, manifest_of, restore_to
from dledger.state.machine import StateMachine
from dledger.state.saved import SavedState
from dledger.store.lmdb_store import LmdbStore
from dledger.store.store import Row
from dledger.types import LogIndex, MemberId, Term
from dledger_broker.cli.offline.repair import find_damage
from dledger_broker.group.group_view import GroupView
from dledger_broker.snapshots.keeping import SNAPSHOTS_MAX, Snapshots
from dledger_proto.errors import Code, DledgerError
from tests.unit.cli.test_inspect_repair import write_everything
from tests.unit.log.support import SMALL, Member, frames_of

MAP_SIZE = 1 << 26
MEMBERS = ("m1", "m2", "m3")
MEMBERS_1 = MemberId("m1")
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
            findings=Findings(),
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


def read(path: str) -> str:
    return Path(path).read_text()


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


def test_what_an_earlier_process_did_not_finish_is_removed_and_nothing_else() -> None:
    async def scenario(running: Running) -> None:
        kept = running.kept
        snapshot = await running.made("daily")
        FS.rename(snapshot, f"{kept.folder}/weekly.part")
        write(f"{kept.folder}/daily.tar.gz", b"packed")
        FS.make_folder(f"{kept.folder}/mine/deeper")
        kept.begin()
        assert FS.names(kept.folder) == ["daily.tar.gz", "mine"]
        assert await kept.listed() == []
        with pytest.raises(DledgerError, match="there is a snapshot of this name"):
            await kept.create("mine")
        with pytest.raises(DledgerError) as refused:
            await kept.delete("mine")
        assert refused.value.code is Code.NOT_FOUND
        FS.make_folder(f"{kept.folder}/odd.part/log/deeper")
        kept.begin()  # what cannot be removed keeps no member from starting

    with_member(scenario)


def test_a_snapshot_is_deleted_once_however_often_it_is_asked() -> None:
    async def scenario(running: Running) -> None:
        await running.made("daily")
        calls = [running.kept.delete("daily") for _ in range(4)]
        ended = await asyncio.gather(*calls, running.kept.create("daily"), return_exceptions=True)
        assert [each for each in ended if each is None] == [None, None]
        codes = [each.code for each in ended if isinstance(each, DledgerError)]
        assert codes == [Code.NOT_FOUND] * 3
        assert running.kept._task is not None
        await running.kept._task
        assert [each.name for each in await running.kept.listed()] == ["daily"]
        assert running.failures == []

    with_member(scenario)


def test_two_calls_for_one_name_make_one_snapshot() -> None:
    async def scenario(running: Running) -> None:
        ended = await asyncio.gather(
            running.kept.create("x"), running.kept.create("x"), return_exceptions=True
        )
        assert ended[0] is None
        assert isinstance(ended[1], DledgerError)
        assert ended[1].code in (Code.BUSY, Code.INVALID_ARGUMENT)
        assert running.kept._task is not None
        await running.kept._task
        assert running.failures == []

    with_member(scenario)


def test_a_target_that_fails_harms_nobody_and_a_source_that_fails_ends_the_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(running: Running) -> None:
        async def tried() -> str:
            await running.kept.create("daily")
            assert running.kept._task is not None
            await running.kept._task
            assert running.kept.making is not None
            return running.kept.making.problem

        def refuse(*_: object) -> None:
            raise OSError("cross-device link")

        monkeypatch.setattr(FS, "link", refuse)
        assert "cross-device link" in await tried()
        assert running.failures == []
        assert FS.names(running.kept.folder) == []
        monkeypatch.undo()
        broken = OSError("a broken row")
        monkeypatch.setattr(running.store, "saved_rows", lambda: failing(broken))
        monkeypatch.setattr(FS, "remove_folder", refuse)
        assert "a broken row" in await tried(), "also when what was written cannot be removed"
        assert running.failures == [broken]

    with_member(scenario)


def failing(error: OSError) -> Iterator[Row]:
    """Return rows of which the first cannot be read."""
    raise error
    yield b"", b""


def test_a_trim_that_was_planned_before_comes_first() -> None:
    async def scenario(running: Running) -> None:
        log = running.member.log
        running.append_more(60)
        assert log.trim_head(log.last_position, LogIndex(running.machine.applied_index)) != []
        await running.kept.create("daily")
        for _ in range(3):
            await asyncio.sleep(0.1)
            assert running.kept.making is not None
        running.member.sync()
        assert running.kept._task is not None
        await running.kept._task
        snapshot = f"{running.kept.folder}/daily"
        assert manifest_of(FS, snapshot).first_index == log.first_index > 1
        assert list(find_damage(Path(restored(snapshot, running.folder / "new")[MEMBERS_1]))) == []

    with_member(scenario)


def test_a_segment_that_is_missing_makes_no_snapshot() -> None:
    async def scenario(running: Running) -> None:
        folder = f"{running.path}/log"
        FS.unlink(f"{folder}/{next(name for name in FS.names(folder) if name.endswith('.log'))}")
        await running.kept.create("daily")
        assert running.kept._task is not None
        await running.kept._task
        assert running.kept.making is not None
        assert "No such file" in running.kept.making.problem

    with_member(scenario)


def test_a_low_disk_makes_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(running: Running) -> None:
        monkeypatch.setattr(running.member.log.space, "can_spare", lambda _: False)
        with pytest.raises(DledgerError, match="would make the disk low"):
            await running.kept.create("daily")
        monkeypatch.undo()
        await running.kept.create("daily")
        monkeypatch.setattr(running.member.log.space, "can_spare", lambda _: False)
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
        path = f"{snapshot}/{MANIFEST_FILE}"
        content = read(path)
        for changed in (
            content.replace('"term": 2', '"term": 0'),
            content.replace('"m1"', '"../m1"'),
            content.replace('"g1"', '"../g1"'),
            content.replace("snapshot 1", "snapshot 2"),
            content.replace('"last_index": ', '"last_index": 9'),
            content.replace('"term": 2', '"term": 1e999'),
            "{}",
            "[]",
            "[" * 100_000,
        ):
            assert changed != content
            write(path, changed.encode())
            with pytest.raises(NoSnapshot):
                restored(snapshot, running.folder / "new")
            assert not FS.exists(str(running.folder / "new"))
        (kept,) = await running.kept.listed()
        assert (kept.name, kept.manifest, MANIFEST_FILE in kept.problem) == ("daily", None, True)
        await running.kept.delete("daily")
        snapshot = await running.made("daily")
        write(f"{snapshot}/checkpoint", b"short")
        with pytest.raises(NoSnapshot, match="checkpoint"):
            restored(snapshot, running.folder / "new")

    with_member(scenario)
