"""The data folder: one process, one owner, made whole or not at all; the small files."""

import errno
from pathlib import Path
from random import Random

import pytest

from dledger.files import File, FileSystem, OsFileSystem
from dledger.log.atomic_file import (
    BODY_SIZE_MAX,
    CorruptFile,
    FieldReader,
    FieldWriter,
    frame,
    read_file,
    unframe,
)
from dledger.log.errors import DamagedIdentity, FolderInUse, WrongFolder
from dledger.log.folder import DataFolder
from dledger.log.hard_state import HardState, parse_hard_state
from dledger.log.identity import Identity, parse_identity
from dledger.types import MemberId, Term
from dledger_proto.errors import Code
from tests.sim.disk.disk import PowerCut, SimFileSystem
from tests.unit.log.support import Member, open_folder

Disk = tuple[FileSystem, str]


def test_a_new_folder_has_an_identity_with_a_new_incarnation(disk: Disk) -> None:
    fs, path = disk
    folder = open_folder(fs, path, seed=5)
    identity = folder.identity
    assert identity == Identity("c1", "g1", MemberId("m1"), Random(5).randbytes(16), b"")
    assert folder.load_hard_state() == HardState()
    folder.close()
    again = open_folder(fs, path, seed=6)
    assert again.identity == identity
    assert again.log_path == f"{path}/log"
    assert again.state_path == f"{path}/state"


def test_a_second_opening_is_refused_naming_the_folder(disk: Disk) -> None:
    fs, path = disk
    folder = open_folder(fs, path)
    with pytest.raises(FolderInUse, match=path) as caught:
        open_folder(fs, path)
    assert caught.value.folder == path
    folder.close()
    open_folder(fs, path).close()


@pytest.mark.parametrize("owner", [("c2", "g1", "m1"), ("c1", "g2", "m1"), ("c1", "g1", "m2")])
def test_a_folder_of_someone_else_is_refused_naming_both(
    disk: Disk, owner: tuple[str, str, str]
) -> None:
    fs, path = disk
    open_folder(fs, path).close()
    cluster, group, member = owner
    with pytest.raises(WrongFolder) as caught:
        DataFolder.open(fs, path, cluster, group, MemberId(member), Random(1))
    assert caught.value.code is Code.WRONG_CLUSTER
    for name in (path, *owner, "c1", "g1", "m1"):
        assert name in caught.value.detail
    open_folder(fs, path).close()


def test_a_log_without_an_identity_is_refused(disk: Disk) -> None:
    fs, path = disk
    member = Member(fs, path)
    member.genesis()
    member.sync()
    member.close()
    fs.unlink(f"{path}/identity")
    with pytest.raises(DamagedIdentity, match="missing, but the folder"):
        open_folder(fs, path)


def test_a_power_cut_while_the_folder_is_made_leaves_a_whole_one_or_none() -> None:
    fs = SimFileSystem(Random(1))
    open_folder(fs, "/disk/a/b")
    calls = fs.calls
    assert calls > 20
    for call in range(calls + 1):
        for seed in range(8):
            fs = SimFileSystem(Random(1))

            def hook(_name: str, _path: str, fs: SimFileSystem = fs, call: int = call) -> None:
                if fs.calls > call:
                    raise PowerCut

            fs.hook = hook
            made: Identity | None = None
            try:
                made = open_folder(fs, "/disk/a/b", seed=1).identity
            except PowerCut:
                made = None
            fs.power_cut(Random(seed * 1000 + call))
            folder = open_folder(fs, "/disk/a/b", seed=2)
            if made is not None:
                assert folder.identity == made
            assert folder.load_hard_state() == HardState()


def test_hard_states_are_kept_exactly() -> None:
    states = [
        HardState(),
        HardState(Term(3), ""),
        HardState(Term(2**63), "m1", {MemberId("é"): b"x" * 16, MemberId("b"): b"y" * 16}),
        HardState(quarantined=True),
        HardState(lifted=True),
    ]
    for state in states:
        assert parse_hard_state(state.encode()) == state
    assert len({state.encode() for state in states}) == len(states)


def test_an_identity_is_kept_exactly() -> None:
    identity = Identity("c", "g", MemberId("m"), b"i" * 16, b"g" * 16)
    assert parse_identity(identity.encode()) == identity


def test_every_flip_and_every_cut_of_a_framed_file_is_noticed() -> None:
    content = frame(b"TEST", 1, b"some body")
    assert unframe(b"TEST", 1, content) == b"some body"
    for place in range(len(content)):
        with pytest.raises(CorruptFile):
            unframe(b"TEST", 1, content[:place])
        for bit in range(8):
            flipped = bytearray(content)
            flipped[place] ^= 1 << bit
            with pytest.raises(CorruptFile):
                unframe(b"TEST", 1, bytes(flipped))
    with pytest.raises(CorruptFile, match="magic"):
        unframe(b"ELSE", 1, content)
    with pytest.raises(CorruptFile, match="version 1, known is 2"):
        unframe(b"TEST", 2, content)


def test_fields_are_read_in_the_order_they_were_written() -> None:
    writer = FieldWriter()
    writer.numbers(1, 2**64 - 1)
    writer.pairs([(1, 2), (3, 4)])
    writer.blob(b"blob")
    writer.blob("tëxt".encode())
    writer.blob(b"\xff")
    reader = FieldReader(writer.body())
    assert reader.numbers(2) == (1, 2**64 - 1)
    assert reader.pairs() == [(1, 2), (3, 4)]
    assert (reader.blob(), reader.text()) == (b"blob", "tëxt")
    with pytest.raises(CorruptFile, match="bytes too many"):
        reader.end()
    with pytest.raises(CorruptFile, match="text"):
        reader.text()
    reader.end()
    with pytest.raises(CorruptFile, match="8 bytes expected"):
        reader.number()


def test_a_huge_small_file_is_not_read(sim: SimFileSystem) -> None:
    sim.make_folder("/d")
    sim.open("/d/x", create=True).truncate(BODY_SIZE_MAX + 100)
    with pytest.raises(CorruptFile, match="at most"):
        read_file(sim, "/d/x")
    assert read_file(sim, "/d/none") is None


class _ClosedFile(OsFileSystem):
    """A file that may not be read; below a folder that may not be searched it seems missing."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def open(self, path: str, *, create: bool = False) -> File:
        if path.endswith(self._name):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().open(path, create=create)

    def exists(self, path: str) -> bool:
        return not path.endswith(self._name) and super().exists(path)


@pytest.mark.parametrize("name", ["/identity", "/hard_state"])
def test_a_file_that_may_not_be_read_is_neither_missing_nor_damaged(
    tmp_path: Path, name: str
) -> None:
    path = str(tmp_path / "data")
    open_folder(OsFileSystem(), path).close()
    with pytest.raises(PermissionError):
        open_folder(_ClosedFile(name), path).load_hard_state()
    assert open_folder(OsFileSystem(), path).load_hard_state() == HardState()
