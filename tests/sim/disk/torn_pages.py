"""What of LMDB's file is there after a power cut, page by page: pure functions of two contents.

Owns: which pages survive. `before` and `now` are the file before and after a commit. LMDB writes
the data pages of a commit where pages were free, syncs them, and then writes one of the two meta
pages at the file's begin. A meta page is written within one sector, so it is old or new.
"""

from random import Random
from typing import Final

from dledger.store.lmdb_rows import META_COUNT, PAGE_SIZES

PAGE_SIZE: Final = PAGE_SIZES[0]
METAS_END: Final = META_COUNT * PAGE_SIZE


def torn(before: bytes, now: bytes, random: Random) -> bytes:
    """Return the file after a power cut that came while a commit was under way."""
    how = random.randrange(4)
    if how == 0:
        return before
    if how == 1:
        return now
    return _mixed(before, now, random, since=META_COUNT, chance=random.random())


def cut_off_creation(before: bytes | None, now: bytes, random: Random) -> bytes:
    """Return the file when nothing was ever synced: LMDB made it, or also began its first commit.

    `before`: the file without that commit; None when no commit began.
    """
    made = now if before is None else before
    how = random.randrange(4)
    if how == 0:
        return now
    if how == 1:
        return made[: random.randrange(len(made) + 1)]
    pages = [random.choice((page, bytes(len(page)))) for page in _pages(made[:METAS_END])]
    return b"".join(pages) + (now[METAS_END:] if how == 2 else b"")


def back_in_time(old: bytes, now: bytes, random: Random) -> bytes:
    """Return the file of a disk that lied: pages that were synced are as they were at `old`."""
    how = random.randrange(5)
    if how == 0:
        return old
    if how == 1:  # the meta pages fell back
        return old[:METAS_END] + now[METAS_END:]
    if how == 2:  # one data page fell back
        return _with_one_of(old, now, random)
    if how == 3:
        return _mixed(old, now, random, 0, random.random())
    return now[: PAGE_SIZE * random.randrange(META_COUNT, len(now) // PAGE_SIZE + 1)]


def _with_one_of(old: bytes, now: bytes, random: Random) -> bytes:
    """Return `now` with one of the data pages that differ as it is in `old`."""
    differ = [
        number
        for number, page in enumerate(_pages(old))
        if number >= META_COUNT and page != now[number * PAGE_SIZE : (number + 1) * PAGE_SIZE]
    ]
    if not differ:
        return old
    at = PAGE_SIZE * random.choice(differ)
    return now[:at] + old[at : at + PAGE_SIZE] + now[at + PAGE_SIZE :]


def _mixed(old: bytes, now: bytes, random: Random, since: int, chance: float) -> bytes:
    """Return `old` with each page from `since` on that differs as it is now, by chance."""
    mixed = bytearray(old)
    for number, page in enumerate(_pages(now)):
        at = number * PAGE_SIZE
        if number >= since and old[at : at + PAGE_SIZE] != page and random.random() < chance:
            mixed.extend(bytes(max(0, at - len(mixed))))
            mixed[at : at + PAGE_SIZE] = page
    return bytes(mixed)


def _pages(content: bytes) -> list[bytes]:
    return [content[at : at + PAGE_SIZE] for at in range(0, len(content), PAGE_SIZE)]
