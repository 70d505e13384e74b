"""Writing a snapshot of a member's data beside it, while the member runs.

Owns the folder of a snapshot and the order of its steps. It is laid out like a data folder, so all
that reads one of a stopped member reads a snapshot, too:

    state/          the rows of one save, in a store of their own
    log/            the segments up to the entry that the state has applied: sealed ones are hard
                    links, of the last one the part that is wanted is copied
    checkpoint      of that log
    identity        cluster, group, group id; no life of a member
    snapshot.json   the manifest, written last

There is no hard state: no member can start with a snapshot as its data. `restoring.py` makes the
folders of a new cluster. Every call blocks; a thread of its own makes them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from dledger.files import File, FileSystem
from dledger.log.atomic_file import replace_file
from dledger.log.checkpoint import CHECKPOINT_FILE
from dledger.log.folder import IDENTITY_FILE, LOG_FOLDER, STATE_FOLDER, make_durable_folder
from dledger.log.identity import INCARNATION_SIZE, Identity
from dledger.log.image import LogImage
from dledger.log.memory.segment import INDEX_SUFFIX
from dledger.state.machine import APPLIED_KEY, APPLIED_VALUE
from dledger.store.store import Row, StateStore
from dledger_proto.limits import MIB

NOBODY: Final = bytes(INCARNATION_SIZE)
"""The life of no member."""
SAVE_BYTES: Final = 8 * MIB
"""Rows are saved in steps of about this size."""
COPY_BYTES: Final = MIB


class Applied:
    """Up to where the state of a snapshot is applied."""

    def __init__(self, value: bytes) -> None:
        self.index, self.term, self.time_ms, _, digest = APPLIED_VALUE.unpack(value)
        self.digest: str = digest.hex()


class SourceFailed(Exception):
    """What the member itself lives by could not be read: its state or its log."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def from_source(rows: Iterable[Row]) -> Iterator[Row]:
    """Iterate over rows of the member's own state; SourceFailed."""
    own = iter(rows)
    while True:
        try:
            row = next(own)
        except StopIteration:
            return
        except OSError as error:
            raise SourceFailed(error) from error
        yield row


def save_rows(rows: Iterable[Row], open_store: Callable[[], StateStore]) -> Applied | None:
    """Save the rows into a new store; return up to where they are applied. None: nothing is."""
    applied: Applied | None = None
    store = open_store()
    try:
        for key, value in rows:
            if key == APPLIED_KEY:
                applied = Applied(value)
            store.put(key, value)
            if store.unsaved_bytes >= SAVE_BYTES:
                store.save()
        store.save()
    finally:
        store.close()
    return applied


def save_log(
    fs: FileSystem, log_path: str, folder: str, image: LogImage, pace: Callable[[int], None]
) -> None:
    """Link and copy the segments of an image, and write its checkpoint.

    `pace` is called with the bytes of each piece that is copied.
    """
    target = f"{folder}/{LOG_FOLDER}"
    for name in image.whole:
        if name.endswith(INDEX_SUFFIX) and not fs.exists(f"{log_path}/{name}"):
            continue  # it is made again
        fs.link(f"{log_path}/{name}", f"{target}/{name}")
    _copy(fs, f"{log_path}/{image.last}", f"{target}/{image.last}", image.last_size, pace)
    fs.sync_folder(target)
    content = image.checkpoint.encode()
    replace_file(fs, folder, f"{folder}/{CHECKPOINT_FILE}", content)


def save_identity(fs: FileSystem, folder: str, identity: Identity, image: LogImage) -> None:
    """Write whose data it is, without a life."""
    known = replace(identity, incarnation=NOBODY, group_id=image.checkpoint.group_id)
    replace_file(fs, folder, f"{folder}/{IDENTITY_FILE}", known.encode())


def make_folder(fs: FileSystem, folder: str) -> None:
    """Make an empty folder and those in it, and make all their names durable."""
    for path in (folder, f"{folder}/{LOG_FOLDER}", f"{folder}/{STATE_FOLDER}"):
        make_durable_folder(fs, path)


def size_of(fs: FileSystem, folder: str) -> int:
    """Return the bytes of all files."""
    return sum(_size(fs, path) for path in files_in(fs, folder))


def files_in(fs: FileSystem, folder: str) -> Iterator[str]:
    """Iterate over the files of a snapshot."""
    for name in fs.names(folder):
        if name in (LOG_FOLDER, STATE_FOLDER):
            yield from (f"{folder}/{name}/{file}" for file in fs.names(f"{folder}/{name}"))
        else:
            yield f"{folder}/{name}"


def _size(fs: FileSystem, path: str) -> int:
    file = fs.open(path)
    try:
        return file.size()
    finally:
        file.close()


def _copy(fs: FileSystem, source: str, target: str, size: int, pace: Callable[[int], None]) -> None:
    read, write = fs.open(source), fs.open(target, create=True)
    try:
        at = 0
        while at < size:
            piece = _read(read, source, min(COPY_BYTES, size - at), at)
            write.pwritev([piece], at)
            at += len(piece)
            pace(len(piece))
        write.fdatasync()
    finally:
        read.close()
        write.close()


def _read(file: File, path: str, size: int, at: int) -> bytes:
    """Read a piece of the member's own log; SourceFailed."""
    try:
        piece = file.pread(size, at)
    except OSError as error:
        raise SourceFailed(error) from error
    if not piece:
        raise SourceFailed(OSError(f"{path} ends at {at}, {size} more bytes are wanted"))
    return piece
