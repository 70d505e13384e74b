"""Repeats calls that fail while a cluster may still recover: only a lasting failure is wrong."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

PATIENCE_SECONDS: Final = 45.0
"""For all failing tries of one kind: longer than any healing with the election after it."""
AGAIN_SECONDS: Final = 0.5
"""The pause between two tries."""

Revive = Callable[[], Awaitable[None]]


class Patience:
    """Repeats what fails, until a deadline that all tries of one kind share.

    Each attempt is made at least once, so many failing attempts do not take many times as long.
    `revive` starts members that ended meanwhile: a member may find damage only when it reads all.
    """

    def __init__(self, revive: Revive) -> None:
        self._revive = revive
        self._until = asyncio.get_running_loop().time() + PATIENCE_SECONDS

    async def until(self, attempt: Callable[[], Awaitable[bool]]) -> bool:
        """Repeat the attempt until it succeeds; return whether it did."""
        while not await attempt():
            if asyncio.get_running_loop().time() >= self._until:
                return False
            await self._revive()
            await asyncio.sleep(AGAIN_SECONDS)
        return True
