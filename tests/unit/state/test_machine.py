"""The machine as a whole: determinism, restart from any flush, format level, unknown commands."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from dledger.state import machine
from dledger.state.commands.command import Command
from dledger.state.commands.registry import UnknownCommand, encode
from dledger.state.format_level import SetFormatLevel
from dledger.state.lookup import key_index
from dledger.state.machine import StateMachine
from dledger.state.offsets import CommitOffset
from dledger.state.producers.expiry import ExpireProducers
from dledger.state.producers.registration import RegisterProducer
from dledger.state.progress.commits import CommitOffsets
from dledger.state.queues.holds import Hold, ReleaseHold
from dledger.state.queues.trim import Trim
from dledger.state.results import FormatLevelSet
from dledger.state.tables import NO_DIGEST
from dledger.state.topics.commands import DeleteTopic, UpdateTopic
from dledger.store.lmdb_store import LmdbStore
from dledger.store.store import StateStore
from dledger.types import EntryKind
from dledger_proto.batch.codec import ProducerStamp, Record, encode_batch
from dledger_proto.errors import Code
from tests.unit.state.kit import (
    OTHER_TOPIC,
    TOPIC,
    Driven,
    LogWriter,
    batch,
    code_of,
    create,
    started,
)
from tests.unit.state.memory_store import MemoryStore

PRODUCERS = [b"%016d" % number for number in range(1, 5)]
LIVES = [b"life %011d" % number for number in range(3)]


def random_batch(random: Random, sequences: dict[tuple[bytes, bytes, int], int]) -> bytes:
    topic = random.choice([TOPIC, TOPIC, OTHER_TOPIC])
    queue = random.randrange(5)
    producer = random.choice(PRODUCERS)
    count = random.randint(1, 4)
    key = producer, topic, queue
    sequence = max(sequences.get(key, 0) + random.choice([0, 0, 0, 0, 0, -1, -2, 1]), 0)
    stamp = None
    if random.random() < 0.7:
        stamp = ProducerStamp(producer, random.choice([1, 1, 1, 2]), sequence)
        sequences[key] = max(sequences.get(key, 0), sequence + count)
    keys = tuple(f"k{random.randrange(50)}" for _ in range(random.randrange(3)))
    return encode_batch(
        [Record(random.randbytes(5), keys=keys)] * count, topic_id=topic, queue=queue,
        stamp=stamp, base_number=random.randrange(10_000), base_time_ms=1,
    )  # fmt: skip


def random_command(random: Random, time_ms: int) -> Command[object]:
    topic, queue = random.choice([TOPIC, TOPIC, OTHER_TOPIC]), random.randrange(5)
    offset = random.randrange(200)
    choices: list[Callable[[], Command[object]]] = [
        lambda: RegisterProducer(random.choice(PRODUCERS), random.choice(LIVES), 2),
        lambda: RegisterProducer(random.choice(PRODUCERS), random.choice(LIVES)),
        lambda: ExpireProducers(random.randrange(700_000), random.randrange(3_000_000)),
        lambda: create(TOPIC, "a"),
        lambda: create(OTHER_TOPIC, "b"),
        lambda: UpdateTopic(topic, permission=random.choice([6, 6, 6, 4])),
        lambda: DeleteTopic(OTHER_TOPIC) if random.random() < 0.1 else SetFormatLevel(1),
        lambda: CommitOffsets("cg", (CommitOffset(topic, queue, offset),), random.random() < 0.3),
        lambda: Trim(topic, queue, offset),
        lambda: Hold("h", topic, queue, offset, time_ms + random.randrange(1000)),
        lambda: ReleaseHold("h", topic, queue),
    ]
    return random.choice(choices)()


def random_log(seed: int, length: int) -> LogWriter:
    """Return a log of everything that happens to a group."""
    random, log = Random(seed), LogWriter()
    sequences: dict[tuple[bytes, bytes, int], int] = {}
    first: list[Command[object]] = [create(TOPIC, "a"), create(OTHER_TOPIC, "b")]
    first += [RegisterProducer(producer, LIVES[0]) for producer in PRODUCERS]
    log.add(EntryKind.COMMANDS, [encode(command) for command in first])
    for _ in range(length):
        time_ms = log.time_ms + random.choice([0, 1, 5, 200_000])
        draw = random.random()
        if draw < 0.7:
            payloads = [random_batch(random, sequences) for _ in range(random.randint(1, 6))]
            log.add(EntryKind.BATCHES, payloads, time_ms)
        elif draw < 0.95:
            commands = [random_command(random, time_ms) for _ in range(random.randint(1, 3))]
            log.add(EntryKind.COMMANDS, [encode(command) for command in commands], time_ms)
        else:
            log.add(EntryKind.NO_OP, [], time_ms)
    return log


def save(state: StateMachine) -> None:
    flush = state.freeze()
    if flush is not None:
        flush.execute()
        state.flush_finished(flush)


def everything(store: StateStore) -> dict[bytes, bytes]:
    return dict(store.scan(b"\1", b"\xff", 1_000_000))


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that merges are part of every history."""
    for name, value in (
        ("LEVEL_0_ENTRIES", 32), ("MERGE_PACE", 16), ("MERGE_STEP", 20), ("RUNS_PER_MERGE", 4),
        ("ENTRIES_PER_BLOCK", 5), ("LEVEL_0_BLOCK_SIZE", 200),
    ):  # fmt: skip
        monkeypatch.setattr(key_index, name, value)


