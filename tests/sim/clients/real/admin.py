"""The product's own administrator, whole, in the simulated world.

Owns: topics "u1", "u2" and so on, which it creates, changes, deletes and reads; each answer is
compared with the history of the name. Consumer groups have a part of their own (`group/`). It also
looks up what lies in the topic of the producers, and compares that as the hand-made consumers do.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from dledger_client import AsyncAdmin
from dledger_client._core.routes import TopicRoute
from dledger_client.errors import (
    ClientError,
    InvalidRequest,
    NoPermission,
    NothingFound,
    OffsetOutOfRange,
    Overloaded,
    QueueNotFound,
    TopicNotFound,
    Unavailable,
    UnknownOutcome,
)
from dledger_client.model import FoundRecord, QueueHold
from dledger_proto.errors import Code
from dledger_proto.names import GROUP_TOPIC_PREFIXES
from tests.sim.clients.group.administrator import GroupAdministrator
from tests.sim.clients.lookups import (
    Found,
    Lookup,
    LookupId,
    LookupKey,
    LookupOffset,
    LookupTime,
    Span,
)
from tests.sim.clients.process import ClientProcess, bootstrap
from tests.sim.clients.real.keeper import TOPIC as KEPT_TOPIC
from tests.sim.clients.real.users import UserAdministrator
from tests.sim.invariants.delivery.queue_contents import QueueKey
from tests.sim.invariants.delivery.records import TOPIC as SHARED_TOPIC
from tests.sim.invariants.delivery.right_stamps import AHEAD_MAX_MS
from tests.sim.invariants.delivery.topic_history import (
    READ_AND_WRITE,
    Change,
    Create,
    Delete,
    Maybe,
    TopicHistory,
    TopicState,
    Update,
)
from tests.sim.invariants.violation import Property, Violation
from tests.sim.world.clock import true_ms

if TYPE_CHECKING:
    from tests.sim.world.world import World

TOPIC: Final = "t"
HOST: Final = "u"
NAMES_AT_ONCE: Final = 2
QUEUES_MAX: Final = 3
"""Of a new topic in each group, and of those that a change adds."""
PERMISSIONS: Final = (2, 4, READ_AND_WRITE)
LIMIT: Final = 1_000_000
"""Of a lookup by key: more than a world stores."""
BUSY: Final = (Unavailable, Overloaded, UnknownOutcome)
"""What a call that only reads may end with while members fail."""
UNFIT: Final = (TopicNotFound, NothingFound, NoPermission, QueueNotFound, InvalidRequest)
"""What a call about a schedule may end with, because its topic is deleted, closed or smaller."""
SCHEDULES: Final = ("a", "b")
CRONS: Final = ("* * * * * *", "*/3 * * * * *")
RULES: Final = frozenset((Code.TOPIC_EXISTS, Code.TOPIC_NOT_FOUND, Code.INVALID_ARGUMENT))
"""Refusals that the state of a topic explains."""
ACTIONS: Final = {
    "change": 4, "describe": 2, "list": 1, "look up": 4, "bounds": 1, "look on": 1, "hold": 2,
    "list holds": 1, "groups": 3, "schedules": 2,
}  # fmt: skip
"""How often each comes."""
EXPIRING: Final = {"groups": 12}
"""How often, where consumer groups expire."""
HOLD_MS: Final = (1_000, 5_000, 60_000)

T = TypeVar("T")


class RealAdmin:
    """One administrator. Nobody else changes its topics."""

    def __init__(self, interval: float, world: "World", random: Random) -> None:
        self._interval = interval
        self._world = world
        self._oracle = world.oracle
        self._random = random
        self._groups = tuple(world.groups)
        self.running = True
        self.histories: dict[str, TopicHistory] = {}
        self._actions = ACTIONS | (EXPIRING if world.plan.group_expiry_ms else {})
        self._actions |= {"users": 4} if world.plan.changes_users else {}
        self._consumer_groups = GroupAdministrator(HOST, world, random, TOPIC)
        self._users = UserAdministrator(HOST, world, random)
        self._holds: dict[str, QueueHold] = {}
        """By owner: what this administrator was told that it holds. No owner holds twice."""
        self._holds_asked = 0
        self._has_ended = False
        self._process: ClientProcess | None = None

    def group_expired(self, name: str) -> None:
        """See `GroupAdministrator.expired`."""
        self._consumer_groups.expired(name)

    def start(self) -> None:
        """Begin."""
        self._process = ClientProcess(self._world, HOST, 1)
        self._process.spawn(self._run(), "the administrator")

    def stop(self) -> None:
        """Change nothing more."""
        self.running = False

    def close(self) -> None:
        """End with the world."""
        if self._process is not None:
            self._process.end()

    async def _run(self) -> None:
        admin = AsyncAdmin(bootstrap(self._world, self._random))
        assert self._process is not None
        self._process.owns(admin._cluster)
        await admin.start()
        while self.running:
            await asyncio.sleep(self._random.expovariate(1 / self._interval))
            await self._turn(admin)
        await self._delete_schedules(admin)
        self._has_ended = True
        await admin.close()
        self._process.end()

    async def _turn(self, admin: AsyncAdmin) -> None:
        match self._random.choices(list(self._actions), list(self._actions.values()))[0]:
            case "change":
                await self._change(admin)
            case "describe":
                await self._describe(admin)
            case "list":
                await self._list(admin)
            case "look up":
                await self._look_up(admin)
            case "bounds":
                await self._read_bounds(admin)
            case "hold":
                await self._hold(admin)
            case "groups":
                await self._consumer_groups.turn(admin)
            case "users":
                await self._users.turn(admin)
            case "schedules":
                await self._schedule(admin)
            case "list holds":
                await self._list_holds(admin)
            case _:
                await self._look_on(admin)

    async def _busy(self, work: Awaitable[T]) -> T | None:
        """Return what a read returns; None when members fail, or a group is behind."""
        all_have_topic = all(group.has_topic() for group in self._world.groups.values())
        try:
            return await work
        except (*BUSY, TopicNotFound) as error:
            if isinstance(error, TopicNotFound) and all_have_topic:
                raise
            self._oracle.counts[f"administrator {error.code.name}"] += 1
            return None

    # Topics.

    def _history(self) -> TopicHistory:
        """Return one of the names in use; one about which too much is unknown is given up."""
        clear = [history for history in self.histories.values() if history.is_clear]
        if len(clear) < NAMES_AT_ONCE:
            name = f"u{len(self.histories) + 1}"
            clear.append(self.histories.setdefault(name, TopicHistory(name)))
        return self._random.choice(clear)

    async def _change(self, admin: AsyncAdmin) -> None:
        history = self._history()
        change = self._draw(history.known)
        kind = type(change).__name__.lower()
        self._world.story.client(HOST, "asks for", change, "of", history.name)
        try:
            route = await self._carry_out(admin, history.name, change)
        except ClientError as error:
            self._world.story.client(HOST, "is refused", history.name, error.code.name)
            if not error.definite:
                self._oracle.counts["changes of topics unknown"] += 1
                history.unknown(change)
            elif "no group has the name" in str(error):  # it has not heard of it since its start
                self._oracle.counts["changes of unknown groups"] += 1
            elif error.code in RULES:
                self._oracle.counts["changes of topics refused"] += 1
                history.refused(change, error.code)
            elif not isinstance(error, BUSY):
                raise
            return
        self._oracle.counts[f"topics: {kind}"] += 1
        self._world.story.client(HOST, "is told", route)
        self._check_name(history.name, route)
        history.answered(change, _state(route))

    def _draw(self, known: Maybe) -> Change:
        random = self._random
        if known is None or random.random() < 0.15:
            groups = tuple(random.sample(self._groups, random.randint(1, len(self._groups))))
            permission = random.choice((READ_AND_WRITE, READ_AND_WRITE, 4))
            return Create(groups, random.randint(1, QUEUES_MAX), permission)
        drawn = random.random()
        if drawn < 0.25:
            return Delete()
        if drawn < 0.45:
            return Update(permission=random.choice(PERMISSIONS))
        if drawn < 0.65:
            return Update(read_queues=random.randint(1, len(known.owners)))
        return Update(owners=self._drawn_owners(known))

    def _drawn_owners(self, known: TopicState) -> tuple[str, ...]:
        """Draw a layout with more queues, or fewer; now and then one that moves a queue."""
        random, owners = self._random, known.owners
        if random.random() < 0.4:
            return owners[: random.randint(1, len(owners))]
        more = tuple(random.choice(self._groups) for _ in range(random.randint(1, QUEUES_MAX)))
        if len(self._groups) > 1 and random.random() < 0.1:
            return (*more, *owners)
        return (*owners, *more)

    @staticmethod
    async def _carry_out(admin: AsyncAdmin, name: str, change: Change) -> TopicRoute:
        match change:
            case Create(groups, queues, permission):
                return await admin.create_topic(
                    name, queues_per_group=queues, permission=permission, groups=groups
                )
            case Update(permission, read_queues):
                return await admin.update_topic(
                    name, permission=permission, read_queues=read_queues, layout=change.layout
                )
            case Delete():
                return await admin.delete_topic(name)

    def _check_name(self, name: str, route: TopicRoute) -> None:
        if route.name != name:
            raise Violation(Property.TOPICS, f"asked for {name}, {route} came")

    async def _describe(self, admin: AsyncAdmin) -> None:
        history = self._history()
        try:
            route = await self._busy(admin.describe_topic(history.name))
        except TopicNotFound:
            history.seen(None)
            return
        if route is not None:
            self._check_name(history.name, route)
            history.seen(_state(route))

    async def _list(self, admin: AsyncAdmin) -> None:
        routes = await self._busy(admin.list_topics())
        if routes is None:
            return
        self._oracle.counts["lists of topics"] += 1
        routes = [each for each in routes if _is_mine(each.name)]
        found = {route.name: _state(route) for route in routes}
        others = found.keys() - self.histories.keys()
        if others != {TOPIC} or len(found) != len(routes):
            raise Violation(Property.TOPICS, f"{sorted(others)} are listed, in {routes}")
        for name, history in self.histories.items():
            history.seen(found.get(name))

    # Schedules.

    async def _schedule(self, admin: AsyncAdmin) -> None:
        """Set, replace, delete or list schedules of a topic; `invariants` judges what they send."""
        topic = self._history().name
        name = self._random.choice(SCHEDULES)
        work: Awaitable[object]
        drawn = self._random.random()
        if drawn < 0.6:
            work = admin.set_schedule(topic, name, self._random.choice(CRONS), b"scheduled")
        elif drawn < 0.8:
            work = admin.delete_schedule(topic, name)
        else:
            work = admin.schedules()
        try:
            await work
        except (*BUSY, *UNFIT) as error:
            self._oracle.counts[f"schedules {error.code.name}"] += 1

    async def _delete_schedules(self, admin: AsyncAdmin) -> None:
        """Delete every schedule: in the end the groups are to be idle."""
        while True:
            try:
                left = await admin.schedules()
                for each in left:
                    await admin.delete_schedule(each.topic, each.name)
            except (*BUSY, *UNFIT):
                await asyncio.sleep(0.5)
            else:
                if not left:
                    return

    # What the producers' topic holds.

    def _spans(self) -> dict[str, Span]:
        return {name: group.applied_span() for name, group in self._world.groups.items()}

    async def _look_up(self, admin: AsyncAdmin) -> None:
        plan = self._world.plan
        wanted = self._oracle.judge.draw(self._random, plan.queues, plan.keys)
        if wanted is None:
            return
        if isinstance(wanted, LookupKey):
            wanted = replace(wanted, limit=LIMIT)
        begun = self._spans()
        known = {group.name for group in admin._cluster.routes.groups()}
        try:
            answer = await self._busy(_asked(admin, wanted))
        except NothingFound:
            answer = ()
        except OffsetOutOfRange:
            assert isinstance(wanted, LookupOffset)
            if wanted.offset >= self._oracle.minimums.get(wanted.queue, 0):
                raise
            return
        if answer is None:
            return
        self._oracle.counts["administrator's lookups"] += 1
        for name, now in self._spans().items():
            span = replace(begun[name], ceiling=now.ceiling, highest=now.highest)
            of_group = answer
            if isinstance(answer, tuple):
                of_group = tuple(each for each in answer if each.queue in span.lowest)
            is_of_another = isinstance(wanted, LookupTime | LookupOffset) and (
                wanted.queue not in span.lowest
            )
            # A message id names no group, and a member tells of its own group only: a client that
            # was given members may not know all groups, and asks those that it knows.
            is_unasked = isinstance(wanted, LookupId) and name not in known
            if not is_of_another and not is_unasked:
                self._oracle.judge.check("the administrator", wanted, of_group, span)

    async def _read_bounds(self, admin: AsyncAdmin) -> None:
        floors = dict(self._oracle.acknowledged_ends)
        found = await self._busy(admin.queue_offsets(TOPIC))
        for queue in self._world.plan.queues if found is not None else ():
            assert found is not None
            end = found[queue[1]].maximum
            self._oracle.read_end("the administrator", queue, floors.get(queue, 0), end)

    async def _hold(self, admin: AsyncAdmin) -> None:
        """Keep a queue for a while, or end a hold before its time."""
        if self._holds and self._random.random() < 0.3:
            owner = self._random.choice(list(self._holds))
            held = self._holds.pop(owner)
            await self._busy(admin.release_hold(owner, TOPIC, held.queue))
            return
        queue = self._random.choice(self._world.plan.queues)
        first, end = self._oracle.minimums.get(queue, 0), self._oracle.contents.ends.get(queue, 0)
        offset = self._random.randint(min(first, end), end)
        self._holds_asked += 1
        owner = f"{HOST}{self._holds_asked}"
        asked_ms = true_ms(self._world.scheduler)
        ttl_ms = self._random.choice(HOLD_MS)
        try:
            until_ms = await self._busy(admin.hold(owner, TOPIC, queue[1], offset, ttl_ms))
        except OffsetOutOfRange:
            if offset >= self._oracle.minimums.get(queue, 0):
                raise
            return
        except InvalidRequest as error:
            if "until_ms" not in error.detail:  # else its time was over before it was stored
                raise
            return
        if until_ms is None:
            return
        self._oracle.counts["administrator's holds"] += 1
        group = self._world.group_of(queue)
        self._holds[owner] = QueueHold(
            TOPIC, queue[0], group.name, queue[1], owner, offset, until_ms
        )
        group.invariants.trims.granted(owner, queue, until_ms, asked_ms + ttl_ms)

    async def _list_holds(self, admin: AsyncAdmin) -> None:
        """List all holds: those of this administrator that last are as it was told."""
        mine = dict(self._holds)
        found = await self._busy(admin.holds())
        if found is None:
            return
        self._oracle.counts["lists of holds"] += 1
        listed = {each.owner: each for each in found}
        for owner, held in mine.items():
            stamps = self._world.groups[held.group].invariants.stamps
            latest_ms = true_ms(self._world.scheduler) + AHEAD_MAX_MS
            lasts = held.until_ms > latest_ms and not stamps.majority_was_wrong
            row = listed.get(owner)
            # A late copy of the same call may have renewed the hold: it lasts longer then.
            is_right = replace(row, until_ms=held.until_ms) == held if row else not lasts
            if not is_right or (row is not None and row.until_ms < held.until_ms):
                raise Violation(Property.TRIMS, f"{owner} holds {held}, listed {row}")

    async def _look_on(self, admin: AsyncAdmin) -> None:
        """Ask every member for its status: one term has one leader."""
        found = await self._busy(admin.statuses())
        leaders: dict[tuple[str, int], str] = {}
        for (group, member), status in (found or {}).items():
            if isinstance(status, ClientError) or status.role != "leader":
                continue
            other = leaders.setdefault((group, status.term), member)
            if other != member:
                raise Violation(
                    Property.ELECTION_SAFETY, f"{member} and {other} lead {group} in {status.term}"
                )

    # The end.

    def why_not_agreed(self) -> str:
        """Tell which member does not hold the topics of the control group; empty: all do."""
        if not self._has_ended:
            return "the administrator deletes its schedules"
        due: object = None
        for group in self._world.groups.values():
            for name, member in group.members.items():
                if member.process is None:
                    return f"{name} does not run"
                rows = sorted(
                    (topic.name, topic.topic_id, topic.layout, topic.write_queues,
                     topic.read_queues, topic.permission, topic.settings)
                    for topic in member.process.machine.queries.topics()
                )  # fmt: skip
                due = rows if due is None else due
                if rows != due:
                    return f"{name} has the topics {rows}, {group.names[0]} has {due}"
        return self._users.why_not_agreed()

    def check_end(self) -> None:
        """Compare the topics that the control group holds with their histories."""
        topics = self._world.group.any_process.machine.queries.topics()
        self._consumer_groups.check_end(topics)
        self._users.check_end()
        plain = [each for each in topics if _is_mine(each.name)]
        found = {topic.name: topic for topic in plain}
        if found.keys() - self.histories.keys() != {TOPIC}:
            raise Violation(Property.TOPICS, f"the end has the topics {sorted(found)}")
        for name, history in self.histories.items():
            topic = found.get(name)
            history.seen(
                None
                if topic is None
                else TopicState(
                    topic.topic_id,
                    tuple(part.group for part in topic.layout for _ in range(part.queues)),
                    topic.write_queues,
                    topic.read_queues,
                    topic.permission,
                )
            )


def _is_mine(topic: str) -> bool:
    return topic not in (SHARED_TOPIC, KEPT_TOPIC) and not topic.startswith(GROUP_TOPIC_PREFIXES)


def _state(route: TopicRoute) -> TopicState:
    owners = tuple(group for group, queues in route.parts for _ in range(queues))
    return TopicState(route.id, owners, route.write_queues, route.read_queues, route.permission)


async def _asked(admin: AsyncAdmin, wanted: Lookup) -> tuple[Found, ...] | int:
    """Look up by the method that is for it."""
    match wanted:
        case LookupKey(_, key, begin_ms, end_ms, limit):
            found = await admin.lookup_key(
                TOPIC, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit
            )
        case LookupId(producer_id, number):
            found = await admin.lookup_message(producer_id + number.to_bytes(8, "big"))
        case LookupTime(queue, time_ms):
            return await admin.offset_by_time(TOPIC, queue[1], time_ms)
        case LookupOffset(queue, offset):
            found = await admin.lookup_offset(TOPIC, queue[1], offset)
    return _all_found(found)


def _all_found(records: Sequence[FoundRecord]) -> tuple[Found, ...]:
    return tuple(Found(_place_of(each), each.offset, each.record) for each in records)


def _place_of(record: FoundRecord) -> QueueKey:
    return record.topic_id, record.queue
