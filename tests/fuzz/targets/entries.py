"""Targets: entry frames, segments, whole data folders of a log."""

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Final

from dledger.files import FileSystem
from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedFile, NewerFormat, WrongFolder
from dledger.log.reading.part import Part
from dledger.log.reading.walk import BadFrame, walk_entries, walk_headers
from dledger.refill.staging import _entries_in
from dledger.repair.scan import Damage, scan
from dledger.types import EntryKind, LogIndex, Position
from dledger_proto.entry import (
    KIND_BATCHES,
    KIND_COMMANDS,
    KIND_GENESIS,
    CorruptEntry,
    SegmentHeader,
    decode_entry,
    encode_genesis,
    frame_entry,
    parse_entry_header,
    parse_segment_header,
    parse_segment_name,
    segment_name,
)
from dledger_proto.errors import DledgerError
from dledger_proto.segments import DamagedSegment, SegmentFile, SegmentReader
from tests.fuzz.target import Target
from tests.fuzz.targets import reseal
from tests.fuzz.targets.batches import made
from tests.sim.disk.disk import SimFileSystem
from tests.unit.log.support import SMALL, Member, open_folder

LIFE: Final = bytes(range(16))
_FOLDER: Final = "/m1"


def chain() -> Sequence[bytes]:
    """Return entries of every kind that follow each other."""
    genesis = encode_genesis("c1", "g1", LIFE, [("m1", LIFE), ("m2", LIFE)])
    kinds: Sequence[tuple[int, Sequence[bytes]]] = (
        (KIND_GENESIS, [genesis]),
        (KIND_COMMANDS, [b"one", b"", b"three"]),
        (0, []),
    )
    found: list[bytes] = []
    crc = position = 0
    for index, (kind, payloads) in enumerate((*kinds, (KIND_BATCHES, [made()])), 1):
        header, crc = frame_entry(
            kind, payloads, index=index, term=1 + index // 3, time_ms=1_000 + index,
            position=position, previous_crc=crc,
        )  # fmt: skip
        found.append(b"".join((header, *payloads)))
        position += len(found[-1])
    return found


def _entry(data: bytes) -> None:
    header = parse_entry_header(data)
    header.describe()
    entry = decode_entry(data, check_payloads=True)
    assert entry.header == header
    assert sum(map(len, entry.payloads)) + header.header_size == header.size


def _walk(data: bytes) -> None:
    """Both walks see the same entries of a log that begins with these bytes."""

    def read(size: int, position: Position) -> bytes:
        return data[position : position + size]

    end = Position(len(data))
    seen = [entry.header for entry in walk_entries(read, Position(0), end)]
    assert list(walk_headers(read, Position(0), end)) == seen


def _refill(data: bytes) -> None:
    """What a member that is refilled looks at before it takes entries."""
    _entries_in(data)


def _segment_header(data: bytes) -> None:
    header = parse_segment_header(data)
    assert parse_segment_header(header.encode()) == header


def _segment_name(data: bytes) -> None:
    name = data.decode(errors="replace")
    base = parse_segment_name(name)
    if base is not None:
        assert segment_name(base) == name


def _segments(data: bytes) -> None:
    """Read a span of two files, the second of which holds the input."""
    files = dict(_segment_files())
    names = sorted(files)
    files[names[-1]] = data

    def file(name: str) -> SegmentFile:
        content = files[name]
        return SegmentFile(name, len(content), lambda size, at: content[at : at + size])

    reader = SegmentReader([file(name) for name in names])
    base = reader.first_position
    assert base is not None
    reader.locate(base)
    reader.read_span(base, 3_000)


def _files(fs: SimFileSystem, path: str) -> dict[str, bytes]:
    return {name: fs.content(f"{path}/{name}") for name in fs.names(path) if "lock" not in name}


def _scan(data: bytes) -> None:
    """Look for damage in a segment whose file was exchanged, then in its index."""
    parts, fs = _parts()
    for place, path in enumerate((parts[1].path, parts[1].index_path)):
        before = fs.content(path)
        _replace(fs, path, data)
        found = [each for each in scan(fs, parts[1]) if isinstance(each, Damage)]
        if place and data != before:
            assert found, "damage that nobody sees"
        for each in found:
            each.describe()
        _replace(fs, path, before)


@cache
def _parts() -> tuple[list[Part], SimFileSystem]:
    fs = SimFileSystem(Random(1))
    member = _filled(fs)
    return member.log.parts(member.log.last_index), fs


def _replace(fs: SimFileSystem, path: str, content: bytes) -> None:
    file = fs.open(path)
    file.truncate(0)
    file.pwritev([content], 0)
    file.close()


def _filled(fs: SimFileSystem) -> Member:
    fs.make_folder(_FOLDER)
    member = Member(fs, _FOLDER)
    member.genesis()
    random = Random(2)
    for _ in range(14):
        member.append(random.randbytes(700), random.randbytes(40))
        member.sync()
    return member


