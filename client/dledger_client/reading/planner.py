"""Freezes a plan against a cluster: bounds that a quorum confirms, and holds. Blocking.

Owns: the calls, one for each group and 1,024 queues, and what happens when a queue is trimmed
between its bounds and its hold. Not: what offsets mean (`plan.py`).

A hold belongs to an owner, or is shared. Who still needs a hold renews it. A hold that nobody
renews ends when its time is over, so a job that dies leaves nothing to clean up.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Self

from dledger_client._core.retry import backoff
from dledger_client._core.routes import GroupRoute, TopicRoute
from dledger_client._shell import calls
from dledger_client._shell.cluster import Cluster
from dledger_client._shell.queries import Queries
from dledger_client._shell.runner import SyncRunner
from dledger_client._shell.wire import parse_addresses
from dledger_client.arrow.schema import unknown
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError, TopicNotFound, code_of, error_of
from dledger_client.reading.holds import Hold, HoldRequest
from dledger_client.reading.plan import (
    Edge,
    Place,
    PlannedQueue,
    Question,
    QueueState,
    Sample,
    Trimmed,
    matching,
    question_of,
    resolve,
)
from dledger_proto.errors import Code
from dledger_proto.limits import LOOKS_PER_CALL_MAX, QUEUES_PER_CALL_MAX
from dledger_proto.v1 import broker_pb2 as pb

SAMPLES: Final = 64
"""Samples of each queue; members give fewer when they are asked about many queues."""
KEY_PLACES: Final = 64
"""Records of one key in one topic that are read one by one, at most."""
NOT_TAKEN_YET: Final = (Code.TOPIC_NOT_FOUND, Code.QUEUE_NOT_FOUND)
"""A group's answers about a queue of its own, until it hears that the control group gave it."""
TRIES: Final = 5
"""How often a plan is made anew because queues were trimmed meanwhile."""


class _Asked(NamedTuple):
    """A queue, and the times whose offsets are asked."""

    route: TopicRoute
    queue: int
    times_ms: tuple[int, ...]

    @property
    def place(self) -> Place:
        return self.route.name, self.queue


