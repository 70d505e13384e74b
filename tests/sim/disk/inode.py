"""A file of the simulated disk: its bytes as processes see them, and as a power cut leaves them.

Owns: which unsynced operations survive, and how a write is torn (see `disk.py` for the model).
Does not own names, space, nor failures.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

SECTOR_SIZE = 512


@dataclass(frozen=True, slots=True)
class Write:
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    size: int


@dataclass(frozen=True, slots=True)
class Grow:
    """An allocation: the size is at least this, new bytes read as zeros."""

    size: int


Operation = Write | Resize | Grow


class Image:
    """The bytes of a file; what lies beyond `data` and below `size` reads as zeros."""

    __slots__ = ("data", "size")

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0

    def run(self, operation: Operation) -> None:
        if isinstance(operation, Write):
            self.write(operation.offset, operation.data)
        elif isinstance(operation, Grow):
            self.size = max(self.size, operation.size)
        else:
            del self.data[operation.size :]
            self.size = operation.size

    def write(self, offset: int, data: bytes) -> None:
        if len(self.data) < offset:
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data
        self.size = max(self.size, offset + len(data))

    def read(self, size: int, offset: int) -> bytes:
        size = max(0, min(size, self.size - offset))
        found = bytes(self.data[offset : offset + size])
        return found + bytes(size - len(found))

    def copy(self) -> "Image":
        image = Image()
        image.data = bytearray(self.data)
        image.size = self.size
        return image


class Inode:
    """A file: what processes see, what is durable, and the unsynced operations between the two."""

    def __init__(self) -> None:
        self.seen = Image()
        self.durable = Image()
        self.pending: list[Operation] = []
        self.allocated = 0
        self.bad_sectors: set[int] = set()

    def run(self, operation: Operation) -> None:
        self.seen.run(operation)
        self.pending.append(operation)
        self.allocated = (
            operation.size if isinstance(operation, Resize) else max(self.allocated, self.seen.size)
        )

    def sync(self) -> None:
        for operation in self.pending:
            self.durable.run(operation)
        self.pending.clear()

    def lose(self, random: Random) -> None:
        """Let a random part of the unsynced operations reach the disk, forget the rest."""
        for operation in self.pending:
            if isinstance(operation, Write):
                for offset, data in _torn(operation, random):
                    self.durable.write(offset, data)
            elif random.random() < 0.5:
                self.durable.run(operation)
        self.pending.clear()

    def forget_cache(self) -> None:
        self.seen = self.durable.copy()
        self.allocated = self.seen.size


def _torn(write: Write, random: Random) -> Iterator[tuple[int, bytes]]:
    """Yield the surviving sectors of one write, as runs of bytes."""
    first = write.offset // SECTOR_SIZE
    last = (write.offset + len(write.data) - 1) // SECTOR_SIZE
    count = last - first + 1
    how = random.randrange(5)
    if how == 0:
        kept: Sequence[int] = range(count)
    elif how == 1:
        kept = range(0)
    elif how == 2:
        kept = range(random.randrange(count + 1))
    elif how == 3:
        kept = range(random.randrange(count + 1), count)
    else:
        chance = random.random()
        kept = [i for i in range(count) if random.random() < chance]
    for i in kept:
        start = max(write.offset, (first + i) * SECTOR_SIZE)
        end = min(write.offset + len(write.data), (first + i + 1) * SECTOR_SIZE)
        yield start, write.data[start - write.offset : end - write.offset]
