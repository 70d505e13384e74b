"""Seals and totals of the saved state, each where it alone notices: for the known bugs."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.state.lmdb_check import verdict_of
from dledger.state.lmdb_mark import MARK_FILE
from dledger.state.lmdb_rows import PageFile, Walk
from dledger.state.lmdb_store import LmdbStore
from dledger.state.sealed import seal
from dledger.state.store import DamagedStore
from tests.contract.store_suite import save

MAP_SIZE = 1 << 24
ROUNDS = 4
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
