"""Callers who each send one thing after the other, counted together."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

WARM_UP_SECONDS = 3.0
"""Of callers: a leader finds out meanwhile how its group commit serves them best (two seconds, but
for a rest before). It tries again from time to time, which counts."""


async def call_rate(callers: Sequence[Callable[[], Awaitable[None]]], seconds: float) -> float:
    """Return the calls per second of callers who call again at once; the warm-up is not counted."""
    done = 0
    start = time.perf_counter()
    counts_from = start + WARM_UP_SECONDS

    async def one(call: Callable[[], Awaitable[None]]) -> None:
        nonlocal done
        while (now := time.perf_counter()) < counts_from + seconds:
            await call()
            done += now >= counts_from

    await asyncio.gather(*(one(call) for call in callers))
    return done / (time.perf_counter() - counts_from)
