"""Ending a task for certain."""

import asyncio
from typing import Any, Final

AGAIN_SECONDS: Final = 0.1


async def end_task(task: "asyncio.Task[Any] | None") -> None:
    """Cancel a task and wait until it has ended, whatever it ends with.

    A cancellation that meets a gRPC call while the call is being prepared is swallowed by gRPC
    (its own task takes it, and returns as if nothing were), so one request is not enough.
    """
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=AGAIN_SECONDS)
