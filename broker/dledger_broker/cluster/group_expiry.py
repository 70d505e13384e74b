"""The control group's leader deletes consumer groups that nobody used for long (D20).

Owns: when it looks, which broker groups must agree, how old an answer may be. Not owned: what a use
is (`dledger.state.consumers.usage`), what else keeps a group (`unused`), deleting
(`consumer_groups`).

A broker group knows the uses of its own queues, and the coordinator knows the consumers. So a group
is deleted only when all broker groups answer that it is unused, each behind a read barrier of its
leader. Who does not answer keeps it. A use that comes after the answer finds the group deleted, as
if somebody had deleted it just before. That is within ANSWERS_LAST_SECONDS and the time of a
proposal. A proposal of a leader that loses its majority may be committed much later.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Final

import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from dledger.state.queries import Queries
from dledger.state.values import Topic
from dledger_broker.cluster.channels import GROUP_KEY, Channels
from dledger_broker.cluster.consumer_groups import ConsumerGroupAuthority
from dledger_broker.cluster.view import ClusterView
from dledger_broker.group.group_view import GroupView
from dledger_broker.process.logs import Quiet
from dledger_broker.process.tasks import start_running
from dledger_proto.errors import DledgerError
from dledger_proto.names import RETRY_TOPIC_PREFIX
from dledger_proto.rpc import raw
from dledger_proto.v1 import delivery_pb2 as pb

CHECK_METHOD: Final = "/dledger.v1.Delivery/CheckUnusedGroups"
CHECKS_PER_EXPIRY: Final = 8
"""Looks within the time after which a consumer group expires; more, when that time is long."""
LOOK_SECONDS_MAX: Final = 600.0
GROUPS_PER_LOOK_MAX: Final = 256
"""Consumer groups that one look asks about, and so deletes. The next look goes on behind them."""
GROUPS_LOOKED_AT_MAX: Final = 1_024
"""Consumer groups with an old use that one look reads more of; most of them have dead letters."""
ASK_SECONDS: Final = 2.0
"""How long one look waits for a broker group."""
ANSWERS_LAST_SECONDS: Final = 5.0
"""Later than this after a look began, it deletes nothing: an answer of it may be too old."""


def look_seconds(expiry_ms: int) -> float:
    """Return the time from one look to the next."""
    return min(expiry_ms / CHECKS_PER_EXPIRY / 1_000, LOOK_SECONDS_MAX)


class Candidates:
    """Finds the consumer groups that are unused here, some with each look, one after the other."""

    def __init__(self, expiry_ms: int) -> None:
        self._expiry_ms = expiry_ms
        self._behind = b""
        """The last look ended here. So groups that others keep do not hide those behind them."""

    def take(self, state: Queries, now_ms: int) -> list[Topic]:
        """Return the retry topics of the next groups; `now_ms` is the leaders' time."""
        silent = sorted(state.silent_groups(self._expiry_ms))
        later = [group_id for group_id in silent if group_id > self._behind]
        in_turn = [*later, *silent[: len(silent) - len(later)]]
        found: list[Topic] = []
        for group_id in islice(in_turn, GROUPS_LOOKED_AT_MAX):
            self._behind = group_id
            known = state.group_by_id(group_id)
            if known is not None and state.is_unused(group_id, self._expiry_ms, now_ms):
                found.append(known[0])
            if len(found) == GROUPS_PER_LOOK_MAX:
                break
        return found


def to_ask(retries: Sequence[Topic], broker_groups: Collection[str]) -> dict[str, list[bytes]]:
    """Return about which consumer groups each broker group is asked.

    About each group those that have queues of its retries, and all others that are known: one that
    joined a moment ago may have progress of the group before it has its retries.
    """
    asked: dict[str, list[bytes]] = {}
    for retry in retries:
        layout = {part.group for part in retry.layout}
        for name in sorted({*layout, *broker_groups}):
            asked.setdefault(name, []).append(retry.topic_id)
    return asked


def all_agree(
    group_id: bytes,
    asked: Mapping[str, Sequence[bytes]],
    answers: Mapping[str, Collection[bytes] | None],
) -> bool:
    """Tell whether each broker group that was asked about a consumer group calls it unused.

    An answer holds the groups that are unused there; None: there is no answer.
    """
    return all(
        group_id in (answers.get(name) or ())
        for name, group_ids in asked.items()
        if group_id in group_ids
    )


