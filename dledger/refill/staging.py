"""What a refill has gathered so far: a log of its own beside the data, and the state behind it.

Owns the folder `refill` of a data folder, and when what it holds is whole. One thread at a time
uses it; every call blocks. Not owned: where the bytes come from, and the exchange of the data
(`install.py`).

    refill/log/, checkpoint, identity    a log like the member's, from the giver's first entry on
    refill/state                         the dump of the giver's state (`state_dump.py`)
    refill/complete                      both are whole and synced: the next start installs them

The staged log is written by the same code as every log: each entry is checked and must follow the
one before it, and a process that ends in between goes on where it was. Its entries are committed,
because a giver gives no others.
"""

from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Final

from dledger.files import FileSystem
from dledger.log.atomic_file import CorruptFile, read_file, replace_file
from dledger.log.checkpoint import CHECKPOINT_FILE, Checkpoint
from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedFile, DamagedIdentity, LogFailed, refusal_of
from dledger.log.folder import IDENTITY_FILE, LOG_FOLDER, DataFolder
from dledger.log.hard_state import HardState, store_hard_state
from dledger.log.identity import Identity, parse_identity
from dledger.log.memory.chain import Chain
from dledger.log.settings import LogSettings
from dledger.refill.state_dump import applied_index_of, read_dump
from dledger.types import LogIndex
from dledger_proto.entry import (
    SALT_SIZE,
    CorruptEntry,
    EntryHeader,
    SegmentHeader,
    parse_entry_header,
    segment_name,
)
from dledger_proto.limits import MIB

REFILL_FOLDER: Final = "refill"
STATE_FILE: Final = "state"
COMPLETE_FILE: Final = "complete"
"""Whole and synced. From here on the member's own data is replaced, whatever happens."""
EMPTIED_FILE: Final = "emptied"
"""The member's own log is gone: what lies in its folder is of the refill."""
STATE_SPACE_FACTOR: Final = 2
"""What the rows of a dump may take in the store, beside the dump."""
SYNC_BYTES: Final = 16 * MIB
"""A staged log is synced after so many bytes."""


