"""Questions about queues and offsets that consumers and administration share (asyncio).

Owns: finding topics, splitting a question by group, joining the answers. Not: streams.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from dledger_client._core.arguments import check_integer
from dledger_client._core.consumer.state import Place
from dledger_client._core.message_checks import check_group, check_topic
from dledger_client._core.routes import RouteChange, TopicRoute
from dledger_client._shell import calls
from dledger_client._shell.cluster import Cluster, still_unknown
from dledger_client.errors import ClientError, TopicNotFound, code_of, error_of
from dledger_client.model import QueueBounds
from dledger_proto.errors import Code
from dledger_proto.v1 import broker_pb2 as pb

QUEUES_PER_CALL_MAX = 256
_Portion = list[tuple[Place, pb.QueueRef]]
_Ask = Callable[[str, _Portion], Awaitable[None]]


class Queries:
    """Calls about queues, each to the group that holds them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def topic(self, name: str) -> TopicRoute:
        """Return a topic's route, asking the control group if it is not known; TopicNotFound."""
        check_topic(name)
        budget_ms = self._cluster.config.call_timeout_ms
        await self._cluster.wait_loaded(budget_ms / 1_000)
        route = self._cluster.routes.topic(name)
        if route is None:
            group = await self._cluster.control_group(budget_ms)
            reply = await self._cluster.call(
                calls.DESCRIBE_TOPIC, pb.DescribeTopicRequest(name=name), group=group
            )
            self._cluster.apply_topic(reply.topic)
            route = self._cluster.routes.topic(name)
        if route is None:
            raise error_of(Code.TOPIC_NOT_FOUND, f"topic {name}")
        return route

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
                f"topic {place[0]}: queue {place[1]}, has {route.readable_queues}",
            )
        return route, group

    async def _by_group(self, places: Iterable[Place]) -> list[tuple[str, _Portion]]:
        """Return the queues by group, in portions that one call may ask for."""
        groups: dict[str, _Portion] = {}
        for place in places:
            route, group = await self.located(place)
            ref = pb.QueueRef(topic_id=route.id, queue=place[1])
            groups.setdefault(group, []).append((place, ref))
        return [
            (group, asked[at : at + QUEUES_PER_CALL_MAX])
            for group, asked in groups.items()
            for at in range(0, len(asked), QUEUES_PER_CALL_MAX)
        ]

    async def bounds(
        self, places: Iterable[Place], *, linearizable: bool = True
    ) -> dict[Place, QueueBounds]:
        """Return minimum and maximum of queues; confirmed by a quorum if `linearizable`."""
        found: dict[Place, QueueBounds] = {}

        async def ask(group: str, asked: _Portion) -> None:
            request = pb.QueueOffsetsRequest(
                queues=[ref for _, ref in asked], linearizable=linearizable
            )
            reply = await self._cluster.call(calls.QUEUE_OFFSETS, request, group=group)
            for (place, _), row in zip(asked, reply.rows, strict=True):
                found[place] = QueueBounds(row.minimum, row.maximum)

        await self._ask_again_if_gone(ask, list(places))
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

        async def ask(group: str, asked: _Portion) -> None:
            request = pb.ReadOffsetsRequest(
                consumer_group=consumer_group, queues=[ref for _, ref in asked]
            )
            reply = await self._cluster.call(calls.READ_OFFSETS, request, group=group)
            for (place, _), row in zip(asked, reply.offsets, strict=True):
                if row.offset >= 0:
                    found[place] = row.offset

        await self._ask_again_if_gone(ask, list(places))
        return found

    async def _ask_again_if_gone(self, ask: _Ask, places: Sequence[Place]) -> None:
        """Ask about queues; of topics that are gone once more, by what is now under their names.

        The word that a topic was deleted and made anew may have been missed.
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

        async def ask(group: str, asked: _Portion) -> None:
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
                f"{topic}/{queue}: offset {offsets[topic, queue]}, stored is {stored}{others}",
            )
            raise error if unknown is None else still_unknown(unknown, error)


async def _all(ask: _Ask, portions: Sequence[tuple[str, _Portion]]) -> None:
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
