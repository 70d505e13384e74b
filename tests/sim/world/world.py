"""One whole group with its clients, on one virtual clock, from one seed.

Owns: putting the parts together, the phases (safety: anything may break; liveness: all faults off),
the trace and its hash, and the budget of lost disks. A run ends with a `Report`, or raises
`Violation` with the trace's last lines kept in the world.
"""

import contextlib
import hashlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from dledger.log.hard_state import HardState
from dledger.raft.api import Role
from dledger.types import Settled
from dledger_proto.errors import Code, Outcome
from tests.sim.clients.cast import Cast
from tests.sim.clients.oracle import Oracle
from tests.sim.clients.requests import CreateTopic
from tests.sim.clients.routes import Routes
from tests.sim.disk.ram import RamFolder
from tests.sim.faults.clocks import BORNE_SHARE
from tests.sim.faults.nemesis import Nemesis
from tests.sim.invariants import InvariantSet
from tests.sim.invariants.violation import Property, Violation
from tests.sim.member.member import SimMember
from tests.sim.member.process import Process
from tests.sim.member.small_tables import small_tables
from tests.sim.story.replay import WHOLE, Replay
from tests.sim.story.story import Story
from tests.sim.story.watcher import Watcher
from tests.sim.world import liveness
from tests.sim.world.calls import Answer, Calls
from tests.sim.world.clock import Scheduler, true_ms
from tests.sim.world.network import Network
from tests.sim.world.observer import Observer
from tests.sim.world.plan import WorldPlan, client_names
from tests.sim.world.streams import Streams

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
    """Virtual seconds from the end of faults until the group had converged."""


class Stopped(Exception):
    """The replay has reached the virtual time at which it is to stop."""


