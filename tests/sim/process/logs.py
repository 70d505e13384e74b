"""Log lines of simulated processes: they go to the process that wrote them, as trace events.

Owns: which process a line is of (that of the running loop), and the way from a line back to the
product's event: `LogTrace` turns the event's name into words.
"""

import asyncio
import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog

from tests.sim.process.loop import ProcessLoop

Fields = MutableMapping[str, Any]


def _to_process(_logger: object, level: str, fields: Fields) -> Fields:
    loop = asyncio._get_running_loop()
    if isinstance(loop, ProcessLoop):
        loop.on_log(level, str(fields.pop("event", "")).replace(" ", "_"), dict(fields))
    raise structlog.DropEvent


@contextmanager
def logs_of_processes() -> Iterator[None]:
    """Send every line of structlog to `ProcessLoop.on_log` of the process that runs."""
    before = structlog.get_config()
    structlog.configure(
        processors=[_to_process],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=False,
    )
    quiet = logging.getLogger("dledger_client")
    level = quiet.level
    quiet.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        quiet.setLevel(level)
        structlog.configure(**before)
