"""Bounds of the producers' table: rows in memory, and rows that one entry writes or deletes."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from dledger.state import tables
from dledger.state.commands.registry import encode
from dledger.state.machine import StateMachine
from dledger.state.producers import expiry
from dledger.state.producers import table as producers
from dledger.state.producers.expiry import EXPIRED_ROWS_MAX, ExpireProducers
from dledger.state.producers.registration import RegisterProducer
from dledger.state.producers.table import (
    ACTIVITY_STEP_MS,
    CACHED_PRODUCERS_MAX,
    CACHED_QUEUES_MAX,
    QUEUE_ROWS_MAX,
    WINDOW_BATCHES,
)
from dledger.state.results import Appended, ProducersExpired, Registered, Result
from dledger.state.tables import Table
from dledger.state.topics.commands import DeleteTopic
from dledger.state.topics.sweep import SWEEP_ROWS_PER_ENTRY
from dledger.state.values import LayoutPart
from dledger.types import EntryKind
from dledger_proto.errors import Code
from dledger_proto.limits import ENTRY_PAYLOADS_MAX, QUEUES_PER_TOPIC_MAX
from tests.unit.state.kit import (
    GROUP,
    LIFE,
    NEXT_LIFE,
    OTHER_TOPIC,
    PRODUCER,
    TOPIC,
    Driven,
    LogWriter,
    batch,
    code_of,
    create,
    offset_of,
    producers_of,
    started,
)
from tests.unit.state.memory_store import MemoryStore
from tests.unit.state.test_restarts import Load

FORGET = ExpireProducers(0, 0)
PRODUCER_TABLES = (
    Table.PRODUCER, Table.PRODUCER_ACTIVITY, Table.PRODUCER_QUEUE, Table.PRODUCER_WINDOW,
)  # fmt: skip


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Counts what is written and deleted, by table."""
    count: Counter[int] = Counter()
    for name in ("put", "append", "delete"):
        method = getattr(tables.Writer, name)

        def counted(
            self: tables.Writer, key: bytes, *args: Any, _do: Any = method, **more: Any
        ) -> None:
            count[key[0]] += 1
            _do(self, key, *args, **more)

        monkeypatch.setattr(tables.Writer, name, counted)
    return count


def forget(driven: Driven) -> Result:
    """Count so much time that all have expired, and take a step of forgetting."""
    driven.count_time(2 * ACTIVITY_STEP_MS)
    return driven.one(FORGET)


def cached(driven: Driven) -> tuple[int, int]:
    """Return how many rows of producers, and of their queues, are in memory."""
    producers = producers_of(driven)
    return len(producers._producers), len(producers._queues)


def test_as_many_producers_are_cached_as_the_bound_says() -> None:
    driven = started()
    names = [b"%016d" % at for at in range(1, 60_001)]
    for first in range(0, len(names), ENTRY_PAYLOADS_MAX):
        driven.run(
            *(RegisterProducer(name, LIFE) for name in names[first : first + ENTRY_PAYLOADS_MAX])
        )
        assert cached(driven)[0] <= CACHED_PRODUCERS_MAX
    results = driven.append(*(batch(producer=name, sequence=0) for name in names[::1_000]))
    assert [offset_of(result) for result in results] == list(range(60)), "all are registered"
    assert cached(driven)[0] <= CACHED_PRODUCERS_MAX


def test_as_many_queues_of_producers_are_cached_as_the_bound_says() -> None:
    driven = started(create(layout=(LayoutPart(GROUP, QUEUES_PER_TOPIC_MAX),)))
    names = [b"%016d" % at for at in range(1, 41)]
    driven.run(*(RegisterProducer(name, LIFE) for name in names))
    for name in names:
        driven.append(
            *(batch(producer=name, queue=at, sequence=0) for at in range(QUEUES_PER_TOPIC_MAX))
        )
        assert cached(driven)[1] <= CACHED_QUEUES_MAX
    again = driven.append(*(batch(producer=name, queue=7, sequence=1) for name in names))
    assert [offset_of(result) for result in again] == list(range(40, 80))


