"""One broker group of a world: its members, what is known of it for certain, its invariants.

Owns: who leads, which disks may be lost, which members stay away, and what faults may do to the
group without more than it must bear. The world owns everything that groups share: time, network,
clients.
"""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from dledger.raft.api import Role
from dledger.types import MemberId, Settled
from dledger_proto.errors import Outcome
from tests.sim.clients.lookups import Span
from tests.sim.clients.routes import Routes
from tests.sim.faults.clocks import BORNE_SHARE
from tests.sim.invariants import InvariantSet
from tests.sim.invariants.delivery.group_history import GroupsKept
from tests.sim.invariants.violation import Property, Violation
from tests.sim.member.member import SimMember
from tests.sim.member.process import Process
from tests.sim.story.watcher import Watcher
from tests.sim.world.clock import true_ms
from tests.sim.world.observer import Observer

if TYPE_CHECKING:
    from tests.sim.world.world import World

_TRUSTED: Final = {Role.FOLLOWER, Role.CANDIDATE, Role.LEADER}


class Group:
    """A broker group by name."""

    def __init__(self, world: "World", name: str, names: Sequence[str]) -> None:
        self.world = world
        self.name = name
        self.names = tuple(names)
        self.plan = world.plan
        per_group = world.plan.queues_per_group
        first = per_group * list(world.plan.groups).index(name)
        self.queues = world.plan.queues[first : first + per_group]
        """The queues of the topic that this group has."""
        self.scheduler = world.scheduler
        self.network = world.network
        self.counts = world.counts
        self.trace = world.trace
        self.lost: set[str] = set()
        """Members whose disk was lost and that are not out of quarantine yet."""
        self.restored: set[str] = set()
        """Members whose disk was replaced by an older copy of it."""
        self.refused: set[tuple[int, int]] = set()
        """(index, term) of entries whose callers were told that they are certainly not stored."""
        self.absent: set[str] = set()
        """Members that stay down for long, whatever other faults would start them."""
        self.clocks_borne = Random(f"clocks/{name}/{world.plan.seed}").random() < BORNE_SHARE
        """Whether most clocks are right at any time."""
        self._leaders: dict[str, tuple[Role, int]] = {}
        random = Random(f"routes/{name}/{world.plan.seed}")
        self.routes = Routes(self.names, world.client_names, world.scheduler, random)
        self.members: dict[str, SimMember] = {}
        self.invariants = InvariantSet(
            self.names,
            world.contents,
            lambda name: self.members[name].view.hard_state(),
            lambda: [member.clock for member in self.members.values()],
            lambda: true_ms(world.scheduler),
        )
        self.facts = self.invariants.facts
        watcher = Watcher(self.facts, world.story)
        shared = [] if world.shared is None else [world.shared.watch(self)]
        uses = world.group_uses
        kept = [] if uses is None else [GroupsKept(self.facts, uses)]
        self.observer = Observer(self.facts, [watcher, *self.invariants.all, *shared, *kept])
        for member in self.names:
            random = Random(f"{world.plan.seed}/{member}")
            self.members[member] = SimMember(self, member, random)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Return every link between members, as (from, to)."""
        return [(a, b) for a in self.names for b in self.names if a != b]

    @property
    def leader(self) -> SimMember | None:
        """Return the one member that leads; None when there is none, or more than one."""
        leaders = [member for member in self.members.values() if member.role is Role.LEADER]
        return leaders[0] if len(leaders) == 1 else None

    @property
    def any_process(self) -> Process:
        """Return the process of the first member, which runs."""
        process = self.members[self.names[0]].process
        assert process is not None, f"{self.names[0]} does not run"
        return process

    def links_up(self) -> bool:
        """Tell whether every member has its link to every other one."""
        return all(self.has_link(*pair) for pair in self.pairs)

    def has_link(self, source: str, target: str) -> bool:
        """Tell whether a member has its link to another one."""
        process = self.members[source].process
        link = None if process is None else process.runtime._links.get(MemberId(target))
        return link is not None and link.is_up  # a process that is being opened has no links

    def run_for(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.world.run_for(seconds)

    def true_ms(self) -> int:
        """Return what a right wall clock shows."""
        return true_ms(self.scheduler)

    def applied_span(self) -> Span:
        """Return what is committed, what is applied anywhere, and the queues' minimums."""
        minimums = {queue: self.invariants.trims.minimums.get(queue, 0) for queue in self.queues}
        applied = self.invariants.contents.applied
        return Span(self.facts.committed_last, applied, minimums, minimums)

    def has_topic(self) -> bool:
        """Tell whether the group has taken the topic over: then confirmed reads find it."""
        return any(
            member.process is not None
            and member.process.machine.queries.topic_by_id(self.plan.topic_id) is not None
            for member in self.members.values()
        )

    # What members tell.

    def product_event(self, member: str, name: str, fields: dict[str, object]) -> None:
        """Take one trace event of the product."""
        if name == "forgotten" and fields["peer"] not in self.restored:
            violation = Violation(Property.FORGOTTEN, f"{member} says so of {fields}")
            self.world.found(violation)
        self.counts[f"event {name}"] += 1
        self.trace(f"event {member} {name} {fields}")

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
            self.world.nemesis.elected(member, now[1])

    def _trust_again(self, member: SimMember, role: Role) -> None:
        """Count a member's disk as whole again when its quarantine has ended, on disk too."""
        member.note_mended()
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
            self.world.found(
                Violation(
                    Property.STORAGE_ERROR_STOPS, f"{process.name} is {role} after a failed write"
                )
            )

    # What faults and operators do.

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

    def heal(self) -> None:
        """End every fault. An operator repairs members whose damage nobody has noticed yet."""
        self.absent.clear()
        for member in self.members.values():
            member.disk.quick()
            member.disk.repair()
            member.disk.make_room()
            member.apply_quickly()
            member.mend_store()
            member.clock.set(0)
            member.resume()
            member.note_mended()
            if member.damaged:
                member.power_cut()
                self.wipe(member.name)
            member.poll_disk()
            member.start()
