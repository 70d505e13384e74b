"""What one command fires together is what commands fire one by one (D23)."""

from random import Random

import pytest

from dledger.state.lookup.message_ids import BUCKET_NUMBERS, ID_ROW
from dledger.state.queues.table import ROWS_PER_BLOCK
from dledger.state.results import TimerRecalled, TimersFired
from dledger.state.tables import Table
from dledger.state.timers.commands import FireTimers, RecallTimer
from dledger.state.topics.commands import DeleteTopic
from dledger.state.values import Origin, Reference
from dledger_proto.batch.codec import ProducerStamp, Record, encode_batch
from tests.unit.state.kit import (
    LIFE,
    OTHER_TOPIC,
    PRODUCER,
    TOPIC,
    Driven,
    create,
    delayed,
    started,
)

PRODUCERS = (PRODUCER, b"Q" * 16, None)
DUE_MS = 50_000
QUEUES = 3


def filled(seed: int, count: int) -> Driven:
    """Return a machine whose timers are all due: of many queues, producers, sizes, with gaps."""
    random = Random(seed)
    driven = started()
    driven.one(create(OTHER_TOPIC, "others"))
    numbers = dict.fromkeys(PRODUCERS, 0)
    sequences: dict[tuple[bytes | None, bytes, int], int] = {}
    for producer in PRODUCERS:
        if producer is not None:
            driven.register(producer, life=LIFE)
    for at in range(count):
        producer, topic = random.choice(PRODUCERS), random.choice((TOPIC, TOPIC, OTHER_TOPIC))
        queue, records = random.randrange(QUEUES), random.choice((1, 1, 1, 2, 5))
        numbers[producer] += random.choice((0, 0, 0, 3))
        sequence = sequences.get((producer, topic, queue), 0)
        driven.append(
            encode_batch(
                [Record(b"later", keys=random.choice(((), ("k",))))] * records,
                topic_id=topic, queue=queue, base_number=numbers[producer], base_time_ms=1,
                stamp=None if producer is None else ProducerStamp(producer, 1, sequence),
                delivery_time_ms=DUE_MS - random.randrange(3),
            ),
            time_ms=2_000,
        )  # fmt: skip
        sequences[producer, topic, queue] = sequence + records
        numbers[producer] += random.choice((0, records, records, records))
        if random.random() < 0.05:
            driven.one(RecallTimer(PRODUCER, random.randrange(numbers[PRODUCER] + 1)))
        if random.random() < 0.1:
            reference = Reference(driven.log.entries[-1].starts[0], 0, 1, 100)
            origin = Origin(TOPIC, 0, at, 1, "no")
            driven.machine._state.timers.add(DUE_MS, TOPIC, 1, reference, origin, 2_000)
        if random.random() < 0.02:
            driven.save()
    driven.idle()
    return driven


def rows_after(driven: Driven, *at_most: int) -> dict[bytes, bytes]:
    """Fire by so many commands of one entry; return all rows, those of a bucket of ids in order."""
    driven.run(*[FireTimers(DUE_MS, each) for each in at_most], time_ms=DUE_MS)
    rows = driven.rows()
    for key, value in rows.items():
        if key[0] == Table.MESSAGE_IDS and len(key) > 17:
            rows[key] = b"".join(ID_ROW.pack(*row) for row in sorted(ID_ROW.iter_unpack(value)))
    return {key: value for key, value in rows.items() if key[0] != Table.META_LOCAL}


@pytest.mark.parametrize("seed", range(4))
def test_timers_fired_together_leave_the_rows_of_timers_fired_one_by_one(seed: int) -> None:
    count = 700
    together, alone = filled(seed, count), filled(seed, count)
    waiting = together.machine.queries.timers_waiting
    assert waiting > QUEUES * ROWS_PER_BLOCK
    assert rows_after(together, 250, 1_000) == rows_after(alone, *[1] * waiting)
    assert together.machine.queries.timers_waiting == 0


def test_a_timer_that_fires_leaves_the_id_of_another_that_waits() -> None:
    driven = started()
    driven.register(life=LIFE)
    driven.append(delayed(5_000, sequence=0, number=7), delayed(5_000, sequence=1, number=8))
    driven.append(delayed(9_000, sequence=2, number=7))
    assert driven.one(FireTimers(5_000, 1_000), time_ms=5_000) == TimersFired(2, more=False)
    assert driven.one(RecallTimer(PRODUCER, 7)) == TimerRecalled(9_000)


def test_ids_of_many_buckets_are_found_after_one_command() -> None:
    driven = started()
    driven.register(life=LIFE)
    count = 3 * BUCKET_NUMBERS
    for at in range(count):
        queue = at % 2
        driven.append(delayed(5_000 + at, queue=queue, sequence=at // 2, number=at), time_ms=2_000)
    driven.append(delayed(6_000, 500, sequence=count // 2, number=count), time_ms=2_000)
    driven.one(FireTimers(6_000, 1_000), time_ms=6_000)
    for number in range(count + 500):
        hit = driven.machine.queries.lookup_message_id(PRODUCER, number)
        assert hit is not None
        expected = (number % 2, number // 2) if number < count else (0, number - count // 2)
        assert (hit.queue, hit.offset) == expected
    assert not [key for key in driven.rows() if key[0] == Table.TIMER_BY_ID]


def test_the_timers_of_a_deleted_topic_do_not_keep_others_from_firing() -> None:
    driven = started()
    driven.one(create(OTHER_TOPIC, "others"))
    for topic in (TOPIC, OTHER_TOPIC) * 3:
        batch = encode_batch(
            [Record(b"later")], topic_id=topic, queue=0, base_number=0, base_time_ms=1, stamp=None,
            delivery_time_ms=5_000,
        )  # fmt: skip
        driven.append(batch, time_ms=2_000)
    driven.one(DeleteTopic(OTHER_TOPIC))
    assert driven.one(FireTimers(5_000, 1_000), time_ms=5_000) == TimersFired(3, more=False)
    assert driven.machine.queries.queue_bounds(TOPIC, 0) == (0, 3)
    pins = [key for key in driven.rows() if key[0] == Table.PIN]
    assert len(pins) == 3
