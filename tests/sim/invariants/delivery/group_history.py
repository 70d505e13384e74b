"""What the name of a consumer group may be (D20), and that none expires while it is used.

The model of a group's settings, for `History`. The uses of all groups in all broker groups, by true
time: the logs of all broker groups tell them, and no clock of a member. A use that is stored while
the control group asks may be overlooked (`RACE_SECONDS`), as if somebody had deleted the group.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, NamedTuple

from dledger.state.commands.command import Command
from dledger.state.commands.registry import decode
from dledger.state.consumers.groups import DeleteConsumerGroup
from dledger.state.consumers.membership import EndSessions, Join
from dledger.state.progress.claims import ClaimQueues, ReleaseQueues
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.dead_letters import SettleDeadLetters
from dledger.state.progress.start import BeginQueues
from dledger.state.results import (
    ConsumerGroupChanged,
    DeadLettersSettled,
    Joined,
    OffsetsCommitted,
    QueuesBegun,
    QueuesClaimed,
    QueuesReleased,
    SessionsEnded,
    TopicChanged,
)
from dledger.state.topics.commands import ImportTopic
from dledger.state.values import Topic
from dledger.types import Entry, EntryKind, EntryRef
from dledger_proto.errors import Code
from dledger_proto.names import RETRY_TOPIC_PREFIX
from tests.sim.invariants.base import Facts, Invariant, MemberFacts
from tests.sim.invariants.delivery.topic_history import ANY_ID, History
from tests.sim.invariants.violation import Property, Violation

RACE_SECONDS: Final = 3.0
"""From the question to the proposal: `ANSWERS_LAST_SECONDS` of a simulated member, and some."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group as it may be."""

    group_id: bytes
    retries_max: int
    paused: bool

    def fits(self, other: "GroupState | None") -> bool:
        """See `State.fits`."""
        if other is None:
            return False
        ids = {self.group_id, other.group_id} - {ANY_ID}
        same = replace(self, group_id=ANY_ID) == replace(other, group_id=ANY_ID)
        return same and len(ids) <= 1


@dataclass(frozen=True, slots=True)
class CreateGroup:
    """Create the group."""

    DELETES: ClassVar[bool] = False

    retries_max: int

    def outcome(self, known: GroupState | None) -> tuple[Code, GroupState | None]:
        """See `ChangeOf.outcome`."""
        wanted = GroupState(ANY_ID, self.retries_max, paused=False)
        if known is None:
            return Code.OK, wanted
        return (Code.OK if wanted.fits(known) else Code.CONSUMER_GROUP_EXISTS), known


@dataclass(frozen=True, slots=True)
class UpdateGroup:
    """Change one setting."""

    DELETES: ClassVar[bool] = False

    retries_max: int | None = None
    paused: bool | None = None

    def outcome(self, known: GroupState | None) -> tuple[Code, GroupState | None]:
        """See `ChangeOf.outcome`."""
        if known is None:
            return Code.CONSUMER_GROUP_NOT_FOUND, None
        if self.retries_max is not None:
            known = replace(known, retries_max=self.retries_max)
        if self.paused is not None:
            known = replace(known, paused=self.paused)
        return Code.OK, known


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete the group."""

    DELETES: ClassVar[bool] = True

    def outcome(self, known: GroupState | None) -> tuple[Code, GroupState | None]:
        """See `ChangeOf.outcome`."""
        return (Code.CONSUMER_GROUP_NOT_FOUND if known is None else Code.OK), None


GroupChange = CreateGroup | UpdateGroup | DeleteGroup


class GroupHistory(History[GroupState]):
    """The history of a consumer group's name."""


class Use(NamedTuple):
    """When the entry of a use came into a log, and when a member applied it first; true time."""

    made: float
    applied: float


@dataclass(slots=True)
class Used:
    """The uses of one consumer group."""

    name: str
    uses: list[Use] = field(default_factory=list[Use])
    joined: dict[str, Use] = field(default_factory=dict[str, Use])
    """Consumers that have a session."""


