"""What every member holds of the shared topic in the end, compared with the model of the log.

Owns: each queue of a broker group, from its minimum to its end: ids, keys, bodies, origins. Not:
the model (`invariants/delivery/records.py`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from dledger.types import Position, Span
from dledger_proto.batch.codec import BatchView
from dledger_proto.errors import DledgerError
from tests.sim.invariants.delivery.queue_contents import QueueKey
from tests.sim.invariants.delivery.records import Copy, SharedRecords, content_of
from tests.sim.invariants.violation import Property, Violation

if TYPE_CHECKING:
    from tests.sim.member.process import Process


def check_member(records: SharedRecords, process: "Process", home: str) -> None:
    """Compare what a member holds with the model, in the end: each queue of its broker group."""
    for queue in [queue for queue, its_home in records.home.items() if its_home == home]:
        copies = records.queues.get(queue, [])
        try:
            bounds = process.machine.queries.queue_bounds(*queue)
        except DledgerError as error:
            _fail(f"{process.name}: {queue} is not there: {error}")
        least, most = _minimums(records, queue)
        if not least <= bounds[0] <= most or bounds[1] != len(copies):
            due = f"from {least} to {most}, {len(copies)}"
            _fail(f"{process.name}: {queue} has bounds {bounds}, not ({due})")
        at, maximum = bounds
        while at < maximum:
            at = _check_spans(process, queue, at, copies)


def _minimums(records: SharedRecords, queue: QueueKey) -> tuple[int, int]:
    """Return between which offsets a queue begins.

    Dead letters go as they are settled. Retries that are done go after a while: when clocks jump.
    """
    for group in records.groups.values():
        floor = max(0, group.floor(queue).floor)
        if queue[0] == group.dead_letters_id:
            return floor, floor
        if queue[0] == group.id:
            return 0, floor
    return 0, 0


def _check_spans(process: "Process", queue: QueueKey, at: int, copies: Sequence[Copy]) -> int:
    """Compare some batches from an offset on; return where the next one begins."""
    for span in process.machine.queries.spans(*queue, at, 1 << 20):
        view = BatchView(process.log.read_span(Span(Position(span.place), span.size)))
        origin = process.machine.queries.origin(*queue, span.base_offset)
        told = None if origin is None else (*origin[:3], origin.attempts, origin.resent)
        for place in range(span.record_count):
            offset = span.base_offset + place
            copy, found = copies[offset], content_of(view, span.first_record + place)
            due = copy.origin and (*copy.origin, copy.attempts, copy.resent)
            if offset >= at and (found != copy[:3] or told != due):
                what = f"{queue} {offset}: {found} {told}, not {copy}"
                _fail(f"{process.name}: {what}")
        at = span.base_offset + span.record_count
    return at


def _fail(detail: str) -> NoReturn:
    raise Violation(Property.DELIVERED, detail)
