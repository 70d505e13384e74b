"""How many files and connections a process may have open at once.

Owns the shares: connections get at most half of what the machine allows, so that no number of them
takes the files of the log. Linux gives a process fewer than it would allow if asked: often 1,024.
"""

import resource
from contextlib import suppress
from typing import Final

OPEN_FILES_WANTED: Final = 65_536
"""A process asks for so many, or for as many as it may have."""
CONNECTIONS_SHARE: Final = 2
"""Connections get one of so many."""


def ask_for_open_files() -> None:
    """Raise what the machine gives this process to what it allows, if that is more."""
    given, allowed = map(_number, resource.getrlimit(resource.RLIMIT_NOFILE))
    wanted = min(OPEN_FILES_WANTED, allowed)
    if given < wanted:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        with suppress(OSError, ValueError):  # a sandbox may forbid it: then what is given counts
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connections_max() -> int:
    """Return how many connections this process may take; one more is closed at once."""
    given = _number(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return min(given, OPEN_FILES_WANTED) // CONNECTIONS_SHARE


def _number(limit: int) -> int:
    return OPEN_FILES_WANTED if limit == resource.RLIM_INFINITY else limit
