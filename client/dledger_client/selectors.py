"""Which queue a message goes to: selectors for users (S38), and the default round (S34). Pure.

A selector is a function `(queues, message, argument) -> queue` that returns one of `queues`, or
its number. `queues` holds every write queue of the topic's layout in order; `has_leader` says
whether its group can take a send now, so that a selector may leave dead groups out. The same
argument gives the same queue as long as the layout does not change and the selector does not look
at `has_leader`.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dledger_proto.batch.codec import Record
from dledger_proto.keyhash import queue_of_key


@dataclass(frozen=True, slots=True)
class TopicQueue:
    """One queue of a topic, as a selector sees it."""

    topic: str
    queue: int
    group: str
    has_leader: bool


QueueSelector = Callable[[Sequence[TopicQueue], Record, object], TopicQueue | int]
"""Chooses among a topic's queues, for a message and the argument that its sender gave."""


def _hash_bytes(argument: object) -> bytes:
    if isinstance(argument, bytes):
        return argument
    return str(argument).encode()


def by_hash(queues: Sequence[TopicQueue], message: Record, argument: object) -> int:  # noqa: ARG001
    """Choose as for an ordering key, by the argument (bytes, or its text): `queue_of_key`."""
    return queue_of_key(_hash_bytes(argument), len(queues))


def by_random(generator: random.Random) -> QueueSelector:
    """Return a selector that draws among the queues that have a leader, or among all."""

    def select(queues: Sequence[TopicQueue], message: Record, argument: object) -> TopicQueue:  # noqa: ARG001
        return generator.choice([queue for queue in queues if queue.has_leader] or queues)

    return select


def by_groups(names: Sequence[str], generator: random.Random) -> QueueSelector:
    """Return a selector that draws among the queues of some groups: those of a machine room.

    When none of `names` holds a queue of the topic that has a leader, it draws among all that do.
    """
    wanted = frozenset(names)
    if not wanted:
        raise ValueError("names: empty, give at least one group")
    anywhere = by_random(generator)

    def select(queues: Sequence[TopicQueue], message: Record, argument: object) -> TopicQueue | int:
        near = [queue for queue in queues if queue.group in wanted and queue.has_leader]
        return anywhere(near or queues, message, argument)

    return select
