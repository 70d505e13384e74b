"""The product's administrator, as far as it creates, changes and deletes users.

Owns: the users "v1", "v2" and so on, the model of a user's name, and what the end is compared with.
Nobody logs in: members ask for no users here, and the control group keeps the list all the same.
"""

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar, Final

from dledger.state.users.values import User as StoredUser
from dledger_client import AsyncAdmin
from dledger_client._core.users import Policy, User
from dledger_client.errors import (
    ClientError,
    Overloaded,
    Unavailable,
    UnknownOutcome,
    UserExists,
    UserNotFound,
)
from dledger_proto.errors import Code
from tests.sim.invariants.delivery.topic_history import History
from tests.sim.invariants.violation import Property, Violation

if TYPE_CHECKING:
    from tests.sim.world.world import World

NAMES_AT_ONCE: Final = 3
SECRET: Final = "a secret of the simulation"
BUSY: Final = (Unavailable, Overloaded, UnknownOutcome)
RULES: Final = (UserExists, UserNotFound)
CHANGED_MEANWHILE: Final = "users have changed"
"""A call of unknown outcome took effect between the look at the list and the change."""


@dataclass(frozen=True, slots=True)
class UserState:
    """A user as it may be: what it may do is one right, to a topic of its own number."""

    right: str

    def fits(self, other: "UserState | None") -> bool:
        """See `State.fits`."""
        return self == other


Maybe = UserState | None


@dataclass(frozen=True, slots=True)
class CreateUser:
    """Create the user with a right."""

    DELETES: ClassVar[bool] = False

    right: str

    def outcome(self, known: Maybe) -> tuple[Code, Maybe]:
        """See `ChangeOf.outcome`."""
        return (Code.OK, UserState(self.right)) if known is None else (Code.USER_EXISTS, known)


@dataclass(frozen=True, slots=True)
class ChangeUser:
    """Give the user another right instead."""

    DELETES: ClassVar[bool] = False

    right: str

    def outcome(self, known: Maybe) -> tuple[Code, Maybe]:
        """See `ChangeOf.outcome`."""
        return (Code.USER_NOT_FOUND, None) if known is None else (Code.OK, UserState(self.right))


@dataclass(frozen=True, slots=True)
class RemoveUser:
    """Delete the user."""

    DELETES: ClassVar[bool] = True

    def outcome(self, known: Maybe) -> tuple[Code, Maybe]:
        """See `ChangeOf.outcome`."""
        return (Code.USER_NOT_FOUND if known is None else Code.OK), None


UserHistory = History[UserState]


class UserAdministrator:
    """Nobody else changes users."""

    def __init__(self, host: str, world: "World", random: Random) -> None:
        self._host = host
        self._world = world
        self._random = random
        self._rights = 0
        self.histories: dict[str, UserHistory] = {}

    async def turn(self, admin: AsyncAdmin) -> None:
        """Change a user, or look at one, or at all."""
        drawn = self._random.random()
        if drawn < 0.6:
            await self._change(admin)
        elif drawn < 0.8:
            await self._look(admin)
        else:
            await self._list(admin)

    def _history(self) -> UserHistory:
        clear = [history for history in self.histories.values() if history.is_clear]
        if len(clear) < NAMES_AT_ONCE:
            name = f"v{len(self.histories) + 1}"
            clear.append(self.histories.setdefault(name, UserHistory(name)))
        return self._random.choice(clear)

    async def _change(self, admin: AsyncAdmin) -> None:
        history = self._history()
        self._rights += 1
        right = f"r{self._rights}"
        change: CreateUser | ChangeUser | RemoveUser = CreateUser(right)
        if history.known is not None:
            change = self._random.choice((ChangeUser(right), RemoveUser()))
        story, counts = self._world.story, self._world.oracle.counts
        story.client(self._host, "asks for", change, "of", history.name)
        try:
            told = await self._carry_out(admin, history.name, change)
        except ClientError as error:
            story.client(self._host, "is refused", history.name, error.code.name)
            if not error.definite:
                counts["changes of users unknown"] += 1
                history.unknown(change)
            elif isinstance(error, RULES):
                counts["changes of users refused"] += 1
                if CHANGED_MEANWHILE not in error.detail:
                    history.refused(change, error.code)
            elif not isinstance(error, BUSY):
                raise
            return
        counts[f"users: {type(change).__name__}"] += 1
        story.client(self._host, "is told", told)
        history.answered(change, _state(told))

    async def _carry_out(
        self, admin: AsyncAdmin, name: str, change: CreateUser | ChangeUser | RemoveUser
    ) -> User:
        match change:
            case CreateUser(right):
                told = await admin.put_user(
                    _user(name, right), secret=SECRET, secret_is_drawn=True, create=True
                )
            case ChangeUser(right):
                known = await admin.describe_user(name)
                told = await admin.put_user(
                    _user(name, right), known_revision=self._random.choice((0, known.revision))
                )
            case RemoveUser():
                told = await admin.delete_user(name)
        return told.user

    async def _look(self, admin: AsyncAdmin) -> None:
        history = self._history()
        try:
            history.seen(_state((await admin.describe_user(history.name)).user))
        except UserNotFound:
            history.seen(None)
        except BUSY as error:
            self._world.oracle.counts[f"administrator {error.code.name}"] += 1

    async def _list(self, admin: AsyncAdmin) -> None:
        try:
            listed = await admin.list_users()
        except BUSY as error:
            self._world.oracle.counts[f"administrator {error.code.name}"] += 1
            return
        self._world.oracle.counts["lists of users"] += 1
        self._compare({user.name: _state(user) for user in listed})

    def _compare(self, found: dict[str, UserState]) -> None:
        others = found.keys() - self.histories.keys()
        if others:
            raise Violation(Property.TOPICS, f"users that nobody made: {sorted(others)}")
        for name, history in self.histories.items():
            history.seen(found.get(name))

    # The end.

    def why_not_agreed(self) -> str:
        """Tell which member does not hold the users of the control group; empty: all do."""
        due: list[StoredUser] | None = None
        for group in self._world.groups.values():
            for name, member in group.members.items():
                if member.process is None:
                    return f"{name} does not run"
                users = member.process.machine.queries.users("", len(self.histories) + 1)
                due = users if due is None else due
                if users != due:
                    return f"{name} has the users {users}, {group.names[0]} has {due}"
        return ""

    def check_end(self) -> None:
        """Compare the users that the control group holds with the histories."""
        users = self._world.group.any_process.machine.queries.users("", len(self.histories) + 1)
        self._compare({user.name: UserState(user.policies[0].pattern) for user in users})


def _user(name: str, right: str) -> User:
    return User(name, policies=(Policy("topic", right, ("publish",)),))


def _state(user: User) -> UserState:
    return UserState(user.policies[0].pattern)
