"""Members in this process that speak the real frames over loopback, and do what a test tells them.

`FakeCluster` holds the state that members agree on (`model_cluster.ModelGroup`); each `FakeMember`
is a gRPC server of one group. A member's `script` says what happens to its next append frames, one
directive each; without a directive a frame is stored and answered. Routes are pushed by `elect`.
"""

import asyncio
import enum
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import grpc.aio
from google.protobuf.message import Message

from dledger_proto.batch.codec import Record, encode_batch
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.frames import (
    AnswerRow,
    FetchRow,
    encode_answers,
    encode_fetch,
    parse_append,
)
from dledger_proto.rpc.raw import (
    MESSAGE_SIZE_OPTIONS,
    RawContext,
    RawService,
    ReadMethod,
    StreamMethod,
    UnaryMethod,
    raw_handlers,
    read_frame,
)
from dledger_proto.rpc.status import abort
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import routes_pb2
from tests.unit.client.model_cluster import ModelGroup, topic_id, topic_message

Request = TypeVar("Request", bound=Message)


class Does(enum.Enum):
    """What a member does with an append frame."""

    STORE = "store and answer"
    STORE_TWICE_ANSWERED = "store and answer twice"
    STORE_THEN_BREAK = "store, break the stream without an answer"
    BREAK = "break the stream, nothing stored"
    STORE_THEN_HANG = "store, never answer"
    HANG = "do nothing, never answer"
    ANSWER_ONE_BY_ONE = "store, an answer frame for each batch"


Directive = Does | Code
"""A code refuses the first batch of the frame; the others are taken as the group takes them."""


class FakeCluster:
    """Groups of members in this process."""

    def __init__(
        self,
        groups: dict[str, int] | None = None,
        topics: dict[str, list[tuple[str, int]]] | None = None,
    ) -> None:
        self.groups: dict[str, ModelGroup] = {}
        self.members: dict[str, FakeMember] = {}
        self.topics = {"t": [("a", 2)]} if topics is None else topics
        self.name = "fake"
        self.created = 0
        self.auto_create = True
        self.offsets: dict[tuple[str, bytes, int], int] = {}
        self.minimums: dict[tuple[bytes, int], int] = {}
        self.data_changed = asyncio.Condition()
        self.watchers: list[asyncio.Queue[routes_pb2.RoutesReply]] = []
        self.batches: dict[tuple[bytes, int], list[tuple[int, int, bytes]]] = {}
        """What fetches give: (base offset, records, batch)."""
        self._sizes = groups or {"a": 1}
        self.services: list[Callable[[FakeMember], RawService]] = []
        """What members serve besides: called with each member."""
        self.commit: Callable[[bytes], Awaitable[Message]] | None = None
        """Takes commits instead of the members."""

    async def __aenter__(self) -> Self:
        for name, size in self._sizes.items():
            group = ModelGroup(name, [f"{name}{i}" for i in range(size)])
            self.groups[name] = group
            for member in group.members:
                self.members[member] = FakeMember(self, group, member)
                await self.members[member].start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.gather(*(member.stop() for member in self.members.values()))

    @property
    def bootstrap(self) -> list[str]:
        return [member.address for member in self.members.values()]

    def leader(self, group: str = "a") -> "FakeMember":
        state = self.groups[group]
        return self.members[state.members[state.leader]]

    def routes(self, *, full: bool = True) -> routes_pb2.RoutesReply:
        reply = routes_pb2.RoutesReply(full=full, cluster=self.name)
        for group in self.groups.values():
            route = group.route()
            for row in route.members:
                row.address = self.members[row.member].address
                row.alive = not self.members[row.member].is_down
            route.control_group = group.name == next(iter(self.groups))
            reply.groups.append(route)
        reply.topics.extend(topic_message(name, parts) for name, parts in self.topics.items())
        return reply

    def push_routes(self) -> None:
        for watcher in self.watchers:
            watcher.put_nowait(self.routes(full=False))

    def elect(self, member: str, group: str = "a", *, push: bool = True) -> None:
        state = self.groups[group]
        state.leader = state.members.index(member)
        state.term += 1
        if push:
            self.push_routes()

    def log(self, topic: str, queue: int, group: str = "a") -> list[bytes]:
        return self.groups[group].queues.get((topic_id(topic), queue), [])

    async def store(self, topic: str, queue: int, bodies: list[bytes], *, tag: str = "") -> None:
        """Put a batch into a queue, as another producer would."""
        batch = encode_batch(
            [Record(body, tag=tag) for body in bodies],
            topic_id=topic_id(topic), queue=queue, stamp=None, base_number=0, base_time_ms=1_000,
        )  # fmt: skip
        group = next(name for name, _ in self.topics[topic])
        self.keep(self.groups[group], batch, 0)
        async with self.data_changed:
            self.data_changed.notify_all()

    def keep(self, group: ModelGroup, batch: bytes, number: int) -> AnswerRow:
        """Append a batch to the group; what is new can be fetched from now on."""
        before = {key: len(log) for key, log in group.queues.items()}
        row = group.append(batch, number)
        for key, log in group.queues.items():
            base = before.get(key, 0)
            if len(log) > base:
                self.batches.setdefault(key, []).append((base, len(log) - base, batch))
        return row


