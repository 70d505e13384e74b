"""I19 to I22 where they count: what the listeners of consumer groups get, and when, in true time.

Owns: each call of a listener, from its begin to its end, compared with the model of the log
(`records.py`). A record is committed and due, and not done before its claim. In an ordered group no
two consumers work on one queue, or key, while the lease of the first one lasts, and a record comes
after all before it are handled, or dead. In the end each group has handled each record.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from dledger.state.progress.ranges import is_done
from dledger_client import ConsumeOrder
from dledger_client._core.group.queues import HeldQueue
from dledger_client.records import ConsumedRecord
from tests.sim.invariants.delivery.queue_contents import QueueKey
from tests.sim.invariants.delivery.records import Claim, Copy, SharedGroup, SharedRecords
from tests.sim.invariants.delivery.right_stamps import AHEAD_MAX_MS, RightStamps
from tests.sim.invariants.violation import Property, Violation

Chain = tuple[QueueKey, str]
"""What an ordered group handles one after the other: a queue, or a key of it."""


@dataclass(slots=True, eq=False)
class Call:
    """A listener, or a user who polled, has a record."""

    who: str
    queue: QueueKey
    offset: int
    copy: Copy
    held: HeldQueue | None
    """Its consumer's claim; None: the queue is lost meanwhile."""
    lease_end: float
    """In true time; infinite without a lease."""

    @property
    def claim(self) -> Claim | None:
        """Return how the log names the claim."""
        return None if self.held is None else (self.held.epoch, self.held.resets)


@dataclass(slots=True)
class GroupCalls:
    """What the consumers of one group do and did."""

    shared: SharedGroup
    open: dict[Chain, list[Call]] = field(default_factory=dict[Chain, list[Call]])
    """Of an ordered group: the calls that run."""
    handled_by: dict[tuple[QueueKey, int], HeldQueue] = field(
        default_factory=dict[tuple[QueueKey, int], HeldQueue]
    )
    """The claim that handled a record last."""
    told: dict[HeldQueue, int] = field(default_factory=dict[HeldQueue, int])
    """How many answers to claims of its grant came before a claim, and its own, at most."""
    left: dict[QueueKey, int] = field(default_factory=dict[QueueKey, int])
    """How many resets a queue had seen when the consumers left."""


