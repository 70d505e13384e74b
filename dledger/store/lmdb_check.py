"""Whether a state store may be opened: another process checks it before this one maps it.

Owns: what is checked at a start and what by `dledger repair`, and what the end of the checking
process means. The checks read the file without liblmdb (`lmdb_rows`) and need no process of their
own. A store that passes them is then opened once with liblmdb for trial, which may crash or loop.

Every start checks both meta pages, the totals of both commits, the format, the mark and the file's
length. In a store of up to PAGES_AT_START pages in use a start then checks everything: every page,
every row's seal, the totals. In a larger store it checks the free list and the branch pages, if
these are no more than PAGES_AT_START. There each row is checked when it is read, and only `dledger
repair` checks all rows together. So a start takes no longer for a larger store.

The process may use CPU_SECONDS of processor time and some more for each page. Beyond that SIGXCPU
ends it; a slow disk does not count. SIGKILL and similar signals come from outside and say nothing
about the file.
"""

import contextlib
import errno
import json
import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import lmdb
from crc32c import crc32c

from dledger.store.lmdb_errors import failure
from dledger.store.lmdb_mark import check_mark, read_mark
from dledger.store.lmdb_rows import (
    BLANK_SIZE_MAX,
    DATA_FILE,
    PAGE_SIZES,
    DamagedPages,
    NewerPages,
    PageFile,
    Walk,
    is_blank,
)
from dledger.store.sealed import (
    FORMAT_KEY,
    RESIDUE,
    SEAL_SIZE,
    SUM_MASK,
    TOTALS_KEY,
    Totals,
    check_format,
    damaged,
    damaged_row,
    parse_totals,
    seal_in,
)
from dledger.store.store import DamagedStore, NewerStore, StoreFailed

