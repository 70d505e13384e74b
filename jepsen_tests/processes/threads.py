"""Threads that work for an event loop: cancelling who waits for one does not end it."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """What was begun in threads, so that somebody can wait for what was left to itself."""

    def __init__(self) -> None:
        self._begun: set[asyncio.Future[Any]] = set()

    async def do(self, act: Callable[..., T], *arguments: object) -> T:
        """Do it in a thread, and wait; who is cancelled meanwhile leaves it to itself."""
        doing = asyncio.ensure_future(asyncio.to_thread(act, *arguments))
        self._begun.add(doing)
        done = await asyncio.shield(doing)
        self._begun.discard(doing)
        return done

    async def over(self) -> None:
        """Wait until nothing goes on that was left to itself; how it ended nobody asks.

        Who is cancelled meanwhile has to wait again.
        """
        begun = set(self._begun)
        if begun:
            await asyncio.wait(begun)
        self._begun -= begun
