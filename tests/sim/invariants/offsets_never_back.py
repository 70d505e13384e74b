"""I14 in the state: a stored group offset grows, but for an explicit reset.

Checked on what apply answers, once per entry. What clients see of it is checked by the oracle.
"""

from collections.abc import Sequence

from dledger.state import command
from dledger.state.results import OffsetsCommitted
from dledger.types import Entry, EntryKind
from dledger_proto.errors import Code
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property


class OffsetsNeverBack(Invariant):
    """Keeps every group's offset as apply answered it."""

    broken = Property.OFFSETS_NEVER_BACK

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._applied = 0
        self._stored: dict[tuple[str, bytes, int], int] = {}

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
            wanted = command.decode(bytes(payload))
            if isinstance(wanted, command.CommitOffsets) and isinstance(result, OffsetsCommitted):
                self._committed(wanted, result)

    def _committed(self, wanted: command.CommitOffsets, result: OffsetsCommitted) -> None:
        for row, code, stored in zip(
            wanted.offsets, result.codes, result.stored_offsets, strict=True
        ):
            key = wanted.consumer_group, row.topic_id, row.queue
            before = self._stored.get(key, -1)
            if code == Code.OK and stored != row.offset:
                self.fail(f"{key}: answered OK for {row.offset}, stored {stored}")
            if stored < before and not wanted.reset:
                self.fail(f"{key} falls from {before} to {stored} without a reset")
            if code != Code.OK and stored != before and before >= 0:
                self.fail(f"{key}: refused, but moved from {before} to {stored}")
            self._stored[key] = int(stored)
