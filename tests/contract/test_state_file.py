"""LMDB's file read without LMDB: the same rows, the same counts, and each sentence is checked."""

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import lmdb
import pytest

from dledger.store.lmdb_rows import DamagedPages, NewerPages, PageFile, Walk

MAP_SIZE = 1 << 28
PAGE = 4096
SIZES: dict[str, Callable[[Random], int]] = {
    "small": lambda random: random.randrange(60),
    "a page each": lambda random: random.randrange(1_800, 2_100),
    "large": lambda random: random.choice((0, 4_000, 4_064, 4_096, 20_000)),
    "all": lambda random: random.choice((0, 30, 900, 2_020, 2_040, 4_090, 60_000)),
}


def write(environment: lmdb.Environment, random: Random, size: Callable[[Random], int]) -> None:
    with environment.begin(write=True) as transaction:
        for _ in range(random.randrange(1, 400)):
            key = b"%d" % random.randrange(3_000) + b"k" * random.choice((0, 0, 0, 30, 480))
            if random.random() < 0.4:
                transaction.delete(key)
            else:
                transaction.put(key, random.randbytes(size(random)))


@pytest.mark.parametrize("name", SIZES)
def test_rows_equal_what_lmdb_reads(tmp_path: Path, name: str) -> None:
    """After each of many commits, with pages freed and used again; the older commit too."""
    random = Random(name)
    before: list[tuple[bytes, bytes]] = []
    with lmdb.open(str(tmp_path), map_size=MAP_SIZE, sync=False) as environment:
        for step in range(25):
            write(environment, random, SIZES[name])
            with environment.begin() as transaction, transaction.cursor() as cursor:
                rows = [(bytes(key), bytes(value)) for key, value in cursor]
            with PageFile(str(tmp_path / "data.mdb")) as file:
                assert file.newest.commit == step + 1
                assert [row for leaf in Walk(file, file.newest).rows() for row in leaf] == rows
                assert [row for leaf in Walk(file, file.older).rows() for row in leaf] == before
                Walk(file, file.newest).branches()
                start, stop = sorted((b"%d" % random.randrange(3_000), b"%d" % step))
                ranged = [r for leaf in Walk(file, file.newest).range(start, stop) for r in leaf]
                assert ranged == [row for row in rows if start <= row[0] < stop]
                for key, value in random.sample(rows, min(5, len(rows))):
                    assert Walk(file, file.newest).get(key) == value
                assert Walk(file, file.newest).get(b"nothing") is None
            before = rows
        with environment.begin(write=True) as transaction:
            for key, _ in before:
                transaction.delete(key)
    with PageFile(str(tmp_path / "data.mdb")) as file:
        assert list(Walk(file, file.newest).rows()) == []


def test_a_new_file_has_no_rows(tmp_path: Path) -> None:
    lmdb.open(str(tmp_path), map_size=MAP_SIZE).close()
    with PageFile(str(tmp_path / "data.mdb")) as file:
        assert file.newest.commit == 0
        assert list(Walk(file, file.newest).rows()) == []


@pytest.fixture
def data(tmp_path: Path) -> bytearray:
    """The bytes of a small file: rows of two levels and one overflow page, some pages free."""
    with lmdb.open(str(tmp_path), map_size=MAP_SIZE) as environment:
        for number in range(3):
            with environment.begin(write=True) as transaction:
                for row in range(100):
                    transaction.put(b"k%02d" % row, b"%d" % number * 80)
                transaction.put(b"k50", b"large" * 2_000)
    return bytearray((tmp_path / "data.mdb").read_bytes())


def read(tmp_path: Path, data: bytearray) -> None:
    (tmp_path / "changed").write_bytes(data)
    with PageFile(str(tmp_path / "changed")) as file:
        list(Walk(file, file.newest).rows())


