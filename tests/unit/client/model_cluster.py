"""A cluster of groups in memory that tests drive a `ProducerCore` against, on virtual time.

It keeps the rules of D11 (epochs, sequences, the window of remembered offsets) and does everything
that a network and an election may do: frames and answers that are lost with their link, answers of
unknown outcome whose batch is stored later or never, refusals in the middle of a frame, leaders
that change, registrations whose answer is lost. A `Random` decides; the same seed is the same run.
"""

import random
from collections import deque
from dataclasses import dataclass, field

from dledger_client._core.producer import actions
from dledger_client._core.producer.core import ProducerCore
from dledger_client._core.producer.topics import Pin
from dledger_client._core.routes import RefreshRoutes, RouteTable
from dledger_client._shell.futures import AsyncSendFuture
from dledger_client.config import ProducerConfig
from dledger_client.errors import error_of
from dledger_proto.batch.codec import BatchView, Record, check_batch
from dledger_proto.errors import Code
from dledger_proto.rpc.frames import AnswerRow, parse_append
from dledger_proto.v1 import broker_pb2, routes_pb2

WINDOW = 256
PRODUCER_ID = b"p" * 16
LIFE_ID = b"l" * 16


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


@dataclass
class Remembered:
    last: int = -1
    window: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))


@dataclass
class ModelGroup:
    """The replicated state of one group: what every member agrees on."""

    name: str
    members: list[str]
    leader: int = 0
    term: int = 1
    epochs: dict[bytes, tuple[int, bytes, bytes]] = field(default_factory=dict)
    """By producer: its epoch, who holds it, and who held it before."""
    first_epoch: int = 1
    """Of an unknown id; grows when ids are forgotten, as leader time does."""
    told: dict[bytes, dict[tuple[bytes, int], int]] = field(default_factory=dict)
    tables: dict[tuple[bytes, bytes, int], Remembered] = field(default_factory=dict)
    queues: dict[tuple[bytes, int], list[bytes]] = field(default_factory=dict)
    tells_last: bool = True

    def register(
        self, producer_id: bytes, wanted: int, life: bytes = LIFE_ID
    ) -> tuple[int, dict[tuple[bytes, int], int]] | int | None:
        """Return epoch and last sequences, or the epoch that another life holds, or None."""
        known, holder, former = self.epochs.get(producer_id, (0, b"", b""))
        if not known:
            return self._begin(producer_id, self.first_epoch, life, b"")
        if life == holder:
            assert wanted <= known + 1, f"{wanted} above {known}"
            if wanted <= known:
                return known, self.told[producer_id] if self.tells_last else {}
            return self._begin(producer_id, wanted, life, former)
        if life == former or wanted not in (0, known + 1):
            return None
        return self._begin(producer_id, wanted, life, holder) if wanted else known

    def _begin(
        self, producer_id: bytes, epoch: int, life: bytes, former: bytes
    ) -> tuple[int, dict[tuple[bytes, int], int]]:
        last: dict[tuple[bytes, int], int] = {}
        for key in [key for key in self.tables if key[0] == producer_id]:
            last[key[1], key[2]] = self.tables.pop(key).last
        self.epochs[producer_id] = epoch, life, former
        self.told[producer_id] = last
        return epoch, last if self.tells_last else {}

    def append(self, batch: bytes | memoryview, number: int) -> AnswerRow:
        header = check_batch(batch)
        key = (header.topic_id, header.queue)
        log = self.queues.setdefault(key, [])
        stamp = header.stamp
        if stamp is None:
            return self._store(batch, number, log)
        epoch, *_ = self.epochs.get(stamp.producer_id, (0, b"", b""))
        if not epoch:
            return AnswerRow(number, Code.UNKNOWN_PRODUCER)
        if stamp.epoch != epoch:
            return AnswerRow(number, Code.STALE_EPOCH)
        known = self.tables.setdefault((stamp.producer_id, *key), Remembered())
        if stamp.base_sequence == known.last + 1:
            row = self._store(batch, number, log)
            known.last = header.last_sequence
            known.window.append((stamp.base_sequence, header.last_sequence, row.base_offset))
            return row
        if stamp.base_sequence > known.last:
            return AnswerRow(number, Code.SEQUENCE_GAP)
        for first, last, offset in known.window:
            if (first, last) == (stamp.base_sequence, header.last_sequence):
                return AnswerRow(number, duplicate=True, base_offset=offset)
        return AnswerRow(number, Code.DUPLICATE)

    def _store(self, batch: bytes | memoryview, number: int, log: list[bytes]) -> AnswerRow:
        base = len(log)
        log.extend(record.body for record in BatchView(batch).records())
        return AnswerRow(number, base_offset=base, index=base + 1, term=self.term)

    def route(self) -> routes_pb2.GroupRoute:
        return routes_pb2.GroupRoute(
            group=self.name,
            leader=self.members[self.leader],
            term=self.term,
            members=[
                routes_pb2.MemberRoute(member=name, address=f"{name}:1", alive=True)
                for name in self.members
            ],
        )


