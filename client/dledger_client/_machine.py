"""What a client takes from its machine beside the event loop: wall clock, random bytes, a name.

Owns: these calls, so that the simulation can answer them. Callers name the module at each call.
"""

import os
import socket
import time


def wall_ms() -> int:
    """Return milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def random_bytes(size: int) -> bytes:
    """Return so many bytes that nobody can guess."""
    return os.urandom(size)


def process_name() -> str:
    """Return host and process, for people who look at a list of consumers."""
    return f"{socket.gethostname()} {os.getpid()}"