@cache
def _data_folder() -> tuple[tuple[str, bytes], ...]:
    """Return the files of a member's folder: several segments, their indexes, the small files."""
    fs = SimFileSystem(Random(1))
    member = _filled(fs)
    member.close()
    tops = ("checkpoint", "hard_state", "identity")
    found = {f"log/{name}": content for name, content in _files(fs, f"{_FOLDER}/log").items()}
    found |= {name: fs.content(f"{_FOLDER}/{name}") for name in tops}
    return tuple(sorted(found.items()))


def _segment_files() -> Sequence[tuple[str, bytes]]:
    return [
        (name.removeprefix("log/"), content)
        for name, content in _data_folder()
        if name.endswith(".log")
    ][:2]


def _folder(data: bytes) -> None:
    """Open a folder with one file exchanged; then read all entries. The first byte says which."""
    files = dict(_data_folder())
    if data:
        names = [*files, "log/99999999999999999999.log", "log/00000000000000000000.idx.tmp"]
        files[names[data[0] % len(names)]] = data[1:]
    fs = SimFileSystem(Random(3))
    fs.make_folder(_FOLDER)
    fs.make_folder(f"{_FOLDER}/log")
    for name, content in files.items():
        file = fs.open(f"{_FOLDER}/{name}", create=True)
        file.pwritev([content], 0)
        file.fdatasync()
        file.close()
    _read_all(fs)


def _read_all(fs: FileSystem) -> None:
    folder = open_folder(fs, _FOLDER)
    log = None
    try:
        log = CommitLog(fs, folder, SMALL, Random(4))
        index = log.first_index
        while index <= log.last_index:
            found = list(log.entries(index, log.last_index, 100_000))
            assert found
            assert all(isinstance(entry.kind, EntryKind) for entry in found)
            index = LogIndex(index + len(found))
    finally:
        if log is not None:
            log.close()
        folder.close()


def _folder_seeds() -> Sequence[bytes]:
    return [bytes((place,)) + content for place, (_, content) in enumerate(_data_folder())]


def _reseal_file(data: bytes) -> bytes:
    """Reseal as the file that the first byte names needs it."""
    names = [name for name, _ in _data_folder()]
    is_segment = bool(data) and names[data[0] % len(names)].endswith(".log")
    return data[:1] + (reseal.segment if is_segment else reseal.small_file)(data[1:])


def _scan_seeds() -> Sequence[bytes]:
    parts, fs = _parts()
    return [fs.content(parts[1].path), fs.content(parts[1].index_path)]


def _header_seeds() -> Sequence[bytes]:
    return [SegmentHeader(LIFE, 4_096, 7, 2, 5, b"saltsalt").encode()]


_ENTRY: Final = "dledger_proto.entry"
TARGETS: Final = (
    Target(
        "entry", _entry, (CorruptEntry,), chain,
        (f"{_ENTRY}:parse_entry_header", f"{_ENTRY}:decode_entry"), reseal.entry,
    ),
    Target(
        "entry-walk", _walk, (BadFrame,), lambda: [b"".join(chain()), *chain()[:2]],
        ("dledger.log.reading.walk:walk_entries", "dledger.log.reading.walk:walk_headers"),
        reseal.entries, allowance=4 << 20,
    ),
    Target(
        "entry-refill", _refill, (CorruptEntry,), lambda: [b"".join(chain())],
        ("dledger.refill.staging:Staging.append",), reseal.entries,
    ),
    Target(
        "segment-header", _segment_header, (CorruptEntry,), _header_seeds,
        (f"{_ENTRY}:parse_segment_header",), reseal.segment,
    ),
    Target(
        "segment-name", _segment_name, (), lambda: [b"00000000000000004096.log"],
        (f"{_ENTRY}:parse_segment_name",), tokens=(b".log", b"9", b"0" * 20, "²".encode()),
    ),
    Target(
        "segments", _segments, (DamagedSegment, DledgerError),
        lambda: [content for _, content in _segment_files()],
        ("dledger_proto.segments:SegmentReader",), reseal.segment,
    ),
    Target(
        "repair-scan", _scan, (NewerFormat,), _scan_seeds, ("dledger.repair.scan:scan",),
        lambda data: (reseal.segment if data[:4] == b"DLS1" else reseal.small_file)(data),
        allowance=4 << 20, multiple=64, tries=500,
    ),
    Target(
        "data-folder", _folder, (DamagedFile, NewerFormat, WrongFolder), _folder_seeds,
        (
            "dledger.log.recovery.recover:recover", "dledger.log.reading.lookup:Lookup",
            "dledger.log.commit_log:CommitLog",
        ),
        _reseal_file, multiple=64, allowance=8 << 20, tries=250,
    ),
)  # fmt: skip