class GroupExpiry:
    """Looks again and again while this member leads the control group."""

    def __init__(
        self,
        view: GroupView,
        cluster: ClusterView,
        channels: Channels,
        authority: ConsumerGroupAuthority,
        expiry_ms: int,
    ) -> None:
        self._view = view
        self._cluster = cluster
        self._channels = channels
        self._authority = authority
        self._expiry_ms = expiry_ms
        self._candidates = Candidates(expiry_ms)
        self._task: asyncio.Task[None] | None = None
        self._quiet = Quiet(view.clock)
        self._log = structlog.get_logger().bind(group=view.names.group)

    def start(self) -> None:
        """Begin to look."""
        self._task = start_running(self._run, f"expiry of consumer groups {self._view.names.group}")

    def stop(self) -> None:
        """End: the process ends."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        period = look_seconds(self._expiry_ms)
        while True:
            await asyncio.sleep(period)
            if self._view.leads:
                try:
                    await self.look()
                except DledgerError as error:  # the next look finds them again, or finds them gone
                    self._tell("look", reason=str(error))

    async def look(self) -> None:
        """Delete the next consumer groups that no broker group has a use of."""
        view, own = self._view, self._view.names.group
        state, began = view.machine.queries, view.clock.monotonic()
        retries = self._candidates.take(state, view.now_ms)
        if not retries:
            return
        named = {part.group for topic in state.topics() for part in topic.layout}
        asked = to_ask(retries, {*self._cluster.groups(), *named})
        asked.pop(own, None)
        given = await asyncio.gather(*(self._ask(name, ids) for name, ids in asked.items()))
        answers = dict(zip(asked, given, strict=True))
        await view.confirm()
        if not view.leads or view.clock.monotonic() - began > ANSWERS_LAST_SECONDS:
            return
        # This group's own answer comes last: behind the barrier, at the moment of the proposal.
        unused = [
            retry
            for retry in retries
            if all_agree(retry.topic_id, asked, answers)
            and state.is_unused(retry.topic_id, self._expiry_ms, view.now_ms)
        ]
        if unused:
            await self._delete(unused)

    async def _delete(self, retries: Sequence[Topic]) -> None:
        deleted, refused = await self._authority.delete_all([each.topic_id for each in retries])
        for retry in deleted:
            self._log.info(
                "consumer group deleted: nobody used it",
                consumer_group=retry.name.removeprefix(RETRY_TOPIC_PREFIX),
                unused_ms=self._expiry_ms,
            )
        for error in refused:
            self._tell("delete", reason=str(error))

    async def _ask(self, broker_group: str, group_ids: Sequence[bytes]) -> set[bytes] | None:
        """Return which consumer groups are unused in a broker group; None when it does not say."""
        request = pb.CheckUnusedGroupsRequest(group_ids=group_ids, unused_ms=self._expiry_ms)
        data, metadata = request.SerializeToString(), ((GROUP_KEY, broker_group),)
        clock = self._view.clock
        until = clock.monotonic() + ASK_SECONDS
        problem = "no member of it is known here"
        for member in self._cluster.members(broker_group):
            left = until - clock.monotonic()
            if left <= 0:
                break
            unary = raw.raw_unary(self._channels.to(member), CHECK_METHOD)
            try:
                answer = await unary(data, timeout=left, metadata=metadata)
                reply = pb.CheckUnusedGroupsReply.FromString(answer)
            except grpc.aio.AioRpcError as error:
                problem = f"{member}: {error.code().name} {error.details()}"
            except DecodeError as error:
                problem = f"{member}: {error}"
            else:
                if len(reply.unused) == len(group_ids):
                    pairs = zip(group_ids, reply.unused, strict=True)
                    return {group_id for group_id, unused in pairs if unused}
                problem = f"{member}: {len(reply.unused)} answers to {len(group_ids)} questions"
        self._tell("ask", broker_group=broker_group, reason=problem)
        return None

    def _tell(self, what: str, **fields: object) -> None:
        left_out = self._quiet.admit(what)
        if left_out is not None:
            self._log.info(
                "unused consumer groups are kept until the next look",
                **fields,
                others_since=left_out,
            )


async def unused_here(view: GroupView, request: pb.CheckUnusedGroupsRequest) -> list[bool]:
    """Answer the control group: which of the consumer groups are unused in this broker group."""
    await view.confirm()
    state, now_ms = view.machine.queries, view.now_ms
    return [state.is_unused(each, request.unused_ms, now_ms) for each in request.group_ids]
