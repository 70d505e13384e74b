"""S52's other side: a queue's minimum moves by trims alone, and never past a hold that lasts.

A model of its own, compared with what apply answers, the first time any member applies an entry.
What members hold of it in the end is checked by `liveness`.
"""

from collections.abc import Sequence

from dledger.state import command
from dledger.state.results import Held, Refused, Trimmed
from dledger.types import Entry, EntryKind
from dledger_proto.errors import Code
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.queue_contents import QueueContents, QueueKey
from tests.sim.invariants.violation import Property


class TrimsAndHolds(Invariant):
    """Keeps every queue's minimum and its holds."""

    broken = Property.TRIMS

    def __init__(self, facts: Facts, contents: QueueContents) -> None:
        super().__init__(facts)
        self._contents = contents
        self._applied = 0
        self.minimums: dict[QueueKey, int] = {}
        self._holds: dict[QueueKey, dict[str, tuple[int, int]]] = {}
        """By owner: from which offset on, until which stamp."""

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
            if isinstance(wanted, command.Hold) and isinstance(result, Held):
                holds = self._holds.setdefault((wanted.topic_id, wanted.queue), {})
                holds[wanted.owner] = wanted.offset, wanted.until_ms
            elif isinstance(wanted, command.ReleaseHold) and isinstance(result, Held):
                self._holds.get((wanted.topic_id, wanted.queue), {}).pop(wanted.owner, None)
            elif isinstance(wanted, command.Trim):
                self._trimmed(wanted, result, entry.time_ms)

    def _trimmed(self, wanted: command.Trim, result: object, time_ms: int) -> None:
        queue = wanted.topic_id, wanted.queue
        minimum = self.minimums.get(queue, 0)
        holds = self._holds.get(queue, {}).values()
        held = min((offset for offset, until_ms in holds if until_ms > time_ms), default=1 << 62)
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
        self.minimums[queue] = due[1]
