"""A producer that does not know that another life of its name has taken over (D11)."""

from dledger.state.command import RegisterProducer
from dledger_proto.errors import Code
from tests.unit.state.kit import PRODUCER, code_of, started


def test_a_zombie_that_begins_a_new_epoch_takes_none_from_its_successor() -> None:
    """It names the epoch above its own, which is neither its successor's nor one to be had."""
    driven = started()
    mine = driven.register(fence=True).epoch
    successor = driven.register(fence=True).epoch
    refused = driven.one(RegisterProducer(PRODUCER, True, mine + 1))
    assert code_of(refused) is Code.STALE_EPOCH, f"{mine} was fenced by {successor}: {refused}"
    assert driven.register().epoch == successor
