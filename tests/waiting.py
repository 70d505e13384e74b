"""Waiting for a condition with a deadline: tests never sleep for a time they guessed."""

import asyncio
import threading
import time
from collections.abc import Callable

DEADLINE_SECONDS = 20.0


async def until(
    condition: Callable[[], bool], what: str, seconds: float = DEADLINE_SECONDS
) -> None:
    """Let the loop run until `condition` holds; AssertionError naming `what` at the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.002)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    """Look until `condition` holds, outside a loop; AssertionError at the deadline."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        pause.wait(0.05)
