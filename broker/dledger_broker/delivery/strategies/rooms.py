"""Machine rooms: RocketMQ's MACHINE_ROOM (S93) and MACHINE_ROOM_NEARBY (S96). Pure."""

from collections.abc import Callable, Collection, Sequence
from itertools import groupby

from dledger_broker.delivery.strategies.model import Consumer, Dealt, Queue, nothing
from dledger_proto.errors import invalid


def machine_room(
    queues: Sequence[Queue], consumers: Sequence[Consumer], rooms: Collection[str]
) -> Dealt:
    """Deal the queues of these rooms only: equal blocks, then one each of what is left over."""
    within = [queue for queue in queues if queue.room and queue.room in rooms]
    size = len(within) // len(consumers)
    rest = within[size * len(consumers) :]
    return {
        consumer.name: within[size * place : size * (place + 1)] + rest[place : place + 1]
        for place, consumer in enumerate(consumers)
    }


def nearby_room(
    queues: Sequence[Queue],
    consumers: Sequence[Consumer],
    inner: Callable[[Sequence[Queue], Sequence[Consumer]], Dealt],
) -> Dealt:
    """Deal the queues of a room to the consumers there; all share a room that has no consumer.

    INVALID_ARGUMENT names a consumer or a queue whose room is not known.
    """
    for consumer in consumers:
        if not consumer.room:
            raise invalid(f"strategy nearby-room: consumer {consumer.name} names no room")
    dealt = nothing(consumers)
    for room, some in groupby(sorted(queues, key=lambda queue: queue.room), lambda q: q.room):
        within = list(some)
        if not room:
            raise invalid(
                f"strategy nearby-room: broker group {within[0].group} names no room, as in "
                "room@name"
            )
        near = [consumer for consumer in consumers if consumer.room == room]
        for name, queues_of in inner(within, near or consumers).items():
            dealt[name] += queues_of
    return dealt
