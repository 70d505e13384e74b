"""What the state's tests share: a machine under test, fed with entries built by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dledger.state.commands.command import Command
from dledger.state.commands.registry import encode
from dledger.state.machine import StateMachine
from dledger.state.producers.expiry import ExpireProducers
from dledger.state.producers.registration import RegisterProducer
from dledger.state.producers.table import ACTIVITY_STEP_MS, ProducerTable
from dledger.state.results import (
    Appended,
    ProducersExpired,
    Refused,
    Registered,
    Result,
    Taken,
)
from dledger.state.topics.commands import CreateTopic
from dledger.state.values import LayoutPart, TopicType
from dledger.store.store import StateStore
from dledger.types import Entry, EntryKind, EntryRef, LogIndex, Position, Term
from dledger_proto.batch.codec import ProducerStamp, Record, encode_batch
from dledger_proto.errors import Code
from tests.unit.state.memory_store import MemoryStore

TOPIC = b"T" * 16
OTHER_TOPIC = b"U" * 16
PRODUCER = b"P" * 16
LIFE, NEXT_LIFE, THIRD_LIFE = b"1" * 16, b"2" * 16, b"3" * 16
GROUP = "g1"
ENTRY_HEADER_SIZE = 72


class LogWriter:
    """Makes consecutive entries, and keeps them for replay."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.position = 0
        self.time_ms = 1_000

    def add(self, kind: EntryKind, payloads: Sequence[bytes], time_ms: int | None = None) -> Entry:
        """Return the next entry; its time is at least that of the one before."""
        self.time_ms = max(self.time_ms, time_ms or 0)
        starts: list[Position] = []
        at = self.position + ENTRY_HEADER_SIZE + 8 * len(payloads)
        for payload in payloads:
            starts.append(Position(at))
            at += len(payload)
        index = LogIndex(len(self.entries) + 1)
        ref = EntryRef(index, Term(1), Position(self.position), at - self.position, 0)
        entry = Entry(
            ref, kind, self.time_ms, [memoryview(payload) for payload in payloads], starts
        )
        self.position = at
        self.entries.append(entry)
        return entry


def batch(
    count: int = 1,
    *,
    queue: int = 0,
    sequence: int | None = None,
    epoch: int = 1,
    producer: bytes = PRODUCER,
    topic: bytes = TOPIC,
    number: int = 0,
    keys: Sequence[str] = (),
    body: bytes = b"body",
) -> bytes:
    """Return a batch; each record has all the keys."""
    stamp = None if sequence is None else ProducerStamp(producer, epoch, sequence)
    records = [Record(body, keys=tuple(keys))] * count
    return encode_batch(
        records, topic_id=topic, queue=queue, stamp=stamp, base_number=number, base_time_ms=1
    )


def delayed(
    due_ms: int,
    count: int = 1,
    *,
    queue: int = 0,
    sequence: int | None = None,
    number: int = 0,
    keys: tuple[str, ...] = (),
) -> bytes:
    """Return a batch with a delivery time."""
    stamp = None if sequence is None else ProducerStamp(PRODUCER, 1, sequence)
    return encode_batch(
        [Record(b"later", keys=keys)] * count, topic_id=TOPIC, queue=queue, stamp=stamp,
        base_number=number, base_time_ms=1, delivery_time_ms=due_ms,
    )  # fmt: skip


def create(
    topic: bytes = TOPIC,
    name: str = "orders",
    layout: tuple[LayoutPart, ...] = (LayoutPart(GROUP, 4),),
    read_queues: int | None = None,
    permission: int = 6,
) -> CreateTopic:
    """Return a creation, by default with as many queues to read as to write."""
    if read_queues is None:
        read_queues = sum(part.queues for part in layout)
    return CreateTopic(topic, name, TopicType.NORMAL, layout, read_queues, permission)


@dataclass
class Driven:
    """A machine and the log it applies."""

    store: StateStore = field(default_factory=MemoryStore)
    log: LogWriter = field(default_factory=LogWriter)
    group: str = GROUP

    def __post_init__(self) -> None:
        self.machine = StateMachine(self.store, self.group)

    def apply(
        self, kind: EntryKind, payloads: Sequence[bytes], time_ms: int | None = None
    ) -> list[Result]:
        return list(self.machine.apply(self.log.add(kind, payloads, time_ms)))

    def append(self, *batches: bytes, time_ms: int | None = None) -> list[Result]:
        """Apply one entry of batches."""
        return self.apply(EntryKind.BATCHES, batches, time_ms)

    def run(self, *commands: Command[object], time_ms: int | None = None) -> list[Result]:
        """Apply one entry of commands."""
        return self.apply(EntryKind.COMMANDS, [encode(command) for command in commands], time_ms)

    def one(self, command: Command[object], time_ms: int | None = None) -> Result:
        return self.run(command, time_ms=time_ms)[0]

    def count_time(self, ms: int, expiry_ms: int = 1 << 60) -> ProducersExpired:
        """Count so much time in which a leader led, then forget who wrote nothing for `expiry_ms`.

        Of that, a step is what a write may have come later than it is noted.
        """
        for _ in range(ms // ACTIVITY_STEP_MS):
            self.one(ExpireProducers(ACTIVITY_STEP_MS, 1 << 60))
        result = self.one(ExpireProducers(ms % ACTIVITY_STEP_MS, expiry_ms))
        assert isinstance(result, ProducersExpired), result
        return result

    def idle(self, count: int = 1) -> None:
        """Apply entries that change nothing by themselves."""
        for _ in range(count):
            self.apply(EntryKind.NO_OP, [])

    def register(
        self, producer: bytes = PRODUCER, *, life: bytes = LIFE, epoch: int = 0, user: str = ""
    ) -> Registered:
        result = self.one(RegisterProducer(producer, life, epoch, user))
        assert isinstance(result, Registered), result
        return result

    def take_over(self, life: bytes, producer: bytes = PRODUCER, *, user: str = "") -> Registered:
        """Register another life as the client does: it looks whom it follows, then takes over."""
        found = self.one(RegisterProducer(producer, life, user=user))
        assert isinstance(found, Taken), found
        return self.register(producer, life=life, epoch=found.epoch + 1, user=user)

    def save(self) -> None:
        flush = self.machine.freeze()
        if flush is not None:
            flush.execute()
            self.machine.flush_finished(flush)

    def rows(self) -> dict[bytes, bytes]:
        """Return every row of the state."""
        return dict(self.store.scan(b"\0", b"\xff", 1_000_000))


def started(topic: CreateTopic | None = None) -> Driven:
    """Return a machine with one topic of four queues."""
    driven = Driven()
    driven.one(topic or create())
    return driven


def code_of(result: Result) -> Code:
    assert isinstance(result, Refused), result
    return result.code


def offset_of(result: Result) -> int:
    assert isinstance(result, Appended), result
    assert not result.duplicate, result
    return result.base_offset


def producers_of(driven: Driven) -> ProducerTable:
    """Return the table of a machine's producers."""
    return driven.machine._state.producers


def changed_rows(before: dict[bytes, bytes], after: dict[bytes, bytes]) -> set[bytes]:
    """Return the keys of rows that came, went or differ."""
    keys = before.keys() | after.keys()
    return {key for key in keys if before.get(key) != after.get(key)}
