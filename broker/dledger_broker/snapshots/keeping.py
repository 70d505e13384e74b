"""The snapshots of one group on one member: making, listing, deleting them.

Owns: their names and bounds, the turn between the loop and the thread, the pace. Not owned: what a
snapshot consists of (`dledger.snapshot.making`).

The state is copied first, row by row, from one save. Then the log is linked up to the entry that
this save has applied. Meanwhile no segment goes. Nothing else waits: a group goes on as before. A
snapshot is made in a folder of another name, and gets its own name when it is whole.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import structlog

from dledger.files import FileSystem
from dledger.log.atomic_file import CorruptFile
from dledger.log.folder import LOG_FOLDER, STATE_FOLDER
from dledger.log.identity import Identity
from dledger.log.image import LogImage
from dledger.log.space import is_full
from dledger.snapshot import making
from dledger.snapshot.manifest import MANIFEST_FILE, Manifest, read_manifest, write_manifest
from dledger.store.store import Row, StateStore
from dledger.types import LogIndex
from dledger_broker.group.group_view import GroupView
from dledger_broker.read.batches import STORAGE_ERRORS
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import MIB

SNAPSHOTS_FOLDER: Final = "snapshots"
"""In the data folder."""
SNAPSHOTS_MAX: Final = 16
"""That a member keeps of a group: each keeps segments that the group has let go."""
NAME_LENGTH_MAX: Final = 64
COPIED_BYTES_PER_SECOND: Final = 64 * MIB
"""Of the newest segment: the only bytes of the log that are copied."""
SAVED_SECONDS: Final = 0.05
"""How often the loop looks whether the state is saved; it is saved several times a second."""
ROWS_A_LOOK: Final = 4_096
"""After so many rows the thread looks at the disk, and rests as long as they took."""
_NAME: Final = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_.-]*")
_UNFINISHED: Final = ".part"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Making:
    """The snapshot under way, or the last one that failed."""

    name: str
    problem: str = ""
    """Why it failed; empty: it is being made."""


class Snapshots:
    """The snapshots of one group. Used by the loop's thread."""

    def __init__(
        self,
        view: GroupView,
        store: StateStore,
        fs: FileSystem,
        folder: str,
        identity: Callable[[], Identity],
        open_store: Callable[[str], StateStore],
    ) -> None:
        self._view = view
        self._store = store
        self._fs = fs
        self._data = folder
        self.folder = f"{folder}/{SNAPSHOTS_FOLDER}"
        self._identity = identity
        self._open_store = open_store
        self.making: Making | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        self._log = structlog.get_logger().bind(group=view.names.group, member=view.names.member)

    def begin(self) -> None:
        """Remove what an earlier process did not finish. Blocks; called once."""
        if self._fs.exists(self.folder):
            for name in self._fs.names(self.folder):
                if not self._fs.exists(f"{self.folder}/{name}/{MANIFEST_FILE}"):
                    _remove(self._fs, f"{self.folder}/{name}")

    async def create(self, name: str) -> None:
        """Begin to make a snapshot; `making` says how it goes, `listed` has it once it is whole.

        It holds everything that was acknowledged before the call. INVALID_ARGUMENT: a bad or taken
        name, or too many. BUSY: another one is being made. NO_LEADER, NOT_FORMED.
        """
        _check_name(name)
        self._check_idle()
        found = await self.listed()
        if any(each.name == name for each in found):
            raise invalid(f"name {name!r}: there is a snapshot of this name; delete it first")
        if len(found) >= SNAPSHOTS_MAX:
            raise invalid(f"{len(found)} snapshots, at most {SNAPSHOTS_MAX}: delete one first")
        await self._view.confirm()
        self._check_idle()  # others may have come meanwhile
        self.making = Making(name)
        self._task = asyncio.get_running_loop().create_task(self._make(name))

    async def listed(self) -> list[Manifest]:
        """Return the snapshots that are whole, by name."""
        return await self._in_thread(self._listed)

    async def delete(self, name: str) -> None:
        """Delete a snapshot; NOT_FOUND."""
        _check_name(name)
        if name not in [each.name for each in await self.listed()]:
            raise DledgerError(Code.NOT_FOUND, f"no snapshot is called {name!r}")
        await self._in_thread(lambda: _remove(self._fs, f"{self.folder}/{name}"))

    async def stop(self) -> None:
        """End what is being made, before log and store are closed."""
        self._ended = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _check_idle(self) -> None:
        if self._task is not None and not self._task.done() and self.making is not None:
            raise DledgerError(Code.BUSY, f"snapshot {self.making.name} is being made")

    async def _make(self, name: str) -> None:
        began = self._view.clock.monotonic()
        try:
            manifest = await self._write(name)
        except STORAGE_ERRORS as error:
            self._failed(name, f"the disk failed: {error}")
            if not (isinstance(error, OSError) and is_full(error)):
                self._view.host.failed(error)  # it reads what the member lives by (I16)
            return
        except DledgerError as error:
            self._failed(name, str(error))
            return
        self.making = None
        taken = self._view.clock.monotonic() - began
        self._log.info(
            "snapshot made", snapshot=name, index=manifest.last_index, seconds=round(taken, 1)
        )

    def _failed(self, name: str, reason: str) -> None:
        self.making = Making(name, reason)
        self._log.warning("snapshot not made", snapshot=name, reason=reason)

    async def _write(self, name: str) -> Manifest:
        fs, part = self._fs, f"{self.folder}/{name}{_UNFINISHED}"
        view = self._view
        wanted = view.machine.applied_index
        while view.machine.saved_index < wanted:
            self._check_wanted()
            await asyncio.sleep(SAVED_SECONDS)
        try:
            with view.log.head_kept():
                applied = await self._in_thread(partial(self._save_state, part))
                image = view.log.image(LogIndex(applied.index))
                await self._in_thread(partial(self._save_log, part, image))
            manifest = Manifest(
                name, view.names.cluster, view.names.group, tuple(view.names.addresses),
                view.names.member, image.checkpoint.first_index, applied.index, applied.term,
                applied.time_ms, applied.digest, view.clock.wall_ms(),
                await self._in_thread(lambda: making.size_of(fs, part)),
            )  # fmt: skip
            await self._in_thread(partial(self._finish, part, manifest))
        except BaseException:
            await self._in_thread(lambda: _remove(fs, part))
            raise
        return manifest

    # In the thread.

    def _save_state(self, part: str) -> making.Applied:
        making.make_folder(self._fs, part)
        rows = self._rows()
        applied = making.save_rows(rows, lambda: self._open_store(f"{part}/{STATE_FOLDER}"))
        assert applied is not None, "a saved state says how far it is applied"
        return applied

    def _rows(self) -> Iterator[Row]:
        """Iterate over the saved rows while the disk has room; rest half of the time."""
        began = time.monotonic()
        for count, row in enumerate(self._store.saved_rows(), 1):
            yield row
            if count % ROWS_A_LOOK == 0:
                self._check_wanted()
                time.sleep(time.monotonic() - began)
                began = time.monotonic()

    def _save_log(self, part: str, image: LogImage) -> None:
        making.save_log(self._fs, f"{self._data}/{LOG_FOLDER}", part, image, self._paced)
        making.save_identity(self._fs, part, self._identity(), image)

    def _paced(self, size: int) -> None:
        self._check_wanted()
        time.sleep(size / COPIED_BYTES_PER_SECOND)

    def _check_wanted(self) -> None:
        if self._ended:
            raise DledgerError(Code.SHUTTING_DOWN, "the member ends")
        if not self._view.log.space.can_spare(0):
            raise DledgerError(Code.DISK_FULL, "the snapshot would make the disk low")

    def _finish(self, part: str, manifest: Manifest) -> None:
        write_manifest(self._fs, part, manifest)
        self._fs.rename(part, f"{self.folder}/{manifest.name}")
        self._fs.sync_folder(self.folder)

    def _listed(self) -> list[Manifest]:
        if not self._fs.exists(self.folder):
            return []
        found: list[Manifest] = []
        for name in self._fs.names(self.folder):
            if not name.endswith(_UNFINISHED):
                manifest = read_manifest(self._fs, f"{self.folder}/{name}")
                if manifest is not None:
                    found.append(manifest)
        return found

    async def _in_thread(self, job: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, job)
        except CorruptFile as error:
            raise DledgerError(Code.STORAGE_FAILED, str(error)) from error


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX or name.endswith(_UNFINISHED):
        raise invalid(
            f"name {name!r}: must have 1 to {NAME_LENGTH_MAX} letters, digits, _, . or -, begin "
            f"with a letter, digit or _, and not end with {_UNFINISHED}"
        )


def _remove(fs: FileSystem, folder: str) -> None:
    """Remove a snapshot: first the file that makes it one."""
    if not fs.exists(folder):
        return
    if fs.exists(f"{folder}/{MANIFEST_FILE}"):
        fs.unlink(f"{folder}/{MANIFEST_FILE}")
        fs.sync_folder(folder)
    for path in list(making.files_in(fs, folder)):
        fs.unlink(path)
    for name in (LOG_FOLDER, STATE_FOLDER):
        if fs.exists(f"{folder}/{name}"):
            fs.remove_folder(f"{folder}/{name}")
    fs.remove_folder(folder)
