"""An event loop on virtual time: when nothing is ready, time leaps to the next timer."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Selector(selectors.SelectSelector):
    """Waits for nobody: instead of waiting it moves the time on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing would ever happen again"
        self.now += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. It is a `Clock`, too."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """See `AbstractEventLoop.time`."""
        return self._virtual.now

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self._virtual.now

    def wall_ms(self) -> int:
        """See `Clock.wall_ms`."""
        return int(self._virtual.now * 1_000)

    def run_for(self, seconds: float, endless: Coroutine[Any, Any, None]) -> None:
        """Run what never ends for so long, then cancel it."""
        task = self.create_task(endless)
        self.run_until_complete(asyncio.sleep(seconds))
        assert not task.done(), "it ended"
        task.cancel()
        self.run_until_complete(asyncio.gather(task, return_exceptions=True))
