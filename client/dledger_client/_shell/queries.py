"""Calls about topics, queues, offsets, keys, timers, shared by client objects (asyncio).

Owns: finding and creating topics, splitting a question by group, joining the answers. Not:
streams.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from dledger_client._core.arguments import check_integer
from dledger_client._core.consumer.state import Place
from dledger_client._core.message_checks import check_group, check_topic
from dledger_client._core.routes import RouteChange, TopicRoute, topic_route
from dledger_client._core.schedules import Schedule, schedule_of
from dledger_client._shell import calls
from dledger_client._shell.cluster import Cluster, still_unknown
from dledger_client.errors import ClientError, TopicNotFound, code_of, error_of
from dledger_client.model import QueueBounds, WaitingTimer
from dledger_proto.errors import Code
from dledger_proto.limits import LOOKUP_LIMIT_MAX, TIMERS_PER_PAGE_MAX
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2 as dpb

QUEUES_ASKED_AT_ONCE = 256
"""By one call; a member takes up to `limits.QUEUES_PER_CALL_MAX`."""
Portion = list[tuple[Place, pb.QueueRef]]
_Ask = Callable[[str, Portion], Awaitable[None]]


class Queries:
    """Calls about topics and queues, each to the group that decides about them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def topic(self, name: str) -> TopicRoute:
        """Return a topic's route, asking the control group if it is not known; TopicNotFound."""
        check_topic(name)
        await self._cluster.wait_loaded(self._cluster.config.call_timeout_ms / 1_000)
        route = self._cluster.routes.topic(name)
        if route is None:
            await self.describe(name)
            route = self._cluster.routes.topic(name)
        if route is None:
            raise error_of(Code.TOPIC_NOT_FOUND, f"topic {name}")
        return route

    async def control_group(self) -> str:
        """Return the group that decides about topics."""
        budget_ms = self._cluster.config.call_timeout_ms
        await self._cluster.wait_loaded(budget_ms / 1_000)
        return await self._cluster.control_group(budget_ms)

    def learn(self, topic: pb.Topic) -> TopicRoute:
        """Take in a topic from an answer of the control group; return its route."""
        self._cluster.apply_topic(topic)
        route = self._cluster.routes.topic(topic.name)
        return route if route is not None else topic_route(topic)

    async def describe(self, name: str) -> TopicRoute:
        """Return a topic as the control group has it; TopicNotFound."""
        request, group = pb.DescribeTopicRequest(name=name), await self.control_group()
        return self.learn(
            (await self._cluster.call(calls.DESCRIBE_TOPIC, request, group=group)).topic
        )

    async def list_topics(self) -> list[TopicRoute]:
        """Return all topics as the control group has them, by name."""
        return [topic_route(topic) for topic in await self.all_topics()]

    async def all_topics(self) -> list[pb.Topic]:
        """Return all topics as the control group has them, by name; page by page."""
        group = await self.control_group()
        request = pb.ListTopicsRequest()
        found: dict[str, pb.Topic] = {}
        while True:
            reply = await self._cluster.call(calls.LIST_TOPICS, request, group=group)
            found.update((topic.name, topic) for topic in reply.topics)
            if not reply.cursor:
                return [found[name] for name in sorted(found)]
            request.cursor = reply.cursor

    async def create(self, request: pb.CreateTopicRequest) -> TopicRoute:
        """Create the topic that a request names, with the id that its caller drew; ClientError.

        It takes two calls, so that no late copy of them brings back a topic that was deleted since.
        The first call returns an index of the control group's log, before anybody can know the
        topic's id. The second call names that index. A copy of the first call creates nothing. The
        group refuses a copy of the second call: by the topic's row, and once it has forgotten
        deletions above that index, by the index. Both calls share the budget of one.
        """
        group = await self.control_group()
        loop = asyncio.get_running_loop()
        budget_ms = self._cluster.config.call_timeout_ms
        deadline = loop.time() + budget_ms / 1_000
        reply = await self._cluster.call(calls.LOOK_BEFORE_CREATION, request, group=group)
        if not reply.HasField("topic"):
            wanted = pb.CreateTopicRequest()
            wanted.CopyFrom(request)
            wanted.known_index = reply.known_index
            left_ms = max(1.0, (deadline - loop.time()) * 1_000)
            reply = await self._cluster.call(
                calls.CREATE_TOPIC, wanted, group=group, timeout_ms=left_ms
            )
        return self.learn(reply.topic)

    async def places(self, topic: str) -> list[Place]:
        """Return all queues of a topic that can be read."""
        route = await self.topic(topic)
        return [(topic, queue) for queue in range(route.readable_queues)]

    async def located(self, place: Place) -> tuple[TopicRoute, str]:
        """Return the topic and the group of a queue; QueueNotFound."""
        route = await self.topic(place[0])
        group = route.group_of(place[1])
        if group is None:
            raise error_of(
                Code.QUEUE_NOT_FOUND,
                f"topic {place[0]} has {route.readable_queues} queues, and no queue {place[1]}",
            )
        return route, group

    async def _by_group(self, places: Iterable[Place]) -> list[tuple[str, Portion]]:
        """Return the queues by group, in portions that one call may ask for."""
        groups: dict[str, Portion] = {}
        for place in places:
            route, group = await self.located(place)
            ref = pb.QueueRef(topic_id=route.id, queue=place[1])
            groups.setdefault(group, []).append((place, ref))
        return [
            (group, asked[at : at + QUEUES_ASKED_AT_ONCE])
            for group, asked in groups.items()
            for at in range(0, len(asked), QUEUES_ASKED_AT_ONCE)
        ]

    async def bounds(
        self, places: Iterable[Place], *, linearizable: bool = True
    ) -> dict[Place, QueueBounds]:
        """Return minimum and maximum of queues; confirmed by a quorum if `linearizable`."""
        found: dict[Place, QueueBounds] = {}

        async def ask(group: str, asked: Portion) -> None:
            request = pb.QueueOffsetsRequest(
                queues=[ref for _, ref in asked], linearizable=linearizable
            )
            reply = await self._cluster.call(calls.QUEUE_OFFSETS, request, group=group)
            for (place, _), row in zip(asked, reply.rows, strict=True):
                found[place] = QueueBounds(row.minimum, row.maximum)

        await self.ask_again_if_gone(ask, list(places))
        return found

    async def offset_by_time(self, place: Place, time_ms: int) -> int:
        """Return the first offset stored at or after a time; the maximum if there is none."""
        check_integer("time_ms", time_ms)
        route, group = await self.located(place)
        request = pb.OffsetByTimeRequest(
            queue=pb.QueueRef(topic_id=route.id, queue=place[1]), time_ms=time_ms
        )
        return (await self._cluster.call(calls.OFFSET_BY_TIME, request, group=group)).offset

    async def committed(self, consumer_group: str, places: Iterable[Place]) -> dict[Place, int]:
        """Return the stored offsets of a consumer group, the next to consume; none: left out."""
        check_group(consumer_group)
        found: dict[Place, int] = {}

        async def ask(group: str, asked: Portion) -> None:
            request = pb.ReadOffsetsRequest(
                consumer_group=consumer_group, queues=[ref for _, ref in asked]
            )
            reply = await self._cluster.call(calls.READ_OFFSETS, request, group=group)
            for (place, _), row in zip(asked, reply.offsets, strict=True):
                if row.offset >= 0:
                    found[place] = row.offset

        await self.ask_again_if_gone(ask, list(places))
        return found

    async def every_place_of_key(
        self, topic_id: bytes, groups: Iterable[str], key: str, limit: int
    ) -> list[tuple[int, int]] | None:
        """Return queue and offset of each record with a key that groups hold of a topic.

        Also of records that cannot be decoded and may have it. None when a group has more than
        `limit`.
        """
        answers = await asyncio.gather(
            *(
                self.by_key(group, topic_id, key, 0, 0, limit, places_only=True)
                for group in dict.fromkeys(groups)
            )
        )
        if not all(is_whole for _, is_whole in answers):
            return None
        return [(row.queue, row.offset) for rows, _ in answers for row in rows]

    async def by_key(
        self,
        group: str,
        topic_id: bytes,
        key: str,
        begin_ms: int,
        end_ms: int,
        wanted: int,
        *,
        places_only: bool = False,
    ) -> tuple[list[pb.FoundRecord], bool]:
        """Return up to `wanted` records of a group, and whether it has no others.

        An answer is bounded in bytes: the next one begins at its cursor.
        """
        request = pb.LookupKeyRequest(
            queue=pb.QueueRef(topic_id=topic_id),
            key=key.encode(),
            begin_time_ms=begin_ms,
            end_time_ms=end_ms,
            places_only=places_only,
        )
        rows: list[pb.FoundRecord] = []
        while True:
            request.limit = min(wanted - len(rows), LOOKUP_LIMIT_MAX)
            reply = await self._cluster.call(calls.LOOKUP_KEY, request, group=group)
            rows += reply.records
            if not reply.cursor or len(rows) >= wanted:
                return rows, not reply.cursor
            request.cursor = reply.cursor

    async def ask_again_if_gone(self, ask: _Ask, places: Sequence[Place]) -> None:
        """Ask about queues; of topics that are gone once more, by what is now under their names.

        This client may not have heard that a topic was deleted and created again.
        """
        try:
            await _all(ask, await self._by_group(places))
        except TopicNotFound:
            for topic in {topic for topic, _ in places}:
                self._cluster.routes.drop_topic(topic, RouteChange())
            await _all(ask, await self._by_group(places))

    async def commit(
        self,
        consumer_group: str,
        offsets: Mapping[Place, int],
        *,
        reset: bool = False,
        metadata: str = "",
    ) -> None:
        """Store offsets, the next to consume; OffsetBehind for one below what is stored.

        All others are stored nevertheless. With `reset` an offset may go back; then an unknown
        outcome is not repeated, for the repeat would undo what others have committed since.
        """
        check_group(consumer_group)
        for (topic, queue), offset in offsets.items():
            check_integer(f"{topic}/{queue}: offset", offset)
        refused: list[tuple[Place, int, int, ClientError | None]] = []
        method = calls.RESET_OFFSETS if reset else calls.COMMIT_OFFSETS

        async def ask(group: str, asked: Portion) -> None:
            rows = [
                pb.GroupOffset(queue=ref, offset=offsets[place], metadata=metadata)
                for place, ref in asked
            ]
            request = pb.CommitOffsetsRequest(
                consumer_group=consumer_group, offsets=rows, reset=reset
            )
            reply, unknown = await self._cluster.tried(method, request, group=group)
            for (place, _), code, stored in zip(
                asked, reply.codes, reply.stored_offsets, strict=True
            ):
                if code != Code.OK:
                    refused.append((place, code, stored, unknown))

        await _all(ask, await self._by_group(offsets))
        if refused:
            (topic, queue), number, stored, unknown = min(refused, key=lambda row: row[:3])
            others = f"; {len(refused) - 1} more refused" if len(refused) > 1 else ""
            error = error_of(
                code_of(number),
                f"{topic}/{queue}: offset {offsets[topic, queue]} is not stored, the stored one"
                f" is {stored}{others}",
            )
            raise error if unknown is None else still_unknown(unknown, error)


