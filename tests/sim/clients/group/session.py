"""A hand-made consumer of a consumer group: it keeps a session, and gives queues back.

Owns: what a right consumer does. It joins at the leader, follows hints, says that it is alive, and
gives a queue back some time after it was asked. Its process may die and begin again, stand still,
or leave. What it believes goes to the oracle. It consumes nothing.
"""

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Final

import grpc.aio

from dledger.state.consumers.table import QueueKey
from dledger_proto.errors import Code
from dledger_proto.rpc import raw
from dledger_proto.rpc.status import from_rpc_error
from dledger_proto.v1 import delivery_pb2 as pb
from tests.sim.clients.process import ClientProcess
from tests.sim.invariants.delivery.grants import Grants
from tests.sim.member.config import member_at

if TYPE_CHECKING:
    from tests.sim.world.world import World

SESSION: Final = "/dledger.v1.Delivery/Session"
TALKS_SECONDS: Final = 0.3
"""It says something after at most so long."""
AGAIN_SECONDS: Final = 0.1
FINAL: Final = (Code.INVALID_ARGUMENT, Code.SUBSCRIPTION_CONFLICT, Code.ORDER_CONFLICT)


class SessionClient:
    """One consumer over its lives."""

    def __init__(
        self,
        world: "World",
        grants: Grants,
        name: str,
        group: str,
        *,
        topic: str = "t",
        instance: str = "",
        pattern: bool = False,
    ) -> None:
        self.name = name
        self._world = world
        self._grants = grants
        self._random = Random(f"{world.plan.seed}/{name}")
        self._join = pb.Join(
            consumer_group=group,
            instance=instance,
            subscriptions=[pb.Subscription(topic=topic, pattern=pattern)],
        )
        self._life = 0
        self._process: ClientProcess | None = None
        self.member_id = ""
        self.refused: Code = Code.OK
        """With what a Join was refused for good."""
        self.assignments = 0
        """Assignments that it heard in this life."""
        self.moved = 0
        """Queues that came or went in this life."""
        self._leader = ""
        self._leaving = False
        self._silent = False
        self._asked: list[pb.GrantedQueue] = []
        """What it has to give back."""
        self._given: dict[QueueKey, int] = {}
        """What it gave back in this session, and in which epochs."""

    @property
    def runs(self) -> bool:
        """Tell whether its process runs."""
        return self._process is not None and not self._process.loop.is_ended

    def start(self, *, anew: bool = False) -> None:
        """Begin a life; `anew`: as another consumer, which nobody knows."""
        if self.runs:
            return
        self._life += 1
        if anew or not self.member_id:
            self.member_id = f"{self.name}-{self._life}"
        self._join.member_id = self.member_id
        self._leaving = self._silent = False
        self.assignments = self.moved = 0
        self._process = ClientProcess(self._world, self.name, self._life)
        self._process.spawn(self._live(), "a consumer")

    def kill(self) -> None:
        """End the process: its connections close."""
        if self._process is not None:
            self._process.end()
        self._grants.is_over(self.member_id)

    def leave(self) -> None:
        """End the session in order."""
        self._leaving = True

    def hold_still(self, *, still: bool = True) -> None:
        """Say nothing from now on, and give nothing back; the stream stays open."""
        self._silent = still

    def close(self) -> None:
        """End with the world."""
        if self._process is not None:
            self._process.end()

    async def _live(self) -> None:
        members = [name for names in self._world.plan.groups.values() for name in names]
        assert self._process is not None
        while not self._leaving:
            member = self._leader or self._random.choice(members)
            self._leader = ""
            try:
                await self._session(self._process.channel(member))
            except grpc.aio.AioRpcError as broken:
                error = from_rpc_error(broken)
                self._leader = member_at(error.hint) if error.hint else ""
                if error.code in FINAL:
                    self.refused = error.code
                    break
            await asyncio.sleep(self._random.uniform(0, AGAIN_SECONDS))
        self._process.end()

    async def _session(self, channel: grpc.aio.Channel) -> None:
        call: Any = raw.raw_stream(channel, SESSION)()
        self._asked, session = [], 0
        await self._say(call, pb.SessionRequest(join=self._join))
        talker = asyncio.get_running_loop().create_task(self._talk(call))
        try:
            while isinstance(data := await call.read(), bytes):
                reply = pb.SessionReply.FromString(data)
                match reply.WhichOneof("what"):
                    case "joined" if reply.joined.session != session:
                        session, self._given = reply.joined.session, {}
                    case "assignment":
                        self._take(reply.assignment)
                    case "ended":
                        self._grants.is_over(self.member_id)
                        return
                    case _:
                        continue
            await call.code()
        finally:
            talker.cancel()
            call.cancel()

    async def _say(self, call: Any, request: pb.SessionRequest) -> None:
        await call.write(request.SerializeToString())

    async def _talk(self, call: Any) -> None:
        """Say that it is alive, and give back what it was asked for."""
        while True:
            await asyncio.sleep(self._random.uniform(0, TALKS_SECONDS))
            if self._leaving:
                await self._say(call, pb.SessionRequest(leave=pb.Leave()))
            elif not self._silent:
                await self._say(call, pb.SessionRequest(alive=pb.Alive()))
                if self._asked:
                    await self._give_back(call)

    def _take(self, assignment: pb.Assignment) -> None:
        told = {QueueKey(queue.topic_id, queue.queue): queue.epoch for queue in assignment.queues}
        epochs = {key: epoch for key, epoch in told.items() if self._given.get(key) != epoch}
        before = self._grants.beliefs.get(self.member_id, {})
        self.moved += len(before.items() ^ epochs.items())
        self.assignments += 1
        self._grants.told(self.member_id, epochs)
        self._asked = [queue for queue in assignment.queues if queue.revoked]

    async def _give_back(self, call: Any) -> None:
        given, self._asked = self._asked, []
        for queue in given:
            key = QueueKey(queue.topic_id, queue.queue)
            self._given[key] = queue.epoch
            self._grants.lets_go(self.member_id, key)
        await self._say(call, pb.SessionRequest(give_back=pb.GiveBack(queues=given)))
