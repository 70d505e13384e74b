"""A whole cluster with its clients, on one virtual clock, from one seed.

Owns: putting the parts together, the phases (safety: anything may break; liveness: all faults off),
the trace and its hash, and the first violation. A run ends with a `Report`, or raises `Violation`
with the trace's last lines kept in the world.
"""

import hashlib
import traceback
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from dledger_proto.errors import Code
from tests.sim.clients.cast import SHARED, Cast
from tests.sim.clients.group.shared import Shared
from tests.sim.clients.oracle import Oracle
from tests.sim.clients.requests import CreateTopic
from tests.sim.clients.wire import Answer, Calls
from tests.sim.disk.ram import RamFolder
from tests.sim.faults.nemesis import Nemesis
from tests.sim.invariants.delivery.group_history import GroupUses
from tests.sim.invariants.delivery.queue_contents import Contents, QueueKey
from tests.sim.invariants.violation import Property, Violation
from tests.sim.member.member import SimMember
from tests.sim.member.small_tables import carried_often, compacted_often, small_tables
from tests.sim.network.network import Network
from tests.sim.process.instruments import instruments
from tests.sim.process.loop import ProcessLoop
from tests.sim.story.replay import WHOLE, Replay
from tests.sim.story.story import Story
from tests.sim.world import liveness
from tests.sim.world.clock import Scheduler
from tests.sim.world.group import Group
from tests.sim.world.name_server import SimNameServer
from tests.sim.world.plan import WorldPlan, client_names

TRACE_LINES_KEPT: Final = 4_000


@dataclass(frozen=True, slots=True)
class Report:
    """What a seed did; plain numbers, so that reports of many seeds add up."""

    seed: int
    members: int
    virtual_seconds: float
    steps: int
    trace_hash: str
    counts: dict[str, int]
    faults: dict[str, int]
    converged_after: float
    """Virtual seconds from the end of faults until the cluster had converged."""


class Stopped(Exception):
    """The replay has reached the virtual time at which it is to stop."""


class Ended(Protocol):
    """A process of the past."""

    loop: ProcessLoop


_open: list["World"] = []


def close_all() -> None:
    """Close every world of this process: scripts do not end theirs."""
    while _open:
        _open[-1].close()


