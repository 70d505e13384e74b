"""Futures of sends: whoever waits or gives a callback hears of the outcome once."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from dledger_client._core.delivery import attach, fail
from dledger_client._core.producer.batch import Batch
from dledger_client._shell.futures import AsyncSendFuture, SendFuture, when_done
from dledger_client.errors import error_of
from dledger_client.model import SendResult
from dledger_proto.errors import Code
from tests.unit.client.helpers import run

THREADS = 4
CALLBACKS = 200


def settle(batch: Batch) -> None:
    batch.settle_stored(7, 1, 1, duplicate=False, before_sync=False)


def test_callbacks_are_called_once_and_in_order_whenever_they_were_added() -> None:
    batch, future, heard = Batch("t", b"t" * 16, 0, "g"), SendFuture(), list[str]()
    when_done(future, lambda: heard.append("unplaced"))
    future.add_done_callback(lambda done: heard.append(f"unplaced {done is future}"))
    attach(future, batch, 0)
    when_done(future, lambda: heard.append("placed"))
    assert heard == []
    settle(batch)
    when_done(future, lambda: heard.append("settled"))
    assert heard == ["unplaced", "unplaced True", "placed", "settled"]
    assert future.result().offset == 7


def test_the_callback_that_a_send_begins_with() -> None:
    batch, heard = Batch("t", b"t" * 16, 0, "g"), list[int]()
    future = SendFuture(lambda done: heard.append(done.result().offset))
    attach(future, batch, 3)
    assert heard == []
    settle(batch)
    assert heard == [10]


def test_a_callback_that_fails_takes_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batch, future, heard = Batch("t", b"t" * 16, 0, "g"), SendFuture(), list[int]()
    attach(future, batch, 0)

    def break_down(_future: SendFuture) -> None:
        raise ValueError("a user's own bug")

    future.add_done_callback(break_down)
    when_done(future, lambda: heard.append(1))
    settle(batch)
    assert heard == [1]
    assert "a send callback failed" in caplog.text


def test_a_waiter_whose_loop_is_closed_takes_nothing_from_the_others() -> None:
    batch, future, heard = Batch("t", b"t" * 16, 0, "g"), AsyncSendFuture(), list[int]()
    attach(future, batch, 0)

    async def begin_to_wait() -> None:
        waiter = cast("asyncio.Future[None]", next(iter(future.__await__())))
        waiter.add_done_callback(lambda _done: None)

    asyncio.run(begin_to_wait())
    when_done(future, lambda: heard.append(1))
    settle(batch)
    assert heard == [1]


def test_an_observer_that_raises_takes_nothing_from_the_others() -> None:
    batch, future, heard = Batch("t", b"t" * 16, 0, "g"), SendFuture(), list[int]()
    attach(future, batch, 0)

    def break_down() -> None:
        raise ValueError("a bug of ours")

    when_done(future, break_down)
    when_done(future, lambda: heard.append(1))
    with pytest.raises(ValueError, match="a bug of ours"):
        settle(batch)
    assert heard == [1]


def test_a_callback_may_add_another() -> None:
    batch, future, heard = Batch("t", b"t" * 16, 0, "g"), SendFuture(), list[int]()
    attach(future, batch, 0)
    when_done(future, lambda: when_done(future, lambda: heard.append(1)))
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
            when_done(future, partial(heard.append, (thread, number)))

    def end() -> None:
        steps: list[Callable[[], None]] = [
            lambda: attach(future, batch, 0),
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


def test_a_future_shows_its_outcome_and_nothing_else() -> None:
    batch, future = Batch("t", b"t" * 16, 0, "g"), SendFuture()
    assert repr(future) == "<SendFuture: no outcome yet>"
    assert [name for name in dir(future) if not name.startswith("_")] == [
        "add_done_callback", "done", "exception", "result", "wait",
    ]  # fmt: skip
    attach(future, batch, 2)
    settle(batch)
    assert repr(future) == "<SendFuture: stored at t/0 offset 9>"
    failed = AsyncSendFuture()
    fail(failed, "t", error_of(Code.NO_LEADER, "group g"))
    assert repr(failed) == "<AsyncSendFuture: NO_LEADER: group g>"


def test_a_wait_ends_after_seconds_and_the_send_goes_on() -> None:
    batch, future = Batch("t", b"t" * 16, 0, "g"), SendFuture()
    attach(future, batch, 0)
    with pytest.raises(TimeoutError, match=r"0\.01 s; the send goes on"):
        future.result(0.01)
    settle(batch)
    assert future.result(timeout=0).offset == 7


def test_a_coroutine_of_any_loop_awaits_the_future_of_a_thread() -> None:
    """It is settled on the thread of the client, while the loop waits."""
    batch, future = Batch("t", b"t" * 16, 0, "g"), SendFuture()
    attach(future, batch, 0)

    async def body() -> None:
        waits = [asyncio.ensure_future(_result(future)) for _ in range(3)]
        given_up = asyncio.ensure_future(_result(future))
        await asyncio.sleep(0)
        given_up.cancel()
        thread = threading.Thread(target=settle, args=(batch,))
        thread.start()
        assert [(await each).offset for each in waits] == [7, 7, 7]
        assert (await future).offset == 7
        thread.join()

    run(body())


async def _result(future: SendFuture) -> SendResult:
    return await future
