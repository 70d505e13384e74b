"""A simulated disk: the file system of one machine, in memory, that can lose what was not synced.

Owns: files, folders, the difference between what a running process sees (the page cache) and what
a power cut leaves, and switches for a full disk, input/output errors and damaged sectors. Does not
own time: a slow or hanging disk is the driver's doing, who delays the end of a write round.

The model of a power cut, per file: unsynced operations keep their order, any subset of them
survives, and an unsynced write survives sector by sector (512 bytes). Names: of the unsynced
operations on a folder a prefix survives (a journal) or any subset (no promise at all). A synced
file may lose its name, a synced name may point at an empty file. Everything random is drawn from
the `Random` that the caller hands in.
"""

import errno
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from dledger.types import Buffer
from tests.sim.disk.inode import SECTOR_SIZE, Grow, Inode, Resize, Write

BAD_SECTOR = "a damaged sector"
"""The text of the error that a broken sector gives. Other failures have another text."""
BLOCK_SIZE = 4096
ENDLESS_BYTES = 1 << 50
FREED_AFTER_CALLS = 20
"""The space of a removed file comes back after so many calls."""


class PowerCut(BaseException):
    """Raised by a call hook where the power fails; no handler of the product may swallow it."""


class DeadHandle(AssertionError):
    """A file was used after its machine lost power, its process was killed, or it was closed."""


@dataclass(frozen=True, slots=True)
class _NameChange:
    """One unsynced change of a folder: `name` now means `node`, `gone` no longer anything."""

    name: str | None
    node: "Inode | _Folder | None"
    gone: str | None


@dataclass(slots=True)
class _Folder:
    seen: dict[str, "Inode | _Folder"] = field(default_factory=dict)
    durable: dict[str, "Inode | _Folder"] = field(default_factory=dict)
    pending: list[_NameChange] = field(default_factory=list)

    def change(self, name: str | None, node: "Inode | _Folder | None", gone: str | None) -> None:
        change = _NameChange(name, node, gone)
        _rename(self.seen, change)
        self.pending.append(change)

    def sync(self) -> None:
        self.durable = dict(self.seen)
        self.pending.clear()

    def lose(self, random: Random) -> None:
        if random.random() < 0.5:
            survivors = self.pending[: random.randrange(len(self.pending) + 1)]
        else:
            survivors = [change for change in self.pending if random.random() < 0.5]
        for change in survivors:
            _rename(self.durable, change)
        self.pending.clear()
        self.seen = dict(self.durable)


def _rename(names: dict[str, Inode | _Folder], change: _NameChange) -> None:
    if change.gone is not None:
        names.pop(change.gone, None)
    if change.name is not None and change.node is not None:
        names[change.name] = change.node


class _Lock:
    """What holds a lock file; the lock ends when it is dropped, or its process is killed."""


