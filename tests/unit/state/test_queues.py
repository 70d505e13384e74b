"""Consume queues: rows, spans, offsets by time, malformed batches."""

from dataclasses import replace
from random import Random

import pytest

from dledger.state.events import Applied
from dledger.state.queues.table import ROWS_PER_BLOCK
from dledger.state.queues.trim import Trim
from dledger.state.results import TopicChanged
from dledger.state.tables import KEY_U32, KEY_U64, PREFIX, Table
from dledger.state.topics.commands import ImportTopic
from dledger.state.values import QueueSpan
from dledger.types import LogIndex
from dledger_proto.errors import Code, DledgerError
from tests.unit.state.kit import (
    OTHER_TOPIC,
    TOPIC,
    Driven,
    batch,
    code_of,
    create,
    offset_of,
    started,
)


def filled(batches: int, seed: int = 1) -> tuple[Driven, list[QueueSpan]]:
    """Return a machine with a queue of many batches in entries of some, and its true rows."""
    driven, random = started(), Random(seed)
    rows: list[QueueSpan] = []
    offset = 0
    while len(rows) < batches:
        counts = [random.randint(1, 5) for _ in range(random.randint(1, 8))]
        payloads = [batch(count, body=b"x" * random.randint(0, 50)) for count in counts]
        time_ms = driven.log.time_ms + random.choice([0, 0, 1, 10])
        driven.append(*payloads, time_ms=time_ms)
        entry = driven.log.entries[-1]
        for count, payload, start in zip(counts, payloads, entry.starts, strict=True):
            rows.append(QueueSpan(offset, start, 0, count, len(payload), entry.time_ms))
            offset += count
    return driven, rows


def test_golden_rows() -> None:
    """These bytes are on disk: they never change without a new format version."""
    driven = started()
    driven.append(batch(3, queue=2, body=b""), time_ms=0x1122)
    entry = driven.log.entries[-1]
    queue = TOPIC + KEY_U32.pack(2)
    position = entry.starts[0].to_bytes(8, "little").hex()
    rows = driven.rows()
    assert rows[PREFIX[Table.QUEUE] + queue].hex() == (
        "00000000000000000300000000000000" + position + "000000000000000001000000"
    )
    assert rows[PREFIX[Table.QUEUE_ROWS] + queue + KEY_U64.pack(0)].hex() == (
        "010000000000000003000000" + len(entry.payloads[0]).to_bytes(4, "little").hex()
        + "0000000000000000" + position + "2211000000000000"
    )  # fmt: skip


@pytest.mark.parametrize("saved", [False, True])
def test_spans_equal_brute_force(saved: bool) -> None:
    driven, rows = filled(3 * ROWS_PER_BLOCK + 7)
    if saved:
        driven.save()
    end = rows[-1].base_offset + rows[-1].record_count
    for offset in range(end):
        first = next(
            at for at, row in enumerate(rows) if offset < row.base_offset + row.record_count
        )
        assert driven.machine.queries.lookup_offset(TOPIC, 0, offset) == rows[first]
        if offset % 7 == 0:
            for max_bytes in (0, 1000, 100_000):
                expected = [rows[first]]
                size = rows[first].size
                for row in rows[first + 1 :]:
                    size += row.size
                    if size > max_bytes:
                        break
                    expected.append(row)
                assert driven.machine.queries.spans(TOPIC, 0, offset, max_bytes) == expected
    assert driven.machine.queries.spans(TOPIC, 0, end, 1000) == []
    for offset in (-1, end + 1):
        with pytest.raises(DledgerError) as caught:
            driven.machine.queries.spans(TOPIC, 0, offset, 1000)
        assert caught.value.code is Code.OFFSET_OUT_OF_RANGE


def test_spans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dledger.state.queues.table.SPANS_MAX", 150)
    driven, rows = filled(400)
    assert driven.machine.queries.spans(TOPIC, 0, 0, 1 << 40) == rows[:150]


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_offset_by_time_equals_brute_force(seed: int, saved: bool) -> None:
    driven, rows = filled(250, seed)
    if saved:
        driven.save()
    end = rows[-1].base_offset + rows[-1].record_count
    for time_ms in range(rows[0].store_time_ms - 2, rows[-1].store_time_ms + 3):
        expected = next((row.base_offset for row in rows if row.store_time_ms >= time_ms), end)
        assert driven.machine.queries.offset_by_time(TOPIC, 0, time_ms) == expected, time_ms
    assert driven.machine.queries.offset_by_time(TOPIC, 1, 0) == 0


