"""Turns users from their replicated form into protobuf and back. Apply checks their rules."""

import enum
from collections.abc import Iterable
from typing import TypeVar

from dledger.state.users.values import Credentials, Match, Policy, ResourceKind, User
from dledger_proto.errors import invalid
from dledger_proto.v1 import users_pb2 as pb

E = TypeVar("E", bound=enum.IntEnum)


def user_to_proto(user: User, *, with_credentials: bool = False) -> pb.User:
    """Return the wire form of a user; credentials are for members alone."""
    wire = pb.User(
        name=user.name,
        is_admin=user.is_admin,
        is_disabled=not user.is_enabled,
        policies=[_policy_to_proto(policy) for policy in user.policies],
    )
    if with_credentials:
        of = user.credentials
        wire.credentials.CopyFrom(
            pb.UserCredentials(
                salt=of.salt, rounds=of.rounds, stored_key=of.stored_key, server_key=of.server_key
            )
        )
    return wire


def user_from_proto(wire: pb.User, credentials: Credentials | None = None) -> User:
    """Return the replicated form of a user; without credentials of its own, with these."""
    of = wire.credentials
    if wire.HasField("credentials") or credentials is None:
        credentials = Credentials(of.salt, of.rounds, of.stored_key, of.server_key)
    return User(
        wire.name,
        credentials,
        is_admin=wire.is_admin,
        is_enabled=not wire.is_disabled,
        policies=_policies(wire.policies),
    )


def _policies(wire: Iterable[pb.Policy]) -> tuple[Policy, ...]:
    return tuple(
        Policy(
            _known(ResourceKind, "policy kind", policy.kind),
            _known(Match, "policy match", policy.match),
            policy.pattern,
            policy.actions,
            not policy.denies,
            tuple(policy.networks),
        )
        for policy in wire
    )


def _policy_to_proto(policy: Policy) -> pb.Policy:
    return pb.Policy(
        kind=pb.PolicyKind.ValueType(int(policy.kind)),
        match=pb.PolicyMatch.ValueType(int(policy.match)),
        pattern=policy.pattern,
        actions=policy.actions,
        denies=not policy.allows,
        networks=policy.networks,
    )


def _known(of: type[E], field: str, number: int) -> E:
    try:
        return of(number)
    except ValueError:
        known = ", ".join(f"{each.value} {each.name}" for each in of)
        raise invalid(f"{field} {number}, must be one of {known}") from None
