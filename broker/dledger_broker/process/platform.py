"""What a member takes from its machine: clocks, chance, files, threads, the saved state's store.

Owns the list. `of_this_machine` gives the real ones. The simulation gives its own, and runs the
member as it ships (D15).
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from random import Random, SystemRandom
from typing import Final

from dledger.clock import Clock, SystemClock
from dledger.files import FileSystem, OsFileSystem
from dledger.raft.driver.worker import StartWorker, ThreadWorker
from dledger.store.lmdb_store import LmdbStore
from dledger.store.store import StateStore

READ_THREADS: Final = 4

Note = Callable[[str, str, Mapping[str, object]], None]
"""Takes group, name and fields of an event, for the flight recorder; any thread may call it."""


@dataclass(frozen=True, slots=True)
class Platform:
    """The machine under one member."""

    clock: Clock
    random: Random
    file_system: FileSystem
    open_store: Callable[[str, int], StateStore]
    """Opens the store of the saved state in a folder, with a map of so many bytes."""
    start_worker: StartWorker
    pool: Executor
    """The threads that read the log. The member shuts it down at its end."""
    note: Note | None = None


def of_this_machine(note: Note | None = None) -> Platform:
    """Return the operating system's clocks, files and threads."""
    return Platform(
        clock=SystemClock(),
        random=SystemRandom(),
        file_system=OsFileSystem(),
        open_store=LmdbStore,
        start_worker=ThreadWorker,
        pool=ThreadPoolExecutor(READ_THREADS, thread_name_prefix="read"),
        note=note,
    )
