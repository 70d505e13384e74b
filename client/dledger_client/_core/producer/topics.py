"""One topic of a producer: its lanes, and which queue a message goes to. Pure.

Owns: the choice of a queue (S34, S35, S37, S38, D14). Not: messages whose topic is not known yet
(`parking.py`), and what happens to a message behind the choice.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dledger_client._core.delivery import Delivery
from dledger_client._core.producer.buffer import SendBuffer
from dledger_client._core.producer.lane import Lane
from dledger_client._core.routes import RouteTable, TopicRoute
from dledger_client.errors import ClientError, error_of, illegal, invalid
from dledger_client.latency import FaultTable, pick
from dledger_client.selectors import QueueSelector, TopicQueue
from dledger_proto.batch.codec import Record
from dledger_proto.errors import Code
from dledger_proto.keyhash import queue_of_key


class Pin(NamedTuple):
    """What binds a message to a queue, to the queues of a priority, or to a time.

    At most one of queue, ordering key, selector and priority is given.
    """

    queue: int | None = None
    ordering_key: bytes | None = None
    selector: QueueSelector | None = None
    argument: object = None
    delivery_time_ms: int = 0
    """Milliseconds since 1970; 0: at once."""
    priority: int | None = None

    def may_be_new(self, error: ClientError) -> bool:
        """Return whether an error says only that the named queue is not known yet."""
        return self.queue is not None and error.code is Code.QUEUE_NOT_FOUND

    @property
    def has_queue(self) -> bool:
        """True: the message is bound to one queue."""
        return self.queue is not None or self.ordering_key is not None or self.selector is not None


def is_movable(pin: Pin | None) -> bool:
    """Return whether a message may go to any queue of its topic."""
    return pin is None or not pin.has_queue


class Parked(NamedTuple):
    """A message, or several for one batch, whose topic is not known yet."""

    future: Delivery
    records: Sequence[Record]
    size: int
    pin: Pin | None
    deadline: float
    is_one_way: bool = False
    is_batch: bool = False
    is_checked: bool = False
    """Its topic was looked up for it: a queue that is not known now does not exist."""


@dataclass(slots=True, eq=False, repr=False)
class TopicState:
    """One topic of a producer."""

    name: str
    route: TopicRoute | None = None
    lanes: list[Lane] = field(default_factory=list)
    """By queue, of all that take messages."""
    one_way_lanes: list[Lane] = field(default_factory=list)
    turn: int = -1
    """Place of the round over the queues. It starts where chance says (S34)."""
    is_simple: bool = False
    """It is of no special kind, every group has a leader and none is avoided: the round needs no
    look."""
    parked: list[Parked] = field(default_factory=list)
    expire_at: float = math.inf
    """The first end of a parked message's budget."""
    is_asked: bool = False
    ask_at: float = 0.0
    tries: int = 0

    def set_route(
        self, route: TopicRoute, buffer: SendBuffer, generator: random.Random
    ) -> list[Lane]:
        """Make the lanes of a layout; return the lanes that are left behind with content."""
        old = [*self.lanes, *self.one_way_lanes]
        self.route = route
        by_way: list[list[Lane]] = []
        for one_way in (False, True):
            lanes: list[Lane] = []
            for queue in range(route.write_queues):
                group = route.group_of(queue)
                assert group is not None, f"{route.name}: queue {queue} of {route.write_queues}"
                lanes.append(
                    buffer.lane(
                        route.name,
                        route.id,
                        queue,
                        group,
                        is_one_way=one_way,
                        is_fifo=route.is_fifo,
                        priority=route.priority_of(queue),
                    )
                )
            by_way.append(lanes)
        self.lanes, self.one_way_lanes = by_way
        if self.turn < 0 and self.lanes:
            self.turn = generator.randrange(len(self.lanes))
        kept = {*self.lanes, *self.one_way_lanes}
        return [lane for lane in old if lane not in kept and not lane.is_idle]

    def queues(self, has_leader: Callable[[str], bool]) -> list[TopicQueue]:
        """Return the queues as a selector sees them."""
        return [
            TopicQueue(self.name, lane.queue, lane.group, has_leader(lane.group))
            for lane in self.lanes
        ]


