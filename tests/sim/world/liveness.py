"""The second phase, without faults: the group must converge, serve, and still hold everything.

Owns: what "converged" means (one leader, every member trusted, equal logs, all applied), what
"serves" means (each producer's sends are acknowledged, each member confirms reads, each consumer
reaches the end), and the bounds for both. Not owned: the final comparison with the truth
(`contents.py`). Bounds are virtual seconds and generous: the slowest link takes 30 ms, back-offs
end below 2 s, a wiped member is refilled from the first entry.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from dledger.raft.api import Role
from dledger_proto.errors import Code
from tests.sim.clients.requests import ReadBounds
from tests.sim.clients.wire import Answer
from tests.sim.invariants.delivery.queue_contents import QueueKey
from tests.sim.invariants.violation import Property, Violation
from tests.sim.world import probes
from tests.sim.world.contents import check_contents

if TYPE_CHECKING:
    from tests.sim.world.group import Group
    from tests.sim.world.world import World

CONVERGE_MAX: Final = 30.0
DRAIN_MAX: Final = 40.0
"""For the producers' last sends: a send's own deadline is 25 s."""
DELIVER_MAX: Final = 60.0
"""For consumer groups: sends, delays, leases of the dead, retries."""
FRESH_MAX: Final = 15.0
STEP: Final = 0.25


def heal_and_converge(world: "World") -> float:
    """End every fault, wait for convergence, compare everything; return how long it took."""
    world.trace("faults off")
    world.network.heal_all()
    for name_server in world.name_servers.values():
        name_server.resume()
        name_server.start()
    for group in world.groups.values():
        group.heal()
    began = world.scheduler.now
    world.counts["acknowledged before the end of faults"] = world.oracle.counts["send ok"]
    took = _wait(world, CONVERGE_MAX, lambda: _first(_why_not_converged, world)) - began
    _serve_fresh(world)
    _serve_everywhere(world)
    for group in world.groups.values():
        probes.try_some(group, probes.UNDER_LOAD)
    world.clients.stop()
    _wait(world, DRAIN_MAX, lambda: _why_not_drained(world))
    if world.shared is not None:
        _wait(world, DELIVER_MAX, world.shared.why_not_over)
    for group in world.groups.values():
        probes.try_some(group, probes.IDLE)
    _wait(world, DRAIN_MAX, lambda: _why_not_drained(world))
    _wait(world, CONVERGE_MAX, lambda: _first(_why_not_converged, world))
    check_contents(world)
    return took


def _wait(
    world: "World",
    limit: float,
    why_not: Callable[[], str],
    progress: Callable[[], object] = lambda: None,
) -> float:
    """Run on until there is no reason against it. Each change of `progress` renews the limit."""
    deadline = world.scheduler.now + limit
    before = progress()
    while True:
        reason = why_not()
        if not reason:
            return world.scheduler.now
        now = progress()
        if now != before:
            before, deadline = now, world.scheduler.now + limit
        if world.scheduler.now >= deadline:
            raise Violation(Property.CONVERGENCE, f"{limit:.0f} s after the faults: {reason}")
        world.run_for(STEP)


def _first(why_not: Callable[["Group"], str], world: "World") -> str:
    """Return the first group's reason; empty when no group has one."""
    reasons = (why_not(group) for group in world.groups.values())
    return next((reason for reason in reasons if reason), "")


def _why_not_converged(group: "Group") -> str:
    leader = group.leader
    if leader is None:
        roles = {m.name: m.role.value for m in group.members.values()}
        return f"{group.name} has no single leader: {roles}"
    assert leader.process is not None
    head = leader.process.group.commit_index
    for member in group.members.values():
        process = member.process
        if process is None:
            return f"{member.name} does not run"
        if member is not leader and process.group.role is not Role.FOLLOWER:
            reason = process.group.status().reason
            return f"{member.name} is {process.group.role.value}: {reason}"
        if process.group.term != leader.process.group.term:
            return f"{member.name} is in term {process.group.term}"
        lag = 200  # entries on the way while clients write
        if process.machine.applied_index + lag < head:
            return f"{member.name} has applied {process.machine.applied_index} of {head}"
    if group.lost:
        return f"not trusted again: {sorted(group.lost)}"
    return ""


def _serve_fresh(world: "World") -> None:
    """Every producer's sends must be acknowledged again."""
    before = Counter(world.oracle.acknowledged_by)
    _wait(
        world,
        FRESH_MAX,
        lambda: ", ".join(
            f"nothing of {producer.plan.name} is acknowledged"
            for producer in world.clients.producers
            if world.oracle.acknowledged_by[producer.plan.name] == before[producer.plan.name]
        ),
    )


def _serve_everywhere(world: "World") -> None:
    """Every member confirms a read, and every consumer reads to the end of every queue."""
    silent = {(name, queue) for queue in world.plan.queues for name in world.group_of(queue).names}

    def read(name: str, queue: QueueKey, floor: int, answer: Answer) -> None:
        if answer.code is Code.OK and isinstance(answer.value, tuple):
            silent.discard((name, queue))
            world.oracle.read_end(f"the end at {name}", queue, floor, answer.value[1])

    def ask() -> str:
        for name, queue in sorted(silent):
            floor = world.oracle.acknowledged_ends.get(queue, 0)
            done = partial(read, name, queue, floor)
            world.calls.call("admin", name, ReadBounds(queue), FRESH_MAX, done)
        return f"no read is confirmed at {sorted(silent)}" if silent else ""

    _wait(world, FRESH_MAX, ask)
    ends = dict(world.oracle.acknowledged_ends)
    for consumer in world.clients.consumers:
        consumer.hurry()
    _wait(
        world,
        DRAIN_MAX,
        lambda: next(
            (
                f"{consumer.plan.name} has read {queue} to {consumer.furthest[queue]} of {end}"
                for consumer in world.clients.consumers
                for queue, end in ends.items()
                if consumer.furthest.get(queue, end) < end
            ),
            "",
        ),
        # A slow one that takes a record each round trip needs long for a backlog.
        lambda: [dict(consumer.furthest) for consumer in world.clients.consumers],
    )


def _why_not_drained(world: "World") -> str:
    pending = sum(producer.pending for producer in world.clients.producers)
    if pending:
        return f"{pending} sends have no outcome"
    if world.clients.admin is not None:
        disagreement = world.clients.admin.why_not_agreed()
        if disagreement:
            return disagreement
    return _first(_why_not_equal, world)


def _why_not_equal(group: "Group") -> str:
    ends: dict[str, tuple[int, int]] = {}
    for name, member in group.members.items():
        if member.process is None:  # a restart that a fault began is not over
            return f"{name} does not run"
        ends[name] = int(member.process.log.last_index), int(member.process.machine.applied_index)
    if (
        len(set(ends.values())) != 1
        or len({number for end in ends.values() for number in end}) != 1
    ):
        return f"(last, applied) differ: {ends}"
    return ""
