"""Damage of the state's data file: it is refused, or no row is another than before.

Goal: no flipped bit, lost, stale or exchanged page and no cut gives a wrong row or kills who asks.
Method: a store whose file has every kind of page, damaged at a place drawn from a seed, or in turn
at every bit of the meta pages; what still opens is read as a whole and compared. Most cases judge
in this process, as the checking process does; some go the whole way of a start.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import lmdb
import pytest

from dledger.files import OsFileSystem
from dledger.state.tables import PREFIX, Table
from dledger.store import lmdb_check
from dledger.store.lmdb_check import check_store, read_verdict, verdict_of
from dledger.store.lmdb_errors import failure
from dledger.store.lmdb_mark import MARK_FILE
from dledger.store.lmdb_rows import DATA_FILE, PageFile
from dledger.store.lmdb_store import LmdbStore
from dledger.store.sealed import FORMAT_KEY, TOTALS_KEY, seal
from dledger.store.store import DamagedStore, NewerStore, StoreFailed
from tests.contract.store_suite import save

MAP_SIZE = 1 << 26
PAGE = 4096
META_BYTES = 152
"""Of a meta page, what LMDB writes."""
IN_PROCESS_CASES = 700
WHOLE_WAY_CASES = 25
LOCAL = PREFIX[Table.META_LOCAL]
QUEUE = PREFIX[Table.QUEUE]


def fill(store: LmdbStore, random: Random, rounds: int) -> None:
    """Write, replace and delete rows of all sizes, so that pages are used, free and used again."""
    for step in range(rounds):
        for _ in range(60):
            key = QUEUE + b"%03d" % random.randrange(400)
            size = random.choice((0, 5, 40, 40, 300, 1_900, 3_996, 9_000))
            if random.random() < 0.25:
                store.delete(key)
            else:
                store.put(key, random.randbytes(size))
        store.put(LOCAL + b"round", b"%d" % step)
        save(store)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed store, and beside it copies of its file as of some commits before the last."""
    path = tmp_path / "state"
    store = LmdbStore(str(path), MAP_SIZE)
    for number in range(4):
        fill(store, Random(number), 3)
        shutil.copy(path / "data.mdb", tmp_path / f"older-{number}")
    fill(store, Random(9), 1)
    store.close()
    return path


def rows_of(folder: Path) -> dict[bytes, bytes]:
    """What LMDB says."""
    with (
        lmdb.open(str(folder), readonly=True, lock=False) as environment,
        environment.begin() as transaction,
        transaction.cursor() as cursor,
    ):
        return {bytes(key): bytes(value) for key, value in cursor}


def judge(folder: Path, before: dict[bytes, bytes], case: object) -> bool:
    """Tell whether a damaged store was refused; what passes must have the rows of before."""
    end = verdict_of(str(folder), whole=False)["end"]
    assert end in ("damaged", "newer", "sound"), (case, end)
    if end == "sound":
        assert rows_of(folder) == before, case
    return end != "sound"


def damage(data: bytearray, older: bytes, random: Random) -> str:
    """Do one thing to the file, mostly to what is in use; return what."""
    pages = len(data) // PAGE
    page = random.randrange(pages)
    at = page * PAGE
    match random.choice(("bit", "bit", "head", "zero", "stale", "swap", "cut", "noise")):
        case "bit":
            place, bit = at + random.randrange(PAGE), random.randrange(8)
            data[place] ^= 1 << bit
            return f"bit {bit} of byte {place}"
        case "head":
            place, bit = at + random.randrange(64), random.randrange(8)
            data[place] ^= 1 << bit
            return f"bit {bit} of byte {place}, in the head of page {page}"
        case "zero":
            data[at : at + PAGE] = bytes(PAGE)
            return f"page {page} zeroed"
        case "stale":
            data[at : at + PAGE] = older[at : at + PAGE].ljust(PAGE, b"\0")
            return f"page {page} as it was"
        case "swap":
            other = random.randrange(pages) * PAGE
            data[at : at + PAGE] = data[other : other + PAGE]
            return f"page {page} is what page {other // PAGE} is"
        case "cut":
            size = random.randrange(len(data))
            del data[size:]
            return f"cut to {size}"
        case _:
            size = random.randrange(1, 600)
            start = random.randrange(len(data) - size)
            data[start : start + size] = random.randbytes(size)
            return f"{size} bytes of noise from {start}"


