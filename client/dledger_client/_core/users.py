"""Users and policies as clients see them, and what the wire has of them. Pure.

A secret never leaves the client: a member gets the keys that follow from it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dledger_client.errors import invalid
from dledger_proto.errors import DledgerError
from dledger_proto.login.derivation import keys_of
from dledger_proto.login.scram import ROUNDS_MIN
from dledger_proto.names import check_user_name
from dledger_proto.v1 import users_pb2 as pb

SECRET_LENGTH_MIN: Final = 16
CHOSEN_ROUNDS: Final = 200_000
"""Of PBKDF2 for a secret that a person chose: whoever has the keys guesses that much slower."""
DRAWN_ROUNDS: Final = ROUNDS_MIN
"""For a secret of 256 random bits, which nobody guesses."""
ACTIONS: Final[Mapping[str, int]] = {
    "publish": 1,
    "subscribe": 2,
    "create": 4,
    "update": 8,
    "delete": 16,
    "get": 32,
    "list": 64,
}
KINDS: Final = ("any", "cluster", "topic", "group")
"""In the order of the wire's numbers."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One rule of a user. A denial wins; without a policy that allows, the answer is no."""

    kind: str
    """"topic", "group" (a consumer group), "cluster", or "any"."""
    pattern: str
    """A name; the beginning of names with * behind it; * alone: all."""
    actions: tuple[str, ...]
    """Of "publish", "subscribe", "create", "update", "delete", "get", "list"."""
    allows: bool = True
    networks: tuple[str, ...] = ()
    """As 10.0.0.0/8; empty: from anywhere."""


@dataclass(frozen=True, slots=True)
class User:
    """A user, without what proves its secret."""

    name: str
    is_admin: bool = False
    is_enabled: bool = True
    policies: tuple[Policy, ...] = ()


@dataclass(frozen=True, slots=True)
class UserChange:
    """A user as it is, or as it was when it was deleted."""

    user: User
    revision: int
    """Of the list of users: a change that names it is refused when users changed since."""
    missing_groups: tuple[str, ...] = ()
    """Broker groups that have not taken the change over yet."""


def user_request(user: User) -> pb.User:
    """Return the wire form of a user; InvalidRequest names what it cannot be."""
    check_user(user.name)
    return pb.User(
        name=user.name,
        is_admin=user.is_admin,
        is_disabled=not user.is_enabled,
        policies=[_wire_policy(policy) for policy in user.policies],
    )


def credentials_of(secret: str, salt: bytes, *, is_drawn: bool) -> pb.UserCredentials:
    """Return what a member keeps of a secret."""
    if len(secret) < SECRET_LENGTH_MIN:
        raise invalid(f"secret of {len(secret)} characters, must be at least {SECRET_LENGTH_MIN}")
    rounds = DRAWN_ROUNDS if is_drawn else CHOSEN_ROUNDS
    stored_key, server_key = keys_of(secret, salt, rounds)
    return pb.UserCredentials(
        salt=salt, rounds=rounds, stored_key=stored_key, server_key=server_key
    )


def user_of(wire: pb.User) -> User:
    """Return a user of an answer."""
    return User(
        wire.name,
        wire.is_admin,
        not wire.is_disabled,
        tuple(_policy_of(policy) for policy in wire.policies),
    )


def change_of(reply: pb.UserReply) -> UserChange:
    """Return what a call came to."""
    return UserChange(user_of(reply.user), reply.revision, tuple(reply.missing_groups))


def check_user(name: str) -> None:
    """Refuse a name that no user can have."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise invalid(f"user: {type(name).__name__}, must be str")
    try:
        check_user_name("user", name)
    except DledgerError as error:
        raise invalid(error.detail) from None


def _wire_policy(policy: Policy) -> pb.Policy:
    if policy.kind not in KINDS:
        raise invalid(f"policy kind {policy.kind!r}, must be one of {', '.join(KINDS)}")
    match, pattern = pb.POLICY_MATCH_EXACT, policy.pattern
    if pattern.endswith("*"):
        pattern = pattern[:-1]
        match = pb.POLICY_MATCH_PREFIX if pattern else pb.POLICY_MATCH_ALL
    return pb.Policy(
        kind=pb.PolicyKind.ValueType(KINDS.index(policy.kind)),
        match=match,
        pattern=pattern,
        actions=_bits(policy.actions),
        denies=not policy.allows,
        networks=policy.networks,
    )


def _bits(actions: Iterable[str]) -> int:
    bits = 0
    for action in actions:
        if action not in ACTIONS:
            raise invalid(f"action {action!r}, must be one of {', '.join(ACTIONS)}")
        bits |= ACTIONS[action]
    return bits


def _policy_of(wire: pb.Policy) -> Policy:
    star = "" if wire.match == pb.POLICY_MATCH_EXACT else "*"
    return Policy(
        KINDS[wire.kind],
        wire.pattern + star,
        tuple(name for name, bit in ACTIONS.items() if wire.actions & bit),
        not wire.denies,
        tuple(wire.networks),
    )