async def _all(ask: _Ask, portions: Sequence[tuple[str, Portion]]) -> None:
    """Ask all groups at once; when all have answered the first error is raised.

    An unknown outcome is raised before a definite one: what a caller may repeat depends on it.
    """
    results = await asyncio.gather(
        *(ask(group, asked) for group, asked in portions), return_exceptions=True
    )
    errors = [result for result in results if isinstance(result, BaseException)]
    unknown = [each for each in errors if isinstance(each, ClientError) and not each.definite]
    for error in (*unknown, *errors):
        raise error


async def recall_timer(cluster: Cluster, groups: Iterable[str], message_id: bytes) -> int:
    """Take a delayed message back; return when it was due. NOT_FOUND when no timer has it.

    A message id does not say where its message is, so every group is asked until one has it. An
    error of a group is raised only when no other group has it.
    """
    request = dpb.RecallTimerRequest(message_id=message_id)
    failed: ClientError | None = None
    for group in groups:
        try:
            return (await cluster.call(calls.RECALL_TIMER, request, group=group)).due_ms
        except ClientError as error:
            if error.code is not Code.NOT_FOUND:
                failed = error
    raise failed or error_of(
        Code.NOT_FOUND,
        f"message {message_id.hex()}: no timer waits for it; it was delivered or recalled, or it "
        "was not delayed",
    )


