"""Running coroutines in tests, and waiting for what must come true."""

import asyncio
from collections.abc import Callable, Coroutine

TEST_TIMEOUT = 30.0


def run(work: Coroutine[object, object, None]) -> None:
    """Run a test's coroutine, for at most TEST_TIMEOUT seconds."""

    async def bounded() -> None:
        async with asyncio.timeout(TEST_TIMEOUT):
            await work

    asyncio.run(bounded())


async def eventually(holds: Callable[[], object], what: str) -> None:
    """Wait until `holds()` is true; AssertionError with `what` after TEST_TIMEOUT / 2 seconds."""
    end = asyncio.get_running_loop().time() + TEST_TIMEOUT / 2
    while not holds():
        assert asyncio.get_running_loop().time() < end, f"never: {what}"
        await asyncio.sleep(0.002)
