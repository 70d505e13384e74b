"""A group's trace events: log lines with group, member and term, and notes of the flight recorder.

Owns the level of each event: an event that an operator acts on is a warning, an event of every
entry is for debugging only.
"""

from collections.abc import Callable
from typing import Final

import structlog

from dledger.trace import FREQUENT
from dledger_broker.process.logs import NOTED
from dledger_broker.process.platform import Note

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

    def __init__(
        self, group: str, member: str, term: Callable[[], int], note: Note | None = None
    ) -> None:
        noted = {NOTED: True} if note is not None else {}
        self._log = structlog.get_logger().bind(group=group, member=member, **noted)
        self._group = group
        self._term = term
        self._note = note

    def event(self, name: str, **fields: object) -> None:
        """Note it, and write one line; bytes are shown as hex."""
        if self._note is not None:
            self._note(self._group, name, fields)
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
