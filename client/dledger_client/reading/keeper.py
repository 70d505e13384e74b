"""Keeping what a plan holds while its readers are busy elsewhere. Owns: the thread that renews.

A hold ends by itself, and a reader renews that of the queue it is at. Where a plan takes longer
than its holds last, those of queues whose turn is yet to come would end, and so would all between
two runs of one job.
"""

import logging
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Final

from dledger_client.errors import ClientError
from dledger_client.reading.planner import ReadPlan

RENEWALS: Final = 3
"""In the time of a hold."""
TRIES: Final = 20
"""In the time of a hold, when nobody answers."""

_LOG: Final = logging.getLogger("dledger_client")


class Keeper:
    """Renews the holds of the plan that was made last, until it is closed."""

    def __init__(self, renew: Callable[[ReadPlan], None], ttl_ms: int) -> None:
        """`renew` is called in a thread of its own; `ttl_ms` is how long the holds last."""
        self._renew = renew
        self._seconds = ttl_ms / 1_000
        self._plan: ReadPlan | None = None
        self._lock = Lock()
        """Taken while holds change: a renewal of the plan before would move them back."""
        self._ended = Event()
        self._thread = Thread(target=self._run, name="dledger holds", daemon=True)

    def keep(self, freeze: Callable[[], ReadPlan]) -> ReadPlan:
        """Make a plan, which is renewed from now on in the place of the one before; return it."""
        with self._lock:
            plan = freeze()
            self._plan = plan
        if self._thread.ident is None:
            self._thread.start()
        return plan

    def close(self) -> None:
        """Renew nothing any more. What is held stays so for its time."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        pause = self._seconds / RENEWALS
        while not self._ended.wait(pause):
            pause = self._seconds / (RENEWALS if self._is_renewed() else TRIES)

    def _is_renewed(self) -> bool:
        """Renew once; False when another try may soon do better."""
        with self._lock:
            assert self._plan is not None, "the thread starts with a plan"
            try:
                self._renew(self._plan)
            except ClientError as error:
                _LOG.warning(
                    "a hold could not be renewed, the records that it keeps may be trimmed: %s",
                    error,
                )
                return not error.retriable
        return True
