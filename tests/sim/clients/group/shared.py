"""The consumer groups of a world that share a topic: who they are, their administrator, their end.

Owns: the topic and the groups before anybody sends, so that each record is younger than each group.
Then resets, pauses, dead letters sent again. In the end everybody only consumes, until all is done.
"""

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import TYPE_CHECKING, Final

from dledger_client import AsyncAdmin
from dledger_client.errors import (
    ConsumerGroupNotFound,
    Overloaded,
    QueueNotFound,
    TopicNotFound,
    Unavailable,
    UnknownOutcome,
)
from tests.sim.clients.group.held import check_member
from tests.sim.clients.group.plan import ADMIN_HOST, DeliveryPlan, SharePlan
from tests.sim.clients.group.sender import Sender
from tests.sim.clients.group.worker import Worker
from tests.sim.clients.process import ClientProcess, bootstrap
from tests.sim.invariants.delivery.handling import Handling
from tests.sim.invariants.delivery.records import (
    TOPIC,
    RecordHistory,
    SharedGroup,
    SharedRecords,
)

if TYPE_CHECKING:
    from tests.sim.world.group import Group
    from tests.sim.world.world import World

BUSY: Final = (Unavailable, Overloaded, UnknownOutcome)
ACTS: Final = {"reset": 4, "resend": 3, "pause": 2}
BACK_MAX: Final = 15
"""Records that a reset goes back at most."""
PAUSED_MAX: Final = 2.0
AGAIN_SECONDS: Final = 0.3
RESUME_SECONDS: Final = 1.0
QUEUES_PER_GROUP: Final = 2
STANDS_STILL_MS: Final = 5_000
"""A broker group's time that is so far behind."""


