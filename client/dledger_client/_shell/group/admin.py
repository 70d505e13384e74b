"""How far a consumer group is in each queue; resets, clones, pauses.

Owns: where a reset leads, and who is told of it. Not: splitting questions by broker group
(`_shell/queries.py`).
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dledger_client._core.arguments import check_integer
from dledger_client._core.consumer.state import Place
from dledger_client._core.message_checks import check_group
from dledger_client._shell import calls
from dledger_client._shell.cluster import Cluster
from dledger_client._shell.queries import Portion, Queries
from dledger_client.errors import ClientError, TopicNotFound, code_of, error_of, invalid
from dledger_client.model import QueueBounds, QueueProgress, SuspendedRecord
from dledger_proto.errors import Code
from dledger_proto.limits import PROGRESS_PER_CALL_MAX
from dledger_proto.names import DEAD_LETTER_TOPIC_PREFIX
from dledger_proto.v1 import delivery_pb2 as dpb

EARLIEST, LATEST = "earliest", "latest"
NUDGE_SECONDS = 5.0
QUEUES_IN_A_ROUND = 4_096
"""About so many queues are asked at once for a group's offsets."""
READABLE = 4
"""The bit of a topic's permission."""


@dataclass(frozen=True, slots=True)
class ResetTo:
    """Where a reset leads: exactly one of these."""

    to: str = ""
    """EARLIEST or LATEST."""
    time_ms: int | None = None
    offset: int | None = None
    delta: int | None = None

    def check(self) -> None:
        """Raise INVALID_ARGUMENT unless exactly one is given, and it makes sense."""
        numbers = {"time_ms": self.time_ms, "offset": self.offset, "delta": self.delta}
        given = [name for name, value in numbers.items() if value is not None]
        given += ["to"] if self.to else []
        if len(given) != 1:
            raise invalid(
                f"{', '.join(given) or 'nothing'} given: must be one of to, time_ms, offset, delta"
            )
        if self.to not in ("", EARLIEST, LATEST):
            raise invalid(f"to: {self.to!r}, must be {EARLIEST!r} or {LATEST!r}")
        for name in ("time_ms", "offset"):
            if (value := numbers[name]) is not None:
                check_integer(name, value)


