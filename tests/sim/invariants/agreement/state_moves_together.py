"""I10: applied index and derived state move together: equal applied index, equal digest.

The digest is chained over every write in apply order, so equality at one index means equality of
all writes before. A process that starts must stand at the digest of its applied index (D6).
"""

from collections.abc import Sequence

from dledger.types import Entry
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.violation import Property


class StateMovesTogether(Invariant):
    """All members must have the first digest that was seen at an index."""

    broken = Property.STATE_MOVES_TOGETHER

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self.digests: dict[int, bytes] = {}
        self._results: dict[int, list[str]] = {}

    def on_start(self, member: MemberFacts, applied: int, digest: bytes) -> None:
        """See `Invariant.on_start`."""
        expected = self.digests.get(applied)
        if expected is not None and expected != digest:
            self.fail(
                f"{member.name} starts at {applied} with another state than was applied there"
            )

    def on_apply(
        self, member: MemberFacts, entry: Entry, results: Sequence[object], digest: bytes
    ) -> None:
        """See `Invariant.on_apply`."""
        index = int(entry.ref.index)
        expected = self.digests.setdefault(index, digest)
        if expected != digest:
            self.fail(f"{member.name} has another digest after {entry.ref}")
        shown = [repr(result) for result in results]
        first = self._results.setdefault(index, shown)
        if first != shown:
            self.fail(f"{member.name} answers {shown} at {index}, another member {first}")
