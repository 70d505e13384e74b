"""I19 to I22 where they count: what the listeners of consumer groups get, and when, in true time.

Owns: each call of a listener, from its begin to its end, compared with the model of the log
(`records.py`). A record is committed and due, and not done before its claim. In an ordered group no
two consumers work on one queue, or key, while the lease of the first one lasts, and a record comes
after all before it are handled, or dead. In the end each group has handled each record.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NoReturn

from dledger.state.progress.ranges import is_done
from dledger_client import ConsumeOrder
from dledger_client.records import ConsumedRecord
from tests.sim.invariants.delivery.queue_contents import QueueKey
from tests.sim.invariants.delivery.records import Copy, SharedGroup, SharedRecords
from tests.sim.invariants.delivery.right_stamps import AHEAD_MAX_MS, RightStamps
from tests.sim.invariants.violation import Property, Violation

NO_EPOCH: Final = 0
"""Of a consumer that polls and has lost the queue meanwhile."""

Chain = tuple[QueueKey, str]
"""What an ordered group handles one after the other: a queue, or a key of it."""


@dataclass(slots=True, eq=False)
class Call:
    """A listener, or a user who polled, has a record."""

    who: str
    queue: QueueKey
    offset: int
    copy: Copy
    epoch: int
    lease_end: float
    """In true time; infinite without a lease."""


@dataclass(slots=True)
class GroupCalls:
    """What the consumers of one group do and did."""

    shared: SharedGroup
    open: dict[Chain, list[Call]] = field(default_factory=dict[Chain, list[Call]])
    """Of an ordered group: the calls that run."""
    handled: dict[QueueKey, set[int]] = field(default_factory=dict[QueueKey, set[int]])
    """Offsets whose last outcome is that they were handled, since the last reset below them."""
    messages: set[bytes] = field(default_factory=set[bytes])
    """That were handled, here or as a retry."""
    resets: dict[QueueKey, int] = field(default_factory=dict[QueueKey, int])
    """How many resets `handled` has seen."""


class Handling:
    """The calls of all groups."""

    def __init__(self, records: SharedRecords) -> None:
        self._records = records
        self.stamps: dict[str, RightStamps] = {}
        """Of each broker group."""
        self._groups = {name: GroupCalls(group) for name, group in records.groups.items()}

    def begin(
        self, who: str, group: str, record: ConsumedRecord, epoch: int, attempts: int,
        lease_end: float, now: float, true_ms: int,
    ) -> Call:  # fmt: skip
        """Take in that a consumer has got a record."""
        records, calls = self._records, self._groups[group]
        queue, offset = records.queue_of(record.topic, record.queue), record.offset
        copies = records.queues.get(queue, [])
        if offset >= len(copies):
            _fail(Property.DELIVERED, f"{who} got {record}, {queue} ends at {len(copies)}")
        copy = copies[offset]
        if record.message_id != copy.message:
            _fail(Property.DELIVERED, f"{who} got {record} {record.message_id.hex()}, not {copy}")
        stamps = self.stamps[records.home[queue]]
        if not stamps.majority_was_wrong and true_ms < copy.due_ms - AHEAD_MAX_MS:
            _fail(Property.TIMERS, f"{who} got {record} at {true_ms}, due is {copy}")
        self._check_claim(who, calls, queue, copy, offset, epoch, attempts)
        call = Call(who, queue, offset, copy, epoch, lease_end)
        if calls.shared.plan.is_ordered:
            self._check_order(calls, call, now)
            calls.open.setdefault(self._chain(calls, call), []).append(call)
            self._handled(calls, queue).discard(offset)
        records.counts["records handed out"] += 1
        return call

    def end(self, group: str, call: Call, *, is_handled: bool | None) -> None:
        """Take in that a call is over: the record is handled, or not; None: nobody knows."""
        calls = self._groups[group]
        running = calls.open.get(self._chain(calls, call), [])
        if call in running:
            running.remove(call)
        if is_handled:
            self._handled(calls, call.queue).add(call.offset)
            calls.messages.add(call.copy.message)
            self._records.counts["records handled"] += 1

    def failed(self, group: str, call: Call) -> None:
        """Take in that a listener says, or lets its consumer say, that a record failed."""
        self._groups[group].shared.failed[call.copy.message] += 1

    # What may be handed out.

    @staticmethod
    def _check_claim(
        who: str, calls: GroupCalls, queue: QueueKey, copy: Copy, offset: int, epoch: int,
        attempts: int,
    ) -> None:  # fmt: skip
        shared = calls.shared
        floor = shared.floor(queue)
        done = floor.at_claim.get(epoch)
        if done is not None and is_done(*done, offset):
            _fail(
                Property.NOT_AGAIN,
                f"{who} of {shared.name} got {queue} {offset} in epoch {epoch}, whose claim was "
                f"told that it is done: {done}",
            )
        known = copy.attempts if queue[0] == shared.id else 0
        most = max(known, floor.suspended.get(offset, 0), shared.counted[copy.message])
        if not known <= attempts <= most:
            _fail(
                Property.ATTEMPTS,
                f"{who} of {shared.name} got {queue} {offset} with {attempts} attempts: {copy}, "
                f"stored failures are {shared.counted[copy.message]}",
            )

    def _check_order(self, calls: GroupCalls, call: Call, now: float) -> None:
        chain, name = self._chain(calls, call), calls.shared.name
        for other in calls.open.get(chain, ()):
            if other.who == call.who or now < other.lease_end:
                _fail(
                    Property.ONE_HOLDER,
                    f"{call.who} of {name} got {chain} {call.offset} in epoch {call.epoch}, and "
                    f"{other.who} has {other.offset} in epoch {other.epoch} until "
                    f"{other.lease_end:.3f}",
                )
        for offset in self._open_before(calls, call):
            _fail(
                Property.DELIVERED,
                f"{call.who} of {name} got {call.offset} of {chain} in epoch {call.epoch} before "
                f"{offset} is handled",
            )

    def _open_before(self, calls: GroupCalls, call: Call) -> Iterator[int]:
        """Yield records of the chain before a record that are not over."""
        queue, shared = call.queue, calls.shared
        floor, handled = shared.floor(queue), self._handled(calls, queue)
        copies = self._records.queues[queue]
        by_key = shared.plan.order is ConsumeOrder.KEY
        for offset in range(call.offset - 1, -1, -1):
            copy = copies[offset]
            if by_key and copy.key != call.copy.key:
                continue
            if offset in handled:
                return  # those before it were over when it came
            is_skipped = any(first <= offset < end for first, end in floor.skipped)
            if not floor.is_done(offset) and not is_skipped:
                yield offset

    def _chain(self, calls: GroupCalls, call: Call) -> Chain:
        by_key = calls.shared.plan.order is ConsumeOrder.KEY
        return call.queue, call.copy.key if by_key else ""

    def _handled(self, calls: GroupCalls, queue: QueueKey) -> set[int]:
        """Return what was handled; a reset takes back what lies above it."""
        floor = calls.shared.floor(queue)
        handled = calls.handled.setdefault(queue, set())
        if calls.resets.get(queue, 0) != floor.resets:
            calls.resets[queue] = floor.resets
            handled -= {offset for offset in handled if offset >= floor.floor}
        return handled

    # The end.

    def check_end(self) -> None:
        """Compare what each group has handled with what there is."""
        for calls in self._groups.values():
            shared = calls.shared
            for queue, copies in self._records.queues.items():
                if queue[0] != self._records.topic_id:
                    continue
                skipped = shared.floor(queue).skipped
                for offset, copy in enumerate(copies):
                    is_over = copy.message in calls.messages or copy.message in shared.dead
                    if not is_over and self._records.is_waiting(copy.message, again=True):
                        continue  # the time of its broker group stands still
                    if not is_over and not any(first <= offset < end for first, end in skipped):
                        _fail(
                            Property.DELIVERED,
                            f"{shared.name} has not handled {queue} {offset}: {copy}",
                        )


def _fail(broken: Property, detail: str) -> NoReturn:
    raise Violation(broken, detail)
