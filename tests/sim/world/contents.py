"""The end of a world: what every member holds, compared with the truth.

Owns: the comparison of every log, digest, queue, batch, offset and number, and of every send with
where it lies.
"""

from random import Random
from typing import TYPE_CHECKING

from dledger.state.values import QueueSpan
from dledger.types import LogIndex, Position, Span
from dledger_proto.batch.codec import BatchView
from tests.sim.clients.consumer import check_fetched
from tests.sim.clients.requests import Fetched, FetchedBatch
from tests.sim.invariants.delivery.queue_contents import BatchKey, QueueKey
from tests.sim.invariants.violation import Property, Violation

if TYPE_CHECKING:
    from tests.sim.member.process import Process
    from tests.sim.world.group import Group
    from tests.sim.world.world import World


def check_contents(world: "World") -> None:
    """Compare what every group holds, and every send, with the truth."""
    for group in world.groups.values():
        check_group(group)
    _check_sends(world)
    if world.clients.admin is not None:
        world.clients.admin.check_end()
    if world.clients.keeper is not None:
        world.clients.keeper.check_end()
    if world.shared is not None:
        world.shared.check_end()


def check_group(group: "Group") -> None:
    """Compare every member's log, digest and queues with the truth."""
    world = group.world
    digests: dict[str, bytes] = {}
    for member in group.members.values():
        process = member.process
        assert process is not None
        digests[member.name] = process.machine.digest
        last = int(process.log.last_index)
        for index in range(int(process.log.first_index), last + 1):
            ref = process.log.ref(LogIndex(index))
            if group.facts.committed.get(index) != ref:
                raise Violation(
                    Property.CONVERGENCE,
                    f"{member.name} ends with {ref}, committed {group.facts.committed.get(index)}",
                )
        for queue in sorted(group.invariants.contents.own_queues):
            _check_queue(group, member.name, queue)
        _check_offsets(group, process)
        world.oracle.judge.check_everything(
            group, process, Random(f"end/{world.plan.seed}/{member.name}")
        )
        world.counts["key index merges"] += _merged_runs(process)
    for index, term in group.refused:
        stored = group.facts.committed.get(index)
        if stored is not None and stored.term == term:
            raise Violation(Property.OUTCOME, f"told as not stored, but committed: {stored}")
    if len(set(digests.values())) != 1:
        raise Violation(Property.STATE_MOVES_TOGETHER, f"digests at the end: {digests}")


def _check_queue(group: "Group", name: str, queue: QueueKey) -> None:
    """Read a queue from its minimum to its end at one member."""
    world, member = group.world, group.members[name]
    assert member.process is not None
    machine, log = member.process.machine, member.process.log
    minimum, maximum = machine.queries.queue_bounds(*queue)
    if maximum != world.oracle.contents.ends[queue]:
        raise Violation(
            Property.ACKNOWLEDGED_LOST,
            f"{name}: {queue} ends at {maximum}, truth is {world.oracle.contents.ends[queue]}",
        )
    due = group.invariants.trims.minimums.get(queue, 0)
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
                bytes(log.read_span(Span(Position(span.place), span.size))),
            )
            for span in spans
        )
        if not batches:
            raise Violation(
                Property.ACKNOWLEDGED_LOST, f"{name}: {queue} has nothing at {position} < {maximum}"
            )
        fetched = Fetched(int(minimum), int(maximum), batches)
        position = check_fetched(f"the end at {name}", world.oracle, queue, position, fetched)


def _check_offsets(group: "Group", process: "Process") -> None:
    """Compare what a member holds of consumer groups with what was answered."""
    for (consumers, topic_id, queue), offset in group.invariants.offsets.stored.items():
        stored = process.machine.queries.read_group_offset(consumers, topic_id, queue)
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
    """Read every batch of the product's own producers: each body once, and one that was sent.

    Return the keys of these batches.
    """
    oracle = world.oracle
    checked: set[BatchKey] = set()
    seen: set[bytes] = set()
    for queue in sorted(oracle.contents.queues):
        process = world.group_of(queue).any_process
        minimum, _ = process.machine.queries.queue_bounds(*queue)
        for row in oracle.contents.queues[queue].values():
            if row.producer_id not in oracle.real_producers:
                continue
            checked.add(row.key)
            if row.base_offset < minimum:
                continue
            spans = process.machine.queries.spans(queue[0], queue[1], row.base_offset, 1)
            for offset, body in enumerate(_bodies(process, spans[0]), row.base_offset):
                oracle.read_body("the end", queue, offset, body)
                if body in seen:
                    raise Violation(Property.DUPLICATE, f"{body!r} is stored twice, also in {row}")
                seen.add(body)
    return checked


def _bodies(process: "Process", span: QueueSpan) -> list[bytes]:
    view = BatchView(process.log.read_span(Span(Position(span.place), span.size)))
    return [bytes(view.body(place)) for place in range(len(view))]