class World:
    """A simulated cluster and everything around it."""

    def __init__(
        self,
        plan: WorldPlan,
        *,
        trace_to: Callable[[str], None] | None = None,
        replay: Replay = WHOLE,
    ) -> None:
        self.plan = plan
        self.replay = replay
        self.random = Random(f"world/{plan.seed}")
        self.scheduler = Scheduler()
        self.story = Story(self.scheduler)
        self.client_names = list(client_names(plan))
        self.counts: Counter[str] = Counter()
        self.lines: deque[str] = deque(maxlen=TRACE_LINES_KEPT)
        self._hash = hashlib.blake2b(digest_size=16)
        self._trace_to = trace_to
        self.failure: Violation | None = None
        """The first violation, also when the product caught it."""
        self.dead: list[Ended] = []
        """Processes that ended; their tasks are kept until the world's end."""
        self._opened = ExitStack()
        self.ram = self._opened.enter_context(closing(RamFolder()))
        """Where the members' states lie. It is removed when the world is closed."""
        self._opened.enter_context(instruments())
        if plan.small_tables:
            small = small_tables(
                with_duties=plan.producers > 0, with_expiry=plan.group_expiry_ms > 0
            )
            self._opened.enter_context(small)
        if plan.carries_often:
            self._opened.enter_context(carried_often())
        if plan.compacts:
            self._opened.enter_context(compacted_often())
        self.network = Network(self.scheduler, Random(f"net/{plan.seed}"), plan.delay, self.trace)
        self.contents = Contents()
        if plan.retention_ms:
            self.contents.retention_ms[plan.topic_id] = plan.retention_ms
        self.oracle = Oracle(self.contents, self.story)
        is_kept = replay.clients is None or SHARED in replay.clients
        self.shared = Shared(self, plan.delivery) if plan.delivery and is_kept else None
        self.group_uses: GroupUses | None = None
        if plan.group_expiry_ms:
            self.group_uses = GroupUses(
                plan.group_expiry_ms / 1_000, lambda: self.scheduler.now, self._group_expired
            )
        self.groups = {name: Group(self, name, names) for name, names in plan.groups.items()}
        self.members: dict[str, SimMember] = {
            name: member for group in self.groups.values() for name, member in group.members.items()
        }
        self.name_servers = {name: SimNameServer(self, name) for name in plan.name_servers}
        self.calls = Calls(self)
        self.clients = Cast(self)
        self.nemesis = Nemesis(self, Random(f"nemesis/{plan.seed}"), replay.keep)
        self._topic_made = False
        _open.append(self)

    @property
    def group(self) -> Group:
        """Return the control group: the only one, where a script has one."""
        return next(iter(self.groups.values()))

    def group_of(self, queue: QueueKey) -> Group:
        """Return the group that a queue of the topic belongs to."""
        place = self.plan.queues.index(queue) // self.plan.queues_per_group
        return list(self.groups.values())[place]

    def close(self) -> None:
        """End every process, and put back what the world has replaced; again has no effect."""
        if self not in _open:
            return
        _open.remove(self)
        for member in self.members.values():
            if member.process is not None:
                self.dead.append(member.process)
                member.process.loop.end()
        for name_server in self.name_servers.values():
            name_server.kill()
        self.clients.close()
        self.calls.close()
        for process in self.dead:
            process.loop.discard()
        self.dead.clear()
        self._opened.close()

    # Findings.

    def found(self, violation: Violation) -> None:
        """Take a violation, wherever it was noticed: the world ends with the first one."""
        if self.failure is None:
            self.failure = violation

    def found_error(self, error: BaseException, where: str) -> None:
        """Take an error that nobody caught: the product has a bug, or the simulation."""
        if isinstance(error, Violation):
            self.found(error)
            return
        shown = "".join(traceback.format_exception(error))
        self.found(Violation(Property.CRASHED, f"{where}: {shown}"))

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    # Trace.

    def trace(self, line: str) -> None:
        """Take one line of the world's history."""
        text = f"{self.scheduler.now:.6f} {line}"
        self.lines.append(text)
        self.story.traced(line)
        self._hash.update(text.encode())
        if self._trace_to is not None:
            self._trace_to(text)

    @property
    def trace_hash(self) -> str:
        """Return the hash of the whole history so far."""
        return self._hash.hexdigest()

    # Running.

    def run(self) -> Report:
        """Run both phases and the final checks. Raise `Stopped` where the replay is to stop."""
        try:
            return self._run()
        finally:
            self.close()

    def _run(self) -> Report:
        for group in self.groups.values():
            for name in group.names:
                self.scheduler.after(self.random.uniform(0.0, 0.5), group.start_member, name)
        for name_server in self.name_servers.values():
            self.scheduler.after(self.random.uniform(0.0, 0.5), name_server.start)
        self.scheduler.after(0.1, self._make_topic)
        self.nemesis.start(self.plan.faults_from)
        if self.replay.until is not None:
            self.scheduler.at(self.replay.until, self._stop_here)
        safety = self.replay.safety
        self.run_for(self.plan.safety_seconds if safety is None else safety)
        self.nemesis.stop()
        converged_after = liveness.heal_and_converge(self)
        counts = self.counts + self.oracle.counts
        for group in self.groups.values():
            counts += group.observer.counts
            counts["batches fenced"] += group.invariants.verdicts.fenced_count
            counts["batches repeated"] += group.invariants.verdicts.repeat_count
            counts["scheduled messages"] += group.invariants.schedules.sent_count
            counts["batches too old to know"] += group.invariants.verdicts.forgotten_count
        counts["records expired"] += self.contents.expired
        if self.group_uses is not None:
            counts["consumer groups expired"] += self.group_uses.expired_count
        if self.shared is not None:
            counts += self.shared.records.counts
        counts["acknowledged batches"] = len(self.oracle.acknowledged)
        counts["messages delivered"] = self.network.delivered
        for kind, count in self.network.counts.items():
            counts[f"network {kind}"] = count
        return Report(
            seed=self.plan.seed,
            members=len(self.members),
            virtual_seconds=self.scheduler.now,
            steps=self.scheduler.steps,
            trace_hash=self.trace_hash,
            counts=dict(counts),
            faults=dict(self.nemesis.counts),
            converged_after=converged_after,
        )

    def _stop_here(self) -> None:
        raise Stopped

    def run_for(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.scheduler.run_until(self.scheduler.now + seconds, self._check)
        self._check()

    def _make_topic(self) -> None:
        if self._topic_made:
            return
        plan = self.plan
        request = CreateTopic(
            "t", plan.topic_id, plan.queues_per_group, tuple(plan.groups), plan.retention_ms
        )
        target = self.random.choice(self.group.names)
        self.calls.call("admin", target, request, 2.0, self._topic_answered)

    def _group_expired(self, name: str) -> None:
        if self.clients.admin is not None:
            self.clients.admin.group_expired(name)

    def _topic_answered(self, answer: Answer) -> None:
        if answer.code in (Code.OK, Code.TOPIC_EXISTS) and not self._topic_made:
            self._topic_made = True
            self.clients.start()
        else:
            self.scheduler.after(0.2, self._make_topic)
