"""Long polls: which reader waits on which queue, woken by apply (S53, S83). Pure: it calls back.

RocketMQ holds a pull, wakes it on an arrival, and looks again every five seconds. Here the wake is
enough: `arrived` is called inside apply, before any other code runs. A ticket waits on several
queues and is woken once, by the first arrival. The owner of a ticket bounds the wait with a timer
of its own and calls `cancel`.
"""

from collections.abc import Callable, Sequence
from typing import Final

from dledger_proto.errors import Code, DledgerError

QueueKey = tuple[bytes, int]
"""Topic id and queue number."""

TICKETS_MAX: Final = 100_000


class Ticket:
    """One wait: the queues, and what to call."""

    __slots__ = ("keys", "wake")

    def __init__(self, keys: Sequence[QueueKey], wake: Callable[[], None]) -> None:
        self.keys = keys
        self.wake = wake


class LongPoll:
    """The waiters of one group."""

    def __init__(self, tickets_max: int = TICKETS_MAX) -> None:
        self._waiting: dict[QueueKey, dict[Ticket, None]] = {}
        """By queue, the tickets in the order of their waits."""
        self._tickets_max = tickets_max
        self._count = 0

    def __len__(self) -> int:
        """How many tickets wait."""
        return self._count

    def wait(self, keys: Sequence[QueueKey], wake: Callable[[], None]) -> Ticket:
        """Register; `wake` is called once at the first arrival on any of `keys`.

        The caller looks at the queues before or after this call without an await between, so it
        misses no arrival.
        """
        if self._count >= self._tickets_max:
            raise DledgerError(
                Code.BUSY, f"the limit of {self._tickets_max} waiting long polls is reached"
            )
        ticket = Ticket(tuple(dict.fromkeys(keys)), wake)
        self._count += 1
        for key in ticket.keys:
            self._waiting.setdefault(key, {})[ticket] = None
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Forget a ticket; no effect when it was woken."""
        found = False
        for key in ticket.keys:
            tickets = self._waiting.get(key)
            if tickets is not None and ticket in tickets:
                found = True
                del tickets[ticket]
                if not tickets:
                    del self._waiting[key]
        self._count -= found

    def arrived(self, topic_id: bytes, queue: int) -> None:
        """Wake every ticket that waits on the queue."""
        tickets = self._waiting.get((topic_id, queue))
        if tickets:
            for ticket in list(tickets):
                self.cancel(ticket)
                ticket.wake()
