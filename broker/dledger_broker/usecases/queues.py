"""The queues that a request names: a queue that cannot be served is refused alone."""

from collections.abc import Sequence
from typing import Final

from dledger_broker.usecases.messaging import Messaging, Queue
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.v1 import broker_pb2 as pb

OF_ONE_QUEUE: Final = frozenset(
    (Code.TOPIC_NOT_FOUND, Code.QUEUE_NOT_FOUND, Code.WRONG_GROUP, Code.NO_PERMISSION)
)
"""Refusals that say something about one queue, and nothing about the member."""


def check_each_once(field: str, named: Sequence[tuple[object, ...] | None]) -> None:
    """Refuse a call that names one thing twice: what it asks would depend on the order.

    None: that one cannot be served, and is refused alone.
    """
    first: dict[tuple[object, ...], int] = {}
    for at, each in enumerate(named):
        if each is not None and first.setdefault(each, at) != at:
            raise invalid(f"{field}[{at}]: names the same as {field}[{first[each]}]")


async def resolve(messaging: Messaging, ref: pb.QueueRef) -> Queue:
    """Return the queue that a reference names; errors as `Messaging.resolve`."""
    return await messaging.resolve(ref.topic, ref.topic_id, ref.queue)


async def resolve_each(
    messaging: Messaging, refs: Sequence[pb.QueueRef]
) -> list[Queue | DledgerError]:
    """Return each queue or its refusal; a quorum is asked once for an unknown topic."""
    unknown: dict[tuple[str, bytes], DledgerError] = {}
    found: list[Queue | DledgerError] = []
    for ref in refs:
        topic = (ref.topic, ref.topic_id)
        try:
            queue = unknown.get(topic) or await resolve(messaging, ref)
        except DledgerError as error:
            if error.code not in OF_ONE_QUEUE:
                raise
            queue = error
            if error.code is Code.TOPIC_NOT_FOUND:
                unknown[topic] = error
        found.append(queue)
    return found
