"""The invariant that never complains: it tells the story of roles, logs and commits."""

from collections.abc import Sequence

from dledger.types import EntryRef
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.story.story import Story


class Watcher(Invariant):
    """Hears what the observer found. It comes first: the row that breaks a property is told, too.

    A member's role is told when the observer sees it: before the message that shows it leaves.
    """

    def __init__(self, facts: Facts, story: Story) -> None:
        super().__init__(facts)
        self._story = story

    def on_role(self, member: MemberFacts) -> None:
        """See `Invariant.on_role`."""
        self._story.role(member.name, member.role.value, member.term)

    def on_log(
        self, member: MemberFacts, removed: Sequence[EntryRef], added: Sequence[EntryRef]
    ) -> None:
        """See `Invariant.on_log`."""
        if removed:
            indexes = [int(ref.index) for ref in removed]
            self._story.cut_off(member.name, min(indexes), max(indexes))

    def on_commit(self, member: MemberFacts, new: Sequence[EntryRef]) -> None:
        """See `Invariant.on_commit`."""
        if new:
            self._story.commit(member.name, int(new[0].index), int(new[-1].index), new[-1].term)
