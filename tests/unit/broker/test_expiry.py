"""When a leader counts its time: each moment once, and only those of its own reign."""

from typing import cast

from dledger.state.producers.expiry import ExpireProducers
from dledger.state.queries import Queries
from dledger.state.results import ProducersExpired
from dledger_broker.group.duty import Look
from dledger_broker.group.expiry import ProducerExpiry

WEEK_MS = 7 * 24 * 3_600_000


def look(leads_term: int | None, now: float) -> Look:
    return Look(leads_term, 0, cast("Queries", None), now)


def test_a_leader_counts_from_the_beginning_of_its_reign() -> None:
    duty = ProducerExpiry(WEEK_MS)
    assert duty.period == 600.0
    assert duty.due(look(None, 0.0)) is None
    assert duty.due(look(3, 10_000.0)) is None, "how long it was up says nothing"
    assert duty.due(look(3, 10_599.0)) is None
    assert duty.due(look(3, 10_600.5)) == ExpireProducers(600_500, WEEK_MS)
    assert duty.due(look(3, 11_200.0)) is None
    assert duty.due(look(3, 11_201.0)) == ExpireProducers(600_500, WEEK_MS)
    assert duty.rest(ProducersExpired(5, more=True)) == ExpireProducers(0, WEEK_MS)
    assert duty.rest(ProducersExpired(5, more=False)) is None


def test_the_time_of_another_reign_is_not_counted() -> None:
    """The leader in between may have told it; twice would run ahead of true time."""
    duty = ProducerExpiry(WEEK_MS)
    duty.due(look(3, 0.0))
    assert duty.due(look(5, 700.0)) is None, "it led again before anybody looked"
    assert duty.due(look(5, 1_299.0)) is None
    assert duty.due(look(None, 1_300.0)) is None
    assert duty.due(look(5, 2_000.0)) is None


def test_a_short_expiry_is_looked_at_more_often() -> None:
    duty = ProducerExpiry(60_000)
    duty.due(look(1, 0.0))
    assert duty.due(look(1, 7.5)) == ExpireProducers(7_500, 60_000)
