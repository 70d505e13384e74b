"""Renews the holds of a plan while its readers are busy elsewhere. Owns: the thread that renews.

A hold ends when its time is over. A reader renews the hold of the queue that it reads. When a plan
takes longer than its holds last, the holds of the queues that wait for their turn would end. All
holds would end between two runs of one job.
"""

import logging
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Final

from dledger_client.errors import ClientError
from dledger_client.reading.planner import ReadPlan

RENEWALS: Final = 3
"""Renewals in the time of a hold."""
TRIES: Final = 20
"""Renewals in the time of a hold, while they fail."""

_LOG: Final = logging.getLogger("dledger_client")


class Keeper:
    """Renews the holds of the plan that was made last, until it is closed."""

    def __init__(self, renew: Callable[[ReadPlan], None], ttl_ms: int) -> None:
        """`renew` is called in a thread of its own; `ttl_ms` is how long the holds last."""
        self._renew = renew
        self._seconds = ttl_ms / 1_000
        self._plan: ReadPlan | None = None
        self._lock = Lock()
        """Taken while holds change: a renewal of the older plan would move them back."""
        self._ended = Event()
        self._thread = Thread(target=self._run, name="dledger holds", daemon=True)

    def keep(self, freeze: Callable[[], ReadPlan]) -> ReadPlan:
        """Make and return a plan. Its holds are renewed from now on, no longer the last plan's."""
        with self._lock:
            plan = freeze()
            self._plan = plan
        if self._thread.ident is None:
            self._thread.start()
        return plan

    def close(self) -> None:
        """Stop renewing. The holds stay until their time is over."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        pause = self._seconds / RENEWALS
        while not self._ended.wait(pause):
            pause = self._seconds / (RENEWALS if self._is_renewed() else TRIES)

    def _is_renewed(self) -> bool:
        """Renew once; return False when another try may soon succeed."""
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
