"""A producer that does not know that another life of its name has taken over (D11)."""

from dledger.state.producers.registration import RegisterProducer
from dledger.state.producers.table import ACTIVITY_STEP_MS
from dledger.state.results import Taken
from dledger_proto.errors import Code
from tests.unit.state.kit import (
    LIFE,
    NEXT_LIFE,
    PRODUCER,
    THIRD_LIFE,
    batch,
    code_of,
    offset_of,
    started,
)


def test_a_zombie_that_begins_a_new_epoch_takes_none_from_its_successor() -> None:
    """It names the epoch above its own, which is its successor's: it is told that it is fenced."""
    driven = started()
    mine = driven.register().epoch
    successor = driven.take_over(NEXT_LIFE).epoch
    refused = driven.one(RegisterProducer(PRODUCER, LIFE, mine + 1))
    assert code_of(refused) is Code.STALE_EPOCH, f"{mine} was fenced by {successor}: {refused}"
    assert driven.register(life=NEXT_LIFE).epoch == successor


def test_a_fenced_life_that_asks_again_is_told() -> None:
    """It may not know that it was registered: its answer was lost, and its successor writes."""
    driven = started()
    driven.register()
    successor = driven.take_over(NEXT_LIFE).epoch
    refused = driven.one(RegisterProducer(PRODUCER, LIFE))
    assert code_of(refused) is Code.STALE_EPOCH, f"{successor} may be taken: {refused}"


def test_a_first_registration_that_comes_late_fences_nobody() -> None:
    """Its answer was lost, its sender is gone, and a successor writes: it changes nothing."""
    driven = started()
    looked = RegisterProducer(PRODUCER, LIFE)
    successor = driven.register(life=NEXT_LIFE).epoch
    assert offset_of(driven.append(batch(sequence=0, epoch=successor))[0]) == 0
    assert driven.one(looked) == Taken(successor)
    assert offset_of(driven.append(batch(sequence=1, epoch=successor))[0]) == 1


def test_a_takeover_that_comes_late_fences_nobody() -> None:
    """It names the epoch of those it meant to follow, who have been followed by another."""
    driven = started()
    driven.register(life=THIRD_LIFE)
    late = RegisterProducer(PRODUCER, LIFE, 2)
    successor = driven.take_over(NEXT_LIFE).epoch
    assert code_of(driven.one(late)) is Code.STALE_EPOCH
    assert offset_of(driven.append(batch(sequence=0, epoch=successor))[0]) == 0


def test_a_producer_alone_is_not_fenced_by_copies_of_its_own_registrations() -> None:
    driven = started()
    first = RegisterProducer(PRODUCER, LIFE)
    mine = driven.register().epoch
    second = RegisterProducer(PRODUCER, LIFE, mine + 1)
    for late in (first, second, first, second):
        driven.one(late)
    assert offset_of(driven.append(batch(sequence=0, epoch=mine + 1))[0]) == 0


def test_a_zombie_of_a_forgotten_name_cannot_pass_for_the_one_that_began_anew() -> None:
    """Its message at a sequence is not a repeat of what the other has stored there."""
    driven = started()
    mine = driven.register().epoch
    assert driven.count_time(3 * ACTIVITY_STEP_MS, ACTIVITY_STEP_MS).count == 1
    successor = driven.register(life=NEXT_LIFE).epoch
    assert offset_of(driven.append(batch(sequence=0, epoch=successor))[0]) == 0
    verdict = driven.append(batch(sequence=0, epoch=mine, body=b"another"))[0]
    assert code_of(verdict) is Code.STALE_EPOCH, f"told {verdict}, and not stored"
