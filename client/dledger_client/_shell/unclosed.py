"""Producers that nobody closed: tells what they left, and sends it where a loop still runs.

Owns: what happens when a started producer is let go of, by the garbage collector or at the end of
the process. Not: the end of a synchronous one at the end of the process (`runner.py`).
"""

import asyncio
import logging
import os
import warnings
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dledger_client._core.producer.batch import Batch
    from dledger_client._core.producer.topics import Parked
    from dledger_client._shell.producer import ProducerEngine

_LOG = logging.getLogger("dledger_client")
_closing: set["asyncio.Task[None]"] = set()
"""Keeps the tasks alive: an event loop holds its tasks weakly."""


def watch(producer: object, engine: "ProducerEngine", *, at_exit: bool) -> None:
    """Tell how much a producer left, once it is gone without having been closed.

    A ResourceWarning always, a line of the log where messages are not acknowledged. As long as the
    loop runs the engine then flushes within the budget of a send, and ends. `at_exit`: also when
    the process ends before the producer is gone.
    """
    weakref.finalize(producer, _let_go, engine, os.getpid()).atexit = at_exit


def tell_lost(batches: "Iterable[Batch]", parked: "Iterable[Parked]") -> None:
    """Log how many messages that waited when their producer was closed are not acknowledged.

    Their futures say why, but perhaps nobody reads those any more.
    """
    lost = sum(batch.count for batch in batches if batch.error is not None)
    lost += sum(len(each.records) for each in parked if each.future.exception() is not None)
    if lost:
        _LOG.warning("a producer was closed while %d of its messages were not acknowledged", lost)


async def closed() -> None:
    """Wait until the producers of this loop that were let go of are closed."""
    loop = asyncio.get_running_loop()
    own = [task for task in _closing if task.get_loop() is loop]
    await asyncio.gather(*own, return_exceptions=True)


def _let_go(engine: "ProducerEngine", process: int) -> None:
    if engine.is_closed or os.getpid() != process:
        return
    left = engine.unsettled()
    text = f"a producer was not closed: {left} messages that it took are not acknowledged"
    if left:
        _LOG.warning("%s", text)
    warnings.warn(f"{text}; use `with`, or call close()", ResourceWarning, stacklevel=2)
    loop = engine.driver.loop
    if loop.is_running():
        loop.call_soon_threadsafe(_close, engine, loop)


def _close(engine: "ProducerEngine", loop: asyncio.AbstractEventLoop) -> None:
    closing = loop.create_task(engine.close(engine.config.timeout_ms / 1_000))
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)