class _NotTakenYet(Exception):
    """A group has not heard yet that a queue is its own."""

    def __init__(self, error: ClientError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A frozen plan. It holds values only; nothing is resolved later."""

    cluster: str
    queues: tuple[PlannedQueue, ...]
    gaps: tuple[Trimmed, ...]
    """Records that were asked for and are gone; empty unless data loss was accepted."""
    groups: Mapping[str, GroupRoute]
    """Where the groups of these queues were, when the plan was made."""
    hold: HoldRequest | None = None

    @property
    def holds(self) -> dict[Place, Hold]:
        """What readers renew, by queue."""
        hold = self.hold
        if hold is None:
            return {}
        return {each.state.place: hold.on(each.state, each.start) for each in self.queues}


class Planner:
    """Makes plans over one connection. Use it in a `with`."""

    def __init__(
        self, bootstrap: str | Iterable[str], config: ConnectionConfig | None = None
    ) -> None:
        self._cluster = Cluster(parse_addresses(bootstrap), config or ConnectionConfig())
        self._queries = Queries(self._cluster)
        self._runner = SyncRunner()

    def __enter__(self) -> Self:
        self._runner.run(self._start())
        return self

    async def _start(self) -> None:
        self._cluster.start()

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._cluster.close())

    def topics_like(self, pattern: str) -> list[str]:
        """Return the topics whose whole name a regular expression matches, by name."""
        topics = self._runner.run(self._queries.list_topics())
        return matching(pattern, [topic.name for topic in topics])

    @property
    def cluster(self) -> str:
        """The cluster's name; empty before the first answer."""
        return self._cluster.routes.cluster

    def freeze(
        self,
        topics: Sequence[str],
        start: Edge,
        end: Edge,
        *,
        hold: HoldRequest | None = None,
        fail_on_data_loss: bool = True,
        only: Iterable[tuple[str, int]] | None = None,
    ) -> ReadPlan:
        """Return what the committed log holds of topics between two edges, held if asked for.

        `only` leaves out all other queues. ClientError: TOPIC_NOT_FOUND, OFFSET_OUT_OF_RANGE,
        INVALID_ARGUMENT, or what an unreachable cluster gives within the call's budget.
        """
        chosen = None if only is None else set(only)
        return self._runner.run(
            self._freeze(topics, start, end, hold, chosen, fail_on_data_loss=fail_on_data_loss)
        )

    def states(self, topics: Sequence[str], times_ms: Sequence[int] = ()) -> list[QueueState]:
        """Return what a quorum confirms about all queues of topics, in order."""
        return self._runner.run(self._states(topics, Question(tuple(times_ms)), None))

    def offsets_of_key(
        self, topic_id: bytes, groups: Iterable[str], key: str
    ) -> dict[int, list[int]] | None:
        """Return by queue the offsets of all records with a key in a topic's groups.

        None when they are many. `groups` are those of the plan: routes may be from before it.
        """
        places = self._runner.run(
            self._queries.every_place_of_key(topic_id, groups, key, KEY_PLACES)
        )
        if places is None:
            return None
        found: dict[int, list[int]] = {}
        for queue, offset in sorted(places):
            found.setdefault(queue, []).append(offset)
        return found

    def renew(self, plan: ReadPlan) -> None:
        """Renew a plan's holds; does nothing for a plan without a hold."""
        if plan.hold is not None:
            refused = self._runner.run(self._hold(plan.queues, plan.hold))
            if refused:
                raise error_of(Code.OFFSET_OUT_OF_RANGE, f"{refused[0]}: trimmed")

    def release(self, plan: ReadPlan) -> None:
        """End a plan's hold now. A shared hold stays: other plans may need it."""
        if plan.hold is not None and plan.hold.owner:
            self._runner.run(self._hold(plan.queues, replace(plan.hold, ttl_ms=0)))

    async def _freeze(
        self,
        topics: Sequence[str],
        start: Edge,
        end: Edge,
        hold: HoldRequest | None,
        only: set[tuple[str, int]] | None,
        *,
        fail_on_data_loss: bool,
    ) -> ReadPlan:
        question = question_of(start, end)
        refused: list[str] = []
        for _ in range(TRIES):
            states = await self._states(topics, question, only)
            queues, gaps = resolve(states, start, end, fail_on_data_loss=fail_on_data_loss)
            refused = await self._hold(queues, hold) if hold is not None else []
            if not refused:
                routes = self._cluster.routes
                groups = {group.name: group for group in routes.groups()}
                return ReadPlan(routes.cluster, tuple(queues), tuple(gaps), groups, hold)
        raise error_of(
            Code.OFFSET_OUT_OF_RANGE,
            f"{refused[0]}: trimmed while the plan was made, {TRIES} times; start later in the log",
        )

    async def _states(
        self,
        topics: Sequence[str],
        question: Question,
        only: set[tuple[str, int]] | None,
    ) -> list[QueueState]:
        """Ask every group about its queues; again while a group has not heard of one of them yet.

        Each time the control group says anew which queues there are. So a topic that was deleted
        is refused at once.
        """
        budget = self._cluster.config.call_timeout_ms / 1_000
        await self._cluster.wait_loaded(budget)
        deadline = asyncio.get_running_loop().time() + budget
        tries = 0
        while True:
            try:
                return await self._confirmed(topics, question, only)
            except _NotTakenYet as early:
                pause = backoff(tries, self._cluster.generator)
                if asyncio.get_running_loop().time() + pause > deadline:
                    raise early.error from None
            tries += 1
            await asyncio.sleep(pause)

    async def _confirmed(
        self,
        topics: Sequence[str],
        question: Question,
        only: set[tuple[str, int]] | None,
    ) -> list[QueueState]:
        routes = await self._routes(topics)
        asked: dict[str, list[_Asked]] = {}
        for route in routes:
            for queue in range(route.all_queues):
                owner = route.group_of(queue)
                if owner is not None and (only is None or (route.name, queue) in only):
                    times = question.times_of((route.name, queue))
                    asked.setdefault(owner, []).append(_Asked(route, queue, times))
        missing = (only or set()) - {queue.place for queues in asked.values() for queue in queues}
        if missing:
            topic, queue = min(missing)
            raise error_of(Code.QUEUE_NOT_FOUND, f"topic {topic} has no queue {queue}")
        # One call asks about so many queues that all their times fit into it.
        most = max((len(each.times_ms) for queues in asked.values() for each in queues), default=0)
        count = max(min(QUEUES_PER_CALL_MAX, LOOKS_PER_CALL_MAX // max(most, 1)), 1)
        portions = [
            (owner, queues[at : at + count])
            for owner, queues in asked.items()
            for at in range(0, len(queues), count)
        ]
        answers = await asyncio.gather(*(self._ask(owner, queues) for owner, queues in portions))
        states = sorted((state for each in answers for state in each), key=lambda each: each.place)
        if question.group:
            places = [state.place for state in states]
            committed = await self._queries.committed(question.group, places)
            states = [replace(state, committed=committed.get(state.place)) for state in states]
        return states

    async def _routes(self, topics: Sequence[str]) -> list[TopicRoute]:
        """Return topics as the control group has them, in one call when there are many."""
        if len(topics) == 1:
            # The list of all topics tells the nearest name of one that is not known.
            with suppress(TopicNotFound):
                return [await self._queries.describe(topics[0])]
        known = {topic.name: topic for topic in await self._queries.list_topics()}
        missing = [topic for topic in topics if topic not in known]
        if missing:
            raise error_of(Code.TOPIC_NOT_FOUND, f"topic {unknown(missing[0], known)}")
        return [known[topic] for topic in topics]

    async def _ask(self, group: str, queues: Sequence[_Asked]) -> list[QueueState]:
        request = pb.PlanReadsRequest(samples=SAMPLES)
        for route, queue, times_ms in queues:
            request.queues.add(queue=pb.QueueRef(topic_id=route.id, queue=queue), times_ms=times_ms)
        reply = await self._looked(request, group)
        states: list[QueueState] = []
        for (route, queue, times_ms), row in zip(queues, reply.queues, strict=True):
            if row.code:
                error = error_of(code_of(row.code), f"{route.name}/{queue}: {row.detail}")
                raise _NotTakenYet(error) if error.code in NOT_TAKEN_YET else error
            states.append(
                QueueState(
                    route.name,
                    route.id,
                    queue,
                    group,
                    row.minimum,
                    row.maximum,
                    tuple(
                        Sample(each.offset, each.record_count, each.size) for each in row.samples
                    ),
                    dict(zip(times_ms, row.offsets, strict=True)),
                )
            )
        return states

    async def _looked(self, request: pb.PlanReadsRequest, group: str) -> pb.PlanReadsReply:
        """Ask a member for bounds and what lies between them; again when a trim came in between."""
        tries = 0
        while True:
            tries += 1
            reply = await self._cluster.call(calls.PLAN_READS, request, group=group)
            is_trimmed = any(code_of(q.code) is Code.OFFSET_OUT_OF_RANGE for q in reply.queues)
            if not is_trimmed or tries == TRIES:
                return reply

    async def _hold(self, queues: Sequence[PlannedQueue], hold: HoldRequest) -> list[str]:
        """Hold each queue from its start on; return the queues that are trimmed above their start.

        Empty ranges are held too: records that come behind them belong to the job's next plan.
        """
        by_group: dict[str, list[tuple[QueueState, Hold]]] = {}
        for each in queues:
            held = hold.on(each.state, each.start)
            by_group.setdefault(each.state.group, []).append((each.state, held))
        portions = [
            (group, wanted[at : at + QUEUES_PER_CALL_MAX])
            for group, wanted in by_group.items()
            for at in range(0, len(wanted), QUEUES_PER_CALL_MAX)
        ]
        answers = await asyncio.gather(
            *(self._hold_portion(group, wanted) for group, wanted in portions)
        )
        return [place for each in answers for place in each]

    async def _hold_portion(
        self, group: str, wanted: Sequence[tuple[QueueState, Hold]]
    ) -> list[str]:
        """Hold, or release, queues of one group in one call."""
        ttl_ms = wanted[0][1].ttl_ms
        request = pb.HoldAllRequest(ttl_ms=ttl_ms)
        for state, held in wanted:
            ref = pb.QueueRef(topic_id=state.topic_id, queue=state.queue)
            request.queues.add(queue=ref, offset=held.offset, owner=held.owner)
        method = calls.HOLD_ALL if ttl_ms else calls.RELEASE_ALL
        reply = await self._cluster.call(method, request, group=group)
        refused: list[str] = []
        for (state, held), number, detail in zip(wanted, reply.codes, reply.details, strict=True):
            place = f"{state.topic}/{state.queue} offset {held.offset}"
            code = code_of(number)
            if code is Code.OFFSET_OUT_OF_RANGE:
                refused.append(place)
            elif code is not Code.OK:
                raise error_of(code, f"{place}: {detail}")
        return refused
