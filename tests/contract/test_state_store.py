"""The state stores under their contract, and what is LMDB's or the dictionary's alone."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest

from dledger.files import File, OsFileSystem
from dledger.store.lmdb_store import LmdbStore
from dledger.store.sealed import FORMAT_KEY, seal
from dledger.store.store import DamagedStore, NewerStore, StateStore, StoreFailed, StoreFull
from tests.contract.store_suite import MakeStore, StoreSuite, save
from tests.programs.store_child import STEPS
from tests.unit.state.memory_store import MemoryStore

MAP_SIZE = 1 << 26


class TestLmdb(StoreSuite):
    """The contract on LMDB."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        @contextmanager
        def make() -> Iterator[StateStore]:
            with tempfile.TemporaryDirectory() as folder:
                store = LmdbStore(os.path.join(folder, "state"), MAP_SIZE)
                try:
                    yield store
                finally:
                    store.close()

        return make


class TestMemory(StoreSuite):
    """The contract on the store that tests of the state use."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        @contextmanager
        def make() -> Iterator[StateStore]:
            yield MemoryStore()

        return make


def rows_of(store: StateStore) -> dict[bytes, bytes]:
    return dict(store.scan(b"a", b"z", 1000))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("last", [1, 3])
def test_lmdb_killed_at_each_step(tmp_path: Path, step: str, last: int) -> None:
    """What is found after SIGKILL is exactly one commit: all its rows, none of the next."""
    folder = str(tmp_path / "state")
    ended = subprocess.run(
        [sys.executable, "-m", "tests.programs.store_child", folder, str(last), step],
        check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL
    store = LmdbStore(folder, MAP_SIZE)
    rows = rows_of(store)
    saved = last if step in ("committed", "finished") else last - 1
    expected = {b"new-%d" % number: b"x" * 5000 for number in range(1, saved + 1)}
    if saved:
        expected[b"round"] = b"%d" % saved
        expected[b"sum"] = b"".join(b"%d," % number for number in range(1, saved + 1))
    assert rows == expected
    store.put(b"round", b"9")
    save(store)
    store.close()
    again = LmdbStore(folder, MAP_SIZE)
    assert again.get(b"round") == b"9"
    again.close()


def test_lmdb_is_opened_once(tmp_path: Path) -> None:
    store = LmdbStore(str(tmp_path), MAP_SIZE)
    with pytest.raises(StoreFailed, match="another process uses it"):
        LmdbStore(str(tmp_path), MAP_SIZE)
    store.close()
    LmdbStore(str(tmp_path), MAP_SIZE).close()


def test_lmdb_garbage_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"\x5a" * 20_000)
    with pytest.raises(DamagedStore, match="meta page 0: magic 5a5a5a5a"):
        LmdbStore(str(tmp_path), MAP_SIZE)


def test_lmdb_truncated_is_refused(tmp_path: Path) -> None:
    """Reading on would be a SIGBUS some time later."""
    store = LmdbStore(str(tmp_path), MAP_SIZE)
    for number in range(50):
        store.put(b"k%d" % number, b"x" * 4000)
    save(store)
    store.close()
    size = (tmp_path / "data.mdb").stat().st_size
    os.truncate(tmp_path / "data.mdb", size - 40_960)
    with pytest.raises(DamagedStore, match=f"data.mdb has {size - 40_960} bytes"):
        LmdbStore(str(tmp_path), MAP_SIZE)


@pytest.mark.parametrize(
    ("key", "value", "error", "match"),
    [
        (FORMAT_KEY, b"DLST\x02\0\0\0", DamagedStore, "format version 2, whose topics do not"),
        (FORMAT_KEY, b"DLST\x04\0\0\0", NewerStore, "format version 4, this dledger knows 3"),
        (FORMAT_KEY, b"DLST\0\0\0\0", DamagedStore, "format 0, reserved 0"),
        (FORMAT_KEY, b"NONE\x02\0\0\0", DamagedStore, "not a state store"),
        (FORMAT_KEY, b"what", DamagedStore, "not a state store"),
        (b"other", b"row", DamagedStore, "not a state store"),
    ],
)
def test_lmdb_of_another_format_is_refused(
    tmp_path: Path, key: bytes, value: bytes, error: type[StoreFailed], match: str
) -> None:
    environment = lmdb.open(str(tmp_path), map_size=MAP_SIZE)
    with environment.begin(write=True) as transaction:
        transaction.put(key, seal(key, value))
    environment.close()
    with pytest.raises(error, match=match):
        LmdbStore(str(tmp_path), MAP_SIZE)


class SmallDisk(OsFileSystem):
    """A file system with little space."""

    free = 1 << 40

    def free_bytes(self, path: str) -> int:
        return self.free


def test_lmdb_on_a_full_disk_is_a_refusal(tmp_path: Path) -> None:
    """Nothing was begun: rows stay readable, and the same flush succeeds when space is back."""
    disk = SmallDisk()
    store = LmdbStore(str(tmp_path), MAP_SIZE, disk)
    store.put(b"key", b"x" * 1000)
    flush = store.freeze()
    assert flush is not None
    disk.free = 1000
    for _ in range(2):
        with pytest.raises(StoreFull, match="1000 bytes free"):
            flush.execute()
    assert store.get(b"key") == b"x" * 1000
    disk.free = 1 << 40
    flush.execute()
    store.flush_finished(flush)
    store.close()
    again = LmdbStore(str(tmp_path), MAP_SIZE)
    assert again.get(b"key") == b"x" * 1000
    again.close()


class NoRoomForTheMark(OsFileSystem):
    """A disk so full that not even a file of a few bytes can be made."""

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().open(path, create=create)


def test_lmdb_starts_on_a_full_disk(tmp_path: Path) -> None:
    """Reads go on there; the mark of before is still true."""
    store = LmdbStore(str(tmp_path), MAP_SIZE)
    store.put(b"key", b"1")
    save(store)
    store.close()
    again = LmdbStore(str(tmp_path), MAP_SIZE, NoRoomForTheMark())
    assert again.get(b"key") == b"1"
    again.close()


def test_lmdb_with_a_full_map_fails_for_good(tmp_path: Path) -> None:
    """The commit before stays; the failed store never saves again."""
    store = LmdbStore(str(tmp_path), 1 << 17)
    store.put(b"key", b"1")
    save(store)
    for number in range(100):
        store.put(b"k%d" % number, b"x" * 4000)
    store.put(b"key", b"2")
    flush = store.freeze()
    assert flush is not None
    with pytest.raises(StoreFailed, match="map of 131072 bytes is full; raise map_size_bytes"):
        flush.execute()
    with pytest.raises(StoreFailed, match="failed before"):
        flush.execute()
    for read in (lambda: store.get(b"other"), lambda: store.scan(b"o", b"p", 1)):
        with pytest.raises(StoreFailed, match="failed before"):
            read()
    store.close()
    again = LmdbStore(str(tmp_path), MAP_SIZE)
    assert again.get(b"key") == b"1"
    assert again.get(b"k1") is None
    again.close()


def test_memory_power_cut() -> None:
    """Falls back to the last commit or, when nobody waited for it, the one before."""
    store = MemoryStore()
    store.put(b"a", b"1")
    store.put(b"b", b"1")
    save(store)
    assert rows_of(store.power_cut(lose_last=True)) == {b"a": b"1", b"b": b"1"}
    store.put(b"a", b"2")
    store.delete(b"b")
    store.put(b"c", b"2")
    flush = store.freeze()
    assert flush is not None
    flush.execute()
    assert rows_of(store.power_cut(lose_last=True)) == {b"a": b"1", b"b": b"1"}
    assert rows_of(store.power_cut(lose_last=False)) == {b"a": b"2", b"c": b"2"}
    store.put(b"a", b"3")
    store.flush_finished(flush)
    assert rows_of(store.power_cut(lose_last=True)) == {b"a": b"2", b"c": b"2"}
