"""A log in memory, a disk that dies, and an engine that runs where it is called."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa

from dledger_client.arrow import schema_of
from dledger_client.errors import error_of
from dledger_client.export.files.storage import Disk
from dledger_client.export.layout import MS_PER_DAY, FrozenQueue, Piece, day_of
from dledger_client.export.manifests.records import Identity
from dledger_client.export.source import (
    Compacted,
    DataLost,
    FreezeRequest,
    FrozenLog,
    RangeUnreadable,
)
from dledger_client.export.task import Made, Work, make_one
from dledger_client.unreadable import Unreadable
from dledger_proto.errors import Code

DAY0: Final = 20_000 * MS_PER_DAY
IDENTITY: Final = Identity("c1", "orders", "00" * 16)
RECORD_BYTES: Final = 100_000
"""What the fake says of each record's size, so that a few of them fill a file."""
BATCH_ROWS: Final = 7


def body_of(queue: int, offset: int) -> bytes:
    """Return what is stored there: a function of the place, so any duplicate or gap shows."""
    return struct.pack("<iq", queue, offset) * (1 + offset % 3)


def rows_of(
    queue: int, start: int, end: int, columns: Sequence[str], records_per_day: int
) -> pa.RecordBatch:
    """Return rows as the decoder makes them."""
    offsets = range(start, end)
    times = [(DAY0 + offset * MS_PER_DAY // records_per_day) * 1_000 for offset in offsets]
    values: dict[str, list[object]] = {
        "topic": ["orders" for _ in offsets],
        "queue_id": [queue for _ in offsets],
        "queue_offset": [*offsets],
        "store_timestamp": [*times],
        "born_timestamp": [
            None if offset % 5 == 0 else time for offset, time in zip(offsets, times, strict=True)
        ],
        "key": [None if offset % 4 == 0 else f"k{offset}" for offset in offsets],
        "tag": ["a" if offset % 2 else None for offset in offsets],
        "body": [body_of(queue, offset) for offset in offsets],
        "properties": [[("n", str(offset))] if offset % 3 else [] for offset in offsets],
    }
    schema = schema_of(columns)
    arrays = [pa.array(values[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(slots=True)
class FakeLog:
    """Committed ends and minimums that a test moves. Pickles, so a pool can read it, too."""

    ends: dict[int, int]
    minimums: dict[int, int] = field(default_factory=dict[int, int])
    identity: Identity = IDENTITY
    records_per_day: int = 40
    batch_rows: int = BATCH_ROWS
    is_overdue: bool = False
    grows: int = 0
    """Each queue, whenever it was looked at."""
    trimmed_after_freeze: dict[int, int] = field(default_factory=dict[int, int])
    unreadable: dict[int, tuple[tuple[int, int], ...]] = field(
        default_factory=dict[int, tuple[tuple[int, int], ...]]
    )
    """Batches that nobody can decode, first offset and one above the last, by queue, in order."""
    gone: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    """Offsets whose records are compacted, by queue."""
    is_away: bool = False
    """Nobody answers who reads."""

    def freeze(self, request: FreezeRequest) -> FrozenLog:
        """Return everything up to the ends."""
        queues = []
        for queue, end in sorted(self.ends.items()):
            minimum = self.minimums.get(queue, 0)
            start = request.begin(queue, minimum, max(minimum, self._at(request.since_ms, 0)))
            maximum, end = end, min(end, self._at(request.until_ms, end))
            sizes = ((0, 0), (max(end, 1), max(end, 1) * RECORD_BYTES))
            days = [
                (number * self.records_per_day, day_of(DAY0 + number * MS_PER_DAY))
                for number in range(end // self.records_per_day + 1)
            ]
            queues.append(FrozenQueue(queue, start, minimum, end, maximum, sizes, tuple(days)))
        self.ends = {queue: end + self.grows for queue, end in self.ends.items()}
        identity = replace(self.identity, topic=request.topic)
        return FrozenLog(identity, tuple(queues), self.is_overdue)

    def ranges(self) -> "FakeLog":
        """Return itself."""
        return self

    def _at(self, time_ms: int | None, default: int) -> int:
        if time_ms is None:
            return default
        return -(-(time_ms - DAY0) * self.records_per_day // MS_PER_DAY)

    def read(self, piece: Piece, columns: Sequence[str]) -> Iterator[pa.RecordBatch | Compacted]:
        """Yield a range in small batches."""
        if self.is_away:
            raise error_of(Code.NO_LEADER, "nobody leads")
        minimum = self.trimmed_after_freeze.get(piece.queue, 0)
        if piece.start < minimum:
            raise DataLost(piece, minimum)
        bad = [
            (max(first, piece.start), min(last, piece.end))
            for first, last in self.unreadable.get(piece.queue, ())
            if first < piece.end and piece.start < last
        ]
        stop = bad[0][0] if bad else piece.end
        for start in range(piece.start, stop, self.batch_rows):
            end = min(start + self.batch_rows, stop)
            rows = rows_of(piece.queue, start, end, columns, self.records_per_day)
            gone = self.gone.get(piece.queue, frozenset())
            left = rows.filter(pa.array([at not in gone for at in range(start, end)]))
            if left.num_rows:
                yield left
            if left.num_rows < end - start:
                yield Compacted(end - start - left.num_rows)
        if bad:
            what = Unreadable("g", self.identity.topic, piece.queue, *bad[0], "it is garbage")
            raise RangeUnreadable(piece, what)


class HereEngine:
    """Makes one file after the other."""

    def run(self, work: Work, pieces: Sequence[Piece]) -> list[Made]:
        """Return what became of each piece."""
        return [make_one(work, piece, lambda _rows, _bytes: None) for piece in pieces]


class Died(BaseException):
    """The process was killed here. No handler of the product may catch it and go on."""


class QuickDisk(Disk):
    """Does not wait for the hardware."""

    def sync_file(self, path: Path) -> None:
        """Do nothing, to a file that must be there."""
        assert path.exists(), path

    def sync_folder(self, path: Path) -> None:
        """Do nothing, to a folder that must be there."""
        assert path.is_dir(), path


class FaultyDisk(QuickDisk):
    """Counts calls, dies before or after one of them, and knows what a power cut would take.

    A dead process makes no more calls: its `finally` blocks reach the disk in vain.
    """

    def __init__(self, top: Path) -> None:
        self._top = top
        self.calls: list[str] = []
        self.die_at = -1
        """Half steps: 2 k is before call k, 2 k + 1 behind it."""
        self.dead = False
        self.unsynced_files: set[int] = set()
        """Inodes whose bytes are not on disk."""
        self.unsynced_names: dict[Path, set[str]] = {}
        """Names that are not on disk, by folder."""

    def _step(self, what: str, behind: bool = False) -> None:
        if self.dead:
            raise Died(what)
        if not behind:
            self.calls.append(what)
        if self.die_at == 2 * (len(self.calls) - 1) + behind:
            self.dead = True
            raise Died(what)

    def create(self, path: Path) -> BinaryIO:
        self._step(f"create {path}")
        file = super().create(path)
        self.unsynced_files.add(path.stat().st_ino)
        self._named(path)
        self._step("", True)
        return file

    def sync_file(self, path: Path) -> None:
        self._step(f"sync {path}")
        super().sync_file(path)
        self.unsynced_files.discard(path.stat().st_ino)
        self._step("", True)

    def sync_folder(self, path: Path) -> None:
        self._step(f"sync folder {path}")
        super().sync_folder(path)
        self.unsynced_names.pop(path, None)
        self._step("", True)

    def link(self, old: Path, new: Path) -> None:
        self._step(f"link {new}")
        super().link(old, new)
        self._named(new)
        self._step("", True)

    def replace(self, old: Path, new: Path) -> None:
        self._step(f"replace {new}")
        super().replace(old, new)
        self._named(new)
        self._step("", True)

    def unlink(self, path: Path) -> None:
        self._step(f"unlink {path}")
        super().unlink(path)
        self._step("", True)

    def make_folder(self, path: Path) -> None:
        self._step(f"make {path}")
        super().make_folder(path)
        self._named(path)
        self._step("", True)

    def read(self, path: Path) -> bytes:
        self._step(f"read {path}")
        return super().read(path)

    def names(self, path: Path) -> list[str]:
        self._step(f"list {path}")
        return super().names(path)

    def _named(self, path: Path) -> None:
        self.unsynced_names.setdefault(path.parent, set()).add(path.name)

    def power_cut(self) -> None:
        """Take what was not synced: bytes of files, then names."""
        for folder, names in self.unsynced_names.items():
            for name in names:
                _forget(folder / name)
        self.unsynced_names.clear()
        for each in (file for file in self._top.rglob("*") if file.is_file()):
            if each.stat().st_ino in self.unsynced_files:
                each.write_bytes(each.read_bytes()[: each.stat().st_size // 2])
        self.unsynced_files.clear()
        self.dead, self.die_at = False, -1
        self.calls.clear()


def _forget(path: Path) -> None:
    if path.is_dir():
        for each in path.iterdir():
            _forget(each)
        path.rmdir()
    elif path.exists():
        path.unlink()
