"""Only trims and retention move a queue's minimum, and never past a hold that lasts (S52, S60).

A model of its own, compared with what apply answers, the first time any member applies an entry.
`world/liveness.py` checks what members hold of it in the end.
"""

from collections.abc import Sequence

from dledger.state.commands.registry import decode
from dledger.state.queues.expire import Bound, ExpireRecords, Expiring
from dledger.state.queues.holds import Hold, ReleaseHold
from dledger.state.queues.trim import Trim
from dledger.state.results import Held, RecordsExpired, Refused, Trimmed
from dledger.types import Entry, EntryKind
from dledger_proto.errors import Code
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.delivery.queue_contents import QueueContents, QueueKey
from tests.sim.invariants.delivery.right_stamps import AHEAD_MAX_MS, BEHIND_MAX_MS, RightStamps
from tests.sim.invariants.violation import Property


class TrimsAndHolds(Invariant):
    """Keeps every queue's minimum and its holds."""

    broken = Property.TRIMS

    def __init__(self, facts: Facts, contents: QueueContents, stamps: RightStamps) -> None:
        super().__init__(facts)
        self._contents = contents
        self._stamps = stamps
        self._true_ends: dict[tuple[QueueKey, str, int], int] = {}
        """By queue, owner and the stamp until which it lasts: until when in true time."""
        self._applied = 0
        self.minimums: dict[QueueKey, int] = {}
        self._holds: dict[QueueKey, dict[str, tuple[int, int]]] = {}
        """By owner: from which offset on, until which stamp."""

    def granted(self, owner: str, queue: QueueKey, until_ms: int, ends_ms: int) -> None:
        """Note that an owner was told of a hold until a stamp: in true time, it may end then."""
        self._true_ends[queue, owner, until_ms] = ends_ms

    def on_apply(
        self, member: MemberFacts, entry: Entry, results: Sequence[object], digest: bytes
    ) -> None:
        """See `Invariant.on_apply`."""
        if entry.ref.index <= self._applied:
            return
        self._applied = int(entry.ref.index)
        if entry.kind is not EntryKind.COMMANDS:
            return
        for payload, result in zip(entry.payloads, results, strict=True):
            wanted = decode(bytes(payload))
            if isinstance(wanted, Hold) and isinstance(result, Held):
                holds = self._holds.setdefault((wanted.topic_id, wanted.queue), {})
                holds[wanted.owner] = wanted.offset, wanted.until_ms
            elif isinstance(wanted, ReleaseHold) and isinstance(result, Held):
                self._holds.get((wanted.topic_id, wanted.queue), {}).pop(wanted.owner, None)
            elif isinstance(wanted, Trim):
                self._trimmed(wanted, result, entry.time_ms)
            elif isinstance(wanted, ExpireRecords) and isinstance(result, RecordsExpired):
                for each, told in zip(wanted.queues, result.queues, strict=True):
                    self._expired(each, told, entry.time_ms)

    def _held(self, queue: QueueKey, time_ms: int) -> int:
        """Return from which offset on holds keep a queue."""
        holds = self._holds.get(queue, {}).values()
        return min((offset for offset, until_ms in holds if until_ms > time_ms), default=1 << 62)

    def _expired(self, wanted: Expiring, told: Trimmed, time_ms: int) -> None:
        queue, stored = (wanted.topic_id, wanted.queue), self._contents.stored
        minimum = self.minimums.get(queue, 0)
        kept_ms = stored.retention_ms.get(wanted.topic_id, 1 << 62)
        end = self._contents.ends.get(queue, 0)
        rows = self._contents.queues.get(queue, {})
        young = (at for at, row in rows.items() if row.store_time_ms >= time_ms - kept_ms)
        held = self._held(queue, time_ms)
        due = max(minimum, min(wanted.offset, next(young, end), held))
        if wanted.why is Bound.DONE:  # of retries, which no producer sent and `contents` lacks
            due = max(minimum, min(wanted.offset, told.minimum, held))
        if told.minimum != due:
            self.fail(f"{wanted} at {minimum}, held from {held}: answered {told}, not {due}")
        self._rises(queue, due)
        stored.asked[queue] = max(due, stored.asked.get(queue, 0))
        stored.expired += due > minimum

    def _trimmed(self, wanted: Trim, result: object, time_ms: int) -> None:
        queue = wanted.topic_id, wanted.queue
        minimum = self.minimums.get(queue, 0)
        held = self._held(queue, time_ms)
        due = Code.OK, max(minimum, min(wanted.offset, held))
        if not 0 <= wanted.offset <= self._contents.ends.get(queue, 0):
            due = Code.OFFSET_OUT_OF_RANGE, minimum
        elif held <= minimum < wanted.offset:
            due = Code.HELD, minimum
        found = (result.code, minimum) if isinstance(result, Refused) else (Code.OK, -1)
        if isinstance(result, Trimmed):
            found = Code.OK, result.minimum
        if found != due:
            self.fail(f"{wanted} at {minimum}, held from {held}: answered {result}, not {due}")
        self._rises(queue, due[1])

    def _rises(self, queue: QueueKey, minimum: int) -> None:
        if minimum > self.minimums.get(queue, 0) and not self._stamps.majority_was_wrong:
            self._check_true_time(queue, minimum)
        self.minimums[queue] = minimum

    def _check_true_time(self, queue: QueueKey, minimum: int) -> None:
        """Check that no trim passes a hold that lasts, but for the error of stamps."""
        for owner, (offset, until_ms) in self._holds.get(queue, {}).items():
            left_ms = self._true_ends.get((queue, owner, until_ms), 0) - self._stamps.true_ms()
            if offset < minimum and left_ms > BEHIND_MAX_MS + AHEAD_MAX_MS:
                self.fail(f"{queue} trimmed to {minimum}, {owner} holds {offset} for {left_ms} ms")
