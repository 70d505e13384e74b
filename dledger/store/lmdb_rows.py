"""LMDB's data file read without LMDB: every field of its pages is checked before it is used.

Owns: the page format of LMDB 0.9 (data version 1) on a 64-bit little-endian machine, as far as the
state store uses it: one unnamed database, and the list of free pages. Not: what rows mean. liblmdb
does not check what it reads, so a flipped bit can send it outside of its map. This module raises
`DamagedPages` instead.

    page      number u64, pad u16, flags u16, then lower u16, upper u16, or the count u32 of an
              overflow page; 16 bytes in all
    branch    flags 1; u16 offset of each node up to `lower`; nodes from `upper` to the page's end
    leaf      flags 2; the same
    overflow  flags 4; a value that is too large for a leaf, over `count` pages
    meta      flags 8; pages 0 and 1, of which each commit writes one: commit number modulo 2
    node      size u32 (in a branch the child's number, 48 bits), flags u16, key size u16, key,
              then the value, or with flag 1 the number u64 of its overflow page
    meta page from byte 16: magic u32, version u32, address u64, map size u64, two trees of 48
              bytes (free pages, rows), last page u64, commit u64
    tree      pad u32 (in the first: the page size), flags u16, depth u16, branch, leaf and
              overflow pages, entries, root: u64 each

A commit never touches the pages of the commit before it, so both trees can be read. Free pages are
rows of the first tree: by commit, u64 count and that many page numbers.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

DATA_FILE: Final = "data.mdb"
PAGE_SIZES: Final = (4096, 8192, 16384, 32768)
META_COUNT: Final = 2
BLANK_PAGES_MAX: Final = META_COUNT + 1
BLANK_SIZE_MAX: Final = BLANK_PAGES_MAX * PAGE_SIZES[-1]
DEPTH_MAX: Final = 32
NO_PAGE: Final = (1 << 64) - 1

_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_BRANCH: Final = 1
_LEAF: Final = 2
_OVERFLOW: Final = 4
_META: Final = 8
_BIG_VALUE: Final = 1
_INTEGER_KEYS: Final = 8
_HEADER: Final = struct.Struct("<QHHHH")
_COUNT: Final = struct.Struct("<I")
_NODE: Final = struct.Struct("<HHHH")
_U64: Final = struct.Struct("<Q")
_META_START: Final = struct.Struct("<IIQQ")
_TREE: Final = struct.Struct("<IHHQQQQQ")
_META_END: Final = struct.Struct("<QQ")
_META_SIZE: Final = _HEADER.size + _META_START.size + 2 * _TREE.size + _META_END.size
_UNSEEN: Final = 0
_USED: Final = 1
_FREE: Final = 2

Row = tuple[bytes, bytes]


class DamagedPages(ValueError):
    """The file is not what LMDB wrote; says where and why."""


class NewerPages(ValueError):
    """Both meta pages name a later data version."""


@dataclass(frozen=True, slots=True)
class Tree:
    """What a meta page says of a tree."""

    page_size: int
    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int

    @property
    def pages(self) -> int:
        """Return how many pages the tree has."""
        return self.branch_pages + self.leaf_pages + self.overflow_pages


@dataclass(frozen=True, slots=True)
class Meta:
    """One meta page."""

    free: Tree
    rows: Tree
    last_page: int
    commit: int

    @property
    def pages(self) -> int:
        """Return how many pages the trees have."""
        return self.free.pages + self.rows.pages


class PageFile:
    """An open data file. OSError when the disk refuses; DamagedPages for anything that is wrong."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.fstat(self._fd).st_size
            self.page_size = PAGE_SIZES[0]
            self.older, self.newest = self._read_metas()
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        """Close."""
        os.close(self._fd)

    def __enter__(self) -> "PageFile":
        """Return the open file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def read(self, number: int, count: int = 1) -> bytes:
        """Return whole pages."""
        size = count * self.page_size
        data = os.pread(self._fd, size, number * self.page_size)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), number * self.page_size + len(data))
            if not more:
                raise DamagedPages(f"page {number}: the file ends within it")
            data += more
        return data

    def _read_metas(self) -> tuple[Meta, Meta]:
        start = self.read(0)
        (page_size,) = _COUNT.unpack_from(start, _HEADER.size + _META_START.size)
        if page_size not in PAGE_SIZES:
            _parse_meta(0, start)  # raises when this is no file of LMDB at all
            raise DamagedPages(f"meta page 0: page size {page_size}")
        self.page_size = page_size
        pages = [self.read(number) for number in range(META_COUNT)]
        versions = {_COUNT.unpack_from(page, _HEADER.size + 4)[0] for page in pages}
        if len(versions) == 1 and min(versions) > _VERSION:
            raise NewerPages(f"LMDB data version {min(versions)}, known is {_VERSION}")
        older, newest = sorted(
            (_parse_meta(number, page) for number, page in enumerate(pages)),
            key=lambda meta: meta.commit,
        )
        _check_metas(older, newest, page_size)
        self._check_size(newest)
        return older, newest

    def _free(self, meta: Meta) -> set[int]:
        """Return the free pages; none when the file is so short that it lacks their list."""
        try:
            return set(Walk(self, meta).take_free_list())
        except DamagedPages:
            return set()

    def _check_size(self, newest: Meta) -> None:
        """Raise DamagedPages if the file ends before its last pages and these are not free.

        LMDB never writes a page that one transaction takes and frees again. Only the free list
        names such a page.
        """
        present = self.size // self.page_size
        count = newest.last_page + 1 - present
        if count <= 0:
            return
        # In a damaged file the last page may be any number: first ask how many pages can be free.
        room = min(newest.free.pages, present) * self.page_size // _U64.size
        if count > room or not self._free(newest).issuperset(range(present, newest.last_page + 1)):
            raise DamagedPages(
                f"{DATA_FILE} has {self.size} bytes, its newest commit needs "
                f"{(newest.last_page + 1) * self.page_size}"
            )


def is_blank(content: bytes) -> bool:
    """Tell whether a file with this content never had a commit, for its creation was cut off.

    LMDB writes both meta pages of commit 0 at once and does not sync them. The first commit writes
    and syncs the third page, and then its own meta page.
    """
    least = min(PAGE_SIZES)
    if len(content) < META_COUNT * least:  # the write of both meta pages was cut short
        return len(content) < least or _is_blank_meta(0, content[:least], least)
    return any(
        len(content) <= BLANK_PAGES_MAX * size
        and all(
            _is_blank_meta(number, content[number * size : (number + 1) * size], size)
            for number in range(META_COUNT)
        )
        for size in PAGE_SIZES
    )


def _is_blank_meta(number: int, page: bytes, size: int) -> bool:
    if not any(page):
        return True
    try:
        meta = _parse_meta(number, page) if len(page) == size else None
    except DamagedPages:
        return False
    return meta is not None and meta.commit == 0 and meta.free.page_size == size


def _parse_meta(number: int, page: bytes) -> Meta:
    found, _, flags, _, _ = _HEADER.unpack_from(page)
    magic, version, _, _ = _META_START.unpack_from(page, _HEADER.size)
    if magic != _MAGIC or version != _VERSION:
        raise DamagedPages(f"meta page {number}: magic {magic:08x}, version {version}")
    if found != number or flags != _META:
        raise DamagedPages(f"meta page {number}: says number {found}, flags {flags:#x}")
    at = _HEADER.size + _META_START.size
    free, rows = (Tree(*_TREE.unpack_from(page, at + n * _TREE.size)) for n in (0, 1))
    last_page, commit = _META_END.unpack_from(page, _META_SIZE - _META_END.size)
    if commit and commit % META_COUNT != number:
        raise DamagedPages(f"meta page {number}: commit {commit}")
    if free.flags != _INTEGER_KEYS or rows.flags or rows.page_size:
        raise DamagedPages(f"meta page {number}: tree flags {free.flags:#x}, {rows.flags:#x}")
    for tree in (free, rows):
        if (tree.root == NO_PAGE) != (tree.depth == 0) or tree.depth > DEPTH_MAX:
            raise DamagedPages(f"meta page {number}: root {tree.root} at depth {tree.depth}")
        if (tree.root == NO_PAGE) != (tree.entries == 0):
            raise DamagedPages(f"meta page {number}: {tree.entries} entries at root {tree.root}")
        if tree.pages > last_page:
            raise DamagedPages(f"meta page {number}: {tree.pages} pages of {last_page + 1}")
    return Meta(free, rows, last_page, commit)


def _check_metas(older: Meta, newest: Meta, page_size: int) -> None:
    """Check that one commit follows the other, or that both are commit 0 of a new file."""
    if newest.commit != older.commit + 1 and newest.commit + older.commit:
        raise DamagedPages(f"meta pages: commits {older.commit} and {newest.commit}")
    if {older.free.page_size, newest.free.page_size} != {page_size}:
        raise DamagedPages(f"meta pages: page size {page_size} and another")
    if older.last_page > newest.last_page or older.last_page < 1:
        raise DamagedPages(f"meta pages: last pages {older.last_page} and {newest.last_page}")


class Walk:
    """Goes over the pages of one commit, each of which may be used once."""

    def __init__(self, file: PageFile, meta: Meta) -> None:
        self._file = file
        self._meta = meta
        self._seen = bytearray(meta.last_page + 1)
        self._seen[:META_COUNT] = bytes((_USED,)) * META_COUNT
        self._branches = self._leaves = self._overflows = self._entries = 0

    def rows(self) -> Iterator[list[Row]]:
        """Yield all rows, leaf by leaf; then check the counts, and that no page is lost."""
        self.take_free_list()
        yield from self._walk_tree(self._meta.rows, reverse_keys=False)
        lost = self._seen.find(_UNSEEN)
        if lost >= 0:
            raise DamagedPages(f"page {lost}: neither used nor free")

    def branches(self) -> None:
        """Check the free list and the branch pages: where each leaf lies, not what it holds."""
        self.take_free_list()
        for _ in self._walk_tree(self._meta.rows, reverse_keys=False, with_leaves=False):
            pass

    def range(self, start: bytes, stop: bytes, *, reverse: bool = False) -> Iterator[list[Row]]:
        """Yield the rows with start <= key < stop; reads no page that cannot hold any.

        `reverse`: from the last one down.
        """
        for rows in self._leaf_rows(self._meta.rows, start, stop, descending=reverse):
            if rows:
                yield rows[::-1] if reverse else rows

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        for rows in self.range(key, key + b"\0"):
            return rows[0][1]
        return None

    def _walk_tree(
        self, tree: Tree, *, reverse_keys: bool, with_leaves: bool = True
    ) -> Iterator[list[Row]]:
        self._branches = self._leaves = self._overflows = self._entries = 0
        yield from self._leaf_rows(
            tree, b"", None, reverse_keys=reverse_keys, with_leaves=with_leaves
        )
        found = [self._branches, self._leaves]
        wanted = [tree.branch_pages, tree.leaf_pages]
        if with_leaves:
            found += [self._overflows, self._entries]
            wanted += [tree.overflow_pages, tree.entries]
        if found != wanted:
            raise DamagedPages(
                f"tree of root {tree.root}: branch, leaf, overflow pages and entries are {found}, "
                f"its meta page says {wanted}"
            )

    def _leaf_rows(
        self,
        tree: Tree,
        start: bytes,
        stop: bytes | None,
        *,
        reverse_keys: bool = False,
        with_leaves: bool = True,
        descending: bool = False,
    ) -> Iterator[list[Row]]:
        """Yield the rows of the range, leaf by leaf, in order or with the last leaf first."""
        if tree.root == NO_PAGE:
            return
        stack: list[tuple[int, int, bytes, bytes | None]] = [(tree.root, 1, b"", None)]
        while stack:
            number, level, low, high = stack.pop()
            self._claim(number)
            if level == tree.depth:
                self._leaves += 1
                if with_leaves:
                    yield self._leaf(number, low, high, start, stop, reverse_keys=reverse_keys)
                continue
            self._branches += 1
            children = self._branch(number, low, high, reverse_keys=reverse_keys)
            for child, first, end in children if descending else reversed(children):
                if (stop is None or first < stop) and (end is None or end > start):
                    stack.append((child, level + 1, first, end))

    def _claim(self, number: int, count: int = 1) -> None:
        if number < META_COUNT or number + count > len(self._seen):
            raise DamagedPages(
                f"page {number}: {count} from there, the last one is {len(self._seen) - 1}"
            )
        for each in range(number, number + count):
            if self._seen[each] != _UNSEEN:
                raise DamagedPages(f"page {each}: used twice, or used and free")
            self._seen[each] = _USED

    def _nodes(self, number: int, flags: int) -> tuple[bytes, int, tuple[int, ...]]:
        """Return a page, where its nodes begin, and the offset of each."""
        page = self._file.read(number)
        found, _, found_flags, lower, upper = _HEADER.unpack_from(page)
        if found != number or found_flags != flags:
            raise DamagedPages(
                f"page {number}: says number {found}, flags {found_flags:#x}, wanted {flags:#x}"
            )
        count, odd = divmod(lower - _HEADER.size, 2)
        if count < 1 or odd or not lower <= upper <= len(page):
            raise DamagedPages(f"page {number}: lower {lower}, upper {upper}")
        offsets = struct.unpack_from(f"<{count}H", page, _HEADER.size)
        if min(offsets) < upper or max(offsets) > len(page) - _NODE.size:
            raise DamagedPages(f"page {number}: a node outside of it")
        return page, upper, offsets

    def _branch(
        self, number: int, low: bytes, high: bytes | None, *, reverse_keys: bool
    ) -> list[tuple[int, bytes, bytes | None]]:
        """Return the children with the bounds of their keys."""
        page, upper, offsets = self._nodes(number, _BRANCH)
        if len(offsets) < 2 and not reverse_keys:
            raise DamagedPages(f"page {number}: a branch with one child")
        numbers: list[int] = []
        keys: list[bytes] = []
        used = 0
        for at in offsets:
            first, second, third, key_size = _NODE.unpack_from(page, at)
            end = at + _NODE.size + key_size
            key = page[at + _NODE.size : end]
            used += (end - at + 1) & ~1
            if end > len(page):
                raise DamagedPages(f"page {number}: a node outside of it")
            numbers.append(first | second << 16 | third << 32)
            keys.append(key[::-1] if reverse_keys else key)
        if used != len(page) - upper:
            raise DamagedPages(f"page {number}: nodes of {used} bytes from {upper}")
        keys[0] = low  # LMDB leaves the first key of a branch empty or outdated
        for before, after in pairwise(keys):
            if before >= after:
                raise DamagedPages(f"page {number}: keys not ascending")
        if high is not None and keys[-1] >= high:
            raise DamagedPages(f"page {number}: a key outside of its bounds")
        return list(zip(numbers, keys, [*keys[1:], high], strict=True))

    def _leaf(
        self,
        number: int,
        low: bytes,
        high: bytes | None,
        start: bytes,
        stop: bytes | None,
        *,
        reverse_keys: bool,
    ) -> list[Row]:
        """Return the rows of the range; the large values of other rows are not read."""
        page, upper, offsets = self._nodes(number, _LEAF)
        page_size = len(page)
        unpack = _NODE.unpack_from
        rows: list[Row] = []
        used = 0
        first: bytes | None = None
        before = b""
        for at in offsets:
            size_low, size_high, flags, key_size = unpack(page, at)
            data_at = at + 8 + key_size
            if flags == 0:
                end = data_at + (size_low | size_high << 16)
            elif flags == _BIG_VALUE:
                end = data_at + _U64.size
            else:
                raise DamagedPages(f"page {number}: node flags {flags:#x}")
            if end > page_size:
                raise DamagedPages(f"page {number}: a node outside of it")
            key = page[at + 8 : data_at]
            if reverse_keys:
                key = key[::-1]
            if key <= before:
                raise DamagedPages(f"page {number}: keys not ascending")
            before = key
            used += (end - at + 1) & -2
            if first is None:
                first = key
            if key < start or (stop is not None and key >= stop):
                continue
            value = page[data_at:end]
            if flags:
                value = self._overflow(_U64.unpack(value)[0], size_low | size_high << 16)
            rows.append((key, value))
        if used != page_size - upper:
            raise DamagedPages(f"page {number}: nodes of {used} bytes from {upper}")
        if first is None or first < low or (high is not None and before >= high):
            raise DamagedPages(f"page {number}: a key outside of its bounds")
        self._entries += len(rows)
        return rows

    def _overflow(self, number: int, size: int) -> bytes:
        if not META_COUNT <= number < len(self._seen):
            raise DamagedPages(f"page {number}: the last one is {len(self._seen) - 1}")
        start = self._file.read(number)
        found, _, flags, _, _ = _HEADER.unpack_from(start)
        (count,) = _COUNT.unpack_from(start, _HEADER.size - _COUNT.size)
        if found != number or flags != _OVERFLOW:
            raise DamagedPages(f"page {number}: says number {found}, flags {flags:#x}, wanted 0x4")
        if count * self._file.page_size < _HEADER.size + size:
            raise DamagedPages(f"page {number}: {count} pages for {size} bytes")
        self._claim(number, count)
        self._overflows += count
        return self._file.read(number, count)[_HEADER.size : _HEADER.size + size]

    def take_free_list(self) -> list[int]:
        """Mark the pages that the next commits may use, and return them."""
        listed: list[int] = []
        for rows in self._walk_tree(self._meta.free, reverse_keys=True):
            for key, value in rows:
                count = _U64.unpack_from(value)[0] if len(value) >= _U64.size else 0
                if len(key) != _U64.size or not 0 < count <= len(value) // _U64.size - 1:
                    raise DamagedPages(f"free list of commit {key.hex()}: {count} pages")
                listed += struct.unpack_from(f"<{count}Q", value, _U64.size)
        for number in listed:
            if not META_COUNT <= number < len(self._seen) or self._seen[number] != _UNSEEN:
                raise DamagedPages(f"page {number}: free, and used or free twice")
            self._seen[number] = _FREE
        return listed
