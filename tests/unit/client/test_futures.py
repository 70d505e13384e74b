"""Futures of sends: whoever waits or gives a callback hears of the outcome once."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from dledger_client._batch import Batch
from dledger_client._futures import SendFuture

THREADS = 4
CALLBACKS = 200


def settle(batch: Batch) -> None:
    batch.settle_stored(7, 1, 1, duplicate=False, before_sync=False)


def test_callbacks_are_called_once_and_in_order_whenever_they_were_added() -> None:
    batch, future, heard = Batch("t", b"t" * 16, 0, "g"), SendFuture(), list[str]()
    future.when_done(lambda: heard.append("unplaced"))
    future.add_done_callback(lambda done: heard.append(f"unplaced {done is future}"))
    future.attach(batch, 0)
    future.when_done(lambda: heard.append("placed"))
    assert heard == []
    settle(batch)
    future.when_done(lambda: heard.append("settled"))
    assert heard == ["unplaced", "unplaced True", "placed", "settled"]
    assert future.outcome().offset == 7


def test_the_callback_that_a_send_begins_with() -> None:
    batch, heard = Batch("t", b"t" * 16, 0, "g"), list[int]()
    future = SendFuture(lambda done: heard.append(done.outcome().offset))
    future.attach(batch, 3)
    assert heard == []
    settle(batch)
    assert heard == [10]


def test_a_callback_that_fails_takes_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batch, future, heard = Batch("t", b"t" * 16, 0, "g"), SendFuture(), list[int]()
    future.attach(batch, 0)

    def fail() -> None:
        raise ValueError("a user's own bug")

    future.when_done(fail)
    future.when_done(lambda: heard.append(1))
    settle(batch)
    assert heard == [1]
    assert "a send callback failed" in caplog.text


def test_a_callback_may_add_another() -> None:
    batch, future, heard = Batch("t", b"t" * 16, 0, "g"), SendFuture(), list[int]()
    future.attach(batch, 0)
    future.when_done(lambda: future.when_done(lambda: heard.append(1)))
    settle(batch)
    assert heard == [1]


@pytest.mark.parametrize("placed_first", [True, False])
def test_threads_that_add_callbacks_while_the_batch_settles(*, placed_first: bool) -> None:
    """However the two meet, each callback is called once."""
    batch, future = Batch("t", b"t" * 16, 0, "g"), SendFuture()
    heard: list[tuple[int, int]] = []
    barrier = threading.Barrier(THREADS + 1)

    def add(thread: int) -> None:
        barrier.wait()
        for number in range(CALLBACKS):
            future.when_done(partial(heard.append, (thread, number)))

    def end() -> None:
        steps: list[Callable[[], None]] = [
            lambda: future.attach(batch, 0),
            lambda: settle(batch),
        ]
        for step in steps if placed_first else reversed(steps):
            step()

    threads = [threading.Thread(target=add, args=(thread,)) for thread in range(THREADS)]
    for each in threads:
        each.start()
    barrier.wait()
    end()
    for each in threads:
        each.join()
    assert sorted(heard) == [(t, n) for t in range(THREADS) for n in range(CALLBACKS)]
