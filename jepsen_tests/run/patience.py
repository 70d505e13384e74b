"""Trying again what fails while a cluster may still come to itself: only what lasts is wrong."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

PATIENCE_SECONDS: Final = 45.0
"""For all tries of one kind that fail: longer than any fault's healing and the election after."""
AGAIN_SECONDS: Final = 0.5
"""Between two tries."""

Revive = Callable[[], Awaitable[None]]


class Patience:
    """Tries again what fails, until a deadline that all tries of one kind share.

    Each thing is tried once at least: many that fail do not take many times as long. `revive`
    brings back who ended meanwhile: a member may find damage only when all of it is read.
    """

    def __init__(self, revive: Revive) -> None:
        self._revive = revive
        self._until = asyncio.get_running_loop().time() + PATIENCE_SECONDS

    async def until(self, attempt: Callable[[], Awaitable[bool]]) -> bool:
        """Try until it is done; return whether it is."""
        while not await attempt():
            if asyncio.get_running_loop().time() >= self._until:
                return False
            await self._revive()
            await asyncio.sleep(AGAIN_SECONDS)
        return True
