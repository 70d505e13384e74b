"""What a name may be, after everything that its one administrator did and was told.

A name is that of a topic or of a consumer group. A model of the control group's rules (D14) and a
register: a change of unknown outcome may take effect at any later time, once. So a name has several
possible states; each answer leaves those that fit it, and none that fits is a finding.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from dledger_proto.errors import Code
from tests.sim.invariants.violation import Property, Violation

ANY_ID = b""
"""Of a topic whose creation nobody has answered."""
READ_AND_WRITE = 6
PENDING_MAX = 3
"""Changes of unknown outcome; beyond them a name tells too little."""


class State(Protocol):
    """What has the name."""

    def fits(self, other: Self | None) -> bool:
        """Tell whether another state is this one; an id that nobody knows is any."""
        ...


S = TypeVar("S", bound=State)


class ChangeOf(Protocol[S]):
    """A change of what has the name."""

    DELETES: ClassVar[bool]

    def outcome(self, known: S | None) -> tuple[Code, S | None]:
        """Return what is answered in this state, and the state after."""
        ...


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as it may be."""

    topic_id: bytes
    owners: tuple[str, ...]
    """The group of each queue, also of closed ones."""
    write_queues: int
    read_queues: int
    permission: int

    def fits(self, other: "TopicState | None") -> bool:
        """Tell whether another state is this one; an id that nobody knows is any."""
        if other is None:
            return False
        own_id = other.topic_id if self.topic_id == ANY_ID else self.topic_id
        return replace(self, topic_id=own_id) == replace(
            other, topic_id=own_id if other.topic_id == ANY_ID else other.topic_id
        )


Maybe = TopicState | None
"""None: no topic has the name."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create the topic, with so many queues in each of some groups."""

    DELETES: ClassVar[bool] = False

    groups: tuple[str, ...]
    queues: int
    permission: int = READ_AND_WRITE

    def outcome(self, known: Maybe) -> tuple[Code, Maybe]:
        """Return what is answered to a topic in this state, and the state after."""
        if known is None:
            owners = tuple(group for group in self.groups for _ in range(self.queues))
            return Code.OK, TopicState(ANY_ID, owners, len(owners), len(owners), self.permission)
        written = Counter(known.owners[: known.write_queues])
        is_same = written == dict.fromkeys(self.groups, self.queues)
        if is_same and known.permission == self.permission:
            return Code.OK, known
        return Code.TOPIC_EXISTS, known


@dataclass(frozen=True, slots=True)
class Update:
    """Change the topic; what is 0 or empty stays."""

    DELETES: ClassVar[bool] = False

    permission: int = 0
    read_queues: int = 0
    owners: tuple[str, ...] = ()
    """The groups of all queues that take messages from now on."""

    @property
    def layout(self) -> list[tuple[str, int]]:
        """Return the owners as (group, queues)."""
        parts: list[tuple[str, int]] = []
        for group in self.owners:
            if parts and parts[-1][0] == group:
                parts[-1] = group, parts[-1][1] + 1
            else:
                parts.append((group, 1))
        return parts

    def outcome(self, known: Maybe) -> tuple[Code, Maybe]:
        """See `Create.outcome`."""
        if known is None:
            return Code.TOPIC_NOT_FOUND, None
        owners, write, read = known.owners, known.write_queues, known.read_queues
        if self.owners:
            shared = min(len(owners), len(self.owners))
            if owners[:shared] != self.owners[:shared]:
                return Code.INVALID_ARGUMENT, known
            owners = max(owners, self.owners, key=len)
            read = max(read, write, len(self.owners))
            write = len(self.owners)
        read = self.read_queues or read
        if read > len(owners):
            return Code.INVALID_ARGUMENT, known
        permission = self.permission or known.permission
        return Code.OK, TopicState(known.topic_id, owners, write, read, permission)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the topic."""

    DELETES: ClassVar[bool] = True

    def outcome(self, known: Maybe) -> tuple[Code, Maybe]:
        """See `Create.outcome`."""
        return (Code.TOPIC_NOT_FOUND if known is None else Code.OK), None


Change = Create | Update | Delete


class History(Generic[S]):
    """The history of one name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._known: S | None = None
        self._pending: list[ChangeOf[S]] = []

    @property
    def is_clear(self) -> bool:
        """Tell whether few changes are unknown."""
        return len(self._pending) < PENDING_MAX

    @property
    def known(self) -> S | None:
        """Return what was seen last."""
        return self._known

    def possible(self) -> list[S | None]:
        """Return every state that the name may be in."""
        return _reached(self._known, self._pending)

    # What was answered.

    def answered(self, change: ChangeOf[S], told: S) -> None:
        """Take a success: the topic after the change, or, of a deletion, before it."""
        for state in self.possible():
            code, after = change.outcome(state)
            due = state if change.DELETES else after
            if code is Code.OK and due is not None and due.fits(told):
                self._known = None if change.DELETES else told
                return
        self._fail(f"{change} was answered by {told}")

    def refused(self, change: ChangeOf[S], code: Code) -> None:
        """Take a definite refusal by the rules."""
        if all(change.outcome(state)[0] is not code for state in self.possible()):
            self._fail(f"{change} was refused as {code.name}")

    def unknown(self, change: ChangeOf[S]) -> None:
        """Take a change of unknown outcome."""
        self._pending.append(change)

    def seen(self, told: S | None) -> None:
        """Take what a confirmed read has found."""
        for state in self.possible():
            if state is told or (state is not None and state.fits(told)):
                self._known = told
                return
        self._fail(f"{told} is there")

    def _fail(self, what: str) -> None:
        raise Violation(Property.TOPICS, f"{self.name}: {what}; it may be {self.possible()}")


class TopicHistory(History[TopicState]):
    """The history of a topic's name."""


def _reached(known: S | None, pending: Sequence[ChangeOf[S]]) -> list[S | None]:
    """Return the states that some of the pending changes, in some order, lead to."""
    found = [known]
    for place, change in enumerate(pending):
        _, after = change.outcome(known)
        rest = [*pending[:place], *pending[place + 1 :]]
        found += _reached(after, rest)
    return _distinct(found)


def _distinct(states: Iterable[S | None]) -> list[S | None]:
    return list(dict.fromkeys(states))
