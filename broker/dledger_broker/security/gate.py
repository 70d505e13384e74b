"""The gate before every call: who calls, and whether the caller may.

Owns: what a call without a right is told, and what is noted of it. A thing of which the caller
may do nothing does not exist for it: it gets the answer that a name without a thing gets. The gate
gives it before anything is looked up, so that both answers take the same way.
Not owned: what follows from policies (`deciding`), what a call needs (`rules`), logins (`logins`).
"""

import ipaddress
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from dledger.clock import Clock
from dledger.state.users.values import Action, ResourceKind, User
from dledger_broker.security import deciding
from dledger_broker.security.access import OPEN, Access, CallerContext
from dledger_broker.security.audit import Audit
from dledger_broker.security.deciding import SOME, UNKNOWN, Address, Resource
from dledger_broker.security.logins import FindUser, Logins, host_of
from dledger_proto.errors import Code, DledgerError
from dledger_proto.network.tls import is_member_of

LOGIN_KEY: Final = "dledger-login"
"""The metadata that carries a token."""
CATCH_UP_SECONDS: Final = 0.2
"""How long a login or a refusal waits for confirmed state. Without a leader there is none: then
whoever may not, as far as this member has heard, shall try again."""
RIGHTS_MAX: Final = 10_000
"""Answers that are remembered for calls to come; then all are forgotten."""


