"""What a disk would still hold after the worst power cut: read past every cache.

Owns: looking into `SimFileSystem`'s durable images for the two things that promises rest on, log
entries and the hard state. Deliberately not built on `CommitLog`: a log that believes its own
watermark is what the invariants must catch.
"""

import copy

from dledger.log.atomic_file import CorruptFile
from dledger.log.commit_log import CommitLog
from dledger.log.hard_state import HARD_STATE_FILE, HardState, parse_hard_state
from dledger.types import EntryRef, FlushMode
from dledger_proto.entry import SEGMENT_HEADER_SIZE, CorruptEntry, decode_entry, parse_entry_header
from tests.sim.disk.disk import SimFileSystem, _Folder
from tests.sim.disk.inode import Inode


def _durable_folder(fs: SimFileSystem, path: str) -> _Folder | None:
    node: _Folder | Inode | None = fs._root
    for part in path.split("/"):
        if part and isinstance(node, _Folder):
            node = node.durable.get(part)
    return node if isinstance(node, _Folder) else None


def durable_copy(fs: SimFileSystem, path: str) -> _Folder:
    """Return a copy of a folder as a power cut would leave it, for `put_back`."""
    found = copy.deepcopy(_durable_folder(fs, path))
    assert found is not None, f"there is no folder {path}"
    waiting = [found]
    while waiting:
        folder = waiting.pop()
        folder.seen = dict(folder.durable)
        folder.pending.clear()
        for node in folder.durable.values():
            if isinstance(node, _Folder):
                waiting.append(node)
            else:
                node.pending.clear()
                node.forget_cache()
    return found


def put_back(fs: SimFileSystem, path: str, folder: _Folder) -> None:
    """Replace a folder by a copy, durably; the copy is used up."""
    fs.wipe(path)
    parent, name = fs._parent(path)
    parent.seen[name] = parent.durable[name] = folder


class DurableView:
    """What one member's data folder holds durably; with `ASYNC`, also entries only written."""

    def __init__(self, fs: SimFileSystem, folder: str, flush: FlushMode = FlushMode.SYNC) -> None:
        self._fs = fs
        self._folder = folder
        self._flush = flush

    def covered_index(self, log: CommitLog) -> int:
        """Return up to where a log says that entries may be acknowledged."""
        is_synced = self._flush is FlushMode.SYNC
        return int(log.durable_index if is_synced else log.written_index)

    def hard_state(self) -> HardState | None:
        """Return term and vote as a power cut would leave them; None when there are none."""
        folder = _durable_folder(self._fs, self._folder)
        node = folder.durable.get(HARD_STATE_FILE) if folder is not None else None
        if not isinstance(node, Inode):
            return None
        try:
            return parse_hard_state(node.durable.read(node.durable.size, 0))
        except CorruptFile:
            return None

    def holds(self, ref: EntryRef) -> bool:
        """Tell whether an entry, with its payloads, is whole on the disk."""
        found = self._segment(ref.position)
        if found is None:
            return False
        base, inode = found
        image = inode.durable if self._flush is FlushMode.SYNC else inode.seen
        data = image.read(ref.size, SEGMENT_HEADER_SIZE + ref.position - base)
        try:
            entry = decode_entry(data, check_payloads=True)
        except CorruptEntry:
            return False
        header = entry.header
        return header.header_crc == ref.crc and header.index == ref.index

    def place(self, ref: EntryRef) -> tuple[str, int] | None:
        """Return the path of the segment that holds an entry, and the entry's offset in it."""
        found = self._segment(ref.position)
        if found is None:
            return None
        base = found[0]
        for path, _ in durable_files(self._fs):
            if path.endswith(f"{base:020}.log"):
                return path, SEGMENT_HEADER_SIZE + ref.position - base
        return None

    def synced_position(self, ref: EntryRef) -> int:
        """Return the synced position that an entry on disk records. Damage below it is no tear."""
        found = self._segment(ref.position)
        if found is None:
            return 0
        base, inode = found
        data = inode.durable.read(ref.size, SEGMENT_HEADER_SIZE + ref.position - base)
        try:
            return parse_entry_header(data, 0).synced_position
        except CorruptEntry:
            return 0

    def _segment(self, position: int) -> tuple[int, Inode] | None:
        folder = _durable_folder(self._fs, self._folder)
        if folder is None:
            return None
        best: tuple[int, Inode] | None = None
        for name, node in _segments(folder):
            if name <= position and (best is None or name > best[0]):
                best = name, node
        return best


def durable_files(fs: SimFileSystem) -> list[tuple[str, int]]:
    """Return (path, size) of every file that a power cut would leave, in order of path."""
    found: list[tuple[str, int]] = []

    def walk(prefix: str, folder: _Folder) -> None:
        for name, node in sorted(folder.durable.items()):
            if isinstance(node, _Folder):
                walk(f"{prefix}/{name}", node)
            else:
                found.append((f"{prefix}/{name}", node.durable.size))

    walk("", fs._root)
    return found


def _segments(folder: _Folder) -> list[tuple[int, Inode]]:
    found: list[tuple[int, Inode]] = []
    for name, node in folder.durable.items():
        if name.endswith(".log") and isinstance(node, Inode):
            found.append((int(name[:-4]), node))
        elif isinstance(node, _Folder):
            found += _segments(node)
    return found