class World:
    """A simulated group and everything around it."""

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
        self.names = plan.members
        self.client_names = list(client_names(plan))
        self.counts: Counter[str] = Counter()
        self.lines: deque[str] = deque(maxlen=TRACE_LINES_KEPT)
        self._hash = hashlib.blake2b(digest_size=16)
        self._trace_to = trace_to
        self.lost: set[str] = set()
        """Members whose disk was lost and that are not out of quarantine yet."""
        self.restored: set[str] = set()
        """Members whose disk was replaced by an older copy of it."""
        self.refused: set[tuple[int, int]] = set()
        """(index, term) of entries whose callers were told that they are certainly not stored."""
        self.clocks_borne = Random(f"clocks/{plan.seed}").random() < BORNE_SHARE
        """Whether most clocks are right at any time."""
        self.absent: set[str] = set()
        """Members that stay down for long, whatever other faults would start them."""
        self.invariants = InvariantSet(
            self.names,
            self._hard_state_of,
            lambda: [member.clock for member in self.members.values()],
            lambda: true_ms(self.scheduler),
        )
        self.facts = self.invariants.facts
        self.observer = Observer(
            self.facts, [Watcher(self.facts, self.story), *self.invariants.all]
        )
        self.oracle = Oracle(self.invariants.contents, self.story)
        self.members: dict[str, SimMember] = {}
        self.ram = RamFolder()
        """Where the members' states lie. It is removed when the world has run."""
        self.network: Network
        self.calls: Calls
        self.streams: Streams
        self._make_members()
        self.routes = Routes(
            self.names, self.client_names, self.scheduler, Random(f"routes/{plan.seed}")
        )
        self.clients = Cast(self)
        self.nemesis = Nemesis(self, Random(f"nemesis/{plan.seed}"), replay.keep)
        self._leaders: dict[str, tuple[Role, int]] = {}
        self._topic_made = False

    def _make_members(self) -> None:
        for name in self.names:
            self.members[name] = SimMember(self, name, Random(f"{self.plan.seed}/{name}"))
        self.network = Network(
            self.scheduler,
            Random(f"net/{self.plan.seed}"),
            self.members,
            self.plan.delay,
            self.trace,
        )
        self.calls = Calls(self.scheduler, Random(f"calls/{self.plan.seed}"), self.members)
        self.streams = Streams(
            self.scheduler, Random(f"streams/{self.plan.seed}"), self.members, self.calls
        )

    # Trace.

    def trace(self, line: str) -> None:
        """Take one line of the world's history."""
        text = f"{self.scheduler.now:.6f} {line}"
        self.lines.append(text)
        self.story.traced(line)
        self._hash.update(text.encode())
        if self._trace_to is not None:
            self._trace_to(text)

    def product_event(self, member: str, name: str, fields: dict[str, object]) -> None:
        """Take one trace event of the product."""
        if name == "forgotten" and fields["peer"] not in self.restored:
            raise Violation(Property.FORGOTTEN, f"{member} says so of {fields}")
        self.counts[f"event {name}"] += 1
        self.trace(f"event {member} {name} {fields}")

    @property
    def trace_hash(self) -> str:
        """Return the hash of the whole history so far."""
        return self._hash.hexdigest()

    # Running.

    def run(self) -> Report:
        """Run both phases and the final checks. Raise `Stopped` where the replay is to stop."""
        with (
            contextlib.closing(self.ram),
            small_tables() if self.plan.small_tables else contextlib.nullcontext(),
        ):
            return self._run()

    def _run(self) -> Report:
        for name in self.names:
            self.scheduler.after(self.random.uniform(0.0, 0.5), self.start_member, name)
        self.scheduler.after(0.1, self._make_topic)
        self.nemesis.start(self.plan.faults_from)
        if self.replay.until is not None:
            self.scheduler.at(self.replay.until, self._stop_here)
        safety = self.replay.safety
        self.run_for(self.plan.safety_seconds if safety is None else safety)
        self.nemesis.stop()
        converged_after = liveness.heal_and_converge(self)
        counts = self.counts + self.observer.counts + self.oracle.counts
        counts["acknowledged batches"] = len(self.oracle.acknowledged)
        counts["batches fenced"] = self.invariants.verdicts.fenced_count
        counts["batches repeated"] = self.invariants.verdicts.repeat_count
        counts["batches too old to know"] = self.invariants.verdicts.forgotten_count
        counts["messages delivered"] = self.network.delivered
        for kind, count in self.network.counts.items():
            counts[f"network {kind}"] = count
        return Report(
            seed=self.plan.seed,
            members=len(self.names),
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
        self.scheduler.run_until(self.scheduler.now + seconds, _nothing)

    def _make_topic(self) -> None:
        if self._topic_made:
            return
        request = CreateTopic("t", self.plan.topic_id, len(self.plan.queues))
        target = self.routes.leader("admin")[1] or self.random.choice(self.names)
        self.calls.call("admin", target, request, 2.0, self._topic_answered)

    def _topic_answered(self, answer: Answer) -> None:
        if answer.code in (Code.OK, Code.TOPIC_EXISTS) and not self._topic_made:
            self._topic_made = True
            self.clients.start()
        else:
            self.scheduler.after(0.2, self._make_topic)

    # What members tell.

    def stepped(self, member: SimMember, process: Process) -> None:
        """Look at a member after an input and all its outputs."""
        now = process.group.role, int(process.group.term)
        if member.name in self.lost:
            self._trust_again(member, now[0])
        before = self._leaders.get(member.name)
        if now == before:
            return
        self._leaders[member.name] = now
        self.trace(f"role {member.name} {now[0].value} term {now[1]}")
        if now[0] is Role.LEADER and (before is None or before != now):
            self.routes.announce(now[1], member.name)
            self.nemesis.elected(member, now[1])

    def _trust_again(self, member: SimMember, role: Role) -> None:
        """Count a member's disk as whole again when its quarantine has ended, on disk too."""
        state = member.view.hard_state()
        whole = role in _TRUSTED and not member.damaged
        if whole and state is not None and not state.quarantined:
            self.lost.discard(member.name)
            self.trace(f"trusted {member.name}")

    def settled(self, process: Process, outcome: Settled) -> None:
        """Check an outcome when a leader tells it."""
        ref = self.facts.committed.get(int(outcome.index))
        if outcome.outcome is Outcome.NOT_STORED and outcome.index:
            self.refused.add((int(outcome.index), int(outcome.term)))
        if outcome.outcome is not Outcome.STORED:
            self.counts[f"refused {outcome.code.name}"] += 1
            return
        if ref is None or ref.term != outcome.term:
            raise Violation(
                Property.OUTCOME, f"{process.name} acknowledges {outcome}, committed is {ref}"
            )

    def storage_failed(self, process: Process) -> None:
        """Check what a group does after its storage failed: it stops, and promises nothing."""
        role = process.group.role
        if role is not Role.STOPPED:
            raise Violation(
                Property.STORAGE_ERROR_STOPS, f"{process.name} is {role} after a failed write"
            )
        for target, message in process.group.outputs().messages:
            self.observer.sending(process, target, message)

    # What the nemesis does.

    def start_member(self, name: str) -> None:
        """Start a process, unless one runs or the member must stay down."""
        if name not in self.absent:
            self.members[name].start()

    def end_absence(self, name: str) -> None:
        """Start a member that was down for long."""
        self.absent.discard(name)
        self.start_member(name)

    def may_lose_disk(self, name: str) -> bool:
        """Tell whether one more lost disk leaves a majority of whole ones."""
        after = self.lost | {name}
        return len(self.names) > 1 and len(after) <= (len(self.names) - 1) // 2

    def wipe(self, name: str) -> None:
        """Replace a stopped member's disk by an empty one."""
        self.trace(f"wipe {name}")
        self.members[name].wipe()
        self.lost.add(name)
        self.observer.wiped(name)
        self._leaders.pop(name, None)

    def replace_disk_controller(self, name: str) -> None:
        """Let a failing disk work again."""
        self.members[name].disk.repair()

    def make_room(self, name: str) -> None:
        """Free a full disk, and let the member see it as its driver would by polling."""
        member = self.members[name]
        member.disk.make_room()
        member.poll_disk()

    def _hard_state_of(self, name: str) -> HardState | None:
        return self.members[name].view.hard_state()


_TRUSTED: Final = {Role.FOLLOWER, Role.CANDIDATE, Role.LEADER}


def _nothing() -> None:
    pass