class Staging:
    """One refill of one member."""

    def __init__(
        self, fs: FileSystem, data_path: str, identity: Identity, settings: LogSettings, rng: Random
    ) -> None:
        self._fs = fs
        self._identity = identity
        # Nobody reads from it, and it keeps no reserve of its own.
        self._settings = replace(settings, tail_cache_bytes=0, reserve_bytes=0)
        self._random = rng
        self.path = f"{data_path}/{REFILL_FOLDER}"
        self._log: CommitLog | None = None
        self._unsynced = 0
        self._state_size = 0
        self._applied: int | None = None
        """Up to where the staged state is applied, once all of it was read and found whole."""

    # Begin, go on, give up.

    def resume(self) -> bool:
        """Go on with the log that an earlier process has staged; False when there is none."""
        path = f"{self.path}/{CHECKPOINT_FILE}"
        if not self._fs.exists(path):
            return False
        try:
            is_own = is_of_this_life(self._fs, self.path, self._identity)
            if is_own:
                self._open()
        except DamagedFile:
            is_own = False
        if not is_own:
            self.discard()
        return is_own

    def begin(self, base: Chain, group_id: bytes) -> None:
        """Begin an empty log behind `base`, which is what the giver's first entry follows."""
        self.discard()
        fs, log_path = self._fs, f"{self.path}/{LOG_FOLDER}"
        fs.make_folder(log_path)
        identity = Identity(
            self._identity.cluster,
            self._identity.group,
            self._identity.member,
            self._identity.incarnation,
            group_id if base.index else b"",
        )
        checkpoint = Checkpoint()
        if base.index:
            salt = self._random.randbytes(SALT_SIZE)
            header = SegmentHeader(
                group_id, base.position, base.index + 1, base.term, base.crc, salt
            )
            file = fs.open(f"{log_path}/{segment_name(base.position)}", create=True)
            try:
                file.pwritev([header.encode()], 0)
                file.fdatasync()
            finally:
                file.close()
            checkpoint = Checkpoint(
                group_id=group_id,
                first_index=LogIndex(base.index + 1),
                first_position=base.position,
                previous_term=base.term,
                previous_crc=base.crc,
                end=base,
                segments=[(base.position, base.index + 1)],
            )
        fs.sync_folder(log_path)
        store_hard_state(fs, self.path, HardState())  # a log lies beside one; it says nothing
        replace_file(fs, self.path, f"{self.path}/{IDENTITY_FILE}", identity.encode())
        replace_file(fs, self.path, f"{self.path}/{CHECKPOINT_FILE}", checkpoint.encode())
        fs.sync_folder(self.path.rpartition("/")[0])
        self._open()

    def discard(self) -> None:
        """Remove everything that was staged."""
        self.let_go()
        remove_folder(self._fs, self.path)

    def _open(self) -> None:
        identity = DataFolder(self._fs, self.path, self._identity, lock=None)
        self._log = CommitLog(self._fs, identity, self._settings, self._random)
        self._unsynced = 0
        self._state_size = 0

    def _close(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            log.close()

    # Gather.

    @property
    def log(self) -> CommitLog:
        """The staged log."""
        assert self._log is not None, "the refill has not begun"
        return self._log

    @property
    def is_begun(self) -> bool:
        """Tell whether there is a staged log."""
        return self._log is not None

    def append(self, frames: bytes) -> None:
        """Add entries behind the last one; CorruptEntry when they are damaged or do not follow."""
        self.log.append_frames(frames, _entries_in(frames))
        self._unsynced += len(frames)
        self._write(sync=self._unsynced >= SYNC_BYTES)

    def _write(self, *, sync: bool) -> None:
        work = self.log.take_round(None, sync=sync)
        if work is not None:
            work.execute()
            self.log.round_finished(work)
        if sync:
            self._unsynced = 0

    def append_state(self, offset: int, chunk: bytes) -> None:
        """Add a piece of the dump; offset 0 begins it anew. CorruptFile for a gap."""
        self._applied = None
        if offset == 0:
            self._state_size = 0
        if offset != self._state_size:
            raise CorruptFile(f"a piece at {offset}, but {self._state_size} bytes of it are here")
        file = self._fs.open(f"{self.path}/{STATE_FILE}", create=True)
        try:
            if offset == 0:
                file.truncate(0)
            self._state_size += file.pwritev([chunk], offset)
        finally:
            file.close()

    @property
    def state_size(self) -> int:
        """Bytes of the dump that are here."""
        return self._state_size

    # End.

    def complete(self, own_last_index: int, own_group_id: bytes) -> str:
        """Mark the refill as whole, if it is; return why it is not, else nothing.

        Call it only when the member's own log has stopped for good, at `own_last_index`. What this
        member acknowledged is then in the staged log, or was never committed. So nothing is lost
        with the own log. An own log that reaches further is the better one.
        """
        log = self.log
        if own_group_id and own_group_id != log.group_id:
            return f"it is of group id {log.group_id.hex()}, this member of {own_group_id.hex()}"
        if log.last_index < own_last_index:
            return f"it ends at entry {log.last_index}, the own log at {own_last_index}"
        why_not = self.check_state()
        if why_not:
            return why_not
        self._close()  # syncs, and its last checkpoint covers everything
        file = self._fs.open(f"{self.path}/{STATE_FILE}")
        try:
            file.fdatasync()
        finally:
            file.close()
        self._fs.sync_folder(self.path)
        replace_file(self._fs, self.path, f"{self.path}/{COMPLETE_FILE}", b"")
        return ""

    def check_state(self) -> str:
        """Return why the staged state cannot be used with the staged log, else nothing.

        Reads all of it, once.
        """
        log = self.log
        try:
            if self._applied is None:
                self._applied = self._applied_index()
        except (CorruptFile, FileNotFoundError) as error:
            return f"its state is not whole: {error}"
        if not log.first_index - 1 <= self._applied <= log.last_index:
            return (
                f"its state has applied entry {self._applied}, its log has the entries "
                f"{log.first_index} to {log.last_index}"
            )
        if not log.space.can_spare(STATE_SPACE_FACTOR * self._state_size):
            return f"the disk has no room for its state of {self._state_size} bytes"
        return ""

    def _applied_index(self) -> int:
        found = 0
        for row in read_dump(self._fs, f"{self.path}/{STATE_FILE}"):
            applied = applied_index_of(row)
            found = found if applied is None else applied
        return found

    def let_go(self) -> None:
        """Close, whatever became of the log; `resume` goes on from what is there."""
        with suppress(OSError, LogFailed):
            self._close()


def _entries_in(frames: bytes) -> list[tuple[EntryHeader, int]]:
    """Return header and offset of each entry; CorruptEntry when the last one is not whole."""
    found: list[tuple[EntryHeader, int]] = []
    offset = 0
    while offset < len(frames):
        header = parse_entry_header(frames, offset)
        if header.size > len(frames) - offset:
            raise CorruptEntry(f"entry {header.index} is cut off")
        found.append((header, offset))
        offset += header.size
    return found


def is_of_this_life(fs: FileSystem, path: str, identity: Identity) -> bool:
    """Tell whether a refill's folder belongs to this very data folder.

    It does not when all but it was removed. DamagedFile when its identity cannot be read.
    """
    try:
        content = read_file(fs, f"{path}/{IDENTITY_FILE}")
        staged = None if content is None else parse_identity(content)
    except CorruptFile as error:
        raise refusal_of(DamagedIdentity, f"{path}/{IDENTITY_FILE}", error) from error
    return staged is not None and (
        (staged.cluster, staged.group, staged.member, staged.incarnation)
        == (identity.cluster, identity.group, identity.member, identity.incarnation)
    )


def remove_folder(fs: FileSystem, path: str) -> None:
    """Remove the files of a refill's folder and of its log. The empty folders stay."""
    if not fs.exists(path):
        return
    log_path = f"{path}/{LOG_FOLDER}"
    # The checkpoint first: without it nothing in the folder counts.
    for name in sorted(fs.names(path), key=lambda name: name != CHECKPOINT_FILE):
        if name != LOG_FOLDER:
            fs.unlink(f"{path}/{name}")
            fs.sync_folder(path)
    if fs.exists(log_path):
        for name in fs.names(log_path):
            fs.unlink(f"{log_path}/{name}")
        fs.sync_folder(log_path)