class PeerContext(CallerContext, Protocol):
    """What is used of a `grpc.aio.ServicerContext`."""

    def peer(self) -> str:
        """Return the other end of the connection."""
        ...


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that a call does."""

    action: Action
    resource: Resource
    not_found: str = ""
    """What is said where nothing of this name exists; empty: it is no secret that it does."""


class Caller(Protocol):
    """Who makes a call, as far as handlers ask."""

    @property
    def name(self) -> str:
        """The user; of a member: empty."""
        ...

    def allows(self, needs: Iterable[Need], /) -> bool:
        """Tell whether the caller may do all of this, by what this member has applied."""
        ...

    def check(self, needs: Iterable[Need], /) -> None:
        """Raise unless the caller may do all of this: NO_PERMISSION, or that it does not exist."""
        ...

    async def catch_up(self) -> None:
        """Apply what is decided about the caller; DledgerError when that is not possible now."""
        ...

    def knows(self, resource: Resource, /) -> bool:
        """Tell whether the caller may know of something."""
        ...

    def may(self, action: Action, resource: Resource, /) -> bool:
        """Tell whether the caller may do something."""
        ...

    def is_admin(self) -> bool:
        """Tell whether the caller is an administrator, or a member."""
        ...

    def check_admin(self, call: str, /) -> None:
        """Raise NO_PERMISSION unless the caller is an administrator, or a member."""
        ...

    def was_refused(self, error: DledgerError, wished: str, /) -> None:
        """Note in the audit what was refused by another rule than policies."""
        ...


class Everybody:
    """Who calls where no users are asked for; and a member, which speaks for the cluster."""

    name: str = ""

    def allows(self, _needs: Iterable[Need]) -> bool:
        """See `Caller`."""
        return True

    def check(self, _needs: Iterable[Need]) -> None:
        """See `Caller`."""

    async def catch_up(self) -> None:
        """See `Caller`."""

    def knows(self, _resource: Resource) -> bool:
        """See `Caller`."""
        return True

    def may(self, _action: Action, _resource: Resource) -> bool:
        """See `Caller`."""
        return True

    def is_admin(self) -> bool:
        """See `Caller`."""
        return True

    def check_admin(self, _call: str) -> None:
        """See `Caller`."""

    def was_refused(self, _error: DledgerError, _wished: str) -> None:
        """See `Caller`."""


EVERYBODY: Final = Everybody()


Confirm = Callable[[float], Awaitable[object]]
"""Waits so many seconds, at most, until what a quorum has is applied here; DledgerError."""


class Gate:
    """The gate of one process."""

    def __init__(
        self,
        access: Access,
        find_user: FindUser,
        clock: Clock,
        *,
        on: bool,
        confirm: Confirm | None = None,
    ) -> None:
        """`confirm` catches up with what is decided about users."""
        self.access = access
        self._confirm = confirm
        self.logins = Logins(find_user, clock)
        self.is_on = on
        self.audit = Audit(clock)
        self._rights: dict[tuple[int, str, Resource], tuple[User, int]] = {}

    def check_member(self, context: PeerContext, call: str) -> None:
        """Raise NO_PERMISSION unless the caller is a member of the cluster; `call`: its name."""
        try:
            self.access.check_member(context)
        except DledgerError as error:
            self.audit.refused("call", context.peer(), "", error, wished=call)
            raise

    def caller(self, context: PeerContext, metadata: Mapping[str, str], call: str) -> Caller:
        """Return who makes a call of this name; UNAUTHENTICATED when nobody has logged in."""
        if not self.is_on:
            return EVERYBODY
        names = self.access.names(context)
        if names is not None and is_member_of(names, self.access.cluster):
            return EVERYBODY
        peer = context.peer()
        token = metadata.get(LOGIN_KEY, "")
        try:
            user = self.logins.user_of(token, peer)
        except DledgerError as error:
            self.audit.refused("call", peer, "", error, wished=call)
            raise
        return _UserCaller(self, user.name, token, peer)

    async def catch_up_with_users(self) -> None:
        """Catch up with what is decided about users; DledgerError when it is not possible now."""
        if self._confirm is not None:
            await self._confirm(CATCH_UP_SECONDS)

    async def catch_up(self, *others: Confirm) -> bool:
        """Catch up with what is decided, if that is possible now: a no must not be out of date.

        Return whether it was possible.
        """
        is_current = True
        for confirm in (self._confirm, *others):
            if confirm is not None:
                try:
                    await confirm(CATCH_UP_SECONDS)
                except DledgerError:
                    is_current = False
        return is_current

    async def admit(
        self, caller: Caller, find_needs: Callable[[], Iterable[Need]], *others: Confirm
    ) -> None:
        """Raise unless the caller may; `others` catch up with topics. See `confirmed`."""
        if caller is EVERYBODY:
            return
        if not await self.confirmed(caller, lambda: caller.allows(find_needs()), *others):
            caller.check(find_needs())

    async def admit_admin(self, caller: Caller, call: str) -> None:
        """Raise unless the caller is an administrator, or a member. See `confirmed`."""
        if not await self.confirmed(caller, caller.is_admin):
            caller.check_admin(call)

    async def confirmed(self, caller: Caller, may: Callable[[], bool], *others: Confirm) -> bool:
        """Tell whether the caller may; UNAVAILABLE when it may not, and that cannot be confirmed.

        A member that lags may not have heard yet of a topic, or of a right: it refuses nobody
        before it has caught up (D10).
        """
        if may():
            return True
        is_current = await self.catch_up(*others)
        if may():
            return True
        if not is_current:
            raise DledgerError(
                Code.UNAVAILABLE, f"what user {caller.name} may cannot be confirmed now"
            )
        return False

    def rights(self, user: User, resource: Resource, host: str) -> int:
        """Return bits of `Action` that policies allow, remembered while the user stays the same."""
        key = id(user), host, resource
        known = self._rights.get(key)
        if known is not None and known[0] is user:
            return known[1]
        answer = deciding.rights(user, resource, _address(host))
        if len(self._rights) >= RIGHTS_MAX:
            self._rights.clear()
        self._rights[key] = user, answer
        return answer


def open_gate(clock: Clock) -> Gate:
    """Return a gate that lets everybody through."""
    return Gate(OPEN, lambda _name: None, clock, on=False)


class _UserCaller:
    """A user on one connection; it is looked up anew at each question, for streams live long."""

    __slots__ = ("_gate", "_host", "_peer", "_token", "name")

    def __init__(self, gate: Gate, name: str, token: str, peer: str) -> None:
        self._gate = gate
        self.name = name
        self._token = token
        self._peer = peer
        self._host = host_of(peer)

    def allows(self, needs: Iterable[Need]) -> bool:
        user = self._gate.logins.user_of(self._token, self._peer)
        return all(self._has(user, need.action, need.resource) for need in needs)

    def check(self, needs: Iterable[Need]) -> None:
        user = self._gate.logins.user_of(self._token, self._peer)
        for need in needs:
            if not self._has(user, need.action, need.resource):
                error = self._refusal(user, need)
                self.was_refused(error, f"{need.action.name} {_shown(need.resource)}")
                raise error

    async def catch_up(self) -> None:
        await self._gate.catch_up_with_users()

    def knows(self, resource: Resource) -> bool:
        user = self._gate.logins.user_of(self._token, self._peer)
        return bool(self._gate.rights(user, resource, self._host))

    def may(self, action: Action, resource: Resource) -> bool:
        user = self._gate.logins.user_of(self._token, self._peer)
        return self._has(user, action, resource)

    def is_admin(self) -> bool:
        return self._gate.logins.user_of(self._token, self._peer).is_admin

    def check_admin(self, call: str) -> None:
        if not self.is_admin():
            error = DledgerError(Code.NO_PERMISSION, "only an administrator may do this")
            self._gate.audit.refused("administration", self._peer, self.name, error, wished=call)
            raise error

    def was_refused(self, error: DledgerError, wished: str) -> None:
        self._gate.audit.refused("call", self._peer, self.name, error, wished=wished)

    def _has(self, user: User, action: Action, resource: Resource) -> bool:
        return bool(action.value & self._gate.rights(user, resource, self._host))

    def _refusal(self, user: User, need: Need) -> DledgerError:
        of = need.resource
        is_known = bool(self._gate.rights(user, of, self._host))
        if need.not_found and (of.name == UNKNOWN or not is_known):
            is_group = of.kind is ResourceKind.GROUP
            code = Code.CONSUMER_GROUP_NOT_FOUND if is_group else Code.TOPIC_NOT_FOUND
            return DledgerError(code, need.not_found)
        return DledgerError(
            Code.NO_PERMISSION, f"user {self.name} may not {need.action.name} {_shown(of)}"
        )


def _shown(resource: Resource) -> str:
    kind = resource.kind.name.lower()
    if resource.name == UNKNOWN:
        return f"all names of a {kind}"
    if resource.name == SOME:
        return f"some {kind}"
    return f"{kind} {resource.name}".rstrip()


@lru_cache(1_024)
def _address(host: str) -> Address | None:
    """Return an address to compare with networks; None when it is none."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
