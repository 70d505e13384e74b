"""A group's trace events as log lines: every line with group, member and term.

Owns the level of each event: an event that an operator acts on is a warning, an event of every
entry is for debugging only.
"""

from collections.abc import Callable
from typing import Final

import structlog

from dledger.trace import FREQUENT

_WARNINGS: Final = frozenset(
    {
        "clock_followed",
        "clock_jumped",
        "clock_kept",
        "clock_off",
        "disk_hangs",
        "forgotten",
        "leader_lost",
        "life_renewed",
        "link_down",
        "link_garbled",
        "link_refused",
        "paused",
        "peer_not_reached",
        "quarantined",
        "refused",
        "stopped",
        "truncated",
    }
)


class LogTrace:
    """See `dledger.trace.Trace`."""

    def __init__(self, group: str, member: str, term: Callable[[], int]) -> None:
        self._log = structlog.get_logger().bind(group=group, member=member)
        self._term = term

    def event(self, name: str, **fields: object) -> None:
        """Write one line; bytes are shown as hex."""
        shown = {
            key: value.hex() if isinstance(value, bytes) else value for key, value in fields.items()
        }
        shown.setdefault("term", self._term())
        line = name.replace("_", " ")
        if name in FREQUENT:
            self._log.debug(line, **shown)
        elif name in _WARNINGS:
            self._log.warning(line, **shown)
        else:
            self._log.info(line, **shown)
