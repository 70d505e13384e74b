"""I19: a queue of a consumer group has at most one holder, and the epochs of its grants grow.

Owns: what every consumer believes to hold, compared with what members apply. A belief begins when
an assignment names the queue. It ends when the consumer gives the queue back, or hears that its
session is over. Another consumer may be told a grant of the queue only when the belief has ended,
or when the log has ended the session behind it; then the claim at the home group fences it.
"""

from dledger.state.consumers.table import Grant, QueueKey
from dledger.state.machine import StateMachine
from dledger.state.results import Joined, Result, SessionsEnded
from tests.sim.invariants.violation import Property, Violation


class Grants:
    """The oracle of one consumer group."""

    def __init__(self, group_id: bytes) -> None:
        self.group_id = group_id
        self.beliefs: dict[str, dict[QueueKey, int]] = {}
        """Of each consumer: the queues that it works on, with the epochs of their grants."""
        self.granted = 0
        """Grants that were seen in the log."""
        self._ended: dict[str, int] = {}
        """The last entry that ended a session of a consumer."""
        self._applied = 0
        self._grants: dict[QueueKey, Grant] = {}
        self._highest: dict[QueueKey, int] = {}
        self._is_assigned = False

    # What members apply.

    def applied(self, machine: StateMachine, index: int, results: list[Result]) -> None:
        """Look at the rows after an entry that no member has applied before."""
        if index <= self._applied:
            return
        self._applied = index
        for result in results:
            if isinstance(result, SessionsEnded):
                self._ended.update(dict.fromkeys(result.consumers, index))
            elif isinstance(result, Joined) and result.replaced:
                self._ended[result.replaced] = index
        rows = machine.queries.consumers(self.group_id)
        for key, grant in rows.grants.items():
            before = self._grants.get(key)
            if before is not None and before.epoch == grant.epoch:
                if before.holder != grant.holder:
                    _fail(f"{key}: {before} became {grant} without a new epoch")
            elif grant.epoch <= self._highest.get(key, 0):
                _fail(f"{key}: {grant}, but epoch {self._highest[key]} was given before")
            else:
                self.granted += 1
            if grant.holder not in rows.consumers:
                _fail(f"{key}: {grant} has a holder without a session")
            self._highest[key] = max(grant.epoch, self._highest.get(key, 0))
        self._grants = dict(rows.grants)
        self._is_assigned = rows.epochs.assignment == rows.epochs.group

    # What consumers hear and say.

    def told(self, consumer: str, epochs: dict[QueueKey, int]) -> None:
        """A consumer reads an assignment: all that it holds now."""
        mine = self.beliefs.setdefault(consumer, {})
        for key, epoch in epochs.items():
            if mine.get(key) == epoch:
                continue
            for other, theirs in self.beliefs.items():
                if other == consumer or key not in theirs:
                    continue
                if self._ended.get(other, 0) <= theirs[key]:
                    _fail(
                        f"{consumer} was told {key} in epoch {epoch}, and {other} has it in epoch "
                        f"{theirs[key]}, has not given it back, and its session was not ended"
                    )
                if theirs[key] >= epoch:
                    _fail(f"{consumer} was told {key} in epoch {epoch}, {other} in {theirs[key]}")
        self.beliefs[consumer] = dict(epochs)

    def lets_go(self, consumer: str, key: QueueKey) -> None:
        """A consumer gives a queue back."""
        self.beliefs[consumer].pop(key, None)

    def is_over(self, consumer: str) -> None:
        """A consumer hears that its session is over, or its process ends."""
        self.beliefs.pop(consumer, None)

    def settled(self, consumers: set[str], queues: int) -> bool:
        """Tell whether every queue has one holder, who knows it and is one of these."""
        believed = [key for name in consumers for key in self.beliefs.get(name, {})]
        return (
            self._is_assigned
            and self.beliefs.keys() >= consumers
            and len(believed) == len(set(believed)) == len(self._grants) == queues
            and not any(grant.is_revoked for grant in self._grants.values())
            and all(
                self.beliefs.get(grant.holder, {}).get(key) == grant.epoch
                for key, grant in self._grants.items()
            )
        )

    @property
    def grants(self) -> dict[QueueKey, Grant]:
        """Where the queues stand in the newest state that anybody applied."""
        return dict(self._grants)


def _fail(detail: str) -> None:
    raise Violation(Property.ONE_HOLDER, detail)
