"""I14 in the state: a stored group offset grows, but for an explicit reset, and nothing else does.

Checked on what apply answers, once per entry: a commit is taken, or refused OFFSET_BEHIND because
it lies behind what was taken before, or OFFSET_OUT_OF_RANGE because its queue ends before it. What
clients see of it is checked by the oracle, what members hold in the end by `world/liveness.py`.
"""

from collections.abc import Sequence, Set

from dledger.state.commands.registry import decode
from dledger.state.progress.commits import CommitOffsets
from dledger.state.results import OffsetsCommitted
from dledger.types import Entry, EntryKind
from dledger_proto.errors import Code
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.delivery.queue_contents import QueueContents
from tests.sim.invariants.violation import Property


class OffsetsNeverBack(Invariant):
    """Keeps every group's offset as apply answered it."""

    broken = Property.OFFSETS_NEVER_BACK

    def __init__(self, facts: Facts, contents: QueueContents, claimed: Set[str]) -> None:
        """`claimed`: names of groups whose floors `progress.py` checks."""
        super().__init__(facts)
        self._contents = contents
        self._claimed = claimed
        self._applied = 0
        self.stored: dict[tuple[str, bytes, int], int] = {}
        """By consumer group and queue: what was taken last."""
        self.behind_count = 0

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
            if isinstance(wanted, CommitOffsets) and isinstance(result, OffsetsCommitted):
                self._committed(wanted, result)

    def _committed(self, wanted: CommitOffsets, result: OffsetsCommitted) -> None:
        if wanted.consumer_group in self._claimed:
            return
        for row, code, stored in zip(
            wanted.offsets, result.codes, result.stored_offsets, strict=True
        ):
            key = wanted.consumer_group, row.topic_id, row.queue
            before = self.stored.get(key, -1)
            is_behind = row.offset < before and not wanted.reset
            due = (Code.OFFSET_BEHIND, before) if is_behind else (Code.OK, row.offset)
            if row.offset > self._contents.ends.get((row.topic_id, row.queue), 0):
                due = Code.OFFSET_OUT_OF_RANGE, before
            if (code, stored) != due:
                self.fail(
                    f"{key}: {row.offset} after {before}, answered {code} {stored}, not {due}"
                )
            self.behind_count += is_behind
            self.stored[key] = int(stored)