@pytest.mark.parametrize("seed", range(8))
def test_members_are_equal_whatever_they_saved_and_restarted(seed: int) -> None:
    """One applies straight through; the other saves, loses power, restarts, replays (I4, I10)."""
    log = random_log(seed, 400)
    straight = StateMachine(MemoryStore(), "g1")
    digests = [NO_DIGEST]
    results = []
    for entry in log.entries:
        results.append(straight.apply(entry))
        digests.append(straight.digest)
    random = Random(seed + 1000)
    store = MemoryStore()
    state = StateMachine(store, "g1")
    restarts = 0
    while state.applied_index < len(log.entries):
        entry = log.entries[state.applied_index]
        assert state.apply(entry) == results[entry.ref.index - 1]
        assert state.digest == digests[entry.ref.index]
        draw = random.random()
        if draw < 0.1:
            save(state)
        elif draw < 0.15:
            saved, flush = state.saved_index, state.freeze()
            assert flush is not None
            executed = random.random() < 0.7
            if executed:
                flush.execute()
            lost = random.random() < 0.5
            store = store.power_cut(lose_last=lost)
            state = StateMachine(store, "g1")
            restarts += 1
            assert state.applied_index == (flush.applied_index if executed and not lost else saved)
            assert state.saved_index == state.applied_index
            assert state.digest == digests[state.applied_index]
    assert restarts > 3
    assert everything(store) == everything(straight._store)


def test_lmdb_equals_memory(tmp_path: Path) -> None:
    log = random_log(77, 150)
    memory = StateMachine(MemoryStore(), "g1")
    on_disk = LmdbStore(f"{tmp_path}/state", 1 << 26)
    for entry in log.entries:
        memory.apply(entry)
    state = StateMachine(on_disk, "g1")
    for entry in log.entries:
        state.apply(entry)
        if entry.ref.index % 20 == 0:
            save(state)
            state.close()
            on_disk = LmdbStore(f"{tmp_path}/state", 1 << 26)
            state = StateMachine(on_disk, "g1")
            assert state.applied_index == entry.ref.index
    assert state.digest == memory.digest
    assert everything(on_disk) == everything(memory._store)
    state.close()


def test_the_digest_depends_on_every_entry() -> None:
    """Golden: a change of any row or of the chain shows here."""
    driven = Driven()
    assert driven.machine.digest == NO_DIGEST
    seen = set()
    driven.one(create())
    seen.add(driven.machine.digest)
    driven.register()
    seen.add(driven.machine.digest)
    driven.append(batch(2, sequence=0, keys=["k"]), batch(queue=1))
    seen.add(driven.machine.digest)
    driven.idle()
    seen.add(driven.machine.digest)
    assert len(seen) == 4
    assert driven.machine.digest.hex() == GOLDEN_DIGEST


GOLDEN_DIGEST = "fe6515b68489d0f7c28253cebe9440b2e8b8bd4e6d4fcf029011cd4293f53b7d"


def test_saved_index_follows_ended_flushes() -> None:
    driven = started()
    assert (driven.machine.applied_index, driven.machine.saved_index) == (1, 0)
    flush = driven.machine.freeze()
    assert flush is not None
    assert flush.applied_index == 1
    driven.append(batch())
    flush.execute()
    assert driven.machine.saved_index == 0
    driven.machine.flush_finished(flush)
    assert (driven.machine.applied_index, driven.machine.saved_index) == (2, 1)
    driven.save()
    assert driven.machine.freeze() is None
    assert driven.machine.saved_index == 2


def test_limits_on_unsaved_rows_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SOFT_LIMIT_BYTES", 20_000)
    monkeypatch.setattr(machine, "HARD_LIMIT_BYTES", 60_000)
    driven = started()
    assert not driven.machine.needs_flush
    while not driven.machine.needs_flush:
        driven.append(batch())
    flush = driven.machine.freeze()
    assert flush is not None
    while not driven.machine.is_backlogged:
        driven.append(batch())
    assert driven.machine.unsaved_bytes > 60_000
    flush.execute()
    driven.machine.flush_finished(flush)
    assert not driven.machine.is_backlogged
    driven.save()
    assert not driven.machine.needs_flush


def test_an_unknown_command_stops_before_anything_took_effect() -> None:
    driven = started()
    before, digest = driven.rows(), driven.machine.digest
    for unknown in (b"\xf0\x01", b"", encode(SetFormatLevel(2))):
        entry = driven.log.add(EntryKind.COMMANDS, [encode(DeleteTopic(TOPIC)), unknown])
        driven.log.entries.pop()
        with pytest.raises(UnknownCommand):
            driven.machine.apply(entry)
    assert driven.rows() == before
    assert driven.machine.digest == digest
    assert driven.machine.applied_index == 1


def test_format_level() -> None:
    driven = started()
    assert driven.machine.format_level == 1
    assert driven.one(SetFormatLevel(1)) == FormatLevelSet(1)
    assert code_of(driven.one(SetFormatLevel(0))) is Code.INVALID_ARGUMENT
    driven.store.put(b"\x01level", b"\x02\0\0\0")
    with pytest.raises(UnknownCommand, match="state of format level 2"):
        StateMachine(driven.store, "g1")
