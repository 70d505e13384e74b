"""What apply tells others: one event for each entry, when its effects are visible.

Owns: the event, and who hears it. Not: the results' way to the callers that wait for them; `apply`
returns the results to Raft, which knows whose they are (`dledger.raft.commit.proposals`).

Long polls, the topics that routes and registrations tell, and the simulation's invariants listen.
A listener runs within apply, on its thread: it notes what happened and returns.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dledger.state.queues.table import Queue
from dledger.state.results import Result
from dledger.state.values import Topic
from dledger.types import Entry


class Applied(NamedTuple):
    """An entry took effect."""

    entry: Entry
    results: Sequence[Result]
    """One for each payload."""
    grown: Sequence[Queue]
    """Queues that it appended to, each with its new maximum."""
    topics: Sequence[Topic]
    """Topics that it changed or deleted, as they are now."""
    consumer_groups: Sequence[bytes] = ()
    """Ids of the consumer groups whose consumers or grants it changed."""


Listener = Callable[[Applied], None]


class Events:
    """The channel of one state machine."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` after each entry, in the order of subscription."""
        self._listeners.append(listener)

    def publish(self, applied: Applied) -> None:
        """Tell all listeners."""
        for listener in self._listeners:
            listener(applied)
