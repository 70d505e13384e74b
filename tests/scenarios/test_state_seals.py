"""Seals and totals of the saved state, each where it alone notices: for the known bugs."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest import mock

import lmdb
import pytest

from dledger.files import OsFileSystem
from dledger.store import lmdb_check
from dledger.store.lmdb_check import verdict_of
from dledger.store.lmdb_mark import MARK_FILE
from dledger.store.lmdb_rows import DATA_FILE, PageFile, Walk
from dledger.store.lmdb_store import LmdbBase, LmdbStore
from dledger.store.sealed import seal
from dledger.store.store import DamagedStore
from tests.contract.store_suite import save

MAP_SIZE = 1 << 24
ROUNDS = 4
NODES_AT = 16
"""Where a page's header ends and the offsets of its nodes begin."""
VALUE = b"a value of the row that is struck"


def _written(folder: str, each: Callable[[int], None] = lambda number: None) -> None:
    """Save some rows over and over; `each` is called after each commit."""
    store = LmdbStore(folder, MAP_SIZE)
    for number in range(ROUNDS):
        for row in range(300):
            if row % 3 != number % 3:
                store.put(b"\x20%03d" % row, b"%d-%d " % (number, row) * 10)
            elif number:
                store.delete(b"\x20%03d" % row)
        store.put(b"\x21struck", VALUE)
        save(store)
        each(number)
    store.close()


def test_a_row_that_changed_is_refused_when_it_is_read() -> None:
    """By get and by scan, in a store that is open: what was checked at its start was sound."""
    with tempfile.TemporaryDirectory() as folder:
        _written(folder)
        store = LmdbStore(folder, MAP_SIZE)
        path = os.path.join(folder, "data.mdb")
        data = Path(path).read_bytes().replace(VALUE, VALUE.upper())
        with open(path, "r+b") as file:
            file.write(data)
        with pytest.raises(DamagedStore):
            store.get(b"\x21struck")
        with pytest.raises(DamagedStore):
            store.scan(b"\x21", b"\x22", 10)
        with pytest.raises(DamagedStore):
            store.scan(b"\x21", b"\x22", 10, reverse=True)
        store.close()


def test_a_store_passes_its_own_check_after_any_writes() -> None:
    """Rows that are new, replaced and deleted: the totals follow each of them."""
    with tempfile.TemporaryDirectory() as folder:
        _written(folder)
        assert verdict_of(folder, whole=True)["end"] == "sound"


def test_a_row_that_is_sound_and_not_the_newest_is_noticed() -> None:
    """As when an older page comes back: the row passes its own check, the totals do not."""
    with tempfile.TemporaryDirectory() as folder:
        _written(folder)
        data = Path(folder) / "data.mdb"
        sound = data.read_bytes()
        key = b"\x20001"
        with PageFile(str(data)) as file:
            rows = [row for leaf in Walk(file, file.newest).rows() for row in leaf]
        sealed = dict(rows)[key]
        other = seal(key, bytes(len(sealed) - 4))
        assert len(other) == len(sealed)
        data.write_bytes(sound.replace(key + sealed, key + other))
        verdict = verdict_of(folder, whole=True)
        assert verdict["end"] == "damaged", "a row that fits its seal, and was not the last saved"
        assert "not the newest" in str(verdict["text"])


