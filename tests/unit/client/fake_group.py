"""A coordinator and home groups in this process, for consumers in a group.

`FakeGroup` is one consumer group: who is in it, who has which queue, claims, floors, failures. All
members of a `FakeCluster` serve it. Queues are dealt out in a round; a queue that somebody has is
asked back first, as the real coordinator does.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.raw import (
    RawContext,
    RawService,
    StreamMethod,
    UnaryMethod,
    raw_handlers,
    read_frame,
)
from dledger_proto.rpc.status import abort
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2
from tests.unit.client.fake_member import FakeCluster, FakeMember
from tests.unit.client.model_cluster import topic_id

Key = tuple[bytes, int]


@dataclass
class FakeConsumer:
    """One member of the group, with its session."""

    join: delivery_pb2.Join
    pushed: "asyncio.Queue[delivery_pb2.SessionReply | None]"
    alive: int = 0


@dataclass
class FakeQueue:
    """One queue of the group: grant, claim, progress."""

    topic: str
    queue: int
    target: str = ""
    holder: str = ""
    epoch: int = 0
    claimed: int = 0
    claimer: str = ""
    floor: int = 0
    done: list[tuple[int, int]] = field(default_factory=list)
    resets: int = 0
    attempts: dict[int, int] = field(default_factory=dict)

    def is_done(self, offset: int) -> bool:
        return offset < self.floor or any(first <= offset < end for first, end in self.done)


class FakeGroup:
    """One consumer group."""

    def __init__(
        self, cluster: FakeCluster, *, order: int = 0, lease_ms: int = 0, retries_max: int = 3
    ) -> None:
        self.cluster = cluster
        self.order = order
        self.lease_ms = lease_ms
        self.retries_max = retries_max
        self.exists = True
        self.consumers: dict[str, FakeConsumer] = {}
        self.queues: dict[Key, FakeQueue] = {}
        self.index = 10
        self.now_ms = 1_000_000
        self.retry_delay_ms = 20
        self.refuse: DledgerError | None = None
        """A join ends so."""
        self.dead: list[tuple[str, int, int, str]] = []
        self.failures: list[delivery_pb2.FailRecordsRequest.Failed] = []
        self.commits: list[pb.CommitOffsetsRequest] = []
        self.events: list[str] = []
        """What happened, in order: one line each."""
        cluster.services.append(self._service)
        cluster.commit = self._commit

    def _service(self, member: FakeMember) -> RawService:
        calls = {
            "CreateConsumerGroup": self._create,
            "ClaimQueues": self._claim,
            "ReleaseQueues": self._release,
            "FailRecords": self._fail,
        }
        methods = {name: UnaryMethod(member.unary(name, fn)) for name, fn in calls.items()}
        return raw_handlers(
            "dledger.v1.Delivery", {"Session": StreamMethod(self._session), **methods}
        )

    # Sessions.

    def _group(self) -> delivery_pb2.ConsumerGroup:
        return delivery_pb2.ConsumerGroup(
            id=topic_id("%RETRY%g"),
            name="g",
            coordinator=next(iter(self.cluster.groups)),
            settings=delivery_pb2.ConsumerGroupSettings(
                order=delivery_pb2.ConsumeOrder.ValueType(self.order),
                session_ms=3_000,
                lease_ms=self.lease_ms,
            ),
        )

    async def _create(self, data: bytes) -> delivery_pb2.ConsumerGroupReply:
        request = delivery_pb2.CreateConsumerGroupRequest.FromString(data)
        if not self.exists and not request.known_index:
            return delivery_pb2.ConsumerGroupReply(known_index=7)
        self.exists = True
        return delivery_pb2.ConsumerGroupReply(group=self._group())

    async def _session(self, _requests: AsyncIterator[bytes], context: RawContext) -> None:
        first = await read_frame(context)
        assert first is not None
        join = delivery_pb2.SessionRequest.FromString(first).join
        if self.refuse is not None:
            await abort(context, self.refuse)
        known = self.consumers.get(join.member_id)
        consumer = FakeConsumer(join, asyncio.Queue())
        self.consumers[join.member_id] = consumer
        self.events.append(f"join {join.member_id[:4]}{' again' if known else ''}")
        joined = delivery_pb2.Joined(group=self._group(), group_epoch=self.index)
        consumer.pushed.put_nowait(delivery_pb2.SessionReply(joined=joined))
        self.deal()
        self.tell(join.member_id)
        reader = asyncio.create_task(self._read(join.member_id, context))
        try:
            while (reply := await consumer.pushed.get()) is not None:
                await context.write(reply.SerializeToString())
        finally:
            reader.cancel()

    async def _read(self, member_id: str, context: RawContext) -> None:
        while (message := await read_frame(context)) is not None:
            request = delivery_pb2.SessionRequest.FromString(message)
            match request.WhichOneof("what"):
                case "give_back":
                    for granted in request.give_back.queues:
                        self.give_back(member_id, granted)
                case "alive":
                    self.consumers[member_id].alive += 1
                case "leave":
                    self.end(member_id)
                    return
                case _:
                    pass

    def give_back(self, member_id: str, granted: delivery_pb2.GrantedQueue) -> None:
        row = self.queues[granted.topic_id, granted.queue]
        if row.holder == member_id and row.epoch == granted.epoch:
            self.events.append(f"back {row.topic}/{row.queue} floor={row.floor}")
            row.holder = ""
            self.deal()

    def end(self, member_id: str) -> None:
        """End the session of a consumer."""
        consumer = self.consumers.pop(member_id, None)
        if consumer is not None:
            self.events.append(f"leave {member_id[:4]}")
            consumer.pushed.put_nowait(None)
            for row in self.queues.values():
                if row.holder == member_id:
                    row.holder = ""
            self.deal()

    def drop_streams(self) -> None:
        """Break all session streams; nobody's session ends."""
        for consumer in self.consumers.values():
            consumer.pushed.put_nowait(None)

    def deal(self) -> None:
        """Give queues to consumers in turn; tell those for whom something changed."""
        topics = sorted(
            {each.topic for one in self.consumers.values() for each in one.join.subscriptions}
        )
        for topic in topics:
            for queue in range(sum(count for _, count in self.cluster.topics[topic])):
                self.queues.setdefault((topic_id(topic), queue), FakeQueue(topic, queue))
        consumers = list(self.consumers)
        changed: set[str] = set()
        for place, row in enumerate(self.queues.values()):
            target = consumers[place % len(consumers)] if consumers else ""
            if row.target != target:
                changed.add(row.holder)
            row.target = target
            if not row.holder and target:
                self.index += 1
                row.holder, row.epoch = target, self.index
                changed.add(target)
        for member_id in changed:
            self.tell(member_id)

    def tell(self, member_id: str) -> None:
        """Push the assignment of a consumer."""
        consumer = self.consumers.get(member_id)
        if consumer is None:
            return
        assignment = delivery_pb2.Assignment(member_epoch=self.index)
        for (topic_key, queue), row in self.queues.items():
            if row.holder == member_id:
                assignment.queues.add(
                    topic_id=topic_key,
                    topic=row.topic,
                    queue=queue,
                    epoch=row.epoch,
                    revoked=row.target != member_id,
                    broker_group=next(name for name, _ in self.cluster.topics[row.topic]),
                )
        consumer.pushed.put_nowait(delivery_pb2.SessionReply(assignment=assignment))

    # Home groups.

    def _row(self, ref: pb.QueueRef) -> FakeQueue:
        return self.queues[ref.topic_id, ref.queue]

    async def _claim(self, data: bytes) -> delivery_pb2.ClaimQueuesReply:
        request = delivery_pb2.ClaimQueuesRequest.FromString(data)
        reply = delivery_pb2.ClaimQueuesReply(now_ms=self.now_ms)
        for wanted in request.queues:
            row = self._row(wanted.queue)
            if wanted.epoch < row.claimed:
                reply.rows.add(code=Code.FENCED, holder=row.claimer)
                continue
            row.claimed, row.claimer = wanted.epoch, request.member_id
            self.events.append(f"claim {row.topic}/{row.queue}")
            reply.rows.add(
                floor=row.floor,
                done=[pb.OffsetRange(first=first, end=end) for first, end in row.done],
                resets=row.resets,
                lease_left_ms=self.lease_ms,
            )
        return reply

    async def _release(self, data: bytes) -> delivery_pb2.ReleaseQueuesReply:
        request = delivery_pb2.ReleaseQueuesRequest.FromString(data)
        for wanted in request.queues:
            row = self._row(wanted.queue)
            self.events.append(f"release {row.topic}/{row.queue} floor={row.floor}")
            if row.claimed == wanted.epoch:
                row.claimer = ""
        return delivery_pb2.ReleaseQueuesReply(codes=[0] * len(request.queues))

    def _check(self, row: FakeQueue, epoch: int, resets: int) -> Code:
        if epoch < row.claimed:
            return Code.FENCED
        return Code.OK if resets == row.resets else Code.OFFSET_RESET

    async def _commit(self, data: bytes) -> pb.CommitOffsetsReply:
        request = pb.CommitOffsetsRequest.FromString(data)
        self.commits.append(request)
        reply = pb.CommitOffsetsReply()
        for offset in request.offsets:
            row = self._row(offset.queue)
            code = self._check(row, offset.epoch, offset.resets)
            if code is Code.OK:
                assert offset.offset >= row.floor, f"{offset.offset} below {row.floor}"
                row.floor = offset.offset
                row.done = [(each.first, each.end) for each in offset.done]
            reply.codes.append(code)
            reply.stored_offsets.append(row.floor)
        return reply

    async def _fail(self, data: bytes) -> delivery_pb2.FailRecordsReply:
        request = delivery_pb2.FailRecordsRequest.FromString(data)
        reply = delivery_pb2.FailRecordsReply(now_ms=self.now_ms)
        for failed in request.records:
            self.failures.append(failed)
            row = self._row(failed.queue)
            code = self._check(row, failed.epoch, failed.resets)
            if code is not Code.OK:
                reply.rows.add(code=code)
                continue
            known = row.attempts.get(failed.offset, 0)
            attempts = known + (failed.attempts == known)
            row.attempts[failed.offset] = attempts
            dead = attempts > self.retries_max or failed.delay_ms == -2
            if dead and attempts != known:
                self.dead.append((row.topic, row.queue, failed.offset, failed.error))
            delay_ms = self.retry_delay_ms if failed.delay_ms < 0 else failed.delay_ms
            reply.rows.add(attempts=attempts, dead=dead, due_ms=self.now_ms + delay_ms)
        return reply

    def reset(self, topic: str, queue: int, offset: int) -> None:
        """Reset an offset, as an administrator does, and tell all consumers."""
        row = self.queues[topic_id(topic), queue]
        row.floor, row.done = offset, []
        row.resets += 1
        for consumer in self.consumers.values():
            consumer.pushed.put_nowait(delivery_pb2.SessionReply(nudge=delivery_pb2.Nudge()))

    def floor(self, topic: str, queue: int) -> int:
        row = self.queues.get((topic_id(topic), queue))
        return -1 if row is None else row.floor