@pytest.mark.parametrize("seed", range(6))
def test_what_is_cached_does_not_show(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries applied without any bound, and with room for a row, give the same and write the same.

    Also within one entry: each has more producers and queues than the small bounds.
    """
    random, log = Random(seed), LogWriter()
    free = StateMachine(MemoryStore(), "g2")
    load = Load(random, free)
    expected: list[tuple[Sequence[Result], bytes]] = []
    for _ in range(300):
        now_ms = log.time_ms + random.choice((1, 1, 100_000))
        if random.random() < 0.6:
            entry = log.add(EntryKind.BATCHES, load.batches(), now_ms)
        else:
            payloads = [encode(load.command(now_ms)) for _ in range(random.randint(1, 6))]
            entry = log.add(EntryKind.COMMANDS, payloads, now_ms)
        results = free.apply(entry)
        if entry.kind is EntryKind.BATCHES:
            load.note(results)
        expected.append((results, free.digest))
    monkeypatch.setattr(producers, "CACHED_PRODUCERS_MAX", 1)
    monkeypatch.setattr(producers, "CACHED_QUEUES_MAX", 1)
    bounded = StateMachine(MemoryStore(), "g2")
    for entry, (results, digest) in zip(log.entries, expected, strict=True):
        assert bounded.apply(entry) == results
        assert bounded.digest == digest
        assert len(bounded._state.producers._producers) <= 1
        assert len(bounded._state.producers._queues) <= 6, "what an entry changes"


def large_producer(topics: int) -> Driven:
    """Return a state with one producer that wrote to all queues of several topics."""
    driven = Driven()
    layout = (LayoutPart(GROUP, QUEUES_PER_TOPIC_MAX),)
    driven.run(*(create(b"%016d" % at, f"t{at}", layout) for at in range(topics)))
    driven.register()
    for at in range(topics):
        driven.append(
            *(
                batch(topic=b"%016d" % at, queue=queue, sequence=0)
                for queue in range(QUEUES_PER_TOPIC_MAX)
            )
        )
    return driven


def test_a_large_producer_is_forgotten_in_bounded_steps(written: Counter[int]) -> None:
    driven = large_producer(12)
    rows = 2 * 12 * QUEUES_PER_TOPIC_MAX
    driven.count_time(2 * ACTIVITY_STEP_MS)
    steps = 0
    while True:
        written.clear()
        result = driven.one(FORGET)
        assert sum(written.values()) <= EXPIRED_ROWS_MAX
        assert producers_of(driven).find(PRODUCER) is None, "from the first step on"
        steps += 1
        if result == ProducersExpired(1, more=False):
            break
        assert result == ProducersExpired(0, more=True)
        driven.save()
    assert steps >= rows // EXPIRED_ROWS_MAX
    assert not [key for key in driven.rows() if key[0] in PRODUCER_TABLES]


def test_windows_of_all_lengths_are_forgotten() -> None:
    driven = started()
    driven.register()
    for queue, count in enumerate((1, WINDOW_BATCHES, 3 * WINDOW_BATCHES)):
        for at in range(count):
            driven.append(batch(queue=queue, sequence=at, number=at))
    assert forget(driven) == ProducersExpired(1, more=False)
    assert not [key for key in driven.rows() if key[0] in PRODUCER_TABLES]


def test_a_half_forgotten_producer_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above its old epoch, in all queues: in those that are forgotten, and in the others."""
    monkeypatch.setattr(expiry, "EXPIRED_ROWS_MAX", expiry.PRODUCER_ROWS + QUEUE_ROWS_MAX + 1)
    driven = started()
    old = driven.register().epoch
    driven.append(*(batch(2, queue=queue, sequence=0) for queue in range(4)))
    driven.append(*(batch(queue=queue, sequence=2) for queue in range(4)))
    assert forget(driven) == ProducersExpired(0, more=True)
    left = [key for key in driven.rows() if key[0] == Table.PRODUCER_QUEUE]
    assert 0 < len(left) < 4
    for sequence in (0, 2, 3):
        refused = driven.append(*(batch(queue=at, sequence=sequence) for at in range(4)))
        assert {code_of(result) for result in refused} == {Code.UNKNOWN_PRODUCER}
    new = driven.register(life=NEXT_LIFE)
    assert new.epoch > old + 1
    assert new.last == (), "what is left of the old epoch tells half of what was stored"
    assert driven.register(life=NEXT_LIFE) == new
    stale = driven.append(*(batch(queue=at, sequence=3) for at in range(4)))
    assert {code_of(result) for result in stale} == {Code.STALE_EPOCH}
    stored = driven.append(*(batch(queue=at, sequence=0, epoch=new.epoch) for at in range(4)))
    assert [offset_of(result) for result in stored] == [3] * 4
    repeat = driven.append(*(batch(queue=at, sequence=0, epoch=new.epoch) for at in range(4)))
    assert repeat == [Appended(3, 1, duplicate=True)] * 4
    expired = [forget(driven) for _ in range(4)]
    assert expired[-1] == ProducersExpired(1, more=False), expired
    assert not [key for key in driven.rows() if key[0] in PRODUCER_TABLES]


def test_a_producer_that_came_back_is_forgotten_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it wrote behind the place where forgetting had stopped is not passed over."""
    monkeypatch.setattr(expiry, "EXPIRED_ROWS_MAX", expiry.PRODUCER_ROWS + QUEUE_ROWS_MAX + 1)
    driven = started()
    driven.register()
    driven.append(*(batch(queue=queue, sequence=0) for queue in range(1, 4)))
    assert forget(driven) == ProducersExpired(0, more=True)
    epoch = driven.register().epoch
    driven.append(batch(queue=0, sequence=0, epoch=epoch))
    while forget(driven) != ProducersExpired(1, more=False):
        pass
    assert not [key for key in driven.rows() if key[0] in PRODUCER_TABLES]


def test_producers_keep_nothing_of_a_deleted_topic(written: Counter[int]) -> None:
    driven = large_producer(3)
    driven.one(create(TOPIC, "kept"))
    driven.append(batch(2, sequence=0))
    driven.run(*(DeleteTopic(b"%016d" % at) for at in range(2)))
    entries = 0
    while driven.machine._state.sweeps[0]._key:
        written.clear()
        driven.idle()
        entries += 1
        changed = sum(written[table] for table in PRODUCER_TABLES)
        assert changed <= QUEUE_ROWS_MAX * SWEEP_ROWS_PER_ENTRY
    assert entries <= 3 * QUEUES_PER_TOPIC_MAX // SWEEP_ROWS_PER_ENTRY + 2
    topics = {key[17:33] for key in driven.rows() if key[0] in PRODUCER_TABLES[2:]}
    assert topics == {TOPIC, b"%016d" % 2}
    assert offset_of(driven.append(batch(sequence=2))[0]) == 2, "it goes on where it was"


def test_a_deletion_during_a_sweep_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger.state.topics.sweep.SWEEP_ROWS_PER_ENTRY", 2)
    driven = started()
    driven.one(create(OTHER_TOPIC, "returns", (LayoutPart(GROUP, 40),)))
    driven.register()
    driven.append(*(batch(queue=queue, sequence=0) for queue in range(4)))
    driven.append(*(batch(topic=OTHER_TOPIC, queue=queue, sequence=0) for queue in range(40)))
    driven.one(DeleteTopic(OTHER_TOPIC))
    driven.idle(2)
    driven.one(DeleteTopic(TOPIC))
    driven.idle(60)
    assert not driven.machine._state.sweeps[0]._key
    assert not [key for key in driven.rows() if key[0] in PRODUCER_TABLES[2:]]
    assert isinstance(driven.one(RegisterProducer(PRODUCER, LIFE)), Registered)
