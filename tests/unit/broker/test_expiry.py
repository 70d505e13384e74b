"""When a leader counts its time: each moment once, and only those of its own reign."""

from dledger.state.commands.codec import ExpireProducers
from dledger_broker.group.expiry import ProducerExpiry

WEEK_MS = 7 * 24 * 3_600_000


def test_a_leader_counts_from_the_beginning_of_its_reign() -> None:
    duty = ProducerExpiry(WEEK_MS)
    assert duty.period == 600.0
    assert duty.due(None, 0.0) is None
    assert duty.due(3, 10_000.0) is None, "how long it was up says nothing"
    assert duty.due(3, 10_599.0) is None
    assert duty.due(3, 10_600.5) == ExpireProducers(600_500, WEEK_MS)
    assert duty.due(3, 11_200.0) is None
    assert duty.due(3, 11_201.0) == ExpireProducers(600_500, WEEK_MS)
    assert duty.rest() == ExpireProducers(0, WEEK_MS)


def test_the_time_of_another_reign_is_not_counted() -> None:
    """The leader in between may have told it; twice would run ahead of true time."""
    duty = ProducerExpiry(WEEK_MS)
    duty.due(3, 0.0)
    assert duty.due(5, 700.0) is None, "it led again before anybody looked"
    assert duty.due(5, 1_299.0) is None
    assert duty.due(None, 1_300.0) is None
    assert duty.due(5, 2_000.0) is None


def test_a_short_expiry_is_looked_at_more_often() -> None:
    duty = ProducerExpiry(60_000)
    duty.due(1, 0.0)
    assert duty.due(1, 7.5) == ExpireProducers(7_500, 60_000)
