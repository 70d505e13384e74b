"""What a member gives to a peer that is refilled, and what it refuses."""

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger.clock import SystemClock
from dledger.files import OsFileSystem
from dledger.log.errors import DamagedLog
from dledger.raft.driver.worker import ThreadWorker
from dledger.refill.state_dump import read_dump
from dledger.types import LogIndex, MemberId, Position
from dledger_broker.refill.giving import CHUNK_BYTES, Given, Giving
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc import raw
from dledger_proto.rpc.status import CODE_KEY
from dledger_proto.v1 import peers_pb2 as pb
from tests.unit.log.support import Member, filled, headers_in
from tests.unit.repair.support import flip
from tests.unit.state.memory_store import MemoryStore

COMMITTED = 30


class Aborted(Exception):
    """A stream that ended with a status."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass
class Context:
    """The end of a stream that the giver writes to."""

    parts: list[bytes] = field(default_factory=list[bytes])
    stop_after: int = 1 << 30
    is_of_state: bool = False

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("dledger-member", "m2")]

    def auth_context(self) -> dict[str, Any]:
        return {}

    async def write(self, part: bytes) -> None:
        if self.is_of_state and not pb.ReadStatePart.FromString(part).size:
            return  # the dump is being written
        self.parts.append(part)
        if len(self.parts) >= self.stop_after:
            raise ConnectionError

    async def abort(self, _code: Any, _detail: str, metadata: Any) -> None:
        raise Aborted(Code(int(dict(metadata)[CODE_KEY])))


class World:
    """A giver with a log of 41 entries, of which 30 are committed, and a state."""

    def __init__(self, folder: Path) -> None:
        fs = OsFileSystem()
        path = str(folder / "data")
        self.member, _ = filled((fs, path), 40)
        self.member.sync()
        self.store = MemoryStore()
        for number in range(2_000):
            self.store.put(b"\x20%06d" % number, bytes(500))
        flush = self.store.freeze()
        assert flush is not None
        flush.execute()
        self.store.flush_finished(flush)
        self.failures: list[BaseException] = []
        host = SimpleNamespace(
            group=SimpleNamespace(commit_index=LogIndex(COMMITTED)), failed=self.failures.append
        )
        self.loop = asyncio.new_event_loop()
        self.dumping: list[str] = []
        self.looked_at: list[int] = []
        view = SimpleNamespace(
            log=self.member.log,
            host=host,
            pool=ThreadPoolExecutor(1),
            clock=SystemClock(),
            look_at=self.looked_at.append,
        )
        self.giving = Giving(self.greet, Random(1))
        self.giving.add_group(
            "g1", Given(cast("Any", view), self.store, fs, path, self.start_worker)
        )

    def start_worker(self, name: str) -> ThreadWorker:
        self.dumping.append(name)
        return ThreadWorker(name)

    def greet(self, said: Any, _names: frozenset[str]) -> Any:
        if said["dledger-member"] != "m2":
            raise DledgerError(Code.WRONG_CLUSTER, "a stranger")
        return "g1", MemberId("m2"), None

    def log(self, from_index: int = 0, max_bytes: int = 1 << 30) -> list[pb.ReadLogPart]:
        context = Context()
        request = pb.ReadLogRequest(from_index=from_index, max_bytes=max_bytes)
        self.run(self.giving._read_log, request, context)
        return [pb.ReadLogPart.FromString(part) for part in context.parts]

    def entries(self, first: int, last: int, shift: int = 0) -> bytes:
        """Ask for entries as a member does whose copies are damaged."""
        log = self.member.log
        begin, end = log.ref(LogIndex(first)), log.ref(LogIndex(last))
        request = pb.ReadEntriesRequest(
            first_index=first,
            last_index=last,
            position=begin.position + shift,
            end_position=end.position + end.size,
        )
        context = Context()
        self.run(self.giving._read_entries, request, context)
        return b"".join(pb.ReadEntriesPart.FromString(part).frames for part in context.parts)

    def state(
        self, dump: bytes = b"", offset: int = 0, stop_after: int = 1 << 30
    ) -> list[pb.ReadStatePart]:
        context = Context(stop_after=stop_after, is_of_state=True)
        request = pb.ReadStateRequest(dump=dump, offset=offset)
        try:
            self.run(self.giving._read_state, request, context)
        except ConnectionError:
            assert len(context.parts) == stop_after
        return [pb.ReadStatePart.FromString(part) for part in context.parts]

    def run(self, behaviour: Any, request: Any, context: Context) -> None:
        work = behaviour(request.SerializeToString(), cast("raw.RawContext", context))
        self.loop.run_until_complete(work)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_only_committed_entries_leave() -> None:
    """A known bug names this test, so it takes no fixture."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        head, *parts = world.log()
        assert (head.first_index, head.commit_index) == (1, COMMITTED)
        frames = b"".join(part.frames for part in parts)
        assert [header.index for header, _ in headers_in(frames)] == list(range(1, COMMITTED + 1))
        assert head.left_bytes == len(frames)


