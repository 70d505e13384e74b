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
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeVar

import structlog

from dledger.files import FileSystem
from dledger.log.atomic_file import CorruptFile
from dledger.log.folder import LOG_FOLDER, STATE_FOLDER
from dledger.log.identity import Identity
from dledger.log.image import LogImage
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


class Kept(NamedTuple):
    """A snapshot by the name of its folder."""

    name: str
    manifest: Manifest | None
    problem: str = ""
    """Why its manifest cannot be read."""


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
        self.has_any = False
        """True: a snapshot may keep the space of segments that the log has let go."""
        self._turn = asyncio.Lock()
        """Of calls that change which snapshots there are."""
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        self._log = structlog.get_logger().bind(group=view.names.group, member=view.names.member)

    def begin(self) -> None:
        """Remove what an earlier process did not finish. Blocks; called once.

        What is left of it keeps no member from starting, and nothing else is touched.
        """
        try:
            if not self._fs.exists(self.folder):
                return
            names = self._fs.names(self.folder)
            self.has_any = any(not name.endswith(_UNFINISHED) for name in names)
            for name in names:
                if name.endswith(_UNFINISHED):
                    _remove(self._fs, f"{self.folder}/{name}")
        except OSError as error:
            self._log.warning("an unfinished snapshot is not removed", reason=str(error))

    async def create(self, name: str) -> None:
        """Begin to make a snapshot; `making` says how it goes, `listed` has it once it is whole.

        It holds everything that was acknowledged before the call. INVALID_ARGUMENT: a bad or taken
        name, or too many. BUSY: another one is being made. NO_LEADER, NOT_FORMED.
        """
        _check_name(name)
        async with self._turn:
            if self._task is not None and not self._task.done() and self.making is not None:
                raise DledgerError(Code.BUSY, f"snapshot {self.making.name} is being made")
            found = await self.listed()
            if await self._asked(lambda: self._fs.exists(f"{self.folder}/{name}")):
                raise invalid(f"name {name!r}: there is a snapshot of this name; delete it first")
            if len(found) >= SNAPSHOTS_MAX:
                raise invalid(f"{len(found)} snapshots, at most {SNAPSHOTS_MAX}: delete one first")
            await self._view.confirm()
            self._check_wanted()
            if self._view.findings.says:
                raise DledgerError(Code.STORAGE_FAILED, self._view.findings.says)
            self.making, self.has_any = Making(name), True
            self._task = asyncio.get_running_loop().create_task(self._make(name))

    async def listed(self) -> list[Kept]:
        """Return the snapshots that are whole, by name, and those whose manifest is damaged."""
        return await self._asked(self._listed)

    async def delete(self, name: str) -> None:
        """Delete a snapshot; NOT_FOUND."""
        _check_name(name)
        async with self._turn:
            if name not in [each.name for each in await self.listed()]:
                raise DledgerError(Code.NOT_FOUND, f"no snapshot is called {name!r}")
            await self._asked(lambda: self._delete(name))
            self.has_any = bool(await self.listed())

    async def stop(self) -> None:
        """End what is being made, before log and store are closed."""
        self._ended = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _make(self, name: str) -> None:
        began, why = self._view.clock.monotonic(), "it ended by a bug; see the log"
        manifest: Manifest | None = None
        try:
            manifest = await self._write(name)
        except making.SourceFailed as failed:
            why = f"what the member lives by cannot be read: {failed.error}"
            self._view.host.failed(failed.error)  # (I16)
        except DledgerError as error:
            why = str(error)
        except OSError as error:
            why = f"the folder cannot be written: {error}"
        finally:
            self.making = None if manifest is not None else Making(name, why)
            if manifest is None:
                self._log.warning("snapshot not made", snapshot=name, reason=why)
        if manifest is not None:
            taken = round(self._view.clock.monotonic() - began, 1)
            self._log.info("snapshot made", snapshot=name, index=manifest.last_index, seconds=taken)

    async def _write(self, name: str) -> Manifest:
        fs, part = self._fs, f"{self.folder}/{name}{_UNFINISHED}"
        view = self._view
        wanted = view.machine.applied_index
        while view.machine.saved_index < wanted:
            self._check_wanted()
            await asyncio.sleep(SAVED_SECONDS)
        try:
            with view.log.head_kept():
                while view.log.is_trimming:  # what was planned before
                    self._check_wanted()
                    await asyncio.sleep(SAVED_SECONDS)
                applied = await self._in_thread(partial(self._save_state, part))
                image = self._image(LogIndex(applied.index))
                await self._in_thread(partial(self._save_log, part, image))
            manifest = Manifest(
                name, view.names.cluster, view.names.group, tuple(view.names.addresses),
                view.names.member, image.checkpoint.first_index, applied.index, applied.term,
                applied.time_ms, applied.digest, view.clock.wall_ms(),
                await self._in_thread(lambda: making.size_of(fs, part)),
            )  # fmt: skip
            await self._in_thread(partial(self._finish, part, manifest))
        except BaseException:
            # What stays goes with the next snapshot or start. The first error must be told.
            with suppress(OSError):
                await self._in_thread(lambda: _remove(fs, part))
            raise
        return manifest

    def _image(self, last: LogIndex) -> LogImage:
        try:
            return self._view.log.image(last)
        except STORAGE_ERRORS as error:
            raise making.SourceFailed(error) from error

    async def _asked(self, job: Callable[[], T]) -> T:
        """Run a job for a caller, who hears what the disk said."""
        try:
            return await self._in_thread(job)
        except OSError as error:
            raise DledgerError(Code.STORAGE_FAILED, f"{self.folder}: {error}") from error

    async def _in_thread(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, job)

    # In the thread.

    def _save_state(self, part: str) -> making.Applied:
        _remove(self._fs, part)
        making.make_folder(self._fs, part)
        rows = self._rows()
        applied = making.save_rows(rows, lambda: self._open_store(f"{part}/{STATE_FOLDER}"))
        assert applied is not None, "a saved state says how far it is applied"
        return applied

    def _rows(self) -> Iterator[Row]:
        """Iterate over the saved rows while the disk has room; rest half of the time."""
        began = time.monotonic()
        for count, row in enumerate(making.from_source(self._store.saved_rows()), 1):
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

    def _delete(self, name: str) -> None:
        """Take its name first: what is left after an end in between goes with the next start."""
        part = f"{self.folder}/{name}{_UNFINISHED}"
        _remove(self._fs, part)
        self._fs.rename(f"{self.folder}/{name}", part)
        self._fs.sync_folder(self.folder)
        _remove(self._fs, part)

    def _listed(self) -> list[Kept]:
        if not self._fs.exists(self.folder):
            return []
        found: list[Kept] = []
        for name in self._fs.names(self.folder):
            folder = f"{self.folder}/{name}"
            if not name.endswith(_UNFINISHED) and self._fs.exists(f"{folder}/{MANIFEST_FILE}"):
                try:
                    found.append(Kept(name, read_manifest(self._fs, folder)))
                except CorruptFile as error:
                    found.append(Kept(name, None, str(error)))
        return found


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX or name.endswith(_UNFINISHED):
        raise invalid(
            f"name {name!r}: must have 1 to {NAME_LENGTH_MAX} letters, digits, _, . or -, begin "
            f"with a letter, digit or _, and not end with {_UNFINISHED}"
        )


def _remove(fs: FileSystem, folder: str) -> None:
    """Remove the folder of an unfinished snapshot, if there is one."""
    if not fs.exists(folder):
        return
    for path in list(making.files_in(fs, folder)):
        fs.unlink(path)
    for name in (LOG_FOLDER, STATE_FOLDER):
        if fs.exists(f"{folder}/{name}"):
            fs.remove_folder(f"{folder}/{name}")
    fs.remove_folder(folder)