class SimFile:
    """An open file of a `SimFileSystem`."""

    def __init__(self, system: "SimFileSystem", inode: Inode, path: str) -> None:
        self._system = system
        self._inode = inode
        self._path = path
        self._life = system.life
        self._sync_failed = False
        self._open = True

    def _enter(self, call: str) -> None:
        if not self._open or self._life != self._system.life:
            raise DeadHandle(f"{call} on a dead handle of {self._path}")
        self._system.enter(call, self._path)

    def pread(self, size: int, offset: int) -> bytes:
        self._enter("read")
        sectors = range(offset // SECTOR_SIZE, (offset + max(size, 1) - 1) // SECTOR_SIZE + 1)
        if not self._inode.bad_sectors.isdisjoint(sectors):
            raise OSError(errno.EIO, BAD_SECTOR, self._path)
        data = self._inode.seen.read(size, offset)
        self._system.read_bytes += len(data)
        return data

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        self._enter("write")
        data = b"".join(buffers)
        self._system.charge(self._inode, offset + len(data), self._path)
        if data:
            self._inode.run(Write(offset, data))
            self._inode.bad_sectors.difference_update(
                range(-(-offset // SECTOR_SIZE), (offset + len(data)) // SECTOR_SIZE)
            )
        return len(data)

    def fdatasync(self) -> None:
        assert not self._sync_failed, f"fdatasync was repeated on {self._path} after it failed"
        try:
            self._enter("sync")
        except OSError:
            # As on Linux: what was dirty is clean now, some of it never reached the disk, readers
            # still see it until the cache is dropped, and a second call would report success.
            self._sync_failed = True
            self._inode.lose(self._system.random)
            raise
        self._inode.sync()

    def drop_cache(self, size: int, offset: int) -> None:
        """See `File.drop_cache`: a flip changes the disk and the cache."""

    def truncate(self, size: int) -> None:
        self._enter("truncate")
        self._system.charge(self._inode, size, self._path)
        self._inode.run(Resize(size))

    def allocate(self, offset: int, size: int) -> None:
        self._enter("allocate")
        self._system.charge(self._inode, offset + size, self._path)
        self._inode.run(Grow(offset + size))

    def size(self) -> int:
        self._enter("size")
        return self._inode.seen.size

    def close(self) -> None:
        self._open = False


class SimFileSystem:
    """`dledger.files.FileSystem` in memory.

    `random` is drawn from only by failing syncs; a power cut takes its own. `budget_bytes` is how
    much all files may hold (None: endless). `failing` maps a call ("read", "write", "sync",
    "truncate", "allocate", "create", "rename", "unlink", "sync_folder", ...) to the errno it fails
    with. `hook(call, path)` runs before every call; it may raise `PowerCut` or OSError.
    """

    def __init__(self, random: Random, *, budget_bytes: int | None = None) -> None:
        self.random = random
        self.budget_bytes = budget_bytes
        self.failing: dict[str, int] = {}
        self.hook: Callable[[str, str], None] | None = None
        self.life = 0
        self.calls = 0
        """Calls that change or sync something, so far."""
        self.read_bytes = 0
        """Bytes that were read from files, so far."""
        self.torn_files = 0
        """How many files power cuts left different from what processes saw, so far."""
        self._freeing: dict[Inode, int] = {}
        """Files that were removed, and how many calls later their space comes back."""
        self._root = _Folder()
        self._locks: dict[str, weakref.ref[_Lock]] = {}

    # What the product calls.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        folder, name = self._parent(path)
        node = folder.seen.get(name)
        if node is None and create:
            self.enter("create", path)
            if self.used_bytes() >= (self.budget_bytes or ENDLESS_BYTES):
                raise OSError(errno.ENOSPC, "no space left on the simulated disk", path)
            node = Inode()
            folder.change(name, node, None)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, _Folder):
            raise IsADirectoryError(errno.EISDIR, "is a folder", path)
        return SimFile(self, node, path)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def names(self, path: str) -> list[str]:
        self.enter("names", path)
        return sorted(self._folder(path).seen)

    def make_folder(self, path: str) -> None:
        folder = self._root
        for part in _parts(path):
            node = folder.seen.get(part)
            if node is None:
                self.enter("make_folder", path)
                node = _Folder()
                folder.change(part, node, None)
            if isinstance(node, Inode):
                raise FileExistsError(errno.EEXIST, "is a file", path)
            folder = node

    def rename(self, source: str, target: str) -> None:
        self.enter("rename", target)
        folder, name = self._parent(source)
        other, new_name = self._parent(target)
        assert folder is other, "files are renamed within one folder only"
        if name not in folder.seen:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        folder.change(new_name, folder.seen[name], name)

    def link(self, source: str, target: str) -> None:
        self.enter("link", target)
        folder, name = self._parent(target)
        if name in folder.seen:
            raise FileExistsError(errno.EEXIST, "exists", target)
        folder.change(name, self._inode(source), None)

    def unlink(self, path: str) -> None:
        self.enter("unlink", path)
        folder, name = self._parent(path)
        if name not in folder.seen:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        node = folder.seen[name]
        folder.change(None, None, name)
        if isinstance(node, Inode) and all(node is not other for other in self._inodes_seen()):
            self._freeing[node] = FREED_AFTER_CALLS

    def remove_folder(self, path: str) -> None:
        assert not self._folder(path).seen, f"{path} is not empty"
        self.unlink(path)

    @property
    def is_freeing(self) -> bool:
        self._free_some()
        return bool(self._freeing)

    def sync_folder(self, path: str) -> None:
        self.enter("sync_folder", path)
        self._folder(path).sync()

    def free_bytes(self, path: str) -> int:
        if self.budget_bytes is None:
            return ENDLESS_BYTES
        return max(0, self.budget_bytes - self.used_bytes())

    def lock(self, path: str) -> object:
        held = self._locks.get(path)
        if held is not None and held() is not None:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked by another process", path)
        self.open(path, create=True)
        lock = _Lock()
        self._locks[path] = weakref.ref(lock)
        return lock

    # What the simulation does to the machine.

    def power_cut(self, random: Random) -> None:
        """Lose or tear everything unsynced; every open file and lock of this life is dead."""
        for inode in self._inodes():
            inode.lose(random)
            self.torn_files += inode.durable.data != inode.seen.data
        for folder in list(self._folders(self._root)):
            folder.lose(random)
        for inode in self._inodes():
            inode.forget_cache()
        self.kill()

    def kill(self) -> None:
        """End the process: its files and locks are gone, what it wrote stays in the cache."""
        self.life += 1
        self._freeing.clear()
        self.hook = None
        self._locks.clear()

    def wipe(self, path: str) -> None:
        """Remove a folder and everything below, durably: a replaced disk."""
        folder, name = self._parent(path)
        folder.seen.pop(name, None)
        folder.durable.pop(name, None)
        folder.pending = [change for change in folder.pending if change.name != name]

    def move(self, source: str, target: str) -> None:
        """Rename a file or folder durably, as an operator would while the member is stopped."""
        folder, name = self._parent(source)
        other, new_name = self._parent(target)
        node = folder.seen[name]
        self.wipe(source)
        other.seen[new_name] = other.durable[new_name] = node

    def flip(self, path: str, offset: int, mask: int = 1) -> None:
        """Damage one byte on the disk and in the cache: `mask` says which bits change."""
        inode = self._inode(path)
        for image in (inode.seen, inode.durable):
            image.write(offset, bytes([image.read(1, offset)[0] ^ mask]))

    def byte_at(self, path: str, offset: int) -> int | None:
        """Return a byte of a file as processes see it; None when it does not exist."""
        node = self._find(path)
        if not isinstance(node, Inode) or offset >= node.seen.size:
            return None
        return node.seen.read(1, offset)[0]

    def break_sector(self, path: str, sector: int) -> None:
        """Let reads of one sector fail with EIO until it is written again."""
        self._inode(path).bad_sectors.add(sector)

    def is_broken(self, path: str, sector: int) -> bool:
        """Tell whether a file exists, and reads of one of its sectors fail."""
        node = self._find(path)
        return isinstance(node, Inode) and sector in node.bad_sectors

    def size_of(self, path: str) -> int:
        """Return a file's size as processes see it."""
        return self._inode(path).seen.size

    def content(self, path: str) -> bytes:
        """Return a file's bytes as processes see them."""
        inode = self._inode(path)
        return inode.seen.read(inode.seen.size, 0)

    def used_bytes(self) -> int:
        """Return what all files hold that are named or not freed yet, in whole blocks."""
        held = {*self._freeing, *self._inodes_seen()}
        return sum(-(-node.allocated // BLOCK_SIZE) * BLOCK_SIZE for node in held)

    def _inodes_seen(self) -> Iterator[Inode]:
        """Iterate over the files as processes see them, once for each name."""
        waiting = [self._root]
        while waiting:
            for node in waiting.pop().seen.values():
                if isinstance(node, _Folder):
                    waiting.append(node)
                else:
                    yield node

    # Used by SimFile.

    def enter(self, call: str, path: str) -> None:
        """Count a call and let hook and switches decide whether it fails."""
        if call not in ("read", "size", "names"):
            self.calls += 1
        self._free_some()
        if self.hook is not None:
            self.hook(call, path)
        if call in self.failing:
            number = self.failing[call]
            raise OSError(number, f"{os.strerror(number)} (simulated {call})", path)

    def charge(self, inode: Inode, size: int, path: str) -> None:
        """Refuse growth of a file to `size` bytes that the budget does not cover."""
        if self.budget_bytes is None or size <= inode.allocated:
            return
        more = -(-size // BLOCK_SIZE) * BLOCK_SIZE - -(-inode.allocated // BLOCK_SIZE) * BLOCK_SIZE
        if more > 0 and self.used_bytes() + more > self.budget_bytes:
            raise OSError(errno.ENOSPC, "no space left on the simulated disk", path)

    # Inside.

    def _free_some(self) -> None:
        if self._freeing:
            self._freeing = {node: left - 1 for node, left in self._freeing.items() if left > 1}

    def _find(self, path: str) -> Inode | _Folder | None:
        node: Inode | _Folder | None = self._root
        for part in _parts(path):
            if not isinstance(node, _Folder):
                return None
            node = node.seen.get(part)
        return node

    def _folder(self, path: str) -> _Folder:
        node = self._find(path)
        if not isinstance(node, _Folder):
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def _parent(self, path: str) -> tuple[_Folder, str]:
        parts = _parts(path)
        return self._folder("/".join(parts[:-1])), parts[-1]

    def _folders(self, folder: _Folder) -> Iterator[_Folder]:
        yield folder
        for node in {id(n): n for n in (*folder.seen.values(), *folder.durable.values())}.values():
            if isinstance(node, _Folder):
                yield from self._folders(node)

    def _inodes(self) -> Iterator[Inode]:
        met: set[int] = set()
        for folder in list(self._folders(self._root)):
            changed = [change.node for change in folder.pending]
            for node in (*folder.seen.values(), *folder.durable.values(), *changed):
                if isinstance(node, Inode) and id(node) not in met:
                    met.add(id(node))
                    yield node


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