def cases(folder: Path, seed: int, count: int) -> Iterator[str]:
    """Damage the file anew for each case; the store's own bytes are back at the end."""
    data = folder / "data.mdb"
    sound = data.read_bytes()
    olders = [path.read_bytes() for path in sorted(folder.parent.glob("older-*"))]
    random = Random(seed)
    for number in range(count):
        changed = bytearray(sound)
        what = damage(changed, random.choice(olders), random)
        data.write_bytes(changed)
        yield f"case {number} of seed {seed}: {what}"
    data.write_bytes(sound)


def test_any_damage_is_refused_or_changes_no_row(folder: Path) -> None:
    before = rows_of(folder)
    refused = [judge(folder, before, case) for case in cases(folder, 1, IN_PROCESS_CASES)]
    assert sum(refused) > IN_PROCESS_CASES // 3, "hardly any case met what is in use"
    assert not all(refused), "what is free may hold anything"
    assert not judge(folder, before, "sound again")


def test_every_bit_of_the_meta_pages(folder: Path) -> None:
    """Also those that make the older of two commits look like the newest."""
    before = rows_of(folder)
    data = folder / "data.mdb"
    sound = data.read_bytes()
    for page in (0, 1):
        for place in range(page * PAGE, page * PAGE + META_BYTES):
            with data.open("r+b") as file:
                for bit in range(8):
                    os.pwrite(file.fileno(), bytes((sound[place] ^ 1 << bit,)), place)
                    judge(folder, before, f"bit {bit} of byte {place}")
                os.pwrite(file.fileno(), sound[place : place + 1], place)


def test_the_whole_way_of_a_start(folder: Path) -> None:
    """Through the checking process: who asks gets the error, or a store with the same rows."""
    before = {key: value[:-4] for key, value in rows_of(folder).items() if key != TOTALS_KEY}
    kept = (folder / MARK_FILE).read_bytes()
    for case in cases(folder, 2, WHOLE_WAY_CASES):
        (folder / MARK_FILE).write_bytes(kept)
        damaged_bytes = (folder / "data.mdb").read_bytes()
        refusal = ""
        try:
            store = LmdbStore(str(folder), MAP_SIZE)
        except DamagedStore as error:
            refusal = str(error)
        if refusal:
            assert "`dledger repair`" in refusal, case
            assert (folder / "data.mdb").read_bytes() == damaged_bytes, "left for inspection"
            continue
        assert dict(store.scan(b"\0", b"\xff", 10_000)) == before, case
        store.close()


def test_a_row_that_changed_after_the_start_is_refused_on_read(tmp_path: Path) -> None:
    """Get, scan both ways, and a save that replaces or deletes it; the text names the row."""
    key = QUEUE + b"struck"

    def struck(name: str) -> LmdbStore:
        store = LmdbStore(str(tmp_path / name), MAP_SIZE)
        store.put(key, b"value that is struck" * 10)
        store.put(QUEUE + b"t", b"sound")
        save(store)
        store.close()
        store = LmdbStore(str(tmp_path / name), MAP_SIZE)
        data = (tmp_path / name / "data.mdb").read_bytes()
        at = data.index(b"value that is struck")
        while at >= 0:
            with (tmp_path / name / "data.mdb").open("r+b") as file:
                file.seek(at)
                file.write(b"V")
            at = data.find(b"value that is struck", at + 200)
        return store

    def replaced(store: LmdbStore) -> None:
        store.put(key, b"new")
        save(store)

    def deleted(store: LmdbStore) -> None:
        store.delete(key)
        save(store)

    def scanned(store: LmdbStore) -> None:
        store.scan(QUEUE, b"\x21", 10)

    def scanned_back(store: LmdbStore) -> None:
        store.scan(QUEUE, b"\x21", 10, reverse=True)

    def got(store: LmdbStore) -> None:
        store.get(key)

    words = f"table 20, key {b'struck'.hex()}: the row does not match its seal.*dledger repair"
    reads: list[Callable[[LmdbStore], None]] = [got, scanned, scanned_back, replaced, deleted]
    for number, read in enumerate(reads):
        store = struck(str(number))
        assert store.get(QUEUE + b"t") == b"sound"
        with pytest.raises(DamagedStore, match=words):
            read(store)
        store.close()