class GroupProgress:
    """Calls about the progress of consumer groups."""

    def __init__(self, cluster: Cluster, queries: Queries) -> None:
        self._cluster = cluster
        self._queries = queries

    async def read(
        self, consumer_group: str, places: Iterable[Place]
    ) -> dict[Place, QueueProgress]:
        """Return what is known of each queue, confirmed by a quorum."""
        check_group(consumer_group)
        found: dict[Place, QueueProgress] = {}

        async def ask(group: str, asked: Portion) -> None:
            for at in range(0, len(asked), PROGRESS_PER_CALL_MAX):
                portion = asked[at : at + PROGRESS_PER_CALL_MAX]
                request = dpb.ReadProgressRequest(
                    consumer_group=consumer_group, queues=[ref for _, ref in portion]
                )
                reply = await self._cluster.call(calls.READ_PROGRESS, request, group=group)
                for (place, _), row in zip(portion, reply.rows, strict=True):
                    if row.code != Code.OK:
                        raise error_of(code_of(row.code), row.detail)
                    found[place] = _progress(row, reply, group)

        await self._queries.ask_again_if_gone(ask, list(places))
        return found

    async def topics(self, consumer_group: str) -> list[str]:
        """Return the topics in which a consumer group, or a name, has an offset; by name.

        All readable queues of the cluster are asked, QUEUES_IN_A_ROUND at a time. Its own dead
        letters are none of them: there its progress says which are settled.
        """
        check_group(consumer_group)
        found: set[str] = set()
        places: list[Place] = []
        topics = [
            topic
            for topic in await self._queries.list_topics()
            if topic.permission & READABLE
            and topic.name != DEAD_LETTER_TOPIC_PREFIX + consumer_group
        ]
        for topic in topics:
            places += [(topic.name, queue) for queue in range(topic.readable_queues)]
            if len(places) >= QUEUES_IN_A_ROUND or topic is topics[-1]:
                found |= {name for name, _ in await self._committed(consumer_group, places)}
                places = []
        return sorted(found)

    async def _committed(self, consumer_group: str, places: Sequence[Place]) -> set[Place]:
        """Return the queues in which a group has an offset; a topic deleted meanwhile has none."""
        try:
            return set(await self._queries.committed(consumer_group, places))
        except TopicNotFound:
            if len(topics := {topic for topic, _ in places}) == 1:
                return set()
            found: set[Place] = set()
            for topic in topics:
                part = [place for place in places if place[0] == topic]
                found |= await self._committed(consumer_group, part)
            return found

    async def reset(
        self, consumer_group: str, places: Sequence[Place], target: ResetTo
    ) -> dict[Place, int]:
        """Set the floors of queues, and tell the consumers; return the new floors.

        None is set when one of them is out of range. Works with consumers and without: none of
        them commits over a reset.
        """
        check_group(consumer_group)
        target.check()
        offsets = await self._targets(consumer_group, places, target)
        await self._queries.commit(consumer_group, offsets, reset=True)
        await self.nudge(consumer_group)
        return offsets

    async def clone(self, source: str, target: str, places: Sequence[Place]) -> dict[Place, int]:
        """Set a group's floors to those of another; queues that have none are left out."""
        check_group(target)
        offsets = await self._queries.committed(source, places)
        await self._queries.commit(target, offsets, reset=True)
        await self.nudge(target)
        return offsets

    async def nudge(self, consumer_group: str) -> int:
        """Have the consumers of a group claim again; return how many were told.

        Nobody needs it: a consumer hears of a reset by its next commit or, when it is idle, by its
        next claim. So no error is raised.
        """
        await self._cluster.wait_loaded(self._cluster.config.call_timeout_ms / 1_000)
        request = dpb.NudgeConsumersRequest(name=consumer_group)

        async def ask(group: str, address: str) -> int:
            try:
                reply = await self._cluster.channels.call(
                    address, calls.NUDGE_CONSUMERS, request, group=group, timeout=NUDGE_SECONDS
                )
            except ClientError:
                return 0  # not the coordinator, or no consumer group
            return reply.told

        asked = [
            ask(group.name, group.leader_address or group.members[0].address)
            for group in self._cluster.routes.groups()
            if group.members
        ]
        return sum(await asyncio.gather(*asked))

    async def resume(self, consumer_group: str) -> dict[str, str]:
        """End the pauses that waves of failures began; return why, by broker group."""
        check_group(consumer_group)
        await self._cluster.wait_loaded(self._cluster.config.call_timeout_ms / 1_000)
        request = dpb.ResumeGroupRequest(consumer_group=consumer_group)
        groups = self._cluster.routes.group_names()
        replies = await asyncio.gather(
            *(self._cluster.call(calls.RESUME_GROUP, request, group=group) for group in groups)
        )
        ended = {group: reply.why for group, reply in zip(groups, replies, strict=True)}
        await self.nudge(consumer_group)
        return {group: why for group, why in ended.items() if why}

    async def _targets(
        self, consumer_group: str, places: Sequence[Place], target: ResetTo
    ) -> dict[Place, int]:
        bounds = await self._queries.bounds(places)
        if target.time_ms is not None:
            time_ms = target.time_ms
            found = await asyncio.gather(
                *(self._queries.offset_by_time(place, time_ms) for place in places)
            )
            return dict(zip(places, found, strict=True))
        if target.delta is not None:
            floors = await self._queries.committed(consumer_group, places)
            return {
                place: _within(floor + target.delta, bounds[place])
                for place, floor in floors.items()
            }
        if target.offset is not None:
            for (topic, queue), held in bounds.items():
                if not held.minimum <= target.offset <= held.maximum:
                    raise error_of(
                        Code.OFFSET_OUT_OF_RANGE,
                        f"{topic}/{queue}: offset {target.offset}, the queue holds "
                        f"{held.minimum} to {held.maximum}",
                    )
            return dict.fromkeys(places, target.offset)
        return {
            place: held.minimum if target.to == EARLIEST else held.maximum
            for place, held in bounds.items()
        }


def _within(offset: int, bounds: QueueBounds) -> int:
    return min(max(offset, bounds.minimum), bounds.maximum)


def _progress(
    row: dpb.ReadProgressReply.Row, reply: dpb.ReadProgressReply, group: str
) -> QueueProgress:
    has_floor = row.floor >= 0
    return QueueProgress(
        broker_group=group,
        floor=row.floor if has_floor else None,
        minimum=row.minimum,
        maximum=row.maximum,
        done=tuple((each.first, each.end) for each in row.done),
        holder=row.holder,
        epoch=row.epoch,
        resets=row.resets,
        lease_left_ms=max(row.lease_until_ms - reply.now_ms, 0) if row.lease_until_ms else 0,
        suspended=tuple(
            SuspendedRecord(each.offset, each.attempts, max(each.until_ms - reply.now_ms, 0))
            for each in row.suspended
        ),
        committed_ms=row.committed_ms,
        lag_messages=row.waiting if has_floor else None,
        lag_bytes=row.lag_bytes if has_floor else None,
        lag_ms=max(reply.now_ms - row.oldest_ms, 0) if row.oldest_ms else 0,
        expires_in_ms=max(row.expires_ms - reply.now_ms, 0) if row.expires_ms else None,
        lost=row.lost,
        paused=reply.paused,
    )