def pages(data: bytearray, flags: int) -> list[int]:
    """Offsets of the pages of a kind that the newest commit's rows use."""
    at = max(
        (PAGE * page for page in (0, 1)), key=lambda at: struct.unpack_from("<Q", data, at + 144)
    )
    (root,) = struct.unpack_from("<Q", data, at + 128)
    count = (struct.unpack_from("<H", data, root * PAGE + 12)[0] - 16) // 2
    nodes = struct.unpack_from(f"<{count}H", data, root * PAGE + 16)
    leaves = [struct.unpack_from("<I", data, root * PAGE + node)[0] * PAGE for node in nodes]
    if flags == 1:
        return [root * PAGE]
    if flags == 2:
        return leaves
    return [
        at for at in range(0, len(data), PAGE)
        if struct.unpack_from("<QHH", data, at)[::2] == (at // PAGE, 4)
    ]  # fmt: skip


def put(data: bytearray, at: int, form: str, value: int) -> None:
    struct.pack_into(form, data, at, value)


def newest_meta(data: bytearray) -> int:
    return max((0, PAGE), key=lambda at: struct.unpack_from("<Q", data, at + 144))


def first_node(data: bytearray, page: int) -> int:
    return page + int(struct.unpack_from("<H", data, page + 16)[0])


def first_leaf_node(data: bytearray, leaf: int = 0) -> int:
    return first_node(data, pages(data, 2)[leaf])


def free_leaf(data: bytearray) -> int:
    """Offset of the page that lists the free ones: it is a root."""
    return PAGE * int(struct.unpack_from("<Q", data, newest_meta(data) + 80)[0])


def list_free(data: bytearray, value: int, *, count: bool = False) -> None:
    """Set the first page number of the list, or how many there are."""
    put(data, first_node(data, free_leaf(data)) + (16 if count else 24), "<Q", value)


Change = Callable[[bytearray], None]
SENTENCES: list[tuple[str, Change, str]] = [
    ("page number", lambda d: put(d, pages(d, 2)[0], "<Q", 3), "says number 3"),
    ("flags", lambda d: put(d, pages(d, 2)[0] + 10, "<H", 0x12), "flags 0x12, wanted 0x2"),
    ("lower", lambda d: put(d, pages(d, 2)[0] + 12, "<H", 17), "lower 17"),
    ("upper", lambda d: put(d, pages(d, 2)[0] + 14, "<H", 5_000), "upper 5000"),
    ("offset", lambda d: put(d, pages(d, 2)[0] + 16, "<H", 4_095), "a node outside of it"),
    ("key size", lambda d: put(d, first_leaf_node(d) + 6, "<H", 60_000), "a node outside"),
    ("node flags", lambda d: put(d, first_leaf_node(d) + 4, "<H", 2), "node flags 0x2"),
    ("value size", lambda d: put(d, first_leaf_node(d), "<H", 4), "nodes of"),
    ("key order", lambda d: put(d, first_leaf_node(d) + 8, "<B", 255), "keys not ascending"),
    ("bounds", lambda d: put(d, first_leaf_node(d, 1) + 8, "<B", 1), "a key outside of its"),
    ("child", lambda d: put(d, first_node(d, pages(d, 1)[0]), "<H", 9_999), "page 9999: 1 from"),
    ("used and free", lambda d: list_free(d, pages(d, 2)[0] // PAGE), "used and free"),
    ("free and out", lambda d: list_free(d, 9_999), "page 9999: free"),
    ("overflow count", lambda d: put(d, pages(d, 4)[-1] + 12, "<I", 1 << 30), "the last one is"),
    ("overflow short", lambda d: put(d, pages(d, 4)[-1] + 12, "<I", 1), "1 pages for 10000 bytes"),
    ("entries", lambda d: put(d, newest_meta(d) + 120, "<Q", 99), "its meta page says"),
    ("depth", lambda d: put(d, newest_meta(d) + 94, "<H", 1), "wanted 0x2"),
    ("deeper than any", lambda d: put(d, newest_meta(d) + 94, "<H", 33), "at depth 33"),
    ("no root", lambda d: put(d, newest_meta(d) + 128, "<Q", (1 << 64) - 1), "root"),
    ("commit", lambda d: put(d, newest_meta(d) + 144, "<Q", 9), "commits 2 and 9"),
    ("slot", lambda d: put(d, newest_meta(d) + 144, "<Q", 4), "meta page 1: commit 4"),
    ("page size", lambda d: put(d, newest_meta(d) + 40, "<I", 8_192), "page size"),
    ("tree flags", lambda d: put(d, newest_meta(d) + 92, "<H", 4), "tree flags"),
    ("last page", lambda d: put(d, newest_meta(d) + 136, "<Q", 1 << 20), "newest commit needs"),
    ("a page in no list", lambda d: list_free(d, 1, count=True), "neither used"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "match"), [s[1:] for s in SENTENCES], ids=[s[0] for s in SENTENCES]
)
def test_each_sentence_is_checked(
    tmp_path: Path, data: bytearray, change: Change, match: str
) -> None:
    read(tmp_path, data)
    change(data)
    with pytest.raises(DamagedPages, match=match):
        read(tmp_path, data)


def test_a_later_data_version_is_no_damage(tmp_path: Path, data: bytearray) -> None:
    """In both meta pages; in one it is."""
    put(data, 20, "<I", 3)
    with pytest.raises(DamagedPages, match="meta page 0: magic beefc0de, version 3"):
        read(tmp_path, data)
    put(data, PAGE + 20, "<I", 3)
    with pytest.raises(NewerPages, match="LMDB data version 3"):
        read(tmp_path, data)


def test_any_cut_is_said(tmp_path: Path, data: bytearray) -> None:
    for size in (1, 100, 4_095, 4_096, 8_191, 8_192, len(data) - 1):
        with pytest.raises(DamagedPages, match=r"the file ends within it|data\.mdb has"):
            read(tmp_path, data[:size])
