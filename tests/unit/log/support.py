"""What the log's tests share: a log under test with its folder, entries, and a plain list model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from dledger.files import FileSystem
from dledger.log.commit_log import CommitLog
from dledger.log.folder import DataFolder
from dledger.log.hard_state import HardState
from dledger.log.settings import LogSettings
from dledger.log.writing.write_round import Round
from dledger.types import EntryKind, EntryRef, LogIndex, MemberId, Span, Term
from dledger_proto.entry import EntryHeader, encode_genesis, parse_entry_header

Disk = tuple[FileSystem, str]
GROUP_ID = bytes(range(16))
GENESIS = encode_genesis("c1", "g1", GROUP_ID, [("m1", b"1" * 16), ("m2", b"2" * 16)])
SMALL = LogSettings(
    segment_size=4096,
    tail_cache_bytes=6000,
    checkpoint_bytes=3000,
    allocate_bytes=1024,
    reserve_bytes=16384,
    low_water_bytes=8192,
)


@dataclass(frozen=True, slots=True)
class Written:
    """An entry as the model remembers it."""

    ref: EntryRef
    payloads: tuple[bytes, ...]
    kind: EntryKind = EntryKind.COMMANDS


@dataclass(slots=True)
class Model:
    """What the log must hold: entry i at `entries[i - 1]`."""

    entries: list[Written] = field(default_factory=list[Written])

    def cut(self, index: int) -> None:
        del self.entries[index - 1 :]


def open_folder(fs: FileSystem, path: str, seed: int = 0) -> DataFolder:
    return DataFolder.open(fs, path, "c1", "g1", MemberId("m1"), Random(seed))


class Member:
    """A log with its folder, opened and reopened on one file system."""

    def __init__(
        self, fs: FileSystem, path: str, settings: LogSettings = SMALL, seed: int = 0
    ) -> None:
        self.fs = fs
        self.path = path
        self.settings = settings
        self.random = Random(seed)
        self.folder = open_folder(fs, path, self.random.randrange(1 << 30))
        self.log = CommitLog(fs, self.folder, settings, self.random)

    def reopen(self, *, close: bool) -> None:
        """Open again after a clean end, or as after a kill: then only the lock is given up."""
        if close:
            self.log.close()
        self.folder.close()
        self.folder = open_folder(self.fs, self.path, self.random.randrange(1 << 30))
        self.log = CommitLog(self.fs, self.folder, self.settings, self.random)

    def close(self) -> None:
        self.log.close()
        self.folder.close()

    def sync(self, hard_state: HardState | None = None) -> None:
        """Run one round, if anything is dirty."""
        taken = self.log.take_round(hard_state)
        if taken is not None:
            taken.execute()
            self.log.round_finished(taken)

    def take(self) -> Round:
        taken = self.log.take_round(None)
        assert taken is not None
        return taken

    def genesis(self) -> Written:
        ref = self.log.write_genesis(GENESIS, GROUP_ID)
        return Written(ref, (GENESIS,), EntryKind.GENESIS)

    def append(self, *payloads: bytes, term: int = 1) -> Written:
        log = self.log
        ref = log.append_new(EntryKind.COMMANDS, payloads, Term(term), log.last_time_ms + 1)
        return Written(ref, payloads)


def fill(member: Member, model: Model, count: int, seed: int = 1, term: int = 1) -> None:
    random = Random(seed)
    for _ in range(count):
        payloads = [random.randbytes(random.randrange(900)) for _ in range(random.randrange(1, 4))]
        model.entries.append(member.append(*payloads, term=term))


def filled(disk: Disk, count: int = 40, settings: LogSettings = SMALL) -> tuple[Member, Model]:
    member = Member(*disk, settings=settings)
    model = Model([member.genesis()])
    fill(member, model, count)
    return member, model


def frames_of(log: CommitLog, first: int, last: int) -> bytes:
    """Return the raw frames of entries, as a leader sends them."""
    parts: list[bytes] = []
    index = LogIndex(first)
    while index <= last:
        payload = log.payload(index, 1 << 20)
        if payload.buffers is None:
            parts.append(log.read_span(payload.span))
        else:
            parts.append(b"".join(payload.buffers))
        index = LogIndex(payload.last + 1)
    whole = b"".join(parts)
    return whole[: log.size_between(LogIndex(first), LogIndex(last))]


def headers_in(buffer: bytes) -> list[tuple[EntryHeader, int]]:
    found: list[tuple[EntryHeader, int]] = []
    offset = 0
    while offset < len(buffer):
        header = parse_entry_header(buffer, offset)
        found.append((header, offset))
        offset += header.size
    return found


def replicate(source: CommitLog, target: CommitLog, last: int | None = None) -> None:
    first = target.last_index + 1
    end = source.last_index if last is None else last
    if first <= end:
        buffer = frames_of(source, first, end)
        target.append_frames(buffer, headers_in(buffer))


def check_holds(log: CommitLog, expected: Sequence[Written], *, first: int = 1) -> None:
    """Compare everything the log says with the model; `expected[0]` has index 1."""
    assert log.last_index == len(expected)
    assert log.first_index == first
    index = first
    while index <= log.last_index:
        for entry in log.entries(LogIndex(index), log.last_index, 5000):
            wanted = expected[index - 1]
            assert entry.ref == wanted.ref
            assert tuple(map(bytes, entry.payloads)) == wanted.payloads
            assert entry.kind == wanted.kind
            assert log.term_at(entry.ref.index) == wanted.ref.term
            index += 1
    for wanted in expected[first - 1 :]:
        assert log.ref(wanted.ref.index) == wanted.ref
    assert log.term_at(LogIndex(len(expected) + 1)) is None
    if expected:
        last = expected[-1].ref
        assert (log.last_crc, log.last_term) == (last.crc, last.term)
        assert log.last_position == last.position + last.size
    if len(expected) >= first:
        check_bytes(log, expected[first - 1 :])


def check_bytes(log: CommitLog, expected: Sequence[Written]) -> None:
    """Read every payload by its position, from memory and, when durable, from the disk."""
    for wanted in expected:
        at = wanted.ref.position + wanted.ref.size
        for payload in reversed(wanted.payloads):
            at -= len(payload)
            span = Span(type(wanted.ref.position)(at), len(payload))
            held = log.tail_span(span)
            if held is not None:
                assert b"".join(held) == payload
            if wanted.ref.index <= log.durable_index:
                assert log.read_span(span) == payload
            else:
                assert held is not None or not payload