def topic_message(name: str, parts: list[tuple[str, int]], index: int = 1) -> broker_pb2.Topic:
    """A topic. Its kind is the one that its name begins with: fifo, delay or priority."""
    kinds = broker_pb2.TopicType.items()
    kind = {name.removeprefix("TOPIC_TYPE_").lower(): number for name, number in kinds}
    return broker_pb2.Topic(
        id=topic_id(name),
        name=name,
        type=kind.get(name.partition("-")[0], broker_pb2.TOPIC_TYPE_NORMAL),
        layout_version=1,
        layout=[broker_pb2.LayoutPart(group=group, queues=n) for group, n in parts],
        write_queues=sum(n for _, n in parts),
        read_queues=sum(n for _, n in parts),
        permission=6,
        control_index=index,
    )


@dataclass
class ModelLink:
    group: ModelGroup
    address: str
    is_up: bool = False
    frames: deque[bytes] = field(default_factory=deque)
    answers: deque[AnswerRow] = field(default_factory=deque)
    """In the order of the batches; a frame of answers may end anywhere among them."""


@dataclass
class Sent:
    future: AsyncSendFuture
    topic: str
    queue: int | None
    body: bytes
    one_way: bool = False


class ModelCluster:
    """Groups, links and one producer's core."""

    def __init__(
        self,
        generator: random.Random,
        config: ProducerConfig,
        groups: list[ModelGroup],
        topics: dict[str, list[tuple[str, int]]],
        life_id: bytes = LIFE_ID,
    ) -> None:
        self.random = generator
        self.life_id = life_id
        self.now = 100.0
        self.groups = {group.name: group for group in groups}
        self.topics = topics
        self.core = ProducerCore(config, RouteTable(), random.Random(generator.random()))
        self.core.producer_id = PRODUCER_ID
        self.links: dict[int, ModelLink] = {}
        self.floating: list[tuple[ModelGroup, bytes]] = []
        """Batches that may still be appended, or never."""
        self.registrations: list[tuple[ModelGroup, int, int]] = []
        """Group, wanted epoch, number of the ask."""
        self.late_registrations: list[tuple[ModelGroup, int]] = []
        self.sent: list[Sent] = []
        self.faults = True
        self.wants_routes = False

    # The producer's driver.

    def settle(self) -> None:
        """Carry out actions and move frames onto links until nothing is left to do."""
        for _ in range(10_000):
            todo = self.core.take_actions()
            for action in todo:
                self._carry_out(action)
            moved = False
            for identity, link in list(self.links.items()):
                while link.is_up and identity in self.links:
                    frame = self.core.next_frame(identity, self.now, int(self.now * 1_000))
                    if frame is None:
                        break
                    link.frames.append(frame)
                    moved = True
            self.core.buffer.check()
            if self.wants_routes:
                self.wants_routes = False
                self._apply_routes(full=True)
            elif not todo and not moved:
                return
        raise AssertionError("the core never comes to rest")

    def _carry_out(self, action: actions.Action) -> None:
        match action:
            case actions.OpenLink(link, group, address):
                self.links[link] = ModelLink(self.groups[group], address)
            case actions.CloseLink(link, _):
                self._lose(self.links.pop(link))
            case actions.Register(group, _, epoch, ask):
                self.registrations.append((self.groups[group], epoch, ask))
            case actions.ResolveTopic(topic, _):
                self._resolve(topic)
            case RefreshRoutes():
                self.wants_routes = True

    def _resolve(self, topic: str) -> None:
        if topic not in self.topics:
            self.core.topic_failed(topic, error_of(Code.TOPIC_NOT_FOUND, topic), self.now)
            return
        reply = routes_pb2.RoutesReply(topics=[topic_message(topic, self.topics[topic])])
        self.core.routes_changed(self.core.routes.apply(reply), self.now)

    def _lose(self, link: ModelLink) -> None:
        """What is on its way to a member when the link breaks may arrive late, or never."""
        for frame in link.frames:
            _, batches = parse_append(frame)
            self.floating += [(link.group, bytes(batch)) for batch in batches]

    def push_routes(self, *, full: bool = True) -> None:
        self._apply_routes(full=full)
        self.settle()

    def _apply_routes(self, *, full: bool) -> None:
        reply = routes_pb2.RoutesReply(
            full=full,
            cluster="test",
            groups=[group.route() for group in self.groups.values()],
            topics=[topic_message(name, parts) for name, parts in self.topics.items()],
        )
        self.core.routes_changed(self.core.routes.apply(reply), self.now)

    def send(
        self,
        topic: str,
        body: bytes,
        queue: int | None = None,
        timeout: float = 10,
        *,
        one_way: bool = False,
    ) -> Sent:
        future = AsyncSendFuture()
        pin = None if queue is None else Pin(queue=queue)
        self.core.place(
            future,
            topic,
            Record(body),
            len(body) + 20,
            pin,
            self.now + timeout,
            self.now,
            one_way=one_way,
        )
        sent = Sent(future, topic, queue, body, one_way)
        self.sent.append(sent)
        return sent

    def turn(self) -> None:
        """End a turn of the producer's loop: what was placed may leave."""
        self.core.pump(self.now)
        self.settle()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.core.tick(self.now)
        self.settle()

    def jump(self) -> bool:
        """Go to the core's next deadline."""
        deadline = self.core.next_deadline(self.now)
        if deadline is None:
            return False
        assert deadline > self.now, f"asks for time that has passed: {deadline} at {self.now}"
        self.pass_time(deadline - self.now)
        return True

    # The world.

    def open_one(self) -> bool:
        waiting = [identity for identity, link in self.links.items() if not link.is_up]
        if not waiting:
            return False
        identity = self.random.choice(waiting)
        if self.faults and self.random.random() < 0.3:
            del self.links[identity]
            self.core.link_down(identity, error_of(Code.UNAVAILABLE, "refused"), self.now)
        else:
            self.links[identity].is_up = True
            self.core.link_up(identity, self.now)
        self.settle()
        return True

    def register_one(self) -> bool:
        if not self.registrations:
            return False
        group, wanted, ask = self.registrations.pop(0)
        chance = self.random.random() if self.faults else 1.0
        if chance < 0.1:
            self._register_failed(group, ask, Code.NO_LEADER)
        elif chance < 0.2:
            self.late_registrations.append((group, wanted))
            self._register_failed(group, ask, Code.UNKNOWN_OUTCOME)
        else:
            answer = group.register(PRODUCER_ID, wanted, self.life_id)
            if chance < 0.3:
                self._register_failed(group, ask, Code.UNKNOWN_OUTCOME)
            elif answer is None:
                self._register_failed(group, ask, Code.STALE_EPOCH)
            elif isinstance(answer, int):
                self.core.register_taken(group.name, ask, answer, self.now)
            else:
                self.core.registered(group.name, ask, *answer, self.now)
        self.settle()
        return True

    def _register_failed(self, group: ModelGroup, ask: int, code: Code) -> None:
        self.core.register_failed(group.name, ask, error_of(code), self.now)

    def serve_one(self) -> bool:
        busy = [link for link in self.links.values() if link.frames]
        if not busy:
            return False
        link = self.random.choice(busy)
        header, batches = parse_append(link.frames.popleft())
        chance = self.random.random() if self.faults else 1.0
        rows: list[AnswerRow] = []
        for number, batch in enumerate(batches, header.first_number):
            rows.append(self._serve(link, number, bytes(batch), chance))
        if not header.one_way:
            link.answers += rows
        return True

    def _serve(self, link: ModelLink, number: int, batch: bytes, chance: float) -> AnswerRow:
        group = link.group
        if chance < 0.08:
            self.floating.append((group, batch))
            return AnswerRow(number, Code.UNKNOWN_OUTCOME)
        if chance < 0.15:
            group.append(batch, number)
            return AnswerRow(number, Code.UNKNOWN_OUTCOME)
        if chance < 0.20:
            hint = f"{group.members[group.leader]}:1"
            return AnswerRow(number, Code.NOT_LEADER, hint=hint, term=group.term)
        if chance < 0.30 and self.random.random() < 0.5:
            codes = [Code.BUSY, Code.NO_LEADER, Code.NOT_PROPOSED, Code.TOO_MANY_IN_FLIGHT]
            return AnswerRow(number, self.random.choice(codes))
        if chance < 0.33 and self.random.random() < 0.2:
            return AnswerRow(number, Code.NO_PERMISSION)
        return group.append(batch, number)

    def answer_one(self) -> bool:
        ready = [identity for identity, link in self.links.items() if link.answers]
        if not ready:
            return False
        identity = self.random.choice(ready)
        answers = self.links[identity].answers
        rows = [answers.popleft() for _ in range(self.random.randint(1, len(answers)))]
        self.core.answered(identity, rows, self.now)
        if self.random.random() < 0.1 and identity in self.links:
            self.core.answered(identity, rows, self.now)  # a repeated answer changes nothing
        self.settle()
        return True

    def break_one(self) -> None:
        if self.links:
            identity = self.random.choice(list(self.links))
            link = self.links.pop(identity)
            # What the member had taken in may be answered into the void.
            while link.frames and self.random.random() < 0.5:
                _, batches = parse_append(link.frames.popleft())
                for batch in batches:
                    link.group.append(batch, 0)
            self._lose(link)
            self.core.link_down(identity, error_of(Code.UNKNOWN_OUTCOME, "broke"), self.now)
            self.settle()

    def float_one(self) -> None:
        if self.floating:
            group, batch = self.floating.pop(self.random.randrange(len(self.floating)))
            if self.random.random() < 0.7:
                group.append(batch, 0)
        elif self.late_registrations and self.random.random() < 0.3:
            late, wanted = self.late_registrations.pop()
            late.register(PRODUCER_ID, wanted, self.life_id)

    def elect(self) -> None:
        group = self.random.choice(list(self.groups.values()))
        group.leader = self.random.randrange(len(group.members))
        group.term += 1
        if self.random.random() < 0.8:
            self.push_routes(full=self.random.random() < 0.5)

    def forget_producer(self) -> None:
        """Expiry. Copies of batches may still be on their way, registrations not."""
        self.late_registrations.clear()
        for group in self.groups.values():
            group.epochs.clear()
            group.first_epoch += 1_000
            group.tables.clear()

    def finish(self) -> None:
        """Faults off; everything comes to its end."""
        self.faults = False
        self.push_routes()
        for _ in range(20_000):
            moved = self.open_one() | self.register_one() | self.serve_one() | self.answer_one()
            if not self.core.unsettled():
                return
            if not moved:
                self.turn()
                if not self.jump():
                    break
        raise AssertionError(f"never idle: {self.core.waiting()}")
