"""A saved state opened for reading only gives what was saved, and nothing is believed blindly.

Goal: `get` and `scan` of the base that nobody writes to are those of a dictionary, for trees of
several levels and for values larger than a page; damage anywhere is DamagedStore or the right rows.
Method: random rows saved by the real store, with deletions between saves; then flipped bits.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from dledger.state.saved import SavedState, _SavedBase
from dledger.store.lmdb_store import LmdbStore
from dledger.store.store import DamagedStore
from tests.contract.store_suite import save

MAP_SIZE = 1 << 28
QUESTIONS = 400
FLIPS = 300
Rows = dict[bytes, bytes]


def key_of(random: Random) -> bytes:
    return bytes((random.choice((0x30, 0x38, 0x50, 0x53)),)) + b"%06d" % random.randrange(4_000)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    """Some thousand rows over three saves, some of them large, and some deleted again."""
    folder = tmp_path_factory.mktemp("saved")
    store, random, rows = LmdbStore(str(folder), MAP_SIZE), Random(5), Rows()
    for _ in range(3):
        for _ in range(1_500):
            key = key_of(random)
            size = random.choice((0, 8, 40, 300, 3_900, 9_000))
            rows[key] = random.randbytes(size)
            store.put(key, rows[key])
        for key in random.sample(sorted(rows), 200):
            del rows[key]
            store.delete(key)
        save(store)
    store.close()
    return folder, rows


def questions(random: Random, rows: Rows) -> Iterator[tuple[bytes, bytes, int, bool]]:
    for _ in range(QUESTIONS):
        start, stop = sorted((key_of(random), key_of(random)))
        if random.random() < 0.3:
            start = random.choice(sorted(rows))
        yield start, stop, random.choice((1, 3, 64, 10_000)), random.random() < 0.5


def test_equals_what_was_saved(saved: tuple[Path, Rows]) -> None:
    """Ranges up and down, with a limit; single keys that are there or not."""
    folder, rows = saved
    base, random, found = _SavedBase(str(folder)), Random(6), 0
    for start, stop, limit, reverse in questions(random, rows):
        wanted = sorted(item for item in rows.items() if start <= item[0] < stop)
        if reverse:
            wanted.reverse()
        assert base.scan(start, stop, limit, reverse=reverse) == wanted[:limit]
        assert base.get(start) == rows.get(start)
        found += len(wanted)
    base.close()
    assert found > QUESTIONS


def test_nothing_is_written(saved: tuple[Path, Rows]) -> None:
    """Neither by opening, which leaves every file as it is, nor by anybody who tries."""
    folder, _ = saved
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir()}
    with SavedState(str(folder)) as state:
        assert state.applied.index == 0
        state.topics._writer.put(b"\x01x", b"y")
        with pytest.raises(AssertionError, match="only read"):
            save(state._store)
    after = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.iterdir()}
    assert after == before


def test_damage_is_told_or_does_not_matter(saved: tuple[Path, Rows], tmp_path: Path) -> None:
    """A bit anywhere: the whole table is what it was, or DamagedStore."""
    folder, rows = saved
    sound = (folder / "data.mdb").read_bytes()
    random, told = Random(7), 0
    for _ in range(FLIPS):
        changed = bytearray(sound)
        place = random.randrange(len(sound) // 4096) * 4096 + random.randrange(4096)
        changed[place] ^= 1 << random.randrange(8)
        (tmp_path / "data.mdb").write_bytes(changed)
        (tmp_path / "mark").write_bytes((folder / "mark").read_bytes())
        try:
            with SavedState(str(tmp_path)) as state:
                found = state._store.scan(b"\x30", b"\x60", 1 << 20)
        except DamagedStore:
            told += 1
        else:
            assert dict(found) == rows, place
    assert 0 < told < FLIPS
