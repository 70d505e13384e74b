"""Threads that work for an event loop. They go on when the task that waits is cancelled."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """Work that began in threads. `over` waits for work that no task waits for any more."""

    def __init__(self) -> None:
        self._begun: set[asyncio.Future[Any]] = set()

    async def do(self, act: Callable[..., T], *arguments: object) -> T:
        """Do something in a thread, and wait. A cancelled caller leaves the thread at work."""
        doing = asyncio.ensure_future(asyncio.to_thread(act, *arguments))
        self._begun.add(doing)
        done = await asyncio.shield(doing)
        self._begun.discard(doing)
        return done

    async def over(self) -> None:
        """Wait until no thread is at work, however it ends.

        A caller that is cancelled meanwhile must wait again.
        """
        begun = set(self._begun)
        if begun:
            await asyncio.wait(begun)
        self._begun -= begun
