"""A whole producer without I/O: what an asyncio shell, or a simulation, drives.

Owns: which topics there are and where their messages go, the senders of all groups, budgets. No
clock, no randomness of its own, no thread: `now` (monotonic seconds), `wall_ms` and a generator
come in.

How to drive it. Call an input; then carry out everything in `take_actions()`; then, for each link
that is up, ask `next_frame` until it returns None, sending each frame before asking for the next
(what gathers meanwhile goes into one frame); wait for the next input, at the latest until
`next_deadline()`, then call `tick`. Inputs: `place`, `place_batch`, `routes_changed`,
`topic_found`, `topic_failed`, `member_ready`, `link_up`, `link_down`, `answered`, `registered`,
`register_taken`, `register_failed`, `tick`.
"""

import random
from collections.abc import Mapping, Sequence

from dledger_client._core.delivery import Delivery, attach, fail
from dledger_client._core.members import MemberChoice
from dledger_client._core.producer import actions
from dledger_client._core.producer.batch import Batch
from dledger_client._core.producer.buffer import SendBuffer
from dledger_client._core.producer.group_sender import GroupSender
from dledger_client._core.producer.lane import GatherLimits
from dledger_client._core.producer.parking import Parking
from dledger_client._core.producer.topics import Parked, Pin, QueueChoice, TopicState, is_movable
from dledger_client._core.retry import final_error
from dledger_client._core.routes import RefreshRoutes, RouteChange, RouteTable
from dledger_client.config import ProducerConfig
from dledger_client.errors import ClientError
from dledger_client.latency import FaultTable
from dledger_proto.batch.codec import Record
from dledger_proto.errors import DledgerError
from dledger_proto.rpc.frames import AnswerRow


