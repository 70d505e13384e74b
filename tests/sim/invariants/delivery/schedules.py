"""I23: each time of a schedule gives one message at most, never early, and none after its deletion.

A model of its own, compared with what apply answers, the first time any member applies an entry.
"""

from collections.abc import Sequence

from dledger.state.results import Appended, ScheduleDeleted, ScheduleSet
from dledger.types import Entry, EntryKind
from dledger_proto.batch.codec import EPOCH_OF_SCHEDULES, BatchHeader, parse_header
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property


class Schedules(Invariant):
    """Keeps the last time of every schedule of one broker group."""

    broken = Property.SCHEDULES

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._last: dict[bytes, int] = {}
        """By schedule; none of those that were deleted."""
        self._applied = 0
        self.sent_count = 0

    def on_apply(
        self, member: MemberFacts, entry: Entry, results: Sequence[object], digest: bytes
    ) -> None:
        """See `Invariant.on_apply`."""
        if entry.ref.index <= self._applied:
            return
        self._applied = int(entry.ref.index)
        for payload, result in zip(entry.payloads, results, strict=False):
            if entry.kind is EntryKind.BATCHES:
                header = parse_header(payload)
                if header.producer_epoch == EPOCH_OF_SCHEDULES:
                    self._sent(header, result, entry.time_ms)
            elif isinstance(result, ScheduleSet):
                known = self._last.get(result.schedule_id)
                if result.replaced != (known is not None):
                    self.fail(f"{result}, the last time was {known}")
                self._last[result.schedule_id] = max(entry.time_ms, known or 0)
            elif isinstance(result, ScheduleDeleted):
                self._deleted(result)

    def _deleted(self, result: ScheduleDeleted) -> None:
        if self._last.pop(result.schedule_id, None) is None:
            self.fail(f"{result}: there was none")

    def _sent(self, header: BatchHeader, result: object, time_ms: int) -> None:
        due_ms, last_ms = header.base_sequence, self._last.get(header.producer_id)
        if not isinstance(result, Appended):
            return
        if last_ms is None or not last_ms < due_ms <= time_ms:
            self.fail(f"due at {due_ms}, stored at {time_ms}, the last was due at {last_ms}")
        self._last[header.producer_id] = due_ms
        self.sent_count += 1
