"""What a client takes from its machine beside the event loop: the wall clock and random bytes.

Owns: these two calls, so that the simulation can answer them. Callers name the module at each call.
"""

import os
import time


def wall_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def random_bytes(size: int) -> bytes:
    """Return so many bytes that nobody can guess."""
    return os.urandom(size)