class ProducerCore:
    """Topics, groups and budgets of one producer."""

    def __init__(
        self,
        config: ProducerConfig,
        routes: RouteTable,
        generator: random.Random,
        *,
        first_number: int = 0,
    ) -> None:
        self.config = config
        self.routes = routes
        self.generator = generator
        self.buffer = SendBuffer(
            GatherLimits(
                batch_bytes=config.batch_bytes,
                batch_records=config.batch_records,
                linger=config.linger_ms / 1_000,
                # Without sequences only one batch at a time keeps a queue's order.
                window=config.batches_in_flight if config.idempotent else 1,
                is_sequenced=config.idempotent,
            )
        )
        self.members = MemberChoice()
        self.faults = FaultTable(config.latency_table) if config.avoid_slow_groups else None
        self.producer_id = b""
        """Set once by the driver, when the cluster's name is known; before that nothing is sent."""
        self._next_number = first_number
        self._link_ids = 0
        self._actions: list[actions.Action] = []
        self._topics: dict[str, TopicState] = {}
        self._parking = Parking(routes, generator, self._look_up)
        self._doubts: dict[str, TopicState] = {}
        """With messages for queues that a topic did not have when it was learnt: it may have grown.
        It is looked up once more for them."""
        self.senders: dict[str, GroupSender] = {}
        self._links: dict[int, GroupSender] = {}
        self._choice = QueueChoice(routes, self.faults)

    # What the senders of groups need (`context.py`).

    def emit(self, action: actions.Action) -> None:
        if isinstance(action, actions.OpenLink):
            self._links[action.link] = self.senders[action.group]
        elif isinstance(action, actions.CloseLink):
            self._links.pop(action.link, None)
        elif isinstance(action, RefreshRoutes) and action in self._actions:
            return
        self._actions.append(action)

    def new_link_id(self) -> int:
        self._link_ids += 1
        return self._link_ids

    def take_numbers(self, count: int) -> int:
        first = self._next_number
        self._next_number += count
        return first

    def move(self, batch: Batch, now: float) -> bool:
        state = self._topics.get(batch.topic)
        if state is None:
            return False
        target = self._choice.elsewhere(state.lanes, self.buffer.lane_of(batch), state.turn, now)
        if target is None:
            return False
        state.turn += 1
        self.buffer.move(batch, target)
        batch.retry_at = now
        self._sender(target.group)
        return True

    def rehome(self, batch: Batch) -> None:
        state = self._topics.get(batch.topic)
        if state is not None and not batch.maybe_stored:
            self._rehome(batch, state)

    def heard_leader(self, group: str, address: str, term: int, now: float) -> None:
        change = self.routes.heard_leader(group, address, term)
        if change:
            self.routes_changed(change, now)

    def has_queue(self, batch: Batch) -> bool:
        route = self.routes.topic(batch.topic)
        return route is not None and route.id == batch.topic_id and batch.queue < route.write_queues

    def topic_gone(self, topic: str, topic_id: bytes) -> None:
        route = self.routes.topic(topic)
        if route is not None and route.id == topic_id:
            self.routes.drop_topic(topic, RouteChange())
        state = self._topics.get(topic)
        if state is not None and state.route is not None and state.route.id == topic_id:
            state.route = None
            state.is_asked = False

    # Inputs.

    def place(
        self,
        future: Delivery,
        topic: str,
        record: Record,
        size: int,
        pin: Pin | None,
        deadline: float,
        now: float,
        *,
        one_way: bool = False,
        is_checked: bool = False,
    ) -> None:
        """Take a message of at most `size` encoded bytes, to be settled by `deadline`."""
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = TopicState(topic)
            self._learn(state)
        if state.route is None:
            self._parking.park(
                state, Parked(future, (record,), size, pin, deadline, is_one_way=one_way)
            )
            return
        lanes = state.one_way_lanes if one_way else state.lanes
        if pin is None and state.is_simple:
            turn = state.turn
            state.turn = turn + 1
            lane = lanes[turn % len(lanes)]
        else:
            try:
                pin = self._choice.bound_by_key(state, (record,), pin)
                lane = self._choice.choose(state, record, pin, lanes, now)
            except ClientError as error:
                self._refuse(
                    state,
                    Parked(future, (record,), size, pin, deadline, one_way, False, is_checked),
                    error,
                )
                return
        if pin is None:
            batch = self.buffer.append(lane, record, size, deadline, now, movable=True)
        else:
            batch = self.buffer.append(
                lane, record, size, deadline, now,
                movable=is_movable(pin), delivery_time_ms=pin.delivery_time_ms,
            )  # fmt: skip
        attach(future, batch, batch.count - 1)

    def place_batch(
        self,
        future: Delivery,
        topic: str,
        records: Sequence[Record],
        size: int,
        pin: Pin | None,
        deadline: float,
        now: float,
        *,
        is_checked: bool = False,
    ) -> None:
        """Take messages that get consecutive offsets in one queue: a batch of their own."""
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = TopicState(topic)
            self._learn(state)
        if state.route is None:
            self._parking.park(state, Parked(future, records, size, pin, deadline, is_batch=True))
            return
        try:
            pin = self._choice.bound_by_key(state, records, pin)
            lane = self._choice.choose(state, records[0], pin, state.lanes, now)
        except ClientError as error:
            parked = Parked(future, records, size, pin, deadline, False, True, is_checked)
            self._refuse(state, parked, error)
            return
        batch = self.buffer.append_batch(
            lane, records, size, deadline, now, movable=is_movable(pin),
            delivery_time_ms=0 if pin is None else pin.delivery_time_ms,
        )  # fmt: skip
        attach(future, batch, 0)

    def _refuse(self, state: TopicState, message: Parked, error: ClientError) -> None:
        """Fail a message; but first look whether its topic has the queue by now."""
        if message.is_checked or message.pin is None or not message.pin.may_be_new(error):
            fail(message.future, state.name, error)
            return
        doubt = self._doubts.get(state.name)
        if doubt is None:
            doubt = self._doubts[state.name] = TopicState(state.name)
        self._parking.park(doubt, message._replace(is_checked=True))

    def pump(self, now: float) -> None:
        """Let every group with work go on. Called after `place`; the other inputs do it."""
        for name, lanes in list(self.buffer.groups()):
            if lanes.active:
                self._sender(name).pump(now)
        if self._parking.topics:
            self._parking.ask(now)

    def routes_changed(self, change: RouteChange, now: float) -> None:
        """Take in what an answer changed in `routes`."""
        for name in sorted(change.topics | change.dropped_topics):
            state = self._topics.get(name)
            if state is not None:
                self._learn(state)
        if change.new_leaders or change.lost_leaders or change.members:
            for state in self._topics.values():
                state.is_simple = self._choice.is_simple(state)
        for name in sorted(change.new_leaders):
            if name in self.senders:
                self.senders[name].leader_changed(now)
        for name in sorted(change.lost_leaders):
            self._evacuate(name, now)
        for state in self._parking.known():
            for each in self._parking.unpark(state):
                self._place_parked(state.name, each, now)
        self.pump(now)

    def _place_parked(self, topic: str, each: Parked, now: float) -> None:
        if each.is_batch:
            self.place_batch(
                each.future, topic, each.records, each.size, each.pin, each.deadline, now,
                is_checked=each.is_checked,
            )  # fmt: skip
        else:
            self.place(
                each.future, topic, each.records[0], each.size, each.pin, each.deadline, now,
                one_way=each.is_one_way, is_checked=each.is_checked,
            )  # fmt: skip

    def _evacuate(self, group: str, now: float) -> None:
        """Move what was not sent and is bound to no queue away from a group without a leader."""
        for lane in list(self.buffer.group(group).active):
            lane.close_open()
            for batch in list(lane.ready):
                if batch.is_movable and not lane.is_one_way:
                    self.move(batch, now)

    def topic_failed(self, topic: str, error: ClientError, now: float) -> None:
        """Take in that a topic could not be looked up or created."""
        state = self._topics.get(topic)
        if state is not None and state.route is None:
            self._parking.lookup_failed(state, error, now)
        doubt = self._doubts.get(topic)
        if doubt is not None:
            self._parking.lookup_failed(doubt, error, now)

    def topic_found(self, topic: str, now: float) -> None:
        """Take in that a topic was looked up, and that `routes` has it as it is now."""
        doubt = self._doubts.pop(topic, None)
        if doubt is not None and doubt.parked:
            for each in self._parking.unpark(doubt):
                self._place_parked(topic, each, now)
            self.pump(now)

    def link_up(self, link: int, now: float) -> None:
        """Take in that a link is open."""
        if link in self._links:
            self._links[link].link_up(now)

    def link_down(self, link: int, error: DledgerError, now: float) -> None:
        """Take in that a link broke or could not be opened."""
        sender = self._links.pop(link, None)
        if sender is not None:
            sender.link_down(error, now)
            if not self._choice.is_usable(sender.name):
                self._evacuate(sender.name, now)
            self.pump(now)

    def next_frame(self, link: int, now: float, wall_ms: int) -> bytes | None:
        """Return the next append frame for a link; None when nothing may be sent on it now."""
        sender = self._links.get(link)
        return None if sender is None else sender.next_frame(now, wall_ms)

    def answered(self, link: int, rows: Sequence[AnswerRow], now: float) -> None:
        """Take in an answer frame of a link."""
        sender = self._links.get(link)
        if sender is not None:
            sender.answered(rows, now)
            self.pump(now)

    def registered(
        self, group: str, ask: int, epoch: int, last: Mapping[tuple[bytes, int], int], now: float
    ) -> None:
        """Take in a registration: its epoch, and by (topic id, queue) what was stored last."""
        self.senders[group].registered(ask, epoch, last, now)

    def register_taken(self, group: str, ask: int, epoch: int, now: float) -> None:
        """Take in that another life of this producer holds an epoch; nothing was registered."""
        self.senders[group].register_taken(ask, epoch, now)

    def register_failed(self, group: str, ask: int, error: ClientError, now: float) -> None:
        """Take in that a registration failed, or may have."""
        self.senders[group].register_failed(ask, error, now)

    def member_ready(self, address: str, now: float, *, is_ready: bool) -> None:
        """Take in whether a connection to a member stands."""
        self.members.set_ready(address, is_ready=is_ready)
        if is_ready:
            self.pump(now)

    def tick(self, now: float) -> None:
        """Let time pass: budgets, tries, back-offs."""
        for sender in self.senders.values():
            sender.check_tries(now)
        for batch in self.buffer.expired(now):
            if not batch.is_settled:
                self.buffer.failed(batch, final_error(batch, "out of time"))
        self._parking.expire(now)
        self.pump(now)

    def next_deadline(self, now: float) -> float | None:
        """Return when `tick` has to be called at the latest; None: only another input matters."""
        times = [self.buffer.next_expiry()]
        if self._parking.topics:
            times += self._parking.deadlines()
        for sender in self.senders.values():
            if sender.has_work:
                due = sender.due_at()
                times += (sender.next_check(now), due if due is not None and due > now else None)
        return min((time for time in times if time is not None), default=None)

    # Outputs.

    def take_actions(self) -> list[actions.Action]:
        """Return what the driver has to do now, in order."""
        taken, self._actions = self._actions, []
        return taken

    @property
    def buffered_bytes(self) -> int:
        """Upper bound of the bytes of everything that is not settled."""
        return self.buffer.buffered_bytes + self._parking.bytes

    def waiting(self) -> tuple[list[Batch], list[Parked]]:
        """Return what is not settled: batches, and messages whose topic is not known yet.

        Any thread.
        """
        return list(self.buffer.unsettled), self._parking.messages()

    def unsettled(self) -> int:
        """Return how many messages that were taken have no outcome yet. Any thread."""
        batches, parked = self.waiting()
        return sum(batch.count for batch in batches) + sum(len(each.records) for each in parked)

    def close_open(self) -> None:
        """Let everything that gathers be sent without waiting for more."""
        self.buffer.close_open()

    def fail_all(self, error: ClientError) -> None:
        """Give up everything: definite where nothing was sent, unknown where something was."""
        for sender in self.senders.values():
            sender.fail_all(error)
        for batch in list(self.buffer.unsettled):
            self.buffer.failed(batch, error)
        self._parking.fail_all(error)

    # Topics.

    def _learn(self, state: TopicState) -> None:
        route = self.routes.topic(state.name)
        if route is None:
            state.route = None
            state.is_asked = False
            return
        if state.route is not None and state.route.id != route.id:
            self.buffer.forget_topic(state.route.id)
        left = state.set_route(route, self.buffer, self.generator)
        state.is_asked = False
        state.tries = 0
        state.is_simple = self._choice.is_simple(state)
        for lane in left:
            for batch in [*lane.ready, *([lane.open] if lane.open is not None else [])]:
                self._rehome(batch, state)

    def _rehome(self, batch: Batch, state: TopicState) -> None:
        lane = self.buffer.lane_of(batch)
        lanes = state.one_way_lanes if lane.is_one_way else state.lanes
        if batch.queue >= len(lanes) or lanes[batch.queue] is lane:
            return  # the member's answer decides
        target = lanes[batch.queue]
        self.buffer.move(batch, target)
        self._sender(target.group)

    def _look_up(self, topic: str) -> None:
        self.emit(actions.ResolveTopic(topic, self.config.create_topics))

    # Groups.

    def _sender(self, name: str) -> GroupSender:
        sender = self.senders.get(name)
        if sender is None:
            sender = self.senders[name] = GroupSender(name, self)
        return sender