class FakeMember:
    """One server."""

    def __init__(self, cluster: FakeCluster, group: ModelGroup, name: str) -> None:
        self.cluster = cluster
        self.group = group
        self.name = name
        self.address = ""
        self.script: deque[Directive] = deque()
        self.is_down = False
        self.frames = 0
        self.streams = 0
        self.fetches: list[pb.FetchRequest] = []
        self.calls: list[str] = []
        self.requests: list[bytes] = []
        """Of `calls`, in their order."""
        self.peers: set[str] = set()
        """Connections on which anything was asked."""
        self.held: dict[str, asyncio.Event] = {}
        """What calls of a name wait for."""
        self.call_errors: deque[DledgerError] = deque()
        self.break_fetch_after = -1
        """Frames until a fetch stream breaks; -1: never."""
        self.damage_fetch = False
        self.hang_fetch = False
        self.only_lets_go = False
        """A transfer ends this member's leadership, and nobody is elected."""
        self.hold_answers = asyncio.Event()
        self.hold_answers.set()
        """Cleared: stored, but answers wait."""
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        server = grpc.aio.server(options=[*MESSAGE_SIZE_OPTIONS, ("grpc.so_reuseport", 0)])
        unary: dict[str, Callable[[bytes], Awaitable[Message]]] = {
            "RegisterProducer": self._register,
            "QueueOffsets": self._queue_offsets,
            "OffsetByTime": self._offset_by_time,
            "CommitOffsets": self.cluster.commit or self._commit_offsets,
            "ReadOffsets": self._read_offsets,
        }
        admin: dict[str, Callable[[bytes], Awaitable[Message]]] = {
            "CreateTopic": self._create_topic,
            "DescribeTopic": self._describe_topic,
            "UpdateTopic": self._describe_topic,
            "Hold": self._hold,
            "Status": self._status,
            "TransferLeadership": self._transfer,
            **dict.fromkeys(("DeleteTopic", "LiftQuarantine", "Trim"), self._errors_only),
        }
        server.add_generic_rpc_handlers(
            (
                raw_handlers(
                    "dledger.v1.Broker",
                    {
                        "Append": StreamMethod(self._append),
                        "Fetch": ReadMethod(self._fetch),
                        **{name: UnaryMethod(self.unary(name, fn)) for name, fn in unary.items()},
                    },
                ),
                raw_handlers(
                    "dledger.v1.Admin",
                    {name: UnaryMethod(self.unary(name, fn)) for name, fn in admin.items()},
                ),
                raw_handlers(
                    "dledger.v1.Routes",
                    {"Get": UnaryMethod(self._get_routes), "Watch": ReadMethod(self._watch_routes)},
                ),
                *(service(self) for service in self.cluster.services),
            )
        )
        port = server.add_insecure_port(self.address or "127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        await server.start()
        self._server = server
        self.is_down = False

    async def stop(self) -> None:
        """Die: every connection closes at once."""
        self.is_down = True
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def unary(
        self, name: str, function: Callable[[bytes], Awaitable[Message]]
    ) -> Callable[[bytes, RawContext], Awaitable[bytes]]:
        async def serve(request: bytes, context: RawContext) -> bytes:
            self.peers.add(context.peer())
            self.calls.append(name)
            self.requests.append(request)
            if name in self.held:
                await self.held[name].wait()
            if self.call_errors:
                await abort(context, self.call_errors.popleft())
            try:
                return (await function(request)).SerializeToString()
            except DledgerError as error:
                await abort(context, error)

        return serve

    # Append.

    async def _append(self, _requests: AsyncIterator[bytes], context: RawContext) -> None:
        self.peers.add(context.peer())
        self.streams += 1
        while (frame := await read_frame(context)) is not None:
            self.frames += 1
            header, batches = parse_append(frame)
            does = self.script.popleft() if self.script else Does.STORE
            if does is Does.BREAK:
                await abort(context, DledgerError(Code.SHUTTING_DOWN, "scripted"))
            if does is Does.HANG:
                await asyncio.Event().wait()
            rows: list[AnswerRow] = []
            for place, batch in enumerate(batches):
                number = header.first_number + place
                if isinstance(does, Code) and place == 0:
                    rows.append(self._refusal(number, does))
                else:
                    rows.append(self.cluster.keep(self.group, bytes(batch), number))
            async with self.cluster.data_changed:
                self.cluster.data_changed.notify_all()
            if does is Does.STORE_THEN_HANG:
                await asyncio.Event().wait()
            if does is Does.STORE_THEN_BREAK:
                await abort(context, DledgerError(Code.SHUTTING_DOWN, "scripted"))
            if header.one_way:
                continue
            await self.hold_answers.wait()
            if does is Does.ANSWER_ONE_BY_ONE:
                for row in rows:
                    await context.write(encode_answers([row]))
                continue
            await context.write(encode_answers(rows))
            if does is Does.STORE_TWICE_ANSWERED:
                await context.write(encode_answers(rows))

    def _refusal(self, number: int, code: Code) -> AnswerRow:
        if code is Code.NOT_LEADER:
            hint = self.cluster.leader(self.group.name).address
            return AnswerRow(number, code, hint=hint, term=self.group.term)
        return AnswerRow(number, code, detail="scripted")

    # Fetch.

    async def _fetch(self, data: bytes, context: RawContext) -> None:
        request = pb.FetchRequest.FromString(data)
        self.peers.add(context.peer())
        self.fetches.append(request)
        if self.hang_fetch:
            await asyncio.Event().wait()
        offsets = [assignment.offset for assignment in request.assignments]
        over: set[int] = set()
        sent = 0
        while True:
            any_sent = False
            for place, assignment in enumerate(request.assignments):
                if place in over:
                    continue
                frame = self._fetch_frame(place, assignment, offsets, over)
                if frame is None:
                    continue
                if sent == self.break_fetch_after:
                    self.break_fetch_after = -1
                    await abort(context, DledgerError(Code.SHUTTING_DOWN, "scripted"))
                await context.write(frame)
                sent += 1
                any_sent = True
            if not any_sent:
                async with self.cluster.data_changed:
                    try:
                        async with asyncio.timeout(request.wait_ms / 1_000):
                            await self.cluster.data_changed.wait()
                    except TimeoutError:
                        pass
                    else:
                        continue
                await context.write(
                    encode_fetch(
                        [], [], assignment=0, min_offset=0, max_offset=0, next_offset=offsets[0]
                    )
                )

    def _fetch_frame(
        self,
        place: int,
        assignment: pb.FetchRequest.Assignment,
        offsets: list[int],
        over: set[int],
    ) -> bytes | None:
        key = (assignment.queue.topic_id, assignment.queue.queue)
        batches = self.cluster.batches.get(key, [])
        minimum = self.cluster.minimums.get(key, 0)
        maximum = max((base + count for base, count, _ in batches), default=0)
        offset = offsets[place]
        frame = partial(encode_fetch, assignment=place, min_offset=minimum, max_offset=maximum)
        try:
            self._check_known(assignment.queue.topic_id)
        except DledgerError as error:
            over.add(place)
            return frame([], [], next_offset=offset, code=error.code, detail=error.detail)
        if not minimum <= offset <= maximum:
            over.add(place)
            return frame(
                [], [], next_offset=offset,
                code=Code.OFFSET_OUT_OF_RANGE, detail=f"{offset} of {minimum}..{maximum}",
            )  # fmt: skip
        for base, count, batch in batches:
            if base <= offset < base + count:
                first = offset - base
                row = FetchRow(offset, first, count - first, len(batch), 5_000)
                offsets[place] = base + count
                if self.damage_fetch:
                    batch = batch[:-1] + bytes([batch[-1] ^ 1])
                return frame([row], [batch], next_offset=offsets[place])
        return None

    # Calls.

    async def _register(self, data: bytes) -> Message:
        request = pb.RegisterProducerRequest.FromString(data)
        answer = self.group.register(request.producer_id, request.epoch, request.life_id)
        if answer is None:
            raise DledgerError(Code.STALE_EPOCH, "scripted")
        if isinstance(answer, int):
            return pb.RegisterProducerReply(epoch=answer, taken=True)
        return pb.RegisterProducerReply(epoch=answer[0])

    def _bounds(self, ref: pb.QueueRef) -> tuple[int, int]:
        key = (ref.topic_id, ref.queue)
        self._check_known(ref.topic_id)
        return self.cluster.minimums.get(key, 0), len(self.group.queues.get(key, []))

    def _check_known(self, wanted: bytes) -> None:
        if wanted not in {topic_id(name) for name in self.cluster.topics}:
            raise DledgerError(Code.TOPIC_NOT_FOUND, f"no topic has the id {wanted.hex()}")

    async def _queue_offsets(self, data: bytes) -> Message:
        request = pb.QueueOffsetsRequest.FromString(data)
        bounds = [self._bounds(ref) for ref in request.queues]
        return pb.QueueOffsetsReply(
            rows=[pb.QueueOffsetsReply.Row(minimum=low, maximum=high) for low, high in bounds]
        )

    async def _offset_by_time(self, data: bytes) -> Message:
        request = pb.OffsetByTimeRequest.FromString(data)
        low, high = self._bounds(request.queue)
        return pb.OffsetByTimeReply(offset=low if request.time_ms <= 5_000 else high)

    async def _commit_offsets(self, data: bytes) -> Message:
        request = pb.CommitOffsetsRequest.FromString(data)
        reply = pb.CommitOffsetsReply()
        for row in request.offsets:
            key = (request.consumer_group, row.queue.topic_id, row.queue.queue)
            stored = self.cluster.offsets.get(key, -1)
            behind = row.offset < stored and not request.reset
            if not behind:
                self.cluster.offsets[key] = stored = row.offset
            reply.codes.append(Code.OFFSET_BEHIND if behind else Code.OK)
            reply.stored_offsets.append(stored)
        return reply

    async def _read_offsets(self, data: bytes) -> Message:
        request = pb.ReadOffsetsRequest.FromString(data)
        offsets = self.cluster.offsets
        return pb.ReadOffsetsReply(
            offsets=[
                pb.GroupOffset(
                    queue=ref,
                    offset=offsets.get((request.consumer_group, ref.topic_id, ref.queue), -1),
                )
                for ref in request.queues
            ]
        )

    async def _create_topic(self, data: bytes) -> Message:
        request = pb.CreateTopicRequest.FromString(data)
        cluster = self.cluster
        if request.automatic and not cluster.auto_create and request.name not in cluster.topics:
            raise DledgerError(Code.TOPIC_NOT_FOUND, "topics.auto_create is false")
        queues = request.write_queues_per_group or 2
        if request.name not in cluster.topics:
            cluster.topics[request.name] = [(name, queues) for name in cluster.groups]
            cluster.created += 1
        topic = topic_message(request.name, cluster.topics[request.name], cluster.created + 1)
        return pb.CreateTopicReply(topic=topic)

    async def _hold(self, data: bytes) -> Message:
        return pb.HoldReply(until_ms=pb.HoldRequest.FromString(data).ttl_ms)

    async def _describe_topic(self, data: bytes) -> Message:
        name = pb.DescribeTopicRequest.FromString(data).name
        if name not in self.cluster.topics:
            raise DledgerError(Code.TOPIC_NOT_FOUND, name)
        return pb.TopicReply(topic=topic_message(name, self.cluster.topics[name]))

    async def _status(self, _data: bytes) -> Message:
        is_leader = self.cluster.leader(self.group.name) is self
        return pb.StatusReply(
            cluster="fake",
            group=self.group.name,
            member=self.name,
            role="leader" if is_leader else "follower",
            term=self.group.term,
        )

    async def _errors_only(self, _data: bytes) -> Message:
        """Serve a call that this member answers with what is in `call_errors` alone."""
        raise DledgerError(Code.UNIMPLEMENTED, "not part of this fake")

    async def _transfer(self, data: bytes) -> Message:
        target = pb.TransferLeadershipRequest.FromString(data).target
        if self.only_lets_go:
            return pb.TransferLeadershipReply(term=self.group.term + 1)
        self.cluster.elect(target or self.group.members[-1], self.group.name)
        return pb.TransferLeadershipReply(leader=target, term=self.group.term)

    # Routes.

    async def _get_routes(self, _data: bytes, _context: RawContext) -> bytes:
        return self.cluster.routes().SerializeToString()

    async def _watch_routes(self, _data: bytes, context: RawContext) -> None:
        self.peers.add(context.peer())
        pushed: asyncio.Queue[routes_pb2.RoutesReply] = asyncio.Queue()
        self.cluster.watchers.append(pushed)
        try:
            await context.write(self.cluster.routes().SerializeToString())
            while True:
                await context.write((await pushed.get()).SerializeToString())
        finally:
            self.cluster.watchers.remove(pushed)
