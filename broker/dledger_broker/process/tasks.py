"""Tasks that go on as long as the process: a bug in one is told, and the task begins again.

For work that no caller waits for and whose state is built anew at each beginning: registrations,
watches, upkeep. Nothing that decides about entries runs under this: there a bug ends the member.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from dledger_proto.limits import RECONNECT_BACKOFF_MAX_MS

AGAIN_SECONDS: Final = RECONNECT_BACKOFF_MAX_MS / 1000


async def keep_running(work: Callable[[], Awaitable[None]], what: str) -> None:
    """Run `work` until it returns; when it raises, log it and begin again after a second.

    An error that repeats is logged once, until another one comes.
    """
    log = structlog.get_logger()
    told = ""
    while True:
        try:
            await work()
        except Exception as error:  # nobody awaits it: else it would end unheard
            if told != repr(error):
                told = repr(error)
                log.error(
                    "a task failed by a bug of ours and begins again", task=what, exc_info=error
                )
        else:
            return
        await asyncio.sleep(AGAIN_SECONDS)
