"""Commands about consumers that come late, or twice, or together in one entry (D20, I19).

Each of them was right when it was proposed. It must not undo what happened since.
"""

from dledger.state.results import GivenBack, SessionsEnded
from dledger_proto.errors import Code
from tests.unit.state.consumer_kit import Billing
from tests.unit.state.kit import code_of


def two() -> Billing:
    """Let c1 have all queues, and two of them go to c2."""
    billing = Billing()
    billing.join("c1")
    billing.assign("c1", "c1", "c1", "c1")
    billing.join("c2")
    billing.assign("c1", "c1", "c2", "c2")
    return billing


def test_the_end_of_an_old_session_does_not_touch_who_came_back() -> None:
    billing = two()
    late = billing.end_command("c1")
    billing.join("c1")
    assert billing.one(late) == SessionsEnded(())
    assert billing.holders() == ["c1", "c1", "c1>c2", "c1>c2"]


def test_an_assignment_of_an_earlier_group_epoch_is_refused() -> None:
    billing = Billing()
    billing.join("c1")
    late = billing.assignment("c1", "c1", "c1", "c1")
    billing.join("c2")
    assert code_of(billing.one(late)) is Code.FENCED
    assert billing.holders() == ["-"] * 4


def test_a_copy_of_a_give_back_does_not_free_a_later_grant() -> None:
    billing = two()
    late = billing.giving_back("c1", 3)
    billing.one(late)
    billing.assign("c1", "c1", "c2", "c1")
    billing.give_back("c2", 3)
    assert billing.holders()[3] == "c1"
    assert billing.one(late) == GivenBack(0)
    assert billing.holders()[3] == "c1"


def test_a_give_back_of_an_earlier_session_frees_nothing() -> None:
    """The consumer came back, and was told that it still has the queue."""
    billing = two()
    late = billing.giving_back("c1", 3)
    billing.join("c1")
    assert code_of(billing.one(late)) is Code.SESSION_ENDED
    assert billing.holders()[3] == "c1>c2"


def test_two_grants_of_one_entry_have_two_epochs() -> None:
    billing = two()
    billing.run(billing.giving_back("c1", 2), billing.end_command("c2"))
    billing.join("c3")
    billing.run(billing.assignment("c1", "c3", "c3", "c3"), billing.end_command("c1"))
    epochs = [billing.grant(queue).epoch for queue in (1, 2, 3)]
    assert billing.holders() == ["-", "c3", "c3", "c3"]
    assert epochs[0] > epochs[1]
    assert epochs[2] > epochs[1]


def test_a_queue_that_is_aimed_back_before_it_came_stays_with_its_epoch() -> None:
    billing = two()
    before = billing.grant(3).epoch
    billing.assign("c1", "c1", "c2", "c1")
    assert billing.holders() == ["c1", "c1", "c1>c2", "c1"]
    assert billing.grant(3).epoch == before


def test_the_next_life_of_a_static_consumer_has_epochs_of_its_own() -> None:
    """Its last life may still commit: by its epochs it is told apart."""
    billing = Billing()
    billing.join("c1", "one")
    billing.assign("c1", "c1", "c1", "c1")
    before = billing.grant(0).epoch
    billing.join("c1b", "one")
    assert billing.holders() == ["c1b"] * 4
    assert billing.grant(0).epoch > before
