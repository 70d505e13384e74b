"""An append stream to one member of a group, as a producer's core sees it. Pure.

Owns: the numbers and the tries of one stream. Not: which member is asked (`members.py`), what an
answer means (`batch_fate.py`), the stream itself (`_shell/producer.py`).
"""

import enum
from collections import deque
from typing import NamedTuple

from dledger_client._core.producer.batch import Batch


class LinkState(enum.Enum):
    """How far a link is."""

    CONNECTING = "connecting"
    UP = "up"
    DRAINING = "draining"
    """Nothing new is sent; it is closed when the last try is answered."""


class Try(NamedTuple):
    """One batch on its way over one link."""

    number: int
    batch: Batch
    sent_at: float
    deadline: float


class Link:
    """One append stream to one member of a group."""

    __slots__ = (
        "address",
        "group",
        "id",
        "next_number",
        "opened_at",
        "state",
        "suspect_at",
        "term",
        "tries",
    )

    def __init__(self, identity: int, group: str, address: str, term: int, now: float) -> None:
        self.id = identity
        self.group = group
        self.address = address
        self.term = term
        """Of the leader that was known when the link was chosen."""
        self.state = LinkState.CONNECTING
        self.opened_at = now
        self.suspect_at = 0.0
        """When to ask other members about the leader again, while a try is slow."""
        self.next_number = 0
        self.tries: deque[Try] = deque()

    def describe(self) -> str:
        """Return one stable line for logs and tests."""
        return (
            f"link {self.id} {self.group}@{self.address} term={self.term} {self.state.value}"
            f" next={self.next_number} outstanding={len(self.tries)}"
        )
