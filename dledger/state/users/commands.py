"""The commands that change users, and their verdicts.

Owns: the rules of create, change, delete and import. Not: rows (`table.py`), what a user may look
like (`values.py`).

The control group decides about users; other groups import its list in ranges of names. A range
says which users there are from one name to another, so it deletes those that it does not name, and
nobody has to remember who was deleted. A range of an older list than any that was seen is refused:
it would bring back a right that was taken away. A range may be repeated. A list counts as known
when its ranges met each other from the first name to the last.
"""

import enum
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from dledger.state.commands.codec import UInt64
from dledger.state.commands.command import Command
from dledger.state.results import Refused, UserChanged, UsersImported
from dledger.state.state import State
from dledger.state.users.table import IMPORTED_USERS_MAX, ListState
from dledger.state.users.values import USERS_MAX, User, check_user
from dledger.types import Entry
from dledger_proto.errors import Code, invalid

USERS_PER_IMPORT: Final = 256


class PutMode(enum.IntEnum):
    """Whether the name must be free or taken."""

    CREATE = 0
    CHANGE = 1


@dataclass(frozen=True, slots=True)
class PutUser(Command[UserChanged]):
    """Create or replace a user, in the control group."""

    NUMBER: ClassVar = 24

    mode: PutMode
    user: User
    known_revision: UInt64 = 0
    """Of the list that the caller changed the user in; 0: it does not say."""

    def apply(self, state: State, entry: Entry) -> UserChanged | Refused:
        """Store the whole user; the same creation twice has the same answer."""
        user, users = self.user, state.users
        check_user(user)
        known = users.find(user.name)
        if known == user:
            return UserChanged(user.name, users.list_state.revision)
        if self.mode is PutMode.CHANGE and known is None:
            return _unknown(user.name)
        if self.mode is PutMode.CREATE and known is not None:
            return Refused(Code.USER_EXISTS, f"user {user.name} exists and is another")
        revision = users.list_state.revision
        if self.known_revision and self.known_revision < revision:
            return Refused(
                Code.USER_EXISTS,
                f"user {user.name}: users have changed at {revision}, after known_revision "
                f"{self.known_revision}: look again, and repeat it",
            )
        if known is None:
            users.check_room(1, USERS_MAX)
        elif not (user.is_admin and user.is_enabled) and users.is_last_administrator(user.name):
            return _last(user.name, "stay an administrator and enabled")
        users.store(user)
        return _changed(state, user.name, entry)


@dataclass(frozen=True, slots=True)
class DeleteUser(Command[UserChanged]):
    """Delete a user, in the control group."""

    NUMBER: ClassVar = 25
    FREES_SPACE: ClassVar = True

    name: str

    def apply(self, state: State, entry: Entry) -> UserChanged | Refused:
        """Delete it; what it opened ends."""
        if state.users.find(self.name) is None:
            return _unknown(self.name)
        if state.users.is_last_administrator(self.name):
            return _last(self.name, "stay")
        state.users.delete(self.name)
        return _changed(state, self.name, entry)


@dataclass(frozen=True, slots=True)
class ImportUsers(Command[UsersImported]):
    """Take over a range of the control group's list, in another group."""

    NUMBER: ClassVar = 26
    ROWS_READ_MAX: ClassVar = USERS_PER_IMPORT

    first: str
    end: str
    """The users with first <= name < end are these; empty: no end."""
    users: tuple[User, ...]
    """By name."""
    revision: UInt64
    control_id: bytes
    """See `ImportTopic`: revisions of one control group compare with each other only."""

    def apply(self, state: State, entry: Entry) -> UsersImported | Refused:
        """Take over the range unless something of a newer list is known."""
        table, known = state.users, state.users.list_state
        self._check()
        foreign = state.topics.foreign(self.control_id)
        if foreign:
            return Refused(Code.WRONG_GROUP, f"users: {foreign}")
        if self.revision < known.newest:
            return Refused(
                Code.STALE_LAYOUT, f"users: revision {self.revision}, known is {known.newest}"
            )
        names = {user.name for user in self.users}
        gone = [name for name in table.names_between(self.first, self.end) if name not in names]
        added = sum(table.find(name) is None for name in names)
        table.check_room(added - len(gone), IMPORTED_USERS_MAX)
        state.topics.follow(self.control_id)
        for name in gone:
            table.delete(name)
        for user in self.users:
            table.store(user)
        table.note(self._covered(known))
        return UsersImported(table.list_state.revision)

    def _covered(self, known: ListState) -> ListState:
        """Return how far the list is known now."""
        covered = known.covered if self.revision == known.newest else ""
        state = replace(known, newest=self.revision, covered=covered)
        if self.first > covered:
            return state  # a range before it is missing
        if not self.end:
            return replace(state, revision=self.revision, covered="")
        return replace(state, covered=max(covered, self.end))

    def _check(self) -> None:
        if len(self.users) > USERS_PER_IMPORT:
            raise invalid(f"{len(self.users)} users in one range, at most {USERS_PER_IMPORT}")
        before = ""
        for user in self.users:
            check_user(user)
            if not max(before, self.first) <= user.name or user.name == before:
                raise invalid(f"user {user.name}: is not behind {before or self.first!r}")
            if self.end and user.name >= self.end:
                raise invalid(f"user {user.name}: is not before the end {self.end!r}")
            before = user.name


def _changed(state: State, name: str, entry: Entry) -> UserChanged:
    revision = entry.ref.index
    state.users.note(ListState(revision, revision))
    return UserChanged(name, revision)


def _unknown(name: str) -> Refused:
    return Refused(Code.USER_NOT_FOUND, f"user {name} does not exist")


def _last(name: str, must: str) -> Refused:
    return Refused(
        Code.INVALID_ARGUMENT,
        f"user {name}: must {must}, for no other administrator can log in",
    )