class QueueChoice:
    """Chooses the lane of each message. `now` is in seconds."""

    def __init__(self, routes: RouteTable, faults: FaultTable | None) -> None:
        self._routes = routes
        self._faults = faults

    def is_usable(self, group: str) -> bool:
        """Return whether a group has a leader, as far as is known."""
        route = self._routes.group(group)
        return route is not None and route.has_leader

    def is_simple(self, state: TopicState) -> bool:
        """Return whether the round over a topic needs no look: see `TopicState.is_simple`."""
        route = state.route
        return (
            self._faults is None
            and bool(state.lanes)
            and route is not None
            and not (route.is_fifo or route.is_delay or route.has_priorities or route.is_compacted)
            and all(self.is_usable(group) for group in {lane.group for lane in state.lanes})
        )

    def _next(self, lanes: Sequence[Lane], start: int, now: float) -> Lane:
        faults = self._faults
        return pick(
            lanes,
            start,
            lambda lane: faults is None or faults.is_available(lane.group, now * 1_000),
            lambda lane: self.is_usable(lane.group),
        )

    def choose(
        self, state: TopicState, record: Record, pin: Pin | None, lanes: list[Lane], now: float
    ) -> Lane:
        """Return one of `lanes`; ClientError when the message is bound to a queue that is none.

        A FIFO topic takes nothing that is not bound by an ordering key, a DELAY topic nothing that
        has no delivery time.
        """
        if not lanes:
            raise error_of(
                Code.QUEUE_NOT_FOUND, f"topic {state.name} has no queue that takes messages"
            )
        route = state.route
        if route is not None and route.is_fifo and (pin is None or pin.ordering_key is None):
            raise illegal(
                f"topic {state.name} is FIFO: each message needs an ordering_key "
                "(dledger send: --ordering-key)"
            )
        if route is not None and route.is_delay and (pin is None or not pin.delivery_time_ms):
            raise illegal(
                f"topic {state.name} is DELAY: each message needs a delivery time "
                "(dledger send: --delay, --deliver-at or --delay-level)"
            )
        if pin is None or not pin.has_queue:
            lanes = _of_priority(state, lanes, None if pin is None else pin.priority)
            start = state.turn
            state.turn = start + 1
            return self._next(lanes, start, now)
        return lanes[self._bound(state, record, pin, len(lanes))]

    def bound_by_key(
        self, state: TopicState, records: Sequence[Record], pin: Pin | None
    ) -> Pin | None:
        """Return what binds messages: those of a compacted topic are bound by their key.

        So a newer message of a key comes behind the older one, in the same queue. ClientError for a
        message without exactly one key, and when messages of one batch belong to several queues.
        """
        route = state.route
        if route is None or not route.is_compacted:
            return pin
        if any(len(record.keys) != 1 for record in records):
            raise illegal(f"topic {state.name} is compacted: each message needs exactly one key")
        if pin is not None and pin.has_queue:
            return pin
        queues = {queue_of_key(record.keys[0].encode(), route.write_queues) for record in records}
        if len(queues) > 1:
            raise illegal(
                f"topic {state.name} is compacted: the keys of these messages belong to queues "
                f"{sorted(queues)}; send them one by one, or give a queue"
            )
        return Pin(queue=queues.pop())

    def _bound(self, state: TopicState, record: Record, pin: Pin, count: int) -> int:
        if pin.ordering_key is not None:
            return queue_of_key(pin.ordering_key, count)
        if pin.queue is not None:
            queue = pin.queue
            origin = "queue"
        else:
            assert pin.selector is not None, "a pin names a queue, a key or a selector"
            queue = _selected(pin.selector, state.queues(self.is_usable), record, pin.argument)
            origin = "the selector's queue"
        if not 0 <= queue < count:
            raise error_of(
                Code.QUEUE_NOT_FOUND,
                f"{origin}: {queue}, topic {state.name} has write queues 0 to {count - 1}",
            )
        return queue

    def elsewhere(self, lanes: Sequence[Lane], failed: Lane, start: int, now: float) -> Lane | None:
        """Return a lane of another group that can take a send now (S35); None: there is none."""
        others = [
            lane
            for lane in lanes
            if lane.group != failed.group
            and lane.priority == failed.priority
            and self.is_usable(lane.group)
        ]
        return self._next(others, start, now) if others else None


def _of_priority(state: TopicState, lanes: list[Lane], wanted: int | None) -> list[Lane]:
    """Return the lanes of a priority; none is given: of the lowest."""
    if state.route is None or not state.route.has_priorities:
        if wanted is not None:
            raise illegal(f"priority: {wanted}, topic {state.name} is not of type priority")
        return lanes
    chosen = [lane for lane in lanes if lane.priority == (wanted or 0)]
    if not chosen:
        highest = max(lane.priority for lane in lanes)
        raise illegal(f"priority: {wanted}, topic {state.name} has priorities 0 to {highest}")
    return chosen


def _selected(
    selector: QueueSelector, queues: list[TopicQueue], record: Record, argument: object
) -> int:
    try:
        chosen = selector(queues, record, argument)
    except ClientError:
        raise
    except Exception as error:
        raise invalid(f"selector: it raised {error!r}") from error
    queue = chosen.queue if isinstance(chosen, TopicQueue) else chosen
    if not isinstance(queue, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise invalid(f"selector: it returned {queue!r}, must be a queue or its number")
    return queue
