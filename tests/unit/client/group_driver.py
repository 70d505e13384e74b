"""Drives a `GroupCore` by hand, on a clock that a test moves."""

import random
from typing import TypeVar

from dledger_client._core.consumer.state import Place
from dledger_client._core.group import actions
from dledger_client._core.group.core import GroupCore
from dledger_client._core.group.queues import HeldQueue
from dledger_client._core.members import MemberChoice
from dledger_client._core.routes import RouteTable
from dledger_proto.errors import Code
from dledger_proto.v1 import broker_pb2, routes_pb2
from dledger_proto.v1 import delivery_pb2 as pb
from tests.unit.client.model_cluster import topic_id

Kind = TypeVar("Kind", bound=actions.Action)
Wanted = TypeVar("Wanted", bound=actions.Request)


class GroupDriver:
    """A consumer `m` of group `g`; the test is coordinator and home group `a`."""

    def __init__(self, *, commit_interval: float = 1.0, lease_ms: int = 0) -> None:
        self.now = 100.0
        self.lease_ms = lease_ms
        self.order = 1 if lease_ms else 0
        self.routes = RouteTable()
        self.elect("a1", 1)
        join = pb.Join(
            consumer_group="g", member_id="m", subscriptions=[pb.Subscription(topic="t")]
        )
        self.core = GroupCore(
            join, self.routes, MemberChoice(), random.Random(1), commit_interval=commit_interval
        )
        self.told: list[actions.Action] = []

    def elect(self, leader: str, term: int) -> None:
        members = [
            routes_pb2.MemberRoute(member=n, address=f"{n}:1", alive=True) for n in ("a1", "a2")
        ]
        route = routes_pb2.GroupRoute(group="a", term=term, leader=leader, members=members)
        change = self.routes.apply(routes_pb2.RoutesReply(full=True, cluster="c", groups=[route]))
        if term > 1:
            self.core.routes_changed(change, self.now)
            self.take()

    def take(self) -> list[actions.Action]:
        taken = self.core.take_actions()
        self.told += taken
        return taken

    def all_of(self, kind: type[Kind]) -> list[Kind]:
        """Return and forget what the core asked for."""
        self.take()
        found: list[Kind] = [each for each in self.told if isinstance(each, kind)]
        self.told = [each for each in self.told if not isinstance(each, kind)]
        return found

    def one(self, kind: type[Kind]) -> Kind:
        (found,) = self.all_of(kind)
        return found

    def asked(self, kind: type[Wanted]) -> list[tuple[int, Wanted]]:
        """Return and forget calls of a kind."""
        self.take()
        found: list[tuple[int, Wanted]] = []
        rest: list[actions.Action] = []
        for each in self.told:
            if isinstance(each, actions.Ask) and isinstance(each.request, kind):
                found.append((each.call, each.request))
            else:
                rest.append(each)
        self.told = rest
        return found

    def wait(self, seconds: float) -> None:
        """Let time pass, from deadline to deadline."""
        end = self.now + seconds
        while (deadline := self.core.next_deadline(self.now)) is not None and deadline <= end:
            self.now = max(self.now + 1e-6, deadline)
            self.core.tick(self.now)
        self.now = end
        self.core.tick(self.now)

    # Coordinator.

    def join(self) -> int:
        """Join; return the stream."""
        self.core.begin("a", self.now)
        stream = self.one(actions.OpenSession).stream
        self.joined(stream)
        return stream

    def joined(self, stream: int) -> None:
        settings = pb.ConsumerGroupSettings(
            order=pb.ConsumeOrder.ValueType(self.order), session_ms=3_000, lease_ms=self.lease_ms
        )
        group = pb.ConsumerGroup(name="g", settings=settings)
        self.say(stream, pb.SessionReply(joined=pb.Joined(group=group)))

    def say(self, stream: int, reply: pb.SessionReply) -> None:
        self.core.session_reply(stream, reply, self.now)

    def assign(self, stream: int, *queues: tuple[int, int], revoked: int = -1) -> None:
        """Assign (queue, epoch) pairs of topic t; queue `revoked` is asked back."""
        granted = [
            pb.GrantedQueue(
                topic_id=topic_id("t"), topic="t", queue=queue, epoch=epoch, broker_group="a",
                revoked=queue == revoked,
            )
            for queue, epoch in queues
        ]  # fmt: skip
        self.say(stream, pb.SessionReply(assignment=pb.Assignment(queues=granted)))

    # Home group.

    def claim(self, **row: object) -> list[HeldQueue]:
        """Answer the claims under way; return the queues that start."""
        for call, request in self.asked(pb.ClaimQueuesRequest):
            rows = [_claim_row(self.lease_ms, **row) for _ in request.queues]
            self.core.answered(call, pb.ClaimQueuesReply(rows=rows, now_ms=1_000), self.now)
        return [start.held for start in self.all_of(actions.StartQueue)]

    def commit(self, code: Code = Code.OK) -> list[tuple[int, int, list[tuple[int, int]]]]:
        """Answer the commits under way; return (queue, offset, done ranges) of each."""
        told: list[tuple[int, int, list[tuple[int, int]]]] = []
        for call, request in self.asked(broker_pb2.CommitOffsetsRequest):
            for row in request.offsets:
                done = [(each.first, each.end) for each in row.done]
                told.append((row.queue.queue, row.offset, done))
            reply = broker_pb2.CommitOffsetsReply(
                codes=[code] * len(told), stored_offsets=[offset for _, offset, _ in told]
            )
            self.core.answered(call, reply, self.now)
        return told

    def release(self) -> list[int]:
        """Answer the releases under way; return their queues."""
        queues: list[int] = []
        for call, request in self.asked(pb.ReleaseQueuesRequest):
            queues += [wanted.queue.queue for wanted in request.queues]
            self.core.answered(call, pb.ReleaseQueuesReply(codes=[0] * len(queues)), self.now)
        return queues

    def given_back(self) -> list[tuple[int, int]]:
        """Return (queue, epoch) of what was given back."""
        return [
            (granted.queue, granted.epoch)
            for told in self.all_of(actions.TellSession)
            for granted in told.request.give_back.queues
        ]

    def serve(self, *queues: tuple[int, int]) -> tuple[int, dict[Place, HeldQueue]]:
        """Join, get queues, claim them at floor 0; return the stream and the queues."""
        stream = self.join()
        self.assign(stream, *queues)
        return stream, {held.place: held for held in self.claim()}


def _claim_row(lease_ms: int, **row: object) -> pb.ClaimQueuesReply.Row:
    given: dict[str, object] = {"lease_left_ms": lease_ms, **row}
    return pb.ClaimQueuesReply.Row(**given)  # type: ignore[arg-type]
