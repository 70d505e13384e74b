"""Whose a producer is: the user's that registered its id first (D11)."""

from dledger.state.producers.registration import RegisterProducer
from dledger_proto.errors import Code
from tests.unit.state.kit import LIFE, NEXT_LIFE, PRODUCER, Driven, changed_rows, code_of, started


def test_a_producer_belongs_to_who_registered_it_first() -> None:
    driven = started()
    mine = driven.register(user="ann")
    before = driven.rows()
    for life, epoch in ((NEXT_LIFE, 0), (NEXT_LIFE, mine.epoch + 1), (LIFE, 0)):
        wanted = RegisterProducer(PRODUCER, life, epoch, "bob")
        assert code_of(driven.one(wanted)) is Code.NO_PERMISSION
    assert changed_rows(before, driven.rows()) == {b"\0applied"}
    again = Driven(driven.store, driven.log)
    assert code_of(again.one(RegisterProducer(PRODUCER, LIFE, user="bob"))) is Code.NO_PERMISSION
    assert again.take_over(NEXT_LIFE, user="ann").epoch == mine.epoch + 1


def test_without_users_nobody_is_asked_and_whose_it_is_stays() -> None:
    driven = started()
    driven.one(RegisterProducer(PRODUCER, LIFE, user="ann"))
    driven.take_over(NEXT_LIFE)
    assert code_of(driven.one(RegisterProducer(PRODUCER, LIFE, user="bob"))) is Code.NO_PERMISSION


def test_a_producer_of_before_there_were_users_gets_the_first_one_that_registers_it() -> None:
    driven = started()
    driven.register()
    assert driven.machine.queries.refusal_of_producer(PRODUCER, "bob") is None
    driven.one(RegisterProducer(PRODUCER, LIFE, user="ann"))
    refusal = driven.machine.queries.refusal_of_producer(PRODUCER, "bob")
    assert refusal is not None
    assert refusal.code is Code.NO_PERMISSION
    assert "ann" not in refusal.detail
    assert driven.machine.queries.refusal_of_producer(PRODUCER, "ann") is None


def test_a_producer_nobody_registered_is_nobodys() -> None:
    driven = started()
    for user in ("bob", ""):
        unknown = driven.machine.queries.refusal_of_producer(PRODUCER, user)
        assert unknown is not None
        assert unknown.code is Code.UNKNOWN_PRODUCER
