"""Read barriers of many callers at once: those that come during a confirmation share the next one.

Owns: who waits for which confirmation. The group confirms (`leadership/barrier.py`).
"""

import asyncio
from collections.abc import Callable

from dledger.raft.api import OnBarrier
from dledger.types import LogIndex
from dledger_proto.errors import Code, DledgerError


class SharedBarriers:
    """Callers of one loop. `ask` asks the group for one barrier."""

    def __init__(self, ask: Callable[[OnBarrier], None]) -> None:
        self._ask = ask
        self._is_running = False
        self._is_stopped = False
        self._waiters: list[asyncio.Future[LogIndex]] = []
        """Callers of the next confirmation."""

    async def wait(self) -> LogIndex:
        """Return a read index that was confirmed after this call; NOT_LEADER with the reason."""
        future: asyncio.Future[LogIndex] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        if not self._is_running:
            self._begin()
        return await future

    def _begin(self) -> None:
        waiters, self._waiters = self._waiters, []
        self._is_running = True

        def done(index: LogIndex | None, reason: str) -> None:
            self._is_running = False
            for future in waiters:
                if future.done():
                    continue
                if index is None:
                    future.set_exception(DledgerError(Code.NOT_LEADER, reason))
                else:
                    future.set_result(index)
            if self._waiters and not self._is_stopped:
                self._begin()

        self._ask(done)

    def stop(self, error: Exception) -> None:
        """Refuse the callers of the next confirmation."""
        self._is_stopped = True
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            if not future.done():
                future.set_exception(error)