def test_a_lost_row_is_noticed_by_the_totals(folder: Path) -> None:
    """LMDB itself removes it: no page is wrong."""
    with (
        lmdb.open(str(folder), map_size=MAP_SIZE) as environment,
        environment.begin(write=True) as transaction,
        transaction.cursor() as cursor,
    ):
        assert cursor.set_range(QUEUE)
        transaction.delete(cursor.key())
        totals = transaction.id()
    with pytest.raises(DamagedStore, match=f"commit {totals} has the totals of {totals - 1}"):
        LmdbStore(str(folder), MAP_SIZE)


def test_totals_are_those_of_the_rows(folder: Path) -> None:
    """After any mixture of writes, also with rows whose seals are no longer remembered."""
    store = LmdbStore(str(folder), MAP_SIZE)
    fill(store, Random(11), 3)
    store.close()
    rows = rows_of(folder)
    sealed = rows.pop(TOTALS_KEY)
    checked = check_store(str(folder), whole=True)
    assert checked.totals is not None
    assert checked.totals.rows == len(rows)
    assert checked.totals.encode() == sealed
    sums = sum(int.from_bytes(value[-4:], "little") for value in rows.values())
    assert checked.totals.seals == sums % (1 << 64)


def test_an_older_file_is_refused(folder: Path, tmp_path: Path) -> None:
    """The mark knows of a later commit; also when the file is empty or gone."""
    shutil.copy(tmp_path / "older-2", folder / "data.mdb")
    with pytest.raises(DamagedStore, match="the data file is not the newest: found commit 10 "):
        LmdbStore(str(folder), MAP_SIZE)
    (folder / "data.mdb").write_bytes(b"")
    with pytest.raises(DamagedStore, match="found commit 0 with 0 rows"):
        LmdbStore(str(folder), MAP_SIZE)
    (folder / "data.mdb").unlink()
    with pytest.raises(DamagedStore, match="found commit 0 with 0 rows"):
        LmdbStore(str(folder), MAP_SIZE)
    assert not (folder / "data.mdb").exists()


def test_a_mark_of_before_stays_true(folder: Path) -> None:
    """A process that was killed left it behind."""
    before = (folder / MARK_FILE).read_bytes()
    store = LmdbStore(str(folder), MAP_SIZE)
    store.put(QUEUE + b"later", b"1")
    save(store)
    store.close()
    (folder / MARK_FILE).write_bytes(before)
    store = LmdbStore(str(folder), MAP_SIZE)
    assert store.get(QUEUE + b"later") == b"1"
    store.close()
    for at in range(len(before)):
        changed = bytearray(before)
        changed[at] ^= 1
        (folder / MARK_FILE).write_bytes(changed)
        assert verdict_of(str(folder), whole=False)["end"] == "damaged", at


def test_a_large_store_is_walked_in_part_at_a_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage of a leaf waits for repair, or for who reads the row; branches do not wait."""
    monkeypatch.setattr(lmdb_check, "PAGES_AT_START", 25)
    with PageFile(str(folder / "data.mdb")) as file:
        assert file.newest.pages > 25 >= file.newest.free.pages + file.newest.rows.branch_pages
        root = file.newest.rows.root
    data = bytearray((folder / "data.mdb").read_bytes())
    row = next(value for value in rows_of(folder).values() if len(value) == 304)
    place = data.index(row)
    data[place] ^= 1
    (folder / "data.mdb").write_bytes(data)
    assert verdict_of(str(folder), whole=False)["end"] == "sound"
    assert "does not match its seal" in str(verdict_of(str(folder), whole=True)["text"])
    data[place] ^= 1
    data[root * PAGE + 10] ^= 2
    (folder / "data.mdb").write_bytes(data)
    assert f"page {root}: " in str(verdict_of(str(folder), whole=False)["text"])


@pytest.mark.parametrize(
    ("code", "error", "match"),
    [
        (-signal.SIGSEGV, DamagedStore, "ended by SIGSEGV.*`dledger repair`"),
        (-signal.SIGBUS, DamagedStore, "ended by SIGBUS"),
        (-signal.SIGXCPU, DamagedStore, "ended by SIGXCPU"),
        (-signal.SIGKILL, StoreFailed, "was ended by SIGKILL"),
        (-signal.SIGTERM, StoreFailed, "was ended by SIGTERM"),
        (1, StoreFailed, "ended with 1: .'a bug'."),
    ],
)
def test_what_the_end_of_the_checking_process_means(
    code: int, error: type[StoreFailed], match: str
) -> None:
    with pytest.raises(error, match=match) as found:
        read_verdict("f", code, b"", b"a bug")
    assert isinstance(found.value, DamagedStore) == (error is DamagedStore)


def test_the_death_of_the_checking_process_is_not_ours(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Really killed by a signal: what asks lives on and has the error."""
    script = tmp_path / "crash"
    script.write_text("#!/bin/sh\nkill -SEGV $$\n")
    script.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(script))
    with pytest.raises(DamagedStore, match="ended by SIGSEGV"):
        LmdbStore(str(folder), MAP_SIZE)


