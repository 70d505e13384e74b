"""Background tasks that run as long as the process: one that crashes is logged and restarted.

For work that no caller waits for: registrations, watches, upkeep. Code that decides about log
entries does not run like this: a bug there ends the member.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from dledger_proto.limits import RECONNECT_BACKOFF_MAX_MS

AGAIN_SECONDS: Final = RECONNECT_BACKOFF_MAX_MS / 1000


def start_running(work: Callable[[], Awaitable[None]], what: str) -> "asyncio.Task[None]":
    """Return a task of this name that runs `work` until it returns, over crashes."""
    return asyncio.get_running_loop().create_task(keep_running(work, what), name=what)


async def keep_running(work: Callable[[], Awaitable[None]], what: str) -> None:
    """Run `work` until it returns; when it raises, log the error and restart it after a second.

    An error that repeats is logged once, until another one comes.
    """
    log = structlog.get_logger()
    told = ""
    while True:
        try:
            await work()
        except Exception as error:  # nothing awaits the task: its end would go unseen
            if told != repr(error):
                told = repr(error)
                log.error("background task crashed; restarting it", task=what, exc_info=error)
        else:
            return
        await asyncio.sleep(AGAIN_SECONDS)