def test_a_stream_goes_on_where_the_receiver_is(world: World) -> None:
    _, *parts = world.log(from_index=20)
    frames = b"".join(part.frames for part in parts)
    assert [header.index for header, _ in headers_in(frames)] == list(range(20, COMMITTED + 1))
    assert world.log(from_index=COMMITTED + 1)[0].left_bytes == 0
    few = world.log(max_bytes=1)
    assert len(few) == 2, "a head, and one part"


def test_what_was_trimmed_is_refused(world: World) -> None:
    log = world.member.log
    log.trim_head(log.ref(LogIndex(20)).position, LogIndex(20))
    world.member.sync()
    first = int(log.first_index)
    with pytest.raises(Aborted, match="HEAD_TRIMMED"):
        world.log(from_index=first - 1)
    head = world.log()[0]
    assert (head.first_index, head.base.index) == (first, first - 1)
    assert (head.base.term, head.base.crc) != (0, 0)


def test_a_dump_goes_on_where_its_stream_broke(world: World, tmp_path: Path) -> None:
    first = world.state(stop_after=2)
    assert len(first) == 2
    at = first[-1].offset + len(first[-1].chunk)
    assert at == 2 * CHUNK_BYTES
    world.store.put(b"\x21later", b"x")
    flush = world.store.freeze()
    assert flush is not None
    flush.execute()
    world.store.flush_finished(flush)
    rest = world.state(first[0].dump, at)
    assert rest[0].offset == at
    assert {part.dump for part in rest} == {first[0].dump}
    dump = b"".join(part.chunk for part in [*first, *rest])
    assert len(dump) == first[0].size
    (tmp_path / "dump").write_bytes(dump)
    rows = list(read_dump(OsFileSystem(), str(tmp_path / "dump")))
    assert len(rows) == 2_000, "of one moment"
    again = world.state(first[0].dump, at)
    assert again[0].offset == 0, "it was sent, so it is gone: a new one begins"
    assert again[0].dump != first[0].dump


def test_a_full_disk_is_said(world: World) -> None:
    world.member.log.space._low_water_bytes = 1 << 62
    with pytest.raises(Aborted, match="DISK_FULL"):
        world.state()
    assert not world.failures
    assert not list((Path(world.member.path) / "dumps").iterdir()), "what was begun is removed"


def test_damage_ends_the_giver(world: World) -> None:
    world.member.close()
    member = Member(OsFileSystem(), world.member.path)
    segments = sorted(Path(member.folder.log_path).glob("*.log"))
    with segments[0].open("r+b") as file:
        file.seek(1_500)
        file.write(b"damage")
    cast("Any", world.giving._groups["g1"].view).log = member.log
    with pytest.raises(Aborted, match="STORAGE_FAILED"):
        world.log()
    assert world.failures


def test_damage_where_entries_are_looked_for_ends_the_giver(world: World) -> None:
    """Where an entry lies is read from the disk, too."""

    class Damaged:
        def __getattr__(self, name: str) -> Any:
            return getattr(world.member.log, name)

        def size_between(self, first: LogIndex, _last: LogIndex) -> int:
            raise DamagedLog("log/1", Position(first), "READ", "short")

    cast("Any", world.giving._groups["g1"].view).log = Damaged()
    with pytest.raises(Aborted, match="STORAGE_FAILED"):
        world.log(from_index=20)
    assert world.failures


def test_exactly_the_entries_that_a_peer_names_are_given(world: World) -> None:
    for first, last in ((1, 1), (7, 9), (1, COMMITTED), (COMMITTED, COMMITTED)):
        frames = world.entries(first, last)
        assert [header.index for header, _ in headers_in(frames)] == list(range(first, last + 1))


def test_only_committed_entries_are_given_for_a_damage() -> None:
    """A known bug names this test, so it takes no fixture."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        with pytest.raises(Aborted, match="UNAVAILABLE"):
            world.entries(COMMITTED + 1, COMMITTED + 1)
        with pytest.raises(Aborted, match="UNAVAILABLE"):
            world.entries(3, COMMITTED + 1)


def test_a_damaged_entry_is_not_given() -> None:
    """The giver looks at its own place. A known bug names this test, so it takes no fixture."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        log = world.member.log
        ref = log.ref(LogIndex(7))
        part = next(each for each in log.parts(LogIndex(COMMITTED)) if ref.position < each.end)
        offset = 128 + ref.position - part.base + ref.size - 5
        flip(world.member.fs, part.path, offset)
        for first, last in ((7, 7), (6, 8)):
            with pytest.raises(Aborted, match="STORAGE_FAILED"):
                world.entries(first, last)
        assert set(world.looked_at) == {ref.position}
        assert not world.failures, "the member goes on"
        assert world.entries(6, 6), "its neighbours are sound"
        assert world.entries(8, 8)


def test_a_peer_that_names_a_wrong_place_gets_nothing(world: World) -> None:
    with pytest.raises(Aborted, match="STORAGE_FAILED"):
        world.entries(7, 7, shift=4)
    with pytest.raises(Aborted, match="INVALID_ARGUMENT"):
        world.entries(9, 8)
