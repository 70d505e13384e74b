"""What the name of a consumer group may be (D20): the model of its settings, for `History`."""

from dataclasses import dataclass, replace
from typing import ClassVar

from dledger_proto.errors import Code
from tests.sim.invariants.delivery.topic_history import ANY_ID, History


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
