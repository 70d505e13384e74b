"""Reading and writing rounds in threads while the loop's thread appends, cuts and trims."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from dledger.files import OsFileSystem
from dledger.log.errors import FolderInUse, SpanGone
from dledger.log.reading.file_pool import OPEN_FILES_MAX, FilePool
from dledger.log.settings import LogSettings
from dledger.types import LogIndex, Position, Span
from dledger_proto.entry import decode_entry
from tests.sim.disk.disk import SimFile, SimFileSystem
from tests.unit.log.support import Member, Model, check_holds, open_folder

ROUNDS = 150
WAIT_SECONDS = 30
SETTINGS = LogSettings(
    segment_size=20_000,
    tail_cache_bytes=0,
    checkpoint_bytes=15_000,
    allocate_bytes=5_000,
    reserve_bytes=0,
    low_water_bytes=0,
)


def read_until(member: Member, model: Model, stop: threading.Event, seed: int) -> int:
    """Read committed entries at random and check every byte; return how many were read."""
    random = Random(seed)
    done = 0
    while not stop.is_set() or not done:
        known = list(model.entries)
        wanted = known[random.randrange(len(known))]
        try:
            frame = member.log.read_span(Span(wanted.ref.position, wanted.ref.size))
        except SpanGone:
            continue
        decoded = decode_entry(frame, check_payloads=True)
        assert decoded.header.header_crc == wanted.ref.crc
        done += 1
    return done


def test_readers_see_only_sound_bytes_while_the_log_changes(tmp_path: Path) -> None:
    member = Member(OsFileSystem(), str(tmp_path / "d"), SETTINGS)
    committed = Model([member.genesis()])
    member.sync()
    stop = threading.Event()
    random = Random(1)
    with ThreadPoolExecutor(4) as threads:
        readers = [threads.submit(read_until, member, committed, stop, i) for i in range(3)]
        for round_number in range(ROUNDS):
            kept = [member.append(random.randbytes(900)) for _ in range(4)]
            for _ in range(5):
                member.append(random.randbytes(1200))
            taken = member.take()
            running = threads.submit(taken.execute)
            if round_number % 2:
                member.log.truncate_from(LogIndex(kept[-1].ref.index + 1))
            running.result()
            member.log.round_finished(taken)
            member.log.truncate_from(LogIndex(kept[-1].ref.index + 1))
            committed.entries.extend(kept)
            if round_number % 40 == 39:
                position = Position(member.log.last_position // 2)
                member.log.trim_head(position, member.log.last_index)
        member.sync()
        stop.set()
        assert all(reader.result() > 0 for reader in readers)
    first = member.log.first_index
    assert first > 1
    check_holds(member.log, committed.entries, first=first)


def test_the_pool_keeps_few_files_open_and_none_is_closed_under_a_reader() -> None:
    fs = SimFileSystem(Random(1))
    pool = FilePool(fs)
    for name in range(2 * OPEN_FILES_MAX):
        fs.open(f"/{name}", create=True).pwritev([b"%d" % name], 0)
    for name in range(2 * OPEN_FILES_MAX):
        assert pool.pread(f"/{name}", 9, 0) == b"%d" % name
    assert len(pool._handles) == OPEN_FILES_MAX
    pool.forget("/100")
    fs.unlink("/100")
    with pytest.raises(FileNotFoundError):
        pool.pread("/100", 1, 0)
    fs.open("/100", create=True).pwritev([b"another"], 0)
    assert pool.pread("/100", 9, 0) == b"another"
    pool.close()
    assert len(pool._handles) == 0


class SlowFiles(SimFileSystem):
    """The first opening of one path takes until the test lets it go."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.slow = ""
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def open(self, path: str, *, create: bool = False) -> SimFile:
        found = super().open(path, create=create)
        if path == self.slow:
            self.slow = ""
            self.begun.set()
            assert self.go_on.wait(WAIT_SECONDS)
        return found


@contextmanager
def stuck_opening(path: str) -> Iterator[tuple[SlowFiles, FilePool, "Future[bytes]"]]:
    """A pool in which one thread reads a path whose opening hangs, for the length of the block."""
    fs = SlowFiles()
    for name in ("/slow", "/other"):
        fs.open(name, create=True).pwritev([name.encode()], 0)
    fs.slow = path
    pool = FilePool(fs)
    with ThreadPoolExecutor(2) as threads:
        stuck = threads.submit(pool.pread, path, 99, 0)
        assert fs.begun.wait(WAIT_SECONDS)
        try:
            yield fs, pool, stuck
        finally:
            fs.go_on.set()


def test_one_slow_opening_holds_up_nobody_else() -> None:
    """The loop's thread reads other files, forgets files and closes the pool."""
    with stuck_opening("/slow") as (fs, pool, stuck), ThreadPoolExecutor(1) as loop:

        def everything_else() -> bytes:
            found = pool.pread("/other", 99, 0)
            pool.forget("/other")
            pool.close()
            return found

        assert loop.submit(everything_else).result(WAIT_SECONDS) == b"/other"
        assert not stuck.done()
        fs.go_on.set()
        assert stuck.result(WAIT_SECONDS) == b"/slow"
    assert len(pool._handles) == 0, "its reader closes what it opened"


def test_two_that_open_one_file_at_a_time_share_it() -> None:
    with stuck_opening("/slow") as (fs, pool, stuck):
        assert pool.pread("/slow", 99, 0) == b"/slow"
        fs.go_on.set()
        assert stuck.result(WAIT_SECONDS) == b"/slow"
        assert len(pool._handles) == 1


def test_a_file_that_goes_while_it_is_opened_is_not_kept() -> None:
    with stuck_opening("/slow") as (fs, pool, stuck):
        pool.forget("/slow")
        fs.unlink("/slow")
        fs.open("/slow", create=True).pwritev([b"another"], 0)
        fs.go_on.set()
        stuck.result(WAIT_SECONDS)
        assert pool.pread("/slow", 99, 0) == b"another"


def test_a_second_process_on_one_folder_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "d")
    program = (
        "import sys\n"
        "from random import Random\n"
        "from dledger.files import OsFileSystem\n"
        "from dledger.log.folder import DataFolder\n"
        "folder = DataFolder.open(OsFileSystem(), sys.argv[1], 'c1', 'g1', 'm1', Random(1))\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(FolderInUse, match=path):
            open_folder(OsFileSystem(), path)
        process.kill()
        process.communicate()
    open_folder(OsFileSystem(), path).close()
