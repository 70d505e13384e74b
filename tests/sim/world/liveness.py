"""The second phase, without faults: the group must converge, serve, and still hold everything.

Owns: what "converged" means (one leader, every member trusted, equal logs, all applied), what
"serves" means (each producer's sends are acknowledged, each member confirms reads, each consumer
reaches the end), the bounds for both, and the final comparison of every member's contents with the
truth: every batch, offset, key and number. Bounds are virtual
seconds and generous: the slowest link takes 30 ms, back-offs end below 2 s, a wiped member is
refilled from the first entry.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from dledger.raft.api import Role
from dledger.state.values import QueueSpan
from dledger.types import LogIndex, Position, Span
from dledger_proto.batch.codec import BatchView
from dledger_proto.errors import Code
from tests.sim.clients.consumer import check_fetched
from tests.sim.clients.requests import Fetched, FetchedBatch, ReadBounds
from tests.sim.invariants.delivery.queue_contents import BatchKey, QueueKey
from tests.sim.invariants.violation import Property, Violation
from tests.sim.world import probes
from tests.sim.world.calls import Answer

if TYPE_CHECKING:
    from tests.sim.member.process import Process
    from tests.sim.world.world import World

CONVERGE_MAX: Final = 30.0
DRAIN_MAX: Final = 40.0
"""For the producers' last sends: a send's own deadline is 25 s."""
FRESH_MAX: Final = 15.0
STEP: Final = 0.25


def heal_and_converge(world: "World") -> float:
    """End every fault, wait for convergence, compare everything; return how long it took."""
    heal(world)
    began = world.scheduler.now
    world.counts["acknowledged before the end of faults"] = world.oracle.counts["send ok"]
    took = _wait(world, CONVERGE_MAX, lambda: _why_not_converged(world)) - began
    _serve_fresh(world)
    _serve_everywhere(world)
    probes.try_some(world, probes.UNDER_LOAD)
    world.clients.stop()
    _wait(world, DRAIN_MAX, lambda: _why_not_drained(world))
    probes.try_some(world, probes.IDLE)
    _wait(world, DRAIN_MAX, lambda: _why_not_drained(world))
    _wait(world, CONVERGE_MAX, lambda: _why_not_converged(world))
    check_contents(world)
    return took


def heal(world: "World") -> None:
    """End every fault. An operator repairs members whose damage nobody has noticed yet."""
    world.trace("faults off")
    world.network.heal_all()
    world.calls.cut.clear()
    world.absent.clear()
    for member in world.members.values():
        member.disk.quick()
        member.disk.repair()
        member.disk.make_room()
        member.apply_quickly()
        member.mend_store()
        member.clock.set(0)
        if member.paused:
            member.resume()
        if member.damaged:
            member.power_cut()
            world.wipe(member.name)
        member.poll_disk()
        member.start()


def _wait(world: "World", limit: float, why_not: Callable[[], str]) -> float:
    deadline = world.scheduler.now + limit
    while True:
        reason = why_not()
        if not reason:
            return world.scheduler.now
        if world.scheduler.now >= deadline:
            raise Violation(Property.CONVERGENCE, f"{limit:.0f} s after the faults: {reason}")
        world.run_for(STEP)


def _why_not_converged(world: "World") -> str:
    leaders = [m for m in world.members.values() if m.role is Role.LEADER]
    if len(leaders) != 1:
        roles = {m.name: m.role.value for m in world.members.values()}
        return f"no single leader: {roles}"
    (leader,) = leaders
    assert leader.process is not None
    head = leader.process.group.commit_index
    for member in world.members.values():
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
    if world.lost:
        return f"not trusted again: {sorted(world.lost)}"
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
    silent = {(name, queue) for name in world.names for queue in world.plan.queues}

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
                if consumer.furthest[queue] < end
            ),
            "",
        ),
    )


def _why_not_drained(world: "World") -> str:
    pending = sum(producer.pending for producer in world.clients.producers)
    if pending:
        return f"{pending} sends have no outcome"
    ends: dict[str, tuple[int, int]] = {}
    for name, member in world.members.items():
        if member.process is None:  # a restart that a fault began is not over
            return f"{name} does not run"
        ends[name] = int(member.process.log.last_index), int(member.process.machine.applied_index)
    if (
        len(set(ends.values())) != 1
        or len({number for end in ends.values() for number in end}) != 1
    ):
        return f"(last, applied) differ: {ends}"
    return ""


def check_contents(world: "World") -> None:
    """Compare every member's log, digest and queues with the truth."""
    contents = world.oracle.contents
    digests: dict[str, bytes] = {}
    for member in world.members.values():
        process = member.process
        assert process is not None
        digests[member.name] = process.machine.digest
        last = int(process.log.last_index)
        for index in range(int(process.log.first_index), last + 1):
            ref = process.log.ref(LogIndex(index))
            if world.facts.committed.get(index) != ref:
                raise Violation(
                    Property.CONVERGENCE,
                    f"{member.name} ends with {ref}, committed {world.facts.committed.get(index)}",
                )
        for queue in sorted(contents.queues):
            _check_queue(world, member.name, queue)
        _check_offsets(world, process)
        world.oracle.judge.check_everything(process, Random(f"end/{world.plan.seed}/{member.name}"))
        world.counts["key index merges"] += _merged_runs(process)
    for index, term in world.refused:
        stored = world.facts.committed.get(index)
        if stored is not None and stored.term == term:
            raise Violation(Property.OUTCOME, f"told as not stored, but committed: {stored}")
    if len(set(digests.values())) != 1:
        raise Violation(Property.STATE_MOVES_TOGETHER, f"digests at the end: {digests}")
    _check_sends(world)


