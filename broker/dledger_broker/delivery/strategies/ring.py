"""Consistent hashing: RocketMQ's CONSISTENT_HASH (S95), the same table digit for digit. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from hashlib import md5
from typing import Final

from dledger_broker.delivery.strategies.model import Consumer, Dealt, Queue, nothing

VIRTUAL_NODES: Final = 10
"""Points of each consumer on the ring."""


def consistent_hash(queues: Sequence[Queue], consumers: Sequence[Consumer]) -> Dealt:
    """Deal each queue to the first point of the ring at or behind its hash."""
    ring: dict[int, str] = {}
    for consumer in consumers:
        for number in range(VIRTUAL_NODES):
            ring[_hash(f"{consumer.name}-{number}")] = consumer.name
    points = sorted(ring)
    dealt = nothing(consumers)
    for queue in queues:
        at = bisect_left(points, _hash(_printed(queue)))
        dealt[ring[points[at % len(points)]]].append(queue)
    return dealt


def _printed(queue: Queue) -> str:
    """Return a queue as RocketMQ prints it: its hash decides."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.group}, queueId={queue.number}]"


def _hash(key: str) -> int:
    return int.from_bytes(md5(key.encode(), usedforsecurity=False).digest()[:4], "big")
