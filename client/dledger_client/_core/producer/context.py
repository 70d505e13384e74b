"""What the parts of a producer's core need of the whole. Pure.

Breaks the circle between `group_sender.py` (one group) and `core.py` (all of them).
"""

import random
from typing import Protocol

from dledger_client._core.members import MemberChoice
from dledger_client._core.producer.actions import Action
from dledger_client._core.producer.batch import Batch
from dledger_client._core.producer.buffer import SendBuffer
from dledger_client._core.routes import RouteTable
from dledger_client.config import ProducerConfig
from dledger_client.latency import FaultTable


class ProducerContext(Protocol):
    """What one group needs of the whole producer."""

    config: ProducerConfig
    routes: RouteTable
    buffer: SendBuffer
    members: MemberChoice
    generator: random.Random
    faults: FaultTable | None
    producer_id: bytes

    def emit(self, action: Action) -> None:
        """Ask the driver for something."""
        ...

    def new_link_id(self) -> int:
        """Return a number that no link had before."""
        ...

    def take_numbers(self, count: int) -> int:
        """Return the first of `count` running numbers."""
        ...

    def move(self, batch: Batch, now: float) -> bool:
        """Move an unbound batch, certainly not stored, to another group if one can take it."""
        ...

    def rehome(self, batch: Batch) -> None:
        """Move a refused batch to the group that the routes name now, if that is another one."""
        ...

    def heard_leader(self, group: str, address: str, term: int, now: float) -> None:
        """Take in which leader a member named."""
        ...

    def has_queue(self, batch: Batch) -> bool:
        """Return whether the queue of a batch takes messages by the routes that are known."""
        ...

    def topic_gone(self, topic: str, topic_id: bytes) -> None:
        """Take in that a member said that a topic does not exist any more."""
        ...