def test_an_older_file_is_noticed() -> None:
    """All of it fits together; only the mark knows of later commits."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data.mdb"
        copies: list[bytes] = []
        _written(folder, lambda number: copies.append(data.read_bytes()))
        data.write_bytes(copies[1])
        assert verdict_of(folder, whole=True)["end"] == "damaged"
        os.unlink(os.path.join(folder, MARK_FILE))
        assert verdict_of(folder, whole=True)["end"] == "sound"


def test_a_file_that_ends_before_free_pages_is_sound() -> None:
    """LMDB never writes a page that one commit takes and gives up again, not even at the end."""
    shorter = 0
    for seed in range(6):
        random = Random(seed)
        keys = random.choice((50, 500))
        with tempfile.TemporaryDirectory() as folder:
            base = LmdbBase(folder, MAP_SIZE, OsFileSystem())
            for _ in range(20):
                first, removed = random.randrange(keys), random.choice((0.1, 0.5, 0.9, 1.0))
                rows: dict[bytes, bytes | None] = {}
                for at in range(first, first + random.choice((5, 50, 300))):
                    key = b"\x20%06d" % (at % keys)
                    gone = random.random() < removed
                    rows[key] = None if gone else bytes(random.randrange(3_000))
                base.save(rows.items(), 1)
                with PageFile(os.path.join(folder, DATA_FILE)) as file:
                    shorter += file.size <= file.newest.last_page * file.page_size
                with mock.patch.object(lmdb_check, "_try"):  # it is open here
                    verdict = verdict_of(folder, whole=True)
                assert verdict["end"] == "sound", (seed, verdict)
            base.close()
    assert shorter, "no such file came to be: this tests nothing"


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_out_of_order_are_damage_also_when_each_is_sound(reverse: bool) -> None:
    """In a file that changes under an open store: LMDB gives what it finds."""
    with tempfile.TemporaryDirectory() as folder:
        base = LmdbBase(folder, MAP_SIZE, OsFileSystem())
        base.save([(b"\x20%d" % at, b"value") for at in range(5)], 1)
        assert len(base.scan(b"\x20", b"\x21", 9, reverse=reverse)) == 5
        data = Path(folder) / DATA_FILE
        with PageFile(str(data)) as file:
            leaf = file.newest.rows.root * file.page_size
        with data.open("r+b") as raw:
            raw.seek(leaf + NODES_AT + 2)
            second, third = raw.read(2), raw.read(2)
            raw.seek(leaf + NODES_AT + 2)
            raw.write(third + second)
        with pytest.raises(DamagedStore, match="row"):
            base.scan(b"\x20", b"\x21", 9, reverse=reverse)
        base.close()


def test_a_file_that_lost_pages_in_use_is_damage() -> None:
    """Also in a store so large that a start does not walk its leaves: LMDB would be ended there."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(lmdb_check, "PAGES_AT_START", 2),
    ):
        store = LmdbStore(folder, MAP_SIZE)
        for number in range(5):  # leaves free pages for what the last commit writes besides
            for row in range(100):
                store.put(b"\x20%03d" % row, b"%d" % number * 200)
            save(store)
        store.put(b"\x20large", bytes(200_000))
        save(store)
        store.close()
        assert verdict_of(folder, whole=False)["end"] == "sound"
        data = Path(folder) / DATA_FILE
        with PageFile(str(data)) as file:
            behind = file.newest.last_page - file.newest.rows.overflow_pages
            trees = (file.newest.free, file.newest.rows, file.older.free, file.older.rows)
            assert max(tree.root for tree in trees) < behind, "the large row is the last"
            os.truncate(data, (file.newest.last_page - 2) * file.page_size)
        verdict = verdict_of(folder, whole=False)
        assert verdict["end"] == "damaged"
        assert "its newest commit needs" in str(verdict["text"])


@pytest.mark.parametrize("size", [0, 1, 100, 4_095, 4_096, 4_200, 8_191])
def test_a_first_write_that_was_cut_short_is_a_new_store(size: int) -> None:
    """Both meta pages are written at once, before anything else."""
    with tempfile.TemporaryDirectory() as folder:
        lmdb.open(folder, map_size=MAP_SIZE).close()
        os.truncate(Path(folder) / DATA_FILE, size)
        store = LmdbStore(folder, MAP_SIZE)
        store.put(b"\x20key", VALUE)
        save(store)
        store.close()
        assert verdict_of(folder, whole=True)["end"] == "sound"


def test_a_first_commit_that_was_cut_off_is_a_new_store() -> None:
    """Its page is there and its meta page is not: the kernel was asked for the one before."""
    with tempfile.TemporaryDirectory() as folder:
        lmdb.open(folder, map_size=MAP_SIZE).close()
        data = Path(folder) / DATA_FILE
        data.write_bytes(data.read_bytes() + VALUE.ljust(4_096, b"."))
        store = LmdbStore(folder, MAP_SIZE)
        store.put(b"\x20key", VALUE)
        save(store)
        store.close()
        assert verdict_of(folder, whole=True)["end"] == "sound"
