"""Log lines of a process: structlog to standard error, for people or as JSON.

Owns the processors and the level. Log lines never go to standard output, which carries the answer
of a command.
"""

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor

from dledger_proto.names import printable


def _printable_values(_logger: object, _name: str, event: EventDict) -> EventDict:
    """Escape what strangers send, so that it moves no cursor and begins no line in a terminal.

    A traceback keeps its lines. Each is indented, so that none looks like a log line.
    """
    shown: EventDict = {
        key: printable(value) if isinstance(value, str) else value
        for key, value in event.items()
        if key != "exception"
    }
    if "exception" in event:
        lines = str(event["exception"]).split("\n")
        shown["exception"] = "\n".join("  " + printable(line) for line in lines)
    return shown


def set_up_logs(
    *,
    json: bool,
    level: str = "info",
    stream: TextIO | None = None,
    tap: Processor | None = None,
    **bound: str,
) -> None:
    """Send all log lines of this process to `stream` (standard error); `bound` goes on each.

    `tap` sees each line first.
    """
    target = sys.stderr if stream is None else stream

    def add_bound(_logger: object, _name: str, event: EventDict) -> EventDict:
        return {**event, **{key: event.get(key, value) for key, value in bound.items()}}

    processors: list[Processor] = [
        *(() if tap is None else (tap,)),
        add_bound,  # not contextvars: worker threads do not see them
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        # Not the console's own: it prints hundreds of lines with the values of all variables,
        # message bodies among them, and holds the loop for most of a second.
        structlog.processors.format_exc_info,
    ]
    if json:
        processors.append(structlog.processors.JSONRenderer(sort_keys=False))
    else:
        processors += [
            _printable_values,
            structlog.dev.ConsoleRenderer(
                colors=target.isatty(),
                # Prints the text above; with another formatter structlog warns that there is one.
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(file=target),
        cache_logger_on_first_use=True,
    )
