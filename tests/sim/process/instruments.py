"""What the simulation replaces in modules of the product, for the processes that it runs.

What a member is given, its settings and bounds, is replaced in `tests/sim/member/`; D15 has the
whole list.

Owns: what is replaced while a world runs, and putting it back. Each replacement asks which process
runs: outside of simulated processes nothing changes.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from dledger_broker.process.group_runtime import GroupRuntime
from dledger_client import _machine
from dledger_client._shell import runner
from dledger_client._shell.unclosed import watch as _watch
from tests.sim.network.calls.patching import simulated_grpc
from tests.sim.process.logs import logs_of_processes
from tests.sim.process.loop import ProcessLoop

_open = GroupRuntime.open

_wall_ms = _machine.wall_ms
_random_bytes = _machine.random_bytes


def _running() -> ProcessLoop | None:
    loop = asyncio._get_running_loop()
    return loop if isinstance(loop, ProcessLoop) else None


def _open_watched(runtime: GroupRuntime, on_failure: Callable[[BaseException], None]) -> None:
    loop = _running()
    if loop is None:
        _open(runtime, on_failure)
        return

    def failed(error: BaseException) -> None:
        loop.on_group_failed(error)
        on_failure(error)

    _open(runtime, failed)
    loop.on_group_opened(runtime)


def _watched(producer: object, engine: Any, *, at_exit: bool) -> None:
    """A simulated process that dies leaves nobody who could tell of its unclosed producers."""
    if _running() is None:
        _watch(producer, engine, at_exit=at_exit)


def _process_wall_ms() -> int:
    loop = _running()
    return _wall_ms() if loop is None else loop.wall_ms()


def _process_bytes(size: int) -> bytes:
    loop = _running()
    return _random_bytes(size) if loop is None else loop.random.randbytes(size)


@contextmanager
def instruments() -> Iterator[None]:
    """Let simulated processes have simulated gRPC, clocks, chance and log lines."""
    replaced: Any = patch.multiple(
        _machine,
        wall_ms=_process_wall_ms,
        random_bytes=_process_bytes,
        process_name=lambda: "a simulated process",
    )
    with (
        replaced,
        patch.object(GroupRuntime, "open", _open_watched),
        patch.object(runner, "watch", _watched),
        simulated_grpc(),
        logs_of_processes(),
    ):
        yield
