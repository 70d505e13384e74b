"""Targets: small files of a data folder, dumps and manifests."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from random import Random
from typing import Final

from crc32c import crc32c

from dledger.log.atomic_file import CorruptFile
from dledger.log.checkpoint import Checkpoint, parse_checkpoint
from dledger.log.hard_state import HardState, parse_hard_state
from dledger.log.identity import Identity, parse_identity
from dledger.log.memory.chain import Chain
from dledger.log.memory.samples import Samples
from dledger.log.memory.segment import SegmentIndex, parse_segment_index
from dledger.refill.state_dump import applied_index_of, read_dump, write_dump
from dledger.snapshot.manifest import Manifest, read_manifest
from dledger.state.machine import APPLIED_KEY, APPLIED_VALUE
from dledger.types import LogIndex, MemberId, Position, Term
from dledger_broker.flight.record_file import (
    NoRecord,
    encode_record,
    parse_record,
    shown_events,
)
from dledger_broker.flight.recorder import FlightRecorder, Snapshot
from tests.fuzz.target import Target
from tests.fuzz.targets import reseal
from tests.sim.disk.disk import SimFileSystem
from tests.unit.broker.fakes import ManualClock

LIFE: Final = bytes(range(16))
_PATH: Final = "/f/snapshot.json"
JSON_WORDS: Final = (
    b"[", b"{", b"]", b"}", b'"', b":", b",", b"null", b"true", b"-1", b"1e999", b"0.5", b'"a"',
    b"\\ud800", b"[" * 1_000, b"9" * 5_000, b'{"a":' * 300, b"NaN",
)  # fmt: skip


def file_of(data: bytes) -> SimFileSystem:
    """Return a file system with one file."""
    fs = SimFileSystem(Random(1))
    fs.make_folder("/f")
    file = fs.open(_PATH, create=True)
    if data:
        file.pwritev([data], 0)
    file.close()
    return fs


def _same(
    parse: "Callable[[bytes], Checkpoint | HardState | Identity | SegmentIndex]",
) -> Callable[[bytes], None]:
    """Return a reader of files; what it read has the bytes that it read."""

    def read(data: bytes) -> None:
        found = parse(data)
        assert parse(found.encode()).encode() == found.encode()

    return read


def _dump(data: bytes) -> None:
    for row in read_dump(file_of(data), _PATH):
        applied_index_of(row)


def _dump_seeds() -> Sequence[bytes]:
    fs = file_of(b"")
    applied = APPLIED_VALUE.pack(5, 1, 1_000, 4_096, bytes(APPLIED_VALUE.size)[:8])
    write_dump(fs, _PATH, [(APPLIED_KEY, applied), (b"\x10key", b"value" * 9), (b"\x11", b"")])
    return [fs.content(_PATH)]


def _manifest_seeds() -> Sequence[bytes]:
    manifest = Manifest("s1", "c1", "g1", ("m1", "m2"), "m1", 1, 9, 2, 1_000, "ab" * 8, 2_000, 77)
    return [json.dumps(asdict(manifest), indent=1).encode()]


def _checkpoints() -> Sequence[bytes]:
    end = Chain(LogIndex(9), Position(900), 77, Term(2), 1_000)
    full = Checkpoint(
        LIFE, LogIndex(3), Position(300), Term(1), 5, end, 1, 2, [(300, 3), (600, 6)], [(3, 1)],
        [(6, 600)],
    )  # fmt: skip
    return [Checkpoint().encode(), full.encode()]


def _hard_states() -> Sequence[bytes]:
    lives = {MemberId("m1"): LIFE, MemberId("m2"): LIFE}
    return [HardState().encode(), HardState(Term(3), "m2", lives, True, True).encode()]


def _index_seeds() -> Sequence[bytes]:
    index = SegmentIndex(
        Position(300), Position(900), LogIndex(3), LogIndex(9), 77, 1, 2, b"saltsalt", [(3, 1)],
        Samples([(3, 300), (6, 600)]),
    )  # fmt: skip
    return [index.encode()]


def _identities() -> Sequence[bytes]:
    mine = Identity("c1", "g1", MemberId("m1"), LIFE, LIFE)
    return [mine.encode(), Identity("c1", "g1", MemberId("m1"), LIFE).encode()]


def _record_seeds() -> Sequence[bytes]:
    clock = ManualClock()
    recorder = FlightRecorder(clock)
    for name in ("role", "commit", "link_down"):
        recorder.note("g1", name, {"term": 3, "leader": "b", "id": LIFE, "seconds": 0.5})
        clock.now += 2
    about: dict[str, object] = {"member": "a", "reason": "asked for", "written_ms": 5}
    return [b"".join(encode_record(about, recorder.snapshot()))]


def _resealed_lines(data: bytes) -> bytes:
    texts = [line.partition(b" ")[2] for line in data.split(b"\n")]
    return b"\n".join(b"%08x %s" % (crc32c(text), text) for text in texts[:-1]) + b"\n"


def _record(data: bytes) -> None:
    record = parse_record(data)
    list(shown_events(record.events))
    again = parse_record(b"".join(encode_record({}, Snapshot(record.events, 0))))
    assert [event[:4] for event in again.events] == [event[:4] for event in record.events]


TARGETS: Final = (
    Target(
        "flight-record", _record, (NoRecord,), _record_seeds,
        ("dledger_broker.flight.record_file:parse_record",), _resealed_lines, tokens=JSON_WORDS,
        multiple=128,
    ),
    Target(
        "file-checkpoint", _same(parse_checkpoint), (CorruptFile,), _checkpoints,
        ("dledger.log.checkpoint:parse_checkpoint",), reseal.small_file,
    ),
    Target(
        "file-hard-state", _same(parse_hard_state), (CorruptFile,), _hard_states,
        ("dledger.log.hard_state:parse_hard_state",), reseal.small_file,
    ),
    Target(
        "file-identity", _same(parse_identity), (CorruptFile,), _identities,
        ("dledger.log.identity:parse_identity",), reseal.small_file,
    ),
    Target(
        "file-index", _same(parse_segment_index), (CorruptFile,), _index_seeds,
        ("dledger.log.memory.segment:parse_segment_index",), reseal.small_file,
    ),
    Target(
        "state-dump", _dump, (CorruptFile,), _dump_seeds,
        (
            "dledger.refill.state_dump:read_dump",
            "dledger.refill.state_dump:applied_index_of",
        ),
        reseal.last_crc, allowance=3 << 20,
    ),
    Target(
        "snapshot-manifest", lambda data: read_manifest(file_of(data), "/f"), (CorruptFile,),
        _manifest_seeds, ("dledger.snapshot.manifest:read_manifest",), tokens=JSON_WORDS,
        multiple=128,
    ),
)  # fmt: skip
