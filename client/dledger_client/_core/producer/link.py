"""An append stream to one member of a group, as a producer's core sees it. Pure.

Owns: the numbers and the tries of one stream. Not: which member is asked (`members.py`), what an
answer means (`batch_fate.py`), the stream itself (`_shell/producer.py`).
"""

import enum
from collections import deque
from dataclasses import dataclass, field
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


@dataclass(slots=True, eq=False, repr=False)
class Link:
    """One append stream to one member of a group."""

    id: int
    group: str
    address: str
    term: int
    """Of the leader that was known when the link was chosen."""
    opened_at: float
    state: LinkState = LinkState.CONNECTING
    suspect_at: float = 0.0
    """When to ask other members about the leader again, while a try is slow."""
    next_number: int = 0
    tries: deque[Try] = field(default_factory=deque)

    def describe(self) -> str:
        """Return one stable line for logs and tests."""
        return (
            f"link {self.id} {self.group}@{self.address} term={self.term} {self.state.value}"
            f" next={self.next_number} outstanding={len(self.tries)}"
        )