class GroupUses:
    """The uses of all consumer groups in all broker groups."""

    def __init__(
        self, expiry_seconds: float, now: Callable[[], float], expired: Callable[[str], None]
    ) -> None:
        """`expired` is told the name of a group that is deleted; nobody else deletes any."""
        self._expiry_seconds = expiry_seconds
        self.now = now
        self._expired = expired
        self._groups: dict[bytes, Used] = {}
        self.expired_count = 0

    def changed(self, group_id: bytes, name: str, use: Use) -> None:
        """Take a creation or a change."""
        self._groups.setdefault(group_id, Used(name)).uses.append(use)

    def used(self, group_id: bytes, use: Use) -> None:
        """Take progress in a queue; that of a group that is deleted by now matters to nobody."""
        known = self._groups.get(group_id)
        if known is not None:
            known.uses.append(use)

    def joined(self, group_id: bytes, consumer: str, replaced: str, use: Use) -> None:
        """Take a consumer that begins a session, perhaps in the place of another."""
        known = self._groups[group_id]
        known.joined.pop(replaced, None)
        known.joined[consumer] = use
        known.uses.append(use)

    def ended(self, group_id: bytes, consumers: Sequence[str], use: Use) -> None:
        """Take the end of sessions."""
        known = self._groups[group_id]
        for consumer in consumers:
            known.joined.pop(consumer, None)
        known.uses.append(use)

    def deleted(self, group_id: bytes, made: float) -> None:
        """Judge a deletion by when its entry came into the log."""
        known = self._groups.pop(group_id)
        for consumer, use in known.joined.items():
            if use.applied < made - RACE_SECONDS:
                self._fail(known, made, f"{consumer} is joined since {use.applied:.3f} s")
        for use in known.uses:
            if use.made > made - self._expiry_seconds and use.applied < made - RACE_SECONDS:
                self._fail(known, made, f"it was used at {use.made:.3f} s")
        self.expired_count += 1
        self._expired(known.name)

    def _fail(self, known: Used, made: float, why: str) -> None:
        raise Violation(
            Property.GROUPS_KEPT, f"{known.name} is deleted as unused at {made:.3f} s: {why}"
        )


class GroupsKept(Invariant):
    """Tells `GroupUses` what one broker group stores."""

    broken = Property.GROUPS_KEPT

    def __init__(self, facts: Facts, uses: GroupUses) -> None:
        super().__init__(facts)
        self._uses = uses
        self._applied = 0
        self._made: dict[tuple[int, int], float] = {}
        self._ids: dict[str, bytes] = {}
        """The consumer groups that this broker group knows; of others it notes no use."""

    def on_log(
        self, member: MemberFacts, removed: Sequence[EntryRef], added: Sequence[EntryRef]
    ) -> None:
        """See `Invariant.on_log`."""
        now = self._uses.now()
        for ref in added:
            self._made.setdefault((int(ref.index), int(ref.term)), now)

    def on_apply(
        self, member: MemberFacts, entry: Entry, results: Sequence[object], digest: bytes
    ) -> None:
        """See `Invariant.on_apply`."""
        if entry.ref.index <= self._applied:
            return
        self._applied = int(entry.ref.index)
        if entry.kind is not EntryKind.COMMANDS:
            return
        now = self._uses.now()
        use = Use(self._made.get((int(entry.ref.index), int(entry.ref.term)), now), now)
        for payload, result in zip(entry.payloads, results, strict=True):
            self._look(decode(bytes(payload)), result, int(entry.ref.index), use)

    def _look(self, command: Command[object], result: object, index: int, use: Use) -> None:
        match command, result:
            case DeleteConsumerGroup(), ConsumerGroupChanged(retry, _):
                self._know(retry)
                self._uses.deleted(command.group_id, use.made)
            case _, ConsumerGroupChanged(retry, _) if retry.control_index == index:
                self._know(retry)
                self._uses.changed(retry.topic_id, _name(retry), use)
            case ImportTopic(topic), TopicChanged() if topic.settings:
                self._know(topic)
            case Join(), Joined():
                self._uses.joined(command.group_id, command.consumer, result.replaced, use)
            case EndSessions(), SessionsEnded() if result.consumers:
                self._uses.ended(command.group_id, result.consumers, use)
            case _:
                for name in _used(command, result):
                    self._uses.used(self._ids.get(name, b""), use)

    def _know(self, retry: Topic) -> None:
        name = _name(retry)
        if not retry.deleted:
            self._ids[name] = retry.topic_id
        elif self._ids.get(name) == retry.topic_id:
            del self._ids[name]


def _name(retry: Topic) -> str:
    return retry.name.removeprefix(RETRY_TOPIC_PREFIX)


def _used(command: Command[object], result: object) -> Iterator[str]:
    """Yield the name of the consumer group whose progress a command has written.

    Failures are left out: a repeat of one changes nothing, and its answer is the same.
    """
    match command, result:
        case ClaimQueues(), QueuesClaimed() if any(row.code is Code.OK for row in result.rows):
            yield command.consumer_group
        case CommitOffsets(), OffsetsCommitted() if Code.OK in result.codes:
            yield command.consumer_group
        case ReleaseQueues(), QueuesReleased() if Code.OK in result.codes:
            yield command.consumer_group
        case SettleDeadLetters(), DeadLettersSettled() if Code.OK in result.codes:
            yield command.consumer_group
        case BeginQueues(), QueuesBegun() if result.count:
            yield command.consumer_group
        case _:
            return
