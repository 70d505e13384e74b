"""What is forgotten in steps: it counts for nothing from the first step on, and leaves nothing."""

import pytest

from dledger.state import producers
from dledger.state.command import DeleteTopic, ExpireProducers
from dledger.state.producers import ACTIVITY_STEP_MS
from dledger.state.results import ProducersExpired, Result
from dledger.state.tables import Table
from dledger_proto.errors import Code
from tests.unit.state.kit import TOPIC, Driven, batch, code_of, offset_of, started

FORGET = ExpireProducers(0, 0)


def forget(driven: Driven) -> Result:
    """Count so much time that all have expired, and take a step of forgetting."""
    driven.count_time(2 * ACTIVITY_STEP_MS)
    return driven.one(FORGET)


def test_a_half_forgotten_producer_stores_nothing() -> None:
    """It sends again what it has stored, to a queue whose last sequences are forgotten already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producers, "EXPIRED_ROWS_MAX", 7)
        driven = started()
        epoch = driven.register().epoch
        driven.append(*(batch(queue=queue, sequence=0, epoch=epoch) for queue in range(4)))
        assert forget(driven) == ProducersExpired(0, more=True)
        copies = driven.append(*(batch(queue=at, sequence=0, epoch=epoch) for at in range(4)))
    stored = [driven.machine.queue_bounds(TOPIC, queue) for queue in range(4)]
    assert stored == [(0, 1)] * 4, f"a copy was stored a second time: {copies}"


def test_a_half_forgotten_producer_that_registers_begins_above_its_past() -> None:
    """Else an old message would pass for a repeat of a new one, or for the next of its queue."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producers, "EXPIRED_ROWS_MAX", 7)
        driven = started()
        old = driven.register().epoch
        driven.append(*(batch(queue=queue, sequence=0, epoch=old) for queue in range(4)))
        forget(driven)
    new = driven.register()
    assert new.last == (), f"half of what was stored is told as all of it: {new.last}"
    stored = driven.append(*(batch(queue=at, sequence=0, epoch=new.epoch) for at in range(4)))
    assert [offset_of(result) for result in stored] == [1] * 4
    late = driven.append(*(batch(queue=at, sequence=1, epoch=old) for at in range(4)))
    assert {code_of(result) for result in late} == {Code.STALE_EPOCH}


def test_a_producer_is_forgotten_whole_however_often_it_came_back() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producers, "EXPIRED_ROWS_MAX", 7)
        driven = started()
        driven.register()
        driven.append(*(batch(queue=queue, sequence=0) for queue in range(1, 4)))
        forget(driven)
        epoch = driven.register().epoch
        driven.append(batch(sequence=0, epoch=epoch))
        for _ in range(6):
            forget(driven)
    left = [key for key in driven.rows() if Table.PRODUCER <= key[0] <= Table.PRODUCER_WINDOW]
    assert not left, f"rows that nobody will look for: {left}"


def test_nothing_of_a_deleted_topic_stays_with_a_producer() -> None:
    driven = started()
    driven.register()
    driven.append(*(batch(queue=queue, sequence=0) for queue in range(4)))
    driven.one(DeleteTopic(TOPIC))
    driven.idle(3)
    left = [key for key in driven.rows() if TOPIC in key and key[0] >= Table.PRODUCER_QUEUE]
    assert not left, f"rows that nobody will look for: {left}"
