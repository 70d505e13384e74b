"""Average and circle: RocketMQ's AVG (S91) and AVG_BY_CIRCLE (S92). Pure."""

from collections.abc import Sequence

from dledger_broker.delivery.strategies.model import Consumer, Dealt, Queue


def average(queues: Sequence[Queue], consumers: Sequence[Consumer]) -> Dealt:
    """Deal contiguous blocks; the first `n mod c` consumers get one queue more."""
    size, more = divmod(len(queues), len(consumers))
    dealt: Dealt = {}
    begin = 0
    for place, consumer in enumerate(consumers):
        end = begin + size + (place < more)
        dealt[consumer.name] = list(queues[begin:end])
        begin = end
    return dealt


def circle(queues: Sequence[Queue], consumers: Sequence[Consumer]) -> Dealt:
    """Deal like cards, one queue after the other."""
    count = len(consumers)
    return {consumer.name: list(queues[place::count]) for place, consumer in enumerate(consumers)}
