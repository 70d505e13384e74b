"""What strategies deal out, and to whom. Values only.

Consumers come sorted by name, queues by topic, broker group and number.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

ROOM_MARK = "@"
"""A broker group that is called `room@name` stands in that machine room (S93, S96)."""


class Queue(NamedTuple):
    """A queue, in the order in which queues are dealt out."""

    topic: str
    group: str
    """The broker group that holds it."""
    number: int
    topic_id: bytes = b""

    @property
    def room(self) -> str:
        """The machine room of its broker group; empty when the name of the group tells none."""
        room, mark, _ = self.group.partition(ROOM_MARK)
        return room if mark else ""

    def describe(self) -> str:
        """Return one word."""
        return f"{self.topic}/{self.number}"


class Consumer(NamedTuple):
    """A consumer, by the name that decides its place in the order."""

    name: str
    room: str = ""
    wanted: tuple[Queue, ...] = ()


class Standing(NamedTuple):
    """Where a queue stands: who has it, and who should have it."""

    holder: str
    target: str


Dealt = dict[str, list[Queue]]
"""The queues of each consumer; every consumer has an entry."""


def nothing(consumers: Sequence[Consumer]) -> Dealt:
    """Return a deal in which nobody has anything."""
    return {consumer.name: [] for consumer in consumers}


def owners(dealt: Mapping[str, Iterable[Queue]]) -> dict[Queue, str]:
    """Return the consumer of each queue; the first one in order, where two have it."""
    found: dict[Queue, str] = {}
    for name, queues in dealt.items():
        for queue in queues:
            found.setdefault(queue, name)
    return found
