"""The product's own producer core in the simulated world.

Owns: driving `dledger_client._core.producer.core.ProducerCore` as its module says: links as virtual
streams, registrations as calls, routes pushed, time by its own deadlines; and comparing what each
future reports with what lies in the log, message by message. Some go one-way between the others:
nothing is told of them, and they may lie in the log once. A crash drops the core and starts
another life under the same producer id, whose registration fences the old. Nothing fences it:
what its past asked for and comes late changes nothing.
"""

from functools import partial
from random import Random
from typing import Final

from dledger_client._core.delivery import placed
from dledger_client._core.producer import actions
from dledger_client._core.producer.core import ProducerCore
from dledger_client._core.producer.topics import Pin
from dledger_client._core.routes import RefreshRoutes, RouteTable
from dledger_client._shell.futures import AsyncSendFuture, when_done
from dledger_client.config import ProducerConfig
from dledger_client.errors import ProducerFenced, UnknownOutcome, error_of
from dledger_proto.batch.codec import parse_header, parse_message_id
from dledger_proto.errors import Code
from dledger_proto.rpc.frames import parse_answers, parse_append
from dledger_proto.v1 import broker_pb2, routes_pb2
from tests.sim.clients.oracle import Oracle, Send
from tests.sim.clients.producer import ProducerPlan, Router, marked_record
from tests.sim.clients.requests import Register, Registered, Taken
from tests.sim.invariants.delivery.queue_contents import QueueKey, batch_key
from tests.sim.world.calls import Answer, Calls
from tests.sim.world.clock import Scheduler, Timer
from tests.sim.world.streams import Stream, Streams

TOPIC: Final = "t"
ROUTE_PERIOD: Final = 0.1
PENDING_MAX: Final = 120
"""Messages without an outcome; beyond it the producer pauses (I17)."""
TIMEOUT_MS: Final = 10_000
NUMBERS_PER_LIFE: Final = 1_000_000
PINNED_SHARE: Final = 0.7
ONE_WAY_SHARE: Final = 0.15
TURNS_MAX: Final = 10_000
DEADLINE_MIN: Final = 0.0005


def address_of(member: str) -> str:
    """Return the address under which clients know a member."""
    return f"{member}:1"


def member_at(address: str) -> str:
    """Return the member at an address."""
    return address.removesuffix(":1")


