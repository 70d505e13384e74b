"""Config: RocketMQ's CONFIG (S94). Every consumer says which queues it takes. Pure."""

from collections.abc import Sequence

from dledger_broker.delivery.strategies.model import Consumer, Dealt, Queue


def config(queues: Sequence[Queue], consumers: Sequence[Consumer]) -> Dealt:
    """Deal what each consumer wants, whether it overlaps or leaves gaps."""
    known = set(queues)
    return {
        consumer.name: [queue for queue in consumer.wanted if queue in known]
        for consumer in consumers
    }


def overlaps_and_gaps(queues: Sequence[Queue], dealt: Dealt) -> list[str]:
    """Say in a sentence each what is wrong with a deal."""
    takers: dict[Queue, list[str]] = {queue: [] for queue in queues}
    for name, some in dealt.items():
        for queue in some:
            takers[queue].append(name)
    twice = [
        f"{queue.describe()} by {' and '.join(names)}"
        for queue, names in takers.items()
        if len(names) > 1
    ]
    nobody = [queue.describe() for queue, names in takers.items() if not names]
    sentences: list[str] = []
    if twice:
        sentences.append(
            f"{len(twice)} queues are wanted twice, the first consumer gets them: {_some(twice)}"
        )
    if nobody:
        sentences.append(f"{len(nobody)} queues are wanted by nobody: {_some(nobody)}")
    return sentences


def _some(words: Sequence[str], most: int = 5) -> str:
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")