@pytest.mark.parametrize("number", [1, 12, 13, 28])
def test_a_refusal_of_the_system_is_no_damage(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """EPERM, ENOMEM, EACCES, ENOSPC."""

    def refuse(path: str) -> PageFile:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(lmdb_check, "PageFile", refuse)
    verdict = verdict_of(str(folder), whole=False)
    assert (verdict["end"], verdict["errno"]) == ("refused", number)


@pytest.mark.parametrize("error", [lmdb.PanicError("MDB_PANIC"), lmdb.BadTxnError("MDB_BAD_TXN")])
def test_what_lmdb_says_after_a_failed_write_is_no_damage(error: lmdb.Error) -> None:
    """Such a store failed; its file holds the commit before."""
    assert not isinstance(failure("f", "it cannot be read", error), DamagedStore)


def test_other_formats_are_refused(tmp_path: Path) -> None:
    """And a later format is none of damage."""
    for value, error, match in (
        (b"DLST\x01\0\0\0", DamagedStore, "format version 1, whose rows have no seals"),
        (seal(FORMAT_KEY, b"DLST\x02\0\0\0"), DamagedStore, "format version 2, whose topics"),
        (seal(FORMAT_KEY, b"DLST\x04\0\0\0"), NewerStore, "format version 4, this dledger knows 3"),
    ):
        with (
            lmdb.open(str(tmp_path), map_size=MAP_SIZE) as environment,
            environment.begin(write=True) as transaction,
        ):
            transaction.put(FORMAT_KEY, value)
        with pytest.raises(error, match=match):
            LmdbStore(str(tmp_path), MAP_SIZE, OsFileSystem())


def new_environment(path: Path) -> bytes:
    """Return the file as LMDB leaves it before the first commit."""
    lmdb.open(str(path), map_size=MAP_SIZE).close()
    return (path / DATA_FILE).read_bytes()


CUT_OFF = ["zeros", "one zero page", "the other", "half", "whole", "first page", "no metas", "long"]


@pytest.mark.parametrize("case", CUT_OFF)
def test_a_creation_that_was_cut_off_is_a_new_store(tmp_path: Path, case: str) -> None:
    """A power cut may leave the file's length without its content, or a part of it."""
    made = new_environment(tmp_path / "made")
    assert len(made) == 2 * PAGE
    left = {
        "zeros": bytes(2 * PAGE),
        "one zero page": bytes(PAGE) + made[PAGE:],
        "the other": made[:PAGE] + bytes(PAGE),
        "half": made[:PAGE],
        "whole": made,
        "first page": made + b"what the first commit writes before its meta page".ljust(PAGE, b"."),
        "no metas": bytes(2 * PAGE) + b"the same".ljust(PAGE, b"."),
        "long": made + bytes(PAGE),
    }[case]
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / DATA_FILE).write_bytes(left)
    assert check_store(str(folder)).totals is None
    store = LmdbStore(str(folder), MAP_SIZE)
    store.put(QUEUE + b"key", b"value")
    save(store)
    store.close()
    assert check_store(str(folder), whole=True).totals is not None


def test_zeros_where_a_store_was_are_damage(folder: Path) -> None:
    """With its mark beside it, or behind its first pages: somebody wrote here."""
    data = folder / DATA_FILE
    whole = data.read_bytes()
    data.write_bytes(bytes(2 * PAGE))
    with pytest.raises(DamagedStore, match="not the newest"):
        check_store(str(folder))
    (folder / MARK_FILE).unlink()
    assert len(whole) > 3 * PAGE
    for left in (bytes(2 * PAGE), whole[:PAGE] + bytes(PAGE), bytes(PAGE) + whole[PAGE : 2 * PAGE]):
        data.write_bytes(left + whole[2 * PAGE :])
        with pytest.raises(DamagedStore, match="meta page"):
            check_store(str(folder))
