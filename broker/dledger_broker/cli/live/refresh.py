"""Shows something anew every few seconds, until Ctrl-C: a live table, or a JSON object a line."""

import time
from collections.abc import Callable
from typing import TypeVar

from rich.console import RenderableType
from rich.live import Live

from dledger_broker.cli.output import JsonValue, console, print_json

T = TypeVar("T", bound=JsonValue)


def refreshed(
    look: Callable[[], T],
    shown: Callable[[T], RenderableType],
    every: float,
    *,
    as_json: bool,
    count: int = 0,
) -> None:
    """Look and show every so many seconds: `count` times, 0: until Ctrl-C."""
    left = count or -1
    try:
        if as_json:
            while left:
                print_json(look())
                left = _pause(left, every)
            return
        # Visible: rows below the end of the screen are not left out.
        with Live(console=console(), auto_refresh=False, vertical_overflow="visible") as live:
            while left:
                live.update(shown(look()), refresh=True)
                left = _pause(left, every)
    except KeyboardInterrupt:
        return


def _pause(left: int, every: float) -> int:
    """Wait, unless this was the last time; return how often is left."""
    if left != 1:
        time.sleep(every)
    return left - 1
