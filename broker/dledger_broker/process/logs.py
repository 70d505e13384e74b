"""Log lines of a process: structlog to standard error, for people or as JSON.

Owns the processors and the level. Callers use `structlog.get_logger()` and bind group, member and
term themselves. Log lines never go to standard output, which carries the answer of a command.
"""

import logging
import sys
from collections.abc import Hashable
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, Processor

from dledger.clock import Clock
from dledger_broker.config.model import LogConfig, LogFormat
from dledger_proto.names import printable

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

QUIET_SECONDS: Final = 10.0
"""A line that any stranger can cause is logged at most once in this time."""


class Quiet:
    """Lets one line of a kind through in each period, and counts the lines that it leaves out."""

    def __init__(self, clock: Clock, seconds: float = QUIET_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._next: dict[Hashable, float] = {}
        self._left_out: dict[Hashable, int] = {}

    def admit(self, kind: Hashable) -> int | None:
        """Return how many lines of a kind were left out since the last one; None: leave this out.

        There are few kinds: the caller's own words, never what a stranger sent.
        """
        now = self._clock.monotonic()
        if now < self._next.get(kind, now):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return None
        self._next[kind] = now + self._seconds
        return self._left_out.pop(kind, 0)


def _printable_values(_logger: object, _name: str, event: EventDict) -> EventDict:
    """Escape what strangers send, so that it moves no cursor and begins no line in a terminal."""
    return {
        key: printable(value) if isinstance(value, str) and key != "exception" else value
        for key, value in event.items()
    }


def set_up_logs(config: LogConfig, *, stream: TextIO | None = None, **bound: str) -> None:
    """Send all log lines of this process to `stream` (standard error); `bound` goes on each."""
    target = sys.stderr if stream is None else stream

    def add_bound(_logger: object, _name: str, event: EventDict) -> EventDict:
        return {**event, **{key: event.get(key, value) for key, value in bound.items()}}

    processors: list[Processor] = [
        add_bound,  # not contextvars: worker threads do not see them
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if config.format is LogFormat.JSON:
        processors += [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=False),
        ]
    else:
        processors += [
            _printable_values,
            structlog.dev.ConsoleRenderer(
                colors=target.isatty(),
                # Not the default: it prints hundreds of lines with the values of all variables,
                # message bodies among them, and holds the loop for most of a second.
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.level.value]),
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=True,
    )
