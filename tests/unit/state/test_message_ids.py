"""The message id index: every record by its id, whatever order and size its batches had."""

from random import Random

import pytest

from dledger.state.lookup import message_ids
from dledger.state.queues.trim import Trim
from dledger.state.tables import Table
from dledger.state.topics.commands import DeleteTopic
from dledger.state.values import IdHit
from dledger_proto.limits import BATCH_RECORDS_MAX
from tests.unit.state.kit import PRODUCER, TOPIC, Driven, batch, offset_of, started


@pytest.mark.parametrize("seed", range(4))
def test_lookups_equal_brute_force(seed: int) -> None:
    """Numbers reach the log out of order: each queue has its own pipeline."""
    driven, random = started(), Random(seed)
    driven.register()
    batches: list[tuple[int, int]] = []
    number = random.randrange(1000)
    for _ in range(200):
        count = random.choice([1, 1, 1, 2, 64, 300])
        batches.append((number, count))
        number += count + random.choice([0, 0, 1, 500])
    waiting = [batches[queue::4] for queue in range(4)]
    sequences = [0] * 4
    truth: dict[int, tuple[int, int, int]] = {}
    while any(waiting):
        queue = random.randrange(4)
        if not waiting[queue]:
            continue
        base, count = waiting[queue].pop(0)
        payload = batch(count, queue=queue, sequence=sequences[queue], number=base, body=b"")
        sequences[queue] += count
        offset = offset_of(driven.append(payload)[0])
        truth.update({base + at: (queue, offset + at, at) for at in range(count)})
        if random.random() < 0.05:
            driven.save()
            driven = Driven(driven.store, driven.log)
    for probe in [*truth, *range(number + 70)]:
        hit = driven.machine.queries.lookup_message_id(PRODUCER, probe)
        if probe not in truth:
            assert hit is None, probe
            continue
        queue, offset, record = truth[probe]
        span = driven.machine.queries.lookup_offset(TOPIC, queue, offset)
        assert hit == IdHit(TOPIC, queue, offset, record, span)
    assert driven.machine.queries.lookup_message_id(b"X" * 16, 5) is None


def test_the_largest_batch_and_the_largest_numbers() -> None:
    driven = started()
    driven.register()
    top = (1 << 64) - BATCH_RECORDS_MAX
    driven.append(batch(BATCH_RECORDS_MAX, sequence=0, number=top, body=b""))
    for number, record in ((top, 0), ((1 << 64) - 1, BATCH_RECORDS_MAX - 1)):
        hit = driven.machine.queries.lookup_message_id(PRODUCER, number)
        assert hit is not None
        assert (hit.offset, hit.record) == (record, record)
    assert driven.machine.queries.lookup_message_id(PRODUCER, top - 1) is None


def test_one_way_batches_have_no_ids() -> None:
    driven = started()
    driven.append(batch(number=5))
    assert not [key for key in driven.rows() if key[0] == Table.MESSAGE_IDS]


def test_a_client_that_repeats_its_numbers_is_bounded() -> None:
    driven = started()
    driven.register()
    for sequence in range(3 * message_ids.ROWS_PER_BUCKET_MAX):
        driven.append(batch(sequence=sequence, number=7))
    (size,) = [
        len(value)
        for key, value in driven.rows().items()
        if key[0] == Table.MESSAGE_IDS and len(key) == 25
    ]
    assert size == 40 * message_ids.ROWS_PER_BUCKET_MAX


def test_trimmed_ids_are_not_found_and_swept_out() -> None:
    """The table stays near its live size while the queue is trimmed behind the writer."""
    driven = started()
    driven.register()
    for at in range(2000):
        driven.append(batch(sequence=at, number=at * 10))
        if at % 50 == 49:
            driven.one(Trim(TOPIC, 0, at - 20))
    assert driven.machine.queries.lookup_message_id(PRODUCER, 10) is None
    assert driven.machine.queries.lookup_message_id(PRODUCER, 19_990) is not None
    buckets = [key for key in driven.rows() if key[0] == Table.MESSAGE_IDS]
    live = 70 * 10 // message_ids.BUCKET_NUMBERS
    assert len(buckets) <= 4 * live + 5, "of 312"


def test_a_producer_comes_back_to_a_bucket_that_was_swept_out() -> None:
    """What is remembered of an open bucket goes with its row."""
    driven, other = started(), b"A" * 16
    driven.register()
    driven.register(other)
    driven.append(batch(20, sequence=0, number=0))
    driven.one(Trim(TOPIC, 0, 20))
    for at in range(4):
        driven.append(batch(queue=1, producer=other, sequence=at, number=at * 64))
    assert not [key for key in driven.rows() if key[0] == Table.MESSAGE_IDS and PRODUCER in key]
    driven.append(batch(2, sequence=20, number=20))
    hit = driven.machine.queries.lookup_message_id(PRODUCER, 21)
    assert hit is not None
    assert hit.offset == 21
    again = Driven(driven.store, driven.log)
    assert again.machine.queries.lookup_message_id(PRODUCER, 21) == hit


def test_producers_that_left_are_swept_out() -> None:
    driven = started()
    for at in range(200):
        producer = b"%016d" % (at + 1)
        driven.register(producer)
        driven.append(batch(producer=producer, sequence=0))
        driven.one(Trim(TOPIC, 0, driven.machine.queries.queue_bounds(TOPIC, 0)[1]))
    keys = [key for key in driven.rows() if key[0] == Table.MESSAGE_IDS]
    assert len(keys) < 150, "of 400"
    assert driven.machine.queries.lookup_message_id(b"%016d" % 200, 0) is None


def test_a_deleted_topic_has_no_messages() -> None:
    driven = started()
    driven.register()
    driven.append(batch(sequence=0, number=3))
    driven.one(DeleteTopic(TOPIC))
    assert driven.machine.queries.lookup_message_id(PRODUCER, 3) is None
