"""The user table: every user that a group knows, and the revision of the list.

Owns: the rows, finding users, how far a list of the control group is taken over. Not: the rules of
the commands that change them (`commands.py`), nor what a user is (`values.py`).

    48 name      -> the fields of `User` (`values.py`), as in a command
    49           -> revision u64, newest u64, covered text

The *revision* of a list is the index of its last change in the log of the control group. Another
group takes a list over range by range. `newest` is the revision of which it took over anything,
`covered` the name up to which it took over that list without a gap, and `revision` the newest list
that it has as a whole.
"""

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from typing import Final

from dledger.state.commands.codec import Body, Record, UInt64
from dledger.state.tables import PREFIX, Table, Writer, after, rows_in
from dledger.state.users.values import USERS_MAX, User
from dledger_proto.errors import invalid

IMPORTED_USERS_MAX: Final = 2 * USERS_MAX
"""Of a list that is taken over: what the group knew, and all that came since."""
USER_VALUE: Final = Record(User)
META_KEY: Final = PREFIX[Table.USER_META]


@dataclass(frozen=True, slots=True)
class ListState:
    """How far a list is known."""

    revision: UInt64 = 0
    newest: UInt64 = 0
    covered: str = ""


META_VALUE: Final = Record(ListState)


def encode_value(form: Record, value: User | ListState) -> bytes:
    """Return the value of a row."""
    parts: list[bytes] = []
    form.write(value, parts)
    return b"".join(parts)


class UserTable:
    """All users that this group knows. Every user is in memory: each call asks for one."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._by_name: dict[str, User] = {}
        prefix = PREFIX[Table.USER]
        for _, value in rows_in(writer.store, prefix, after(prefix)):
            user: User = USER_VALUE.read(Body(value, 0))
            self._by_name[user.name] = user
        self._names = sorted(self._by_name)
        meta = writer.store.get(META_KEY)
        self.list_state: ListState = ListState() if meta is None else META_VALUE.read(Body(meta, 0))

    @property
    def count(self) -> int:
        """How many users there are."""
        return len(self._names)

    def find(self, name: str) -> User | None:
        """Return the user of a name, or None."""
        return self._by_name.get(name)

    def behind(self, name: str, limit: int) -> list[User]:
        """Return up to `limit` users behind a name, by name."""
        first = bisect_right(self._names, name)
        return [self._by_name[each] for each in self._names[first : first + limit]]

    def names_between(self, first: str, end: str) -> list[str]:
        """Return the names with first <= name < end; with an empty end there is none."""
        stop = bisect_left(self._names, end) if end else len(self._names)
        return self._names[bisect_left(self._names, first) : stop]

    def is_last_administrator(self, name: str) -> bool:
        """Tell whether this user is an administrator that may log in, and no other one is."""
        able = (each.name for each in self._by_name.values() if each.is_admin and each.is_enabled)
        return list(able) == [name]

    def check_room(self, added: int, most: int) -> None:
        """Raise INVALID_ARGUMENT unless there is room for so many other users."""
        if self.count + added > most:
            raise invalid(f"users: {self.count} exist, at most {most}: delete some first")

    def store(self, user: User) -> None:
        """Write a user as it is now; one that is stored as it was stays the same object."""
        known = self._by_name.get(user.name)
        if known == user:
            return
        if known is None:
            insort(self._names, user.name)
        self._by_name[user.name] = user
        self._writer.put(_key(user.name), encode_value(USER_VALUE, user))

    def delete(self, name: str) -> None:
        """Delete a user that exists."""
        del self._by_name[name]
        del self._names[bisect_left(self._names, name)]
        self._writer.delete(_key(name))

    def note(self, state: ListState) -> None:
        """Write how far the list is known."""
        if state != self.list_state:
            self.list_state = state
            self._writer.put(META_KEY, encode_value(META_VALUE, state))


def _key(name: str) -> bytes:
    return PREFIX[Table.USER] + name.encode()