async def timers_of(
    cluster: Cluster, groups: Iterable[str], topic: str, from_ms: int, to_ms: int, limit: int
) -> list[WaitingTimer]:
    """Return up to `limit` timers of all groups, in the order of their times."""
    found: list[WaitingTimer] = []
    for group in groups:
        of_group: list[WaitingTimer] = []
        request = dpb.ListTimersRequest(topic=topic, from_ms=from_ms, to_ms=to_ms)
        while len(of_group) < limit:
            request.limit = min(limit - len(of_group), TIMERS_PER_PAGE_MAX)
            reply = await cluster.call(calls.LIST_TIMERS, request, group=group)
            of_group += [_timer(row, group) for row in reply.timers]
            if not reply.cursor:
                break
            request.cursor = reply.cursor
        found += of_group
    found.sort(key=lambda timer: timer.due_ms)
    return found[:limit]


async def schedules_of(cluster: Cluster, groups: Iterable[str], topic: str) -> list[Schedule]:
    """Return the schedules of all groups, of one topic or of all (empty), by topic and name."""
    found: list[Schedule] = []
    for group in groups:
        request = dpb.ListSchedulesRequest(topic=topic)
        while True:
            reply = await cluster.call(calls.LIST_SCHEDULES, request, group=group)
            found += [schedule_of(row, group) for row in reply.schedules]
            if not reply.cursor:
                break
            request.cursor = reply.cursor
    found.sort(key=lambda schedule: (schedule.topic, schedule.name, schedule.group))
    return found


async def delete_schedule(cluster: Cluster, groups: Iterable[str], topic: str, name: str) -> None:
    """Delete a topic's schedule in whatever group has it; NOT_FOUND when none has."""
    request = dpb.DeleteScheduleRequest(topic=topic, name=name)
    missing: ClientError | None = None
    found = False
    for group in groups:
        try:
            await cluster.call(calls.DELETE_SCHEDULE, request, group=group)
        except ClientError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            missing = error
        else:
            found = True
    if missing is not None and not found:
        raise missing


def _timer(row: dpb.ListTimersReply.Timer, group: str) -> WaitingTimer:
    return WaitingTimer(
        due_ms=row.due_ms,
        topic=row.topic,
        topic_id=row.topic_id,
        group=group,
        queue=row.queue,
        record_count=row.record_count,
        message_id=row.message_id,
        attempts=row.attempts,
    )
