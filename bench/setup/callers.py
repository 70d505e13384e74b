"""Callers who each send one thing after the other, counted together."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

WARM_UP_SECONDS = 3.0
"""Meanwhile the leader finds out how its group commit serves the callers best: about two seconds,
after a possible rest. Its later trials are part of the measurement."""


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
