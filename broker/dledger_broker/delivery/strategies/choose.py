"""Which strategy deals which queues (S90-S96). Pure.

RocketMQ's strategies deal the queues that the consumers subscribe to: all topics together, so that
ten topics of one queue do not all go to the first consumer. Of one topic the deal is RocketMQ's,
digit for digit. The queues of the retry topic are dealt by `sticky` in any case.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from dledger_broker.delivery.strategies.blocks import average, circle
from dledger_broker.delivery.strategies.given import config, overlaps_and_gaps
from dledger_broker.delivery.strategies.model import Consumer, Dealt, Queue, Standing, owners
from dledger_broker.delivery.strategies.ring import consistent_hash
from dledger_broker.delivery.strategies.rooms import machine_room, nearby_room
from dledger_broker.delivery.strategies.sticky import sticky
from dledger_proto.errors import invalid

Strategy = Callable[[Sequence[Queue], Sequence[Consumer]], Dealt]
STICKY: Final = "sticky"
CONFIG: Final = "config"
ROOM_STRATEGIES: Final = ("machine-room", "nearby-room")
"""A consumer must name its room for these."""


class Plan(NamedTuple):
    """Who should have which queue, and what is wrong with it."""

    targets: dict[Queue, str]
    warnings: list[str]


def deal(
    strategy: str,
    queues: Sequence[Queue],
    retries: Sequence[Queue],
    consumers: Sequence[Consumer],
    now: Mapping[Queue, Standing],
) -> Plan:
    """Return who should have which queue; INVALID_ARGUMENT when the strategy cannot tell."""
    consumers = sorted(consumers)
    queues, retries = sorted(queues), sorted(retries)
    if not consumers:
        return Plan({}, [])
    if strategy == STICKY:
        return Plan(owners(sticky(sorted(queues + retries), consumers, now)), [])
    dealt = _by_name(strategy)(queues, consumers)
    warnings = overlaps_and_gaps(queues, dealt) if strategy == CONFIG else []
    return Plan({**owners(dealt), **owners(sticky(retries, consumers, now))}, warnings)


def _by_name(strategy: str) -> Strategy:
    found = _STRATEGIES.get(strategy)
    if found is None:
        raise invalid(f"strategy {strategy!r}: known are {', '.join((STICKY, *_STRATEGIES))}")
    return found


def _machine_room(queues: Sequence[Queue], consumers: Sequence[Consumer]) -> Dealt:
    return machine_room(queues, consumers, {consumer.room for consumer in consumers})


def _nearby_room(queues: Sequence[Queue], consumers: Sequence[Consumer]) -> Dealt:
    return nearby_room(queues, consumers, average)


_STRATEGIES: Final[Mapping[str, Strategy]] = {
    "average": average,
    "circle": circle,
    "machine-room": _machine_room,
    "config": config,
    "consistent-hash": consistent_hash,
    "nearby-room": _nearby_room,
}
