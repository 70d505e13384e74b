"""Bounds by class: what fits, what waits, what is refused, and that nothing is lost on the way."""

from contextlib import ExitStack
from random import Random

import pytest

from dledger_broker.config.sections import AdmissionConfig
from dledger_broker.rpc.admission import (
    FETCH_FRAME_MIN,
    WAITERS_MAX,
    AdmissionControl,
    Bound,
)
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import MIB
from tests.unit.broker.fakes import in_use


def limits(**changes: int) -> AdmissionConfig:
    values = {
        "append_bytes_max": 1_000,
        "append_batches_max": 10,
        "stream_bytes_max": 500,
        "append_streams_max": 2,
        "fetch_streams_max": 2,
        "fetch_bytes_max": 64 * MIB,
        "queries_max": 2,
        "lookups_max": 1,
        "admin_calls_max": 1,
        "log_streams_max": 1,
        "route_watchers_max": 1,
    }
    return AdmissionConfig(**{**values, **changes})


def test_a_bound_refuses_by_name_and_numbers() -> None:
    bound = Bound("admission.queries_max", 2)
    bound.take()
    bound.take()
    with pytest.raises(DledgerError, match=r"admission.queries_max.*2 of 2") as caught:
        bound.take()
    assert caught.value.code is Code.BUSY
    assert caught.value.retriable
    assert bound.used == 2


def test_what_is_larger_than_the_limit_passes_alone() -> None:
    bound = Bound("bytes", 10)
    assert bound.try_take(50)
    assert not bound.try_take(1)
    bound.give(50)
    assert bound.try_take(1)
    assert not bound.try_take(50)


def test_waiters_are_called_once_in_order() -> None:
    bound = Bound("bytes", 10)
    called: list[int] = []
    bound.take(10)
    for number in range(3):
        bound.when_free(lambda number=number: called.append(number))  # type: ignore[misc]
    bound.give(1)
    bound.give(1)
    assert called == [0, 1, 2]


def test_waiters_are_bounded() -> None:
    bound = Bound("bytes", 1)
    for _ in range(WAITERS_MAX):
        bound.when_free(lambda: None)
    with pytest.raises(DledgerError, match="waiting"):
        bound.when_free(lambda: None)


def test_giving_back_more_than_was_taken_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        Bound("bytes", 1).give(1)


def test_held_gives_back_also_after_an_error() -> None:
    bound = Bound("calls", 1)
    with pytest.raises(RuntimeError), bound.held():
        raise RuntimeError
    assert bound.used == 0


def test_one_user_leaves_room_for_the_others() -> None:
    bound = Bound("streams", 5, user_percent=50)
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(bound.held("ann"))
        with pytest.raises(DledgerError, match="BUSY: user ann has 2 of streams, at most 2 of 5"):
            held.enter_context(bound.held("ann"))
        assert bound.used == 2
        held.enter_context(bound.held("bob"))
        for _ in range(2):
            held.enter_context(bound.held())  # a member, or where nobody asks for users
        with pytest.raises(DledgerError, match="streams is at its limit: 5 of 5"):
            held.enter_context(bound.held("bob"))
    assert bound.used == 0
    with bound.held("ann"), bound.held("ann"):
        assert bound.used == 2


def test_a_user_may_always_have_one() -> None:
    with Bound("calls", 1, user_percent=1).held("ann"):
        pass


def test_an_append_takes_both_or_nothing() -> None:
    admission = AdmissionControl(limits())
    assert admission.try_append(900, 1)
    assert not admission.try_append(200, 1)
    assert (admission.append_bytes.used, admission.append_batches.used) == (900, 1)
    assert "append_bytes_max" in admission.append_refusal().detail
    assert not admission.try_append(1, 10)
    admission.append_done(900, 1)
    assert admission.try_append(1, 10)
    assert "append_batches_max" in admission.append_refusal().detail


def test_administration_works_while_appends_are_refused() -> None:
    admission = AdmissionControl(limits())
    assert admission.try_append(1_000, 10)
    with admission.admin_calls.held(), admission.queries.held():
        admission.check_open()
    assert not admission.try_append(1, 1)


def test_draining_refuses_new_work() -> None:
    admission = AdmissionControl(limits())
    admission.drain("the member n1 is ending")
    with pytest.raises(DledgerError, match="n1 is ending") as caught:
        admission.check_open()
    assert caught.value.code is Code.SHUTTING_DOWN


def test_blocked_readers_leave_room_for_others() -> None:
    """However many readers stop reading, the next one gets a frame, and the sum is bounded."""
    admission = AdmissionControl(limits())
    held = 0
    for _ in range(1_000):
        size = admission.fetch_frame_bytes(16 * MIB)
        assert FETCH_FRAME_MIN <= size <= 16 * MIB
        admission.fetch_bytes.take_regardless(size)
        held += size
    assert held <= 64 * MIB + 1_000 * FETCH_FRAME_MIN


def test_permits_are_back_after_mixed_failures() -> None:
    """S136: nothing leaks over many mixed successes and refusals."""
    random = Random(7)
    admission = AdmissionControl(limits())
    inside: list[tuple[int, int]] = []
    for _ in range(20_000):
        if random.random() < 0.5:
            size, batches = random.randrange(1, 400), random.randrange(1, 4)
            if random.random() < 0.1:
                admission.append_regardless(size, batches)
                inside.append((size, batches))
            elif admission.try_append(size, batches):
                inside.append((size, batches))
        elif inside:
            admission.append_done(*inside.pop(random.randrange(len(inside))))
    for size, batches in inside:
        admission.append_done(size, batches)
    assert not in_use(admission)