PAGES_AT_START: Final = 8_192
"""32 MiB of pages of 4 KiB: less than a second."""
CPU_SECONDS: Final = 30
PAGES_PER_CPU_SECOND: Final = 1_000
_CRASHES: Final = frozenset(
    {
        signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGXCPU,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Checked:
    """A store that may be opened. `totals` is None when nothing was ever saved in it."""

    totals: Totals | None
    whole: bool
    """All pages and rows were read."""
    size: int = 0
    """Bytes of the file with all its pages; it may end before, where the last ones are free."""


def check_store(folder: str, *, whole: bool = False) -> Checked:
    """Check a state store that no process has open; `whole`: all of it, however large.

    Blocks. DamagedStore, NewerStore, or StoreFailed when it cannot be told. Changes nothing.
    """
    if is_new(folder):
        return Checked(None, whole=True)
    here = str(Path(__file__).parents[2])
    command = [sys.executable, "-P", "-m", __name__, folder, *(["--whole"] if whole else [])]
    environment = {
        **os.environ,
        # In our order: what stands before the standard library there must not do so here.
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([*filter(None, sys.path), here])),
    }
    try:
        ended = subprocess.run(  # noqa: S603 - our own command
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except (OSError, MemoryError) as error:
        raise StoreFailed(
            errno.EAGAIN, f"state store {folder}: no process to check it: {error}"
        ) from error
    return read_verdict(folder, ended.returncode, ended.stdout, ended.stderr)


def is_new(folder: str) -> bool:
    """Tell whether the data file is missing or was never written to: the store is new then.

    DamagedStore when there was one before.
    """
    try:
        with open(os.path.join(folder, DATA_FILE), "rb") as file:
            start = file.read(BLANK_SIZE_MAX + 1)
    except FileNotFoundError:
        start = b""
    except OSError as error:
        raise failure(folder, f"{DATA_FILE} cannot be read", error) from error
    if len(start) > BLANK_SIZE_MAX or not is_blank(start):
        return False
    try:
        check_mark(folder, read_mark(folder), Totals())
    except OSError as error:
        raise failure(folder, "its mark cannot be read", error) from error
    return True


def read_verdict(folder: str, code: int, out: bytes, errors: bytes) -> Checked:
    """Return or raise what the end of the checking process means."""
    if code < 0:
        name = signal.Signals(-code).name
        if -code in _CRASHES:
            raise damaged(folder, f"LMDB cannot read it: the process that tried ended by {name}")
        raise StoreFailed(
            errno.EINTR, f"state store {folder}: the process that checks it was ended by {name}"
        )
    try:
        verdict = json.loads(out)
    except ValueError:
        said = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise StoreFailed(
            f"state store {folder}: the process that checks it ended with {code}: {said}"
        ) from None
    match verdict["end"]:
        case "sound":
            totals = verdict["totals"]
            return Checked(Totals(**totals), verdict["whole"], verdict["size"])
        case "damaged":
            raise DamagedStore(verdict["text"])
        case "newer":
            raise NewerStore(verdict["text"])
        case _:
            raise StoreFailed(verdict["errno"] or errno.EIO, verdict["text"])


def verdict_of(folder: str, *, whole: bool) -> Mapping[str, object]:
    """Return what the checking process says of a store."""
    try:
        checked = examine(folder, whole=whole)
    except DamagedStore as error:
        return {"end": "damaged", "text": str(error)}
    except NewerStore as error:
        return {"end": "newer", "text": str(error)}
    except (lmdb.Error, OSError, MemoryError) as error:
        found = failure(folder, "it cannot be checked", error)
        end = "damaged" if isinstance(found, DamagedStore) else "refused"
        return {"end": end, "errno": found.errno, "text": found.strerror or str(found)}
    assert checked.totals is not None, "a new store is not examined"
    return {
        "end": "sound",
        "totals": asdict(checked.totals),
        "whole": checked.whole,
        "size": checked.size,
    }


def examine(folder: str, *, whole: bool) -> Checked:
    """Check a store in this process, which LMDB may take down."""
    with reading_pages(folder), PageFile(os.path.join(folder, DATA_FILE)) as file:
        totals = totals_of(folder, file)
        whole |= file.newest.pages <= PAGES_AT_START
        size = (file.newest.last_page + 1) * file.page_size
        if whole:
            _check_rows(folder, Walk(file, file.newest), totals)
        elif file.newest.free.pages + file.newest.rows.branch_pages <= PAGES_AT_START:
            Walk(file, file.newest).branches()
    _try(folder, totals)
    return Checked(totals, whole, size)


@contextlib.contextmanager
def reading_pages(folder: str) -> Generator[None]:
    """Raise DamagedStore or NewerStore for what is wrong with pages that are read within."""
    try:
        yield
    except DamagedPages as error:
        raise damaged(folder, str(error)) from error
    except NewerPages as error:
        raise NewerStore(f"state store {folder}: {error}") from error


def totals_of(folder: str, file: PageFile) -> Totals:
    """Check format and mark, and return the newest totals; those of the commit before must fit it.

    A meta page whose commit number was changed would pass for the older one, and its rows be lost.
    """
    check_format(folder, Walk(file, file.newest).get(FORMAT_KEY))
    found = Totals()
    for meta in (file.older, file.newest):
        if meta.commit:
            sealed = Walk(file, meta).get(TOTALS_KEY)
            if sealed is None:
                raise damaged(folder, f"commit {meta.commit} has no totals")
            found = parse_totals(folder, sealed)
            if found.commit != meta.commit:
                raise damaged(folder, f"commit {meta.commit} has the totals of {found.commit}")
    check_mark(folder, read_mark(folder), found)
    return found


def _check_rows(folder: str, walk: Walk, totals: Totals) -> None:
    count = total = 0
    for rows in walk.rows():
        for key, sealed in rows:
            if len(sealed) < SEAL_SIZE or crc32c(sealed, crc32c(key, len(key))) != RESIDUE:
                raise damaged_row(folder, key)
        # Of a whole leaf at a time: this loop is most of what a start waits for.
        seals = b"".join([sealed[-SEAL_SIZE:] for _, sealed in rows])
        total += sum(struct.unpack(f"<{len(rows)}I", seals))
        count += len(rows)
        if rows[-1][0] == TOTALS_KEY:
            count -= 1
            total -= seal_in(rows[-1][1])
    found = Totals(count, total & SUM_MASK, totals.commit)
    if found != totals:
        raise damaged(
            folder,
            f"rows are missing, too many or not the newest: found {found.describe()}, written "
            f"were {totals.describe()}",
        )


def _try(folder: str, totals: Totals) -> None:
    """Open the store with LMDB, for reading only, and look for the same commit."""
    environment = lmdb.open(
        folder, readonly=True, lock=False, create=False, readahead=False, max_dbs=0
    )
    try:
        with environment.begin() as transaction:
            sealed = transaction.get(TOTALS_KEY)
        if sealed is None or parse_totals(folder, sealed) != totals:
            raise damaged(folder, "LMDB finds other totals than its pages hold")
    finally:
        environment.close()


def _limit_cpu(folder: str) -> None:
    """Let an endless loop end this process."""
    try:
        size = os.stat(os.path.join(folder, DATA_FILE)).st_size
    except OSError:
        size = 0  # the check says why
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    wanted = CPU_SECONDS + size // PAGE_SIZES[0] // PAGES_PER_CPU_SECOND
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_CPU, (wanted, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def main() -> None:
    """Check the store named on the command line and print the verdict."""
    _limit_cpu(sys.argv[1])
    sys.stdout.write(json.dumps(verdict_of(sys.argv[1], whole="--whole" in sys.argv[2:])))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
