"""The event loop and the threads of a simulated process: time, pauses, ends, errors."""

import asyncio
import contextvars
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from tests.sim.process.loop import ProcessLoop, new_loop
from tests.sim.world.clock import Scheduler


class Machine:
    """One loop on a scheduler, and what nobody caught."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler()
        self.errors: list[BaseException] = []
        self.said: list[str] = []
        self.loop = self.new_loop(seed)

    def new_loop(self, seed: int) -> ProcessLoop:
        return new_loop(
            self.scheduler,
            Random(seed),
            "a",
            lambda: self.scheduler.now + 1_000,
            lambda error, _where: self.errors.append(error),
        )

    def run(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        tasks: list[asyncio.Task[Any]] = []
        self.loop.run_now(lambda: tasks.append(self.loop.create_task(work)))
        return tasks[0]

    def until(self, time: float) -> None:
        self.scheduler.run_until(time, lambda: None)


def test_a_task_sleeps_and_times_out_on_virtual_time() -> None:
    machine = Machine()

    async def work() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.0):
                await asyncio.sleep(60.0)
        return asyncio.get_running_loop().time()

    task = machine.run(work())
    machine.until(10.0)
    assert task.result() == pytest.approx(1_002.0, abs=0.001)


def test_the_same_seed_gives_the_same_moments_and_another_seed_others() -> None:
    def moments(seed: int) -> list[float]:
        machine = Machine(seed)
        found: list[float] = []

        async def work() -> None:
            for _ in range(20):
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)
                found.append(machine.scheduler.now)

        machine.run(work())
        machine.until(1.0)
        return found

    assert moments(1) == moments(1) != moments(2)


def test_a_paused_process_runs_nothing_and_then_everything() -> None:
    machine = Machine()

    async def work() -> None:
        while True:
            await asyncio.sleep(0.5)
            machine.said.append(f"{machine.scheduler.now:.1f}")

    machine.run(work())
    machine.until(1.1)
    machine.loop.pause()
    machine.until(5.0)
    assert machine.said == ["0.5", "1.0"]
    machine.loop.resume()
    machine.until(5.9)
    assert machine.said == ["0.5", "1.0", "5.0", "5.5"]


def test_a_job_of_a_thread_waits_for_the_end_of_a_pause() -> None:
    machine = Machine()

    async def work() -> None:
        await asyncio.get_running_loop().run_in_executor(None, machine.said.append, "job")

    machine.run(work())
    machine.until(0.00004)  # the task has handed the job over
    machine.loop.pause()
    machine.until(1.0)
    assert not machine.said
    machine.loop.resume()
    machine.until(2.0)
    assert machine.said == ["job"]


def test_an_ended_process_runs_nothing_not_even_its_finally_blocks() -> None:
    machine = Machine()

    async def work() -> None:
        try:
            await asyncio.sleep(1.0)
            machine.said.append("slept")
        finally:
            machine.said.append("finally")

    machine.run(work())
    machine.until(0.5)
    machine.loop.end()
    machine.until(3.0)
    assert machine.said == []
    machine.loop.discard()
    assert machine.said == ["finally"]
    assert not machine.errors


def test_a_task_is_closed_in_its_own_context() -> None:
    machine = Machine()
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")

    async def work() -> None:
        token = variable.set(1)
        try:
            await asyncio.sleep(1.0)
        finally:
            variable.reset(token)
            machine.said.append("reset")

    machine.run(work())
    machine.until(0.5)
    machine.loop.end()
    machine.loop.discard()
    assert machine.said == ["reset"]


def test_an_error_that_nobody_catches_is_told() -> None:
    machine = Machine()

    def fail() -> None:
        raise ValueError("of a callback")

    machine.loop.run_now(lambda: machine.loop.call_soon(fail))
    machine.until(1.0)
    assert [str(error) for error in machine.errors] == ["of a callback"]


def test_a_turn_that_computes_delays_the_next_one_and_shows_in_the_time() -> None:
    machine = Machine()
    times: list[float] = []

    async def work() -> None:
        loop = machine.loop
        loop.spend(0.25)
        times.append(loop.time())
        await asyncio.sleep(0)
        times.append(loop.time())

    machine.run(work())
    machine.until(1.0)
    assert times == [pytest.approx(1_000.25, abs=0.001)] * 2


def test_a_thread_runs_outside_of_any_loop() -> None:
    machine = Machine()

    def job() -> object:
        return asyncio._get_running_loop()

    async def work() -> object:
        return await asyncio.get_running_loop().run_in_executor(None, job)

    task = machine.run(work())
    machine.until(1.0)
    assert task.result() is None


def test_what_a_job_raises_reaches_who_waits() -> None:
    machine = Machine()

    def job() -> None:
        raise OSError("the disk")

    async def work() -> str:
        try:
            await asyncio.get_running_loop().run_in_executor(None, job)
        except OSError as error:
            return str(error)
        return ""

    task = machine.run(work())
    machine.until(1.0)
    assert task.result() == "the disk"


def test_a_cancelled_timer_never_fires() -> None:
    machine = Machine()

    def begin() -> None:
        machine.loop.call_later(1.0, machine.said.append, "cancelled").cancel()
        machine.loop.call_later(1.0, machine.said.append, "fired")

    machine.loop.run_now(begin)
    machine.until(2.0)
    assert machine.said == ["fired"]


def test_sigterm_reaches_the_handler() -> None:
    machine = Machine()
    machine.loop.terminate()  # nobody handles it yet
    machine.loop.add_signal_handler(15, machine.said.append, "asked to end")
    machine.loop.terminate()
    machine.until(1.0)
    assert machine.said == ["asked to end"]