class Shared:
    """All that shares the topic of a world."""

    def __init__(self, world: "World", plan: DeliveryPlan) -> None:
        self._world = world
        self._plan = plan
        self._random = Random(f"{world.plan.seed}/{ADMIN_HOST}")
        groups = [SharedGroup(each.name, each) for each in plan.groups]
        self.records = SharedRecords(groups, world.contents)
        self.handling = Handling(self.records)
        self._process: ClientProcess | None = None
        self._sender: Sender | None = None
        self._workers: list[Worker] = []
        self._is_calm = False
        self._is_acting = False
        """The administrator is about an act."""
        self._have_left = False
        """All was done, and the consumers leave; a late copy of a reset changes nothing of it."""
        self._paused: set[str] = set()
        """Groups that an act has paused."""

    def watch(self, group: "Group") -> RecordHistory:
        """Return who watches a broker group."""
        invariants = group.invariants
        invariants.progress.groups.update(self.records.groups)
        self.handling.stamps[group.name] = invariants.stamps
        return RecordHistory(invariants.facts, group.name, self.records)

    def start(self) -> None:
        """Begin with the administrator, who lets the others begin."""
        self._process = ClientProcess(self._world, ADMIN_HOST, 1)
        self._process.spawn(self._run(self._process), "the groups' administrator")

    def stop(self) -> None:
        """Send nothing more, and let nothing fail any more."""
        self._is_calm = True
        if self._sender is not None:
            self._sender.stop()
        for worker in self._workers:
            worker.calm()

    def close(self) -> None:
        """End with the world."""
        if self._process is not None:
            self._process.end()
        if self._sender is not None:
            self._sender.kill()
        for worker in self._workers:
            worker.kill()

    # The administrator.

    async def _run(self, process: ClientProcess) -> None:
        admin = AsyncAdmin(bootstrap(self._world, self._random))
        process.owns(admin._cluster)
        await admin.start()
        while not self._sender:
            if await self._tries(self._create(admin)):
                self._begin()
            else:
                await asyncio.sleep(AGAIN_SECONDS)
        pause = self._plan.administered or RESUME_SECONDS
        while not self._is_calm:
            await asyncio.sleep(self._random.expovariate(1 / pause))
            if self._plan.administered and not self._is_calm:
                self._is_acting = True
                await self._tries(self._act(admin, self._random.choice(self._plan.groups)))
                self._is_acting = False
            await self._tries(self._resume(admin))
        while not self._is_over:
            await self._tries(self._resume(admin))
            await asyncio.sleep(RESUME_SECONDS)
        await admin.close()
        process.end()

    async def _tries(self, work: Awaitable[None]) -> bool:
        """Do something; False when members fail, or a group has not heard of it yet."""
        try:
            await work
        except (*BUSY, TopicNotFound, QueueNotFound, ConsumerGroupNotFound) as error:
            self._world.oracle.counts[f"groups' administrator {error.code.name}"] += 1
            return False
        return True

    async def _create(self, admin: AsyncAdmin) -> None:
        await admin.create_topic(TOPIC, queues_per_group=QUEUES_PER_GROUP)
        for plan in self._plan.groups:
            await admin.create_consumer_group(
                plan.name,
                order=plan.order,
                start=plan.start,
                strategy=plan.strategy,
                retry_delays_ms=plan.retry_delays_ms,
                retries_max=plan.retries_max,
                session_ms=plan.session_ms,
                lease_ms=plan.lease_ms,
                pause_failures=plan.pause_failures,
            )

    def _begin(self) -> None:
        world = self._world
        self._sender = Sender(world, self._plan)
        self._workers = [
            Worker(world, plan, host) for plan in self._plan.groups for host in plan.consumers
        ]
        self._sender.start()
        for worker in self._workers:
            worker.start()
        if self._is_calm:
            self.stop()

    async def _act(self, admin: AsyncAdmin, group: SharePlan) -> None:
        random = self._random
        what = random.choices(list(ACTS), list(ACTS.values()))[0]
        self._world.story.client(ADMIN_HOST, what, group.name)
        match what:
            case "reset":
                delta = random.randint(-BACK_MAX, 3)
                how = random.choice(({"delta": delta}, {"delta": delta}, {"to": "earliest"}))
                await admin.reset_offsets(group.name, TOPIC, **how)
            case "resend":
                await admin.resend_dead_letters(group.name, limit=random.randint(1, 5))
            case _:
                self._paused.add(group.name)
                await admin.update_consumer_group(group.name, paused=True)
                await asyncio.sleep(random.uniform(0.1, PAUSED_MAX))

    async def _resume(self, admin: AsyncAdmin) -> None:
        """Let groups go on that an act, or a wave of failures, has paused."""
        for plan in self._plan.groups:
            if plan.name in self._paused:
                await admin.update_consumer_group(plan.name, paused=False)
                self._paused.discard(plan.name)
            if plan.pause_failures:
                await admin.resume_consumer_group(plan.name)

    # The end.

    @property
    def _is_over(self) -> bool:
        return not any(worker.runs for worker in self._workers)

    def why_not_over(self) -> str:
        """Tell what is not done; once all is done, let the consumers leave, and wait for that."""
        reason = "" if self._have_left else self._why_not_done()
        if reason:
            return reason
        self._have_left = True
        self.handling.leave()
        for worker in self._workers:
            worker.leave()
        running = [worker.host for worker in self._workers if worker.runs]
        return f"{running} have not left" if running else ""

    def _why_not_done(self) -> str:
        if self._sender is None or not self._sender.is_over:
            return "the sender of the shared topic is not over"
        if self._is_acting:
            return "the administrator of the groups is not over"
        return self.records.why_not_done(self._times_ms())

    def _times_ms(self) -> dict[str, int]:
        """Return the time of broker groups in which clocks were wrong: it may stand still (D8).

        It does when stamps ran ahead, until the true time has come up to them.
        """
        times: dict[str, int] = {}
        for group in self._world.groups.values():
            leader = group.leader
            if group.invariants.stamps.any_was_wrong and leader and leader.process:
                time_ms = leader.process.host.time_ms or 0
                if abs(time_ms - group.true_ms()) > STANDS_STILL_MS:
                    times[group.name] = time_ms
        return times

    def check_end(self) -> None:
        """Compare what every member holds, and what was handled, with the model of the log."""
        for group in self._world.groups.values():
            for member in group.members.values():
                assert member.process is not None
                check_member(self.records, member.process, group.name)
        self.handling.check_end()