class Handling:
    """The calls of all groups."""

    def __init__(self, records: SharedRecords) -> None:
        self._records = records
        self.stamps: dict[str, RightStamps] = {}
        """Of each broker group."""
        self._groups = {name: GroupCalls(group) for name, group in records.groups.items()}

    def begin(
        self, who: str, group: str, record: ConsumedRecord, held: HeldQueue | None, attempts: int,
        lease_end: float, now: float, true_ms: int,
    ) -> Call:  # fmt: skip
        """Take in that a consumer has got a record; without a claim it has lost the queue since."""
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
        call = Call(who, queue, offset, copy, held, lease_end)
        self._check_claim(calls, call, attempts)
        if calls.shared.plan.is_ordered:
            self._check_order(calls, call, now)
            calls.open.setdefault(self._chain(calls, call), []).append(call)
            if self._is_new(calls, call):
                calls.shared.floor(queue).handled.discard(offset)
        records.counts["records handed out"] += 1
        return call

    def end(self, group: str, call: Call, *, is_handled: bool | None) -> None:
        """Take in that a call is over: the record is handled, or not; None: nobody knows."""
        calls = self._groups[group]
        running = calls.open.get(self._chain(calls, call), [])
        if call in running:
            running.remove(call)
        if is_handled and self._is_new(calls, call):
            assert call.held is not None
            calls.handled_by[call.queue, call.offset] = call.held
            calls.shared.floor(call.queue).handled.add(call.offset)
            calls.shared.handled.add(call.copy.message)
            self._records.counts["records handled"] += 1

    @staticmethod
    def _is_new(calls: GroupCalls, call: Call) -> bool:
        """Tell whether a claim knows all resets of its queue: only then its outcomes count."""
        return call.claim is not None and call.claim[1] == calls.shared.floor(call.queue).resets

    def failed(self, group: str, call: Call) -> None:
        """Take in that a listener says, or lets its consumer say, that a record failed."""
        self._groups[group].shared.failed[call.copy.message] += 1

    # What may be handed out.

    @staticmethod
    def _check_claim(calls: GroupCalls, call: Call, attempts: int) -> None:
        shared, queue, offset, copy = calls.shared, call.queue, call.offset, call.copy
        floor = shared.floor(queue)
        who = f"{call.who} of {shared.name} got {queue} {offset} by the claim {call.claim}"
        if call.held is not None:
            answers = floor.at_claim.get((call.held.epoch, call.held.resets))
            if answers is None:
                _fail(Property.NOT_AGAIN, f"{who}, which nobody stored: {floor}")
            # A consumer that lost the queue and claimed it again was told more than before.
            told = calls.told.setdefault(call.held, len(answers))
            while told and is_done(*answers[told - 1], offset):
                told -= 1
            if not told:
                _fail(Property.NOT_AGAIN, f"{who}, which was told that it is done: {answers}")
            calls.told[call.held] = told
            if calls.handled_by.get((queue, offset)) is call.held:
                _fail(Property.NOT_AGAIN, f"{who}, and has handled it before")
        known = copy.attempts if queue[0] == shared.id else 0
        most = max(known, floor.suspended.get(offset, 0), shared.counted[copy.message])
        if not known <= attempts <= most:
            _fail(
                Property.ATTEMPTS,
                f"{who} with {attempts} attempts: {copy}, stored failures are "
                f"{shared.counted[copy.message]}",
            )

    def _check_order(self, calls: GroupCalls, call: Call, now: float) -> None:
        chain, name = self._chain(calls, call), calls.shared.name
        for other in calls.open.get(chain, ()):
            if other.who == call.who or now < other.lease_end:
                _fail(
                    Property.ONE_HOLDER,
                    f"{call.who} of {name} got {chain} {call.offset} by the claim {call.claim}, "
                    f"and {other.who} has {other.offset} by the claim {other.claim} until "
                    f"{other.lease_end:.3f}",
                )
        if not self._is_new(calls, call):
            return  # by what it was told before the reset the earlier ones are over
        for offset in self._open_before(calls, call):
            _fail(
                Property.DELIVERED,
                f"{call.who} of {name} got {call.offset} of {chain} by the claim {call.claim} "
                f"before {offset} is handled",
            )

    def _open_before(self, calls: GroupCalls, call: Call) -> Iterator[int]:
        """Yield records of the chain before a record that are not over."""
        queue, shared = call.queue, calls.shared
        floor = shared.floor(queue)
        copies = self._records.queues[queue]
        by_key = shared.plan.order is ConsumeOrder.KEY
        for offset in range(call.offset - 1, -1, -1):
            copy = copies[offset]
            if by_key and copy.key != call.copy.key:
                continue
            if offset in floor.handled:
                return  # those before it were over when it came
            is_skipped = any(first <= offset < end for first, end in floor.skipped)
            if not floor.is_done(offset) and not is_skipped:
                yield offset

    def _chain(self, calls: GroupCalls, call: Call) -> Chain:
        by_key = calls.shared.plan.order is ConsumeOrder.KEY
        return call.queue, call.copy.key if by_key else ""

    # The end.

    def leave(self) -> None:
        """Take in that all is done, and the consumers leave; a late reset finds nobody."""
        for calls in self._groups.values():
            for queue, floor in calls.shared.floors.items():
                calls.left.setdefault(queue, floor.resets)

    def check_end(self) -> None:
        """Compare what each group has handled with what there is."""
        for calls in self._groups.values():
            shared = calls.shared
            for queue, copies in self._records.queues.items():
                if queue[0] != self._records.topic_id:
                    continue
                floor = shared.floor(queue)
                if floor.resets != calls.left.get(queue, floor.resets):
                    continue  # a late copy of a reset, after all was done
                skipped = floor.skipped
                for offset, copy in enumerate(copies):
                    is_over = copy.message in shared.handled or copy.message in shared.dead
                    if not is_over and self._records.is_waiting(copy.message, shared.id):
                        continue  # the time of its broker group stands still
                    if not is_over and not any(first <= offset < end for first, end in skipped):
                        _fail(
                            Property.DELIVERED,
                            f"{shared.name} has not handled {queue} {offset}: {copy}",
                        )


def _fail(broken: Property, detail: str) -> NoReturn:
    raise Violation(broken, detail)