@pytest.mark.parametrize("offset", [1, 150, 299, 300, 750])
def test_offset_by_time_stays_above_the_minimum(offset: int) -> None:
    """Also where the minimum lies inside a batch, and blocks below it are gone."""
    driven, rows = filled(260)
    end = rows[-1].base_offset + rows[-1].record_count
    offset = min(offset, end)
    driven.one(Trim(TOPIC, 0, offset))
    driven.idle(3)
    for time_ms in range(rows[0].store_time_ms - 2, rows[-1].store_time_ms + 3):
        first = next((row.base_offset for row in rows if row.store_time_ms >= time_ms), end)
        assert driven.machine.queries.offset_by_time(TOPIC, 0, time_ms) == max(first, offset), (
            time_ms
        )


def test_an_unwritten_queue_is_empty() -> None:
    driven = started()
    assert driven.machine.queries.queue_bounds(TOPIC, 3) == (0, 0)
    assert driven.machine.queries.spans(TOPIC, 3, 0, 10) == []
    with pytest.raises(DledgerError) as caught:
        driven.machine.queries.queue_bounds(OTHER_TOPIC, 0)
    assert caught.value.code is Code.TOPIC_NOT_FOUND


def test_batches_of_one_entry_go_to_their_queues_in_order() -> None:
    driven = started()
    results = driven.append(
        batch(2, queue=1), batch(1, queue=0), batch(topic=OTHER_TOPIC), batch(3, queue=1)
    )
    assert [offset_of(results[at]) for at in (0, 1, 3)] == [0, 0, 2]
    assert code_of(results[2]) is Code.TOPIC_NOT_FOUND
    entry = driven.log.entries[-1]
    spans = driven.machine.queries.spans(TOPIC, 1, 0, 10_000)
    assert [span.position for span in spans] == [entry.starts[0], entry.starts[3]]


def test_malformed_batches_are_void_and_apply_goes_on() -> None:
    """No content makes apply raise (F17)."""
    driven = started()
    good = batch()
    bad: list[bytes] = [b"", b"x", good[:50], b"BAD!" + good[4:], good[:-1], good + b"x"]
    flagged = bytearray(good)
    flagged[16] = 1
    results = driven.append(*bad, bytes(flagged), good)
    for result in results[:-2]:
        assert code_of(result) is Code.CORRUPT_BATCH
    assert code_of(results[-2]) is Code.UNSUPPORTED_FORMAT
    assert offset_of(results[-1]) == 0
    random = Random(3)
    for _ in range(300):
        mangled = bytearray(good)
        for _ in range(random.randint(1, 4)):
            mangled[random.randrange(112)] = random.randrange(256)
        driven.append(bytes(mangled))


def test_listeners_hear_of_each_entry_once() -> None:
    driven = started()
    heard: list[Applied] = []
    driven.machine.events.subscribe(heard.append)
    results = driven.append(batch(2), batch(queue=3), batch(3))
    grown = [(queue.id[1], queue.maximum) for queue in heard[0].grown]
    assert grown == [(0, 5), (3, 1)]
    assert heard[0].results == results
    driven.append(batch(topic=OTHER_TOPIC))
    driven.idle()
    driven.one(Trim(TOPIC, 0, 1))
    assert [applied.grown for applied in heard[1:]] == [[], (), ()]
    assert [applied.entry for applied in heard] == driven.log.entries[1:]


def test_listeners_hear_of_the_topics_that_an_entry_changed() -> None:
    """Also of the one that lost its name to another: nobody else would tell of it."""
    driven = Driven()
    heard: list[Applied] = []
    driven.machine.events.subscribe(heard.append)
    first, same = driven.run(create(), create())
    assert isinstance(first, TopicChanged)
    assert first == same
    driven.append(batch())
    namesake = replace(first.topic, topic_id=OTHER_TOPIC, control_index=9)
    driven.one(ImportTopic(namesake))
    gone = replace(first.topic, deleted=True, control_index=9)
    assert [list(applied.topics) for applied in heard] == [[first.topic], [], [gone, namesake]]


def test_entries_come_in_order() -> None:
    driven = started()
    entry = driven.log.add(driven.log.entries[0].kind, [])
    later = replace(entry, ref=replace(entry.ref, index=LogIndex(entry.ref.index + 1)))
    with pytest.raises(AssertionError, match="entry 3 after 1"):
        driven.machine.apply(later)