def _check_queue(world: "World", name: str, queue: QueueKey) -> None:
    """Read a queue from its minimum to its end at one member."""
    member = world.members[name]
    assert member.process is not None
    machine, log = member.process.machine, member.process.log
    minimum, maximum = machine.queries.queue_bounds(*queue)
    if maximum != world.oracle.contents.ends[queue]:
        raise Violation(
            Property.ACKNOWLEDGED_LOST,
            f"{name}: {queue} ends at {maximum}, truth is {world.oracle.contents.ends[queue]}",
        )
    due = world.invariants.trims.minimums.get(queue, 0)
    if minimum != due or minimum > world.oracle.minimums.get(queue, 0):
        raise Violation(
            Property.ACKNOWLEDGED_LOST, f"{name}: {queue} begins at {minimum}, not at {due}"
        )
    trimmer = world.clients.trimmer
    if trimmer is not None and minimum < trimmer.trimmed.get(queue, 0):
        raise Violation(Property.TRIMS, f"{name}: {queue} begins at {minimum}: a trim is undone")
    position = int(minimum)
    while position < maximum:
        spans = machine.queries.spans(queue[0], queue[1], position, 100_000)
        batches = tuple(
            FetchedBatch(
                int(span.base_offset),
                span.first_record,
                span.record_count,
                bytes(log.read_span(Span(Position(span.position), span.size))),
            )
            for span in spans
        )
        if not batches:
            raise Violation(
                Property.ACKNOWLEDGED_LOST, f"{name}: {queue} has nothing at {position} < {maximum}"
            )
        fetched = Fetched(int(minimum), int(maximum), batches)
        position = check_fetched(f"the end at {name}", world.oracle, queue, position, fetched)


def _check_offsets(world: "World", process: "Process") -> None:
    """Compare what a member holds of consumer groups with what was answered."""
    for (group, topic_id, queue), offset in world.invariants.offsets.stored.items():
        stored = process.machine.queries.read_group_offset(group, topic_id, queue)
        if stored is None or stored.offset != offset:
            raise Violation(
                Property.OFFSETS_NEVER_BACK,
                f"{process.name} holds {stored} for {group} in {queue}, answered was {offset}",
            )


def _merged_runs(process: "Process") -> int:
    """Return how many runs of a member's key index are merged ones."""
    topics = process.machine._state.keys._topics.values()
    return sum(run.level > 1 for topic in topics for run in topic.directory.runs)


def _check_sends(world: "World") -> None:
    """Judge every operation by what is stored now."""
    checked = _check_bodies(world)
    for send in world.oracle.sends:
        stored = world.oracle.places_of(send)
        if send.state == "ok" and not stored:
            raise Violation(Property.ACKNOWLEDGED_LOST, f"not stored: {send}")
        if send.state == "fail" and stored:
            raise Violation(Property.OUTCOME, f"failed definitely, stored at {stored}: {send}")
        world.oracle.check_copies(send)
        if send.idempotent and len(stored) > 1:
            raise Violation(Property.DUPLICATE, f"stored at {stored}: {send}")
    for key in world.oracle.contents.places:
        if key not in world.oracle.by_key and key not in checked:
            raise Violation(Property.PHANTOM, f"{key} is stored, nobody sent it")


def _check_bodies(world: "World") -> set[BatchKey]:
    """Read every batch of the product's own producer cores: each body once, and one that was sent.

    Return the keys of these batches.
    """
    oracle = world.oracle
    member = next(iter(world.members.values()))
    assert member.process is not None
    checked: set[BatchKey] = set()
    seen: set[bytes] = set()
    for queue in sorted(oracle.contents.queues):
        minimum, _ = member.process.machine.queries.queue_bounds(*queue)
        for row in oracle.contents.queues[queue].values():
            if row.producer_id not in oracle.core_producers:
                continue
            checked.add(row.key)
            if row.base_offset < minimum:
                continue
            spans = member.process.machine.queries.spans(queue[0], queue[1], row.base_offset, 1)
            for body in _bodies(member.process, spans[0]):
                if body not in oracle.bodies:
                    raise Violation(Property.PHANTOM, f"{body!r} in {row}: nobody sent it")
                if body in seen:
                    raise Violation(Property.DUPLICATE, f"{body!r} is stored twice, also in {row}")
                seen.add(body)
    return checked


def _bodies(process: "Process", span: QueueSpan) -> list[bytes]:
    view = BatchView(process.log.read_span(Span(Position(span.position), span.size)))
    return [bytes(view.body(place)) for place in range(len(view))]
