"""Ending a task for certain."""

import asyncio
from typing import Any, Final

AGAIN_SECONDS: Final = 0.1


async def end_task(task: "asyncio.Task[Any] | None") -> None:
    """Cancel a task and wait until it has ended, whatever it ends with.

    One request is not enough for a task that calls gRPC: a cancellation that meets a call while it
    is being prepared is swallowed (gRPC's own task takes it, and returns as if nothing were).
    """
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=AGAIN_SECONDS)