class CoreProducer:
    """One producing process around the real core."""

    def __init__(
        self,
        plan: ProducerPlan,
        scheduler: Scheduler,
        random: Random,
        calls: Calls,
        router: Router,
        oracle: Oracle,
        streams: Streams,
    ) -> None:
        self.plan = plan
        self._scheduler = scheduler
        self._random = random
        self._calls = calls
        self._router = router
        self._oracle = oracle
        self._streams = streams
        self._producer_id = random.randbytes(16)
        self._life_id = b""
        oracle.core_producers.add(self._producer_id)
        self.running = True
        self._life = 0
        self._count = 0
        self._known_leader = (0, "")
        self._links: dict[int, Stream] = {}
        self._up: set[int] = set()
        self._unsettled: dict[int, Send] = {}
        self._timer: Timer | None = None
        self._core = self._new_core()

    def _new_core(self) -> ProducerCore:
        config = ProducerConfig(
            timeout_ms=TIMEOUT_MS,
            linger_ms=self._random.choice((0, 5, 50)),
            batch_records=self.plan.records_max,
            batches_in_flight=self.plan.window,
        )
        core = ProducerCore(
            config,
            RouteTable(),
            Random(self._random.random()),
            first_number=self._life * NUMBERS_PER_LIFE,
        )
        core.producer_id = self._producer_id
        self._life_id = self._random.randbytes(16)
        return core

    @property
    def pending(self) -> int:
        """Return how many sends have no outcome yet."""
        return len(self._unsettled)

    def start(self) -> None:
        """Begin to send."""
        self._routes(full=True)
        self._produce(self._life)
        self._watch_routes(self._life)

    def stop(self) -> None:
        """Send no new message."""
        self.running = False

    def crash(self) -> None:
        """Lose everything in memory; the next life has the same producer id."""
        for send in self._unsettled.values():
            self._oracle.info_send(send)
        self._unsettled.clear()
        for stream in self._links.values():
            self._streams.close(stream)
        self._links.clear()
        self._up.clear()
        self._life += 1
        if self._timer is not None:
            self._timer.cancel()
        self._core = self._new_core()
        self._scheduler.after(self.plan.interval, self._restart, self._life)

    def _restart(self, life: int) -> None:
        if life == self._life:
            self.start()

    # Sending.

    def _produce(self, life: int) -> None:
        if life != self._life or not self.running:
            return
        gap = self._random.expovariate(1 / self.plan.interval)
        self._scheduler.after(gap, self._produce, life)
        for _ in range(self._random.randint(1, self.plan.records_max)):
            if len(self._unsettled) < PENDING_MAX:
                self._place()
        self._core.pump(self._scheduler.now)
        self._advance()

    def _place(self) -> None:
        self._count += 1
        count = self._count
        queue = self._random.choice(self.plan.queues)
        pinned = self._random.random() < PINNED_SHARE
        size = self._random.randint(1, self.plan.body_max)
        body = f"{self.plan.name}-{self._life}-{count}".encode().ljust(size, b".")
        now = self._scheduler.now
        one_way = self._random.random() < ONE_WAY_SHARE
        future = AsyncSendFuture()
        if not one_way:
            send = self._oracle.invoke_send(self.plan.name, queue, 1, now, idempotent=True)
            if not pinned:
                send.floor = 0  # the core chooses the queue
            self._unsettled[count] = send
            when_done(future, partial(self._settled, self._life, count, future, pinned))
        pin = Pin(queue=queue[1]) if pinned else None
        deadline = now + TIMEOUT_MS / 1_000
        self._oracle.bodies.add(body)
        record = marked_record(self._random, body, self.plan.keys)
        size = len(body) + 100
        self._core.place(future, TOPIC, record, size, pin, deadline, now, one_way=one_way)

    def _note_one_way(self, frame: bytes) -> None:
        """Tell the oracle of one-way batches that leave. Each is stored at most once."""
        header, batches = parse_append(frame)
        for batch in batches if header.one_way else ():
            found = parse_header(batch)
            queue = found.topic_id, found.queue
            now = self._scheduler.now
            send = self._oracle.invoke_send(
                self.plan.name, queue, found.record_count, now, idempotent=False
            )
            self._oracle.stamped(send, batch_key(found))
            send.open_attempts = 1
            self._oracle.info_send(send)

    def _settled(self, life: int, count: int, future: AsyncSendFuture, pinned: bool) -> None:
        if life != self._life:
            return
        send = self._unsettled.pop(count)
        error = future.exception()
        place = placed(future)
        assert place is not None, "a settled message has a batch"
        batch, position = place
        if batch.base_number >= 0:
            send.message = self._producer_id, batch.base_number + position
        if error is None:
            result = future.result()
            send.message = parse_message_id(result.message_id)
            queue: QueueKey = (self.plan.queues[0][0], result.queue)
            assert not pinned or queue == send.queue, f"bound to {send.queue}, sent to {queue}"
            send.queue = queue
            self._oracle.ok_message(send, result.offset)
        elif isinstance(error, UnknownOutcome):
            self._oracle.info_send(send)
        else:
            assert not isinstance(error, ProducerFenced), "fenced by a life that is no more"
            assert error.definite, f"{error!r} is neither definite nor unknown"
            self._oracle.fail_send(send, error.code)

    # After every input of the core.

    def _advance(self) -> None:
        now = self._scheduler.now
        for _ in range(TURNS_MAX):
            todo = self._core.take_actions()
            for action in todo:
                self._carry_out(action)
            moved = False
            for number in sorted(self._up):
                frame = self._core.next_frame(number, now, int(now * 1_000))
                while frame is not None and number in self._links:
                    self._note_one_way(frame)
                    self._streams.send(self._links[number], frame)
                    moved = True
                    frame = self._core.next_frame(number, now, int(now * 1_000))
            if not todo and not moved:
                self._arm()
                return
        raise AssertionError("the producer's core never comes to rest")

    def _carry_out(self, action: actions.Action) -> None:
        match action:
            case actions.OpenLink(link, _, address):
                self._links[link] = self._streams.open(
                    self, link, self.plan.name, member_at(address)
                )
            case actions.CloseLink(link, _):
                self._up.discard(link)
                self._streams.close(self._links.pop(link))
            case actions.Register(group, address, epoch, ask):
                life = self._life
                self._calls.call(
                    self.plan.name,
                    member_at(address),
                    Register(self._producer_id, self._life_id, epoch),
                    self._core.config.connection.try_timeout_ms / 1_000,
                    lambda answer: self._registered(life, group, ask, answer),
                )
            case actions.ResolveTopic() | RefreshRoutes():
                self._scheduler.after(0.001, self._routes_again, self._life)

    def _registered(self, life: int, group: str, ask: int, answer: Answer) -> None:
        if life != self._life:
            return
        now = self._scheduler.now
        if answer.code is Code.OK:
            match answer.value:
                case Registered(epoch, last):
                    self._core.registered(group, ask, epoch, dict(last), now)
                case Taken(epoch):
                    self._core.register_taken(group, ask, epoch, now)
                case other:
                    raise AssertionError(f"no registration: {other}")
        else:
            error = error_of(answer.code, answer.detail, hint=answer.hint)
            self._core.register_failed(group, ask, error, now)
        self._advance()

    # Streams (`streams.StreamOwner`).

    def stream_up(self, number: int) -> None:
        """See `StreamOwner.stream_up`."""
        if number in self._links:
            self._up.add(number)
            self._core.link_up(number, self._scheduler.now)
            self._advance()

    def stream_down(self, number: int, *, refused: bool) -> None:
        """See `StreamOwner.stream_down`."""
        if self._links.pop(number, None) is not None:
            self._up.discard(number)
            code = Code.UNAVAILABLE if refused else Code.UNKNOWN_OUTCOME
            self._core.link_down(number, error_of(code, "simulated"), self._scheduler.now)
            self._advance()

    def stream_answer(self, number: int, frame: bytes) -> None:
        """See `StreamOwner.stream_answer`."""
        if number in self._links:
            self._core.answered(number, parse_answers(frame), self._scheduler.now)
            self._advance()

    # Time and routes.

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._core.next_deadline(self._scheduler.now)
        if deadline is not None:
            at = max(deadline, self._scheduler.now + DEADLINE_MIN)
            self._timer = self._scheduler.at(at, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._core.tick(self._scheduler.now)
        self._advance()

    def _watch_routes(self, life: int) -> None:
        """Take pushed routes; a leader change is what makes the core give up a stream (D10)."""
        if life != self._life or not (self.running or self.pending):
            return
        self._scheduler.after(ROUTE_PERIOD, self._watch_routes, life)
        if self._router.leader(self.plan.name) != self._known_leader:
            self._routes(full=False)

    def _routes_again(self, life: int) -> None:
        if life == self._life:
            self._routes(full=True)

    def _routes(self, *, full: bool) -> None:
        term, leader = self._known_leader = self._router.leader(self.plan.name)
        members = [
            routes_pb2.MemberRoute(member=name, address=address_of(name), alive=True)
            for name in self._router.members
        ]
        route = routes_pb2.GroupRoute(
            group="g", leader=leader, term=term, members=members, control_group=True
        )
        count = len(self.plan.queues)
        topic = broker_pb2.Topic(
            id=self.plan.queues[0][0],
            name=TOPIC,
            layout_version=1,
            layout=[broker_pb2.LayoutPart(group="g", queues=count)],
            write_queues=count,
            read_queues=count,
            permission=6,
            control_index=1,
        )
        reply = routes_pb2.RoutesReply(
            full=full, cluster="sim", groups=[route], topics=[topic] if full else []
        )
        self._core.routes_changed(self._core.routes.apply(reply), self._scheduler.now)
        self._advance()
