"""Who is woken, how often, and that nobody is forgotten in the tables."""

import pytest

from dledger_broker.group.long_poll import LongPoll
from dledger_proto.errors import Code, DledgerError

A, B = b"a" * 16, b"b" * 16


def test_the_first_arrival_wakes_once() -> None:
    poll = LongPoll()
    woken: list[str] = []
    poll.wait([(A, 0), (A, 1), (B, 0)], lambda: woken.append("x"))
    poll.arrived(B, 1)
    assert woken == []
    poll.arrived(A, 1)
    poll.arrived(A, 0)
    assert woken == ["x"]
    assert len(poll) == 0


def test_every_waiter_of_a_queue_is_woken() -> None:
    poll = LongPoll()
    woken: list[int] = []
    for number in range(3):
        poll.wait([(A, 0)], lambda number=number: woken.append(number))  # type: ignore[misc]
    poll.arrived(A, 0)
    assert sorted(woken) == [0, 1, 2]


def test_a_waiter_may_wait_again_when_woken() -> None:
    poll = LongPoll()
    woken: list[int] = []

    def again() -> None:
        woken.append(1)
        poll.wait([(A, 0)], again)

    poll.wait([(A, 0)], again)
    poll.arrived(A, 0)
    assert woken == [1]
    assert len(poll) == 1


def test_cancel_forgets_and_may_come_late() -> None:
    poll = LongPoll()
    woken: list[int] = []
    ticket = poll.wait([(A, 0), (A, 0), (B, 0)], lambda: woken.append(1))
    poll.cancel(ticket)
    poll.cancel(ticket)
    poll.arrived(A, 0)
    assert woken == []
    assert len(poll) == 0


def test_waiters_are_bounded() -> None:
    poll = LongPoll(tickets_max=2)
    poll.wait([(A, 0)], lambda: None)
    ticket = poll.wait([(A, 0)], lambda: None)
    with pytest.raises(DledgerError, match="limit of 2 waiting") as caught:
        poll.wait([(A, 0)], lambda: None)
    assert caught.value.code is Code.BUSY
    poll.cancel(ticket)
    poll.wait([(A, 0)], lambda: None)
