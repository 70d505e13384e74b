"""What a user is: how it proves itself, what it may do, and the limits of these fields.

Owns: the values, and what they may hold. Not: how a login goes (`dledger_proto.login`), what
follows from policies (`dledger_broker.security.deciding`), how users change (`commands.py`).
"""

import enum
import ipaddress
from dataclasses import dataclass, field
from typing import Final

from dledger.state.commands.codec import Blob, UInt8, UInt32
from dledger_proto.errors import invalid
from dledger_proto.limits import GROUP_NAME_LENGTH_MAX, TOPIC_NAME_LENGTH_MAX
from dledger_proto.login.derivation import KEY_SIZE, SALT_SIZE
from dledger_proto.login.scram import ROUNDS_MAX, ROUNDS_MIN
from dledger_proto.names import check_name, check_user_name

USERS_MAX: Final = 10_000
POLICIES_PER_USER_MAX: Final = 64
NETWORKS_PER_POLICY_MAX: Final = 16
USER_NAME_SIZE_MAX: Final = 64
SALT_SIZE_MAX: Final = 64


class Action(enum.IntFlag):
    """What somebody wants to do; the names are RocketMQ's."""

    PUBLISH = 1
    SUBSCRIBE = 2
    CREATE = 4
    UPDATE = 8
    DELETE = 16
    GET = 32
    LIST = 64


ALL_ACTIONS: Final = Action(127)


class ResourceKind(enum.IntEnum):
    """What it is done to."""

    ANY = 0
    """Of whatever kind; a policy alone may say so."""
    CLUSTER = 1
    TOPIC = 2
    GROUP = 3
    """A consumer group: its retries and dead letters, too."""


class Match(enum.IntEnum):
    """How a policy's pattern meets a name."""

    ALL = 0
    EXACT = 1
    PREFIX = 2


@dataclass(frozen=True, slots=True)
class Policy:
    """One rule of a user."""

    kind: ResourceKind
    match: Match
    pattern: str
    """Empty with ALL."""
    actions: UInt8
    """Bits of `Action`, at least one."""
    allows: bool = True
    """False: it denies, and a denial wins."""
    networks: tuple[str, ...] = ()
    """As 10.0.0.0/8 or 2001:db8::/32, without bits behind the prefix; empty: from anywhere."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What proves a user's secret, and from which nobody can log in (RFC 5802)."""

    salt: Blob = field(repr=False)
    """16 to 64 bytes."""
    rounds: UInt32 = field(repr=False)
    """Of PBKDF2 with SHA-256: 4,096 to 1,000,000."""
    stored_key: Blob = field(repr=False)
    """32 bytes."""
    server_key: Blob = field(repr=False)
    """32 bytes."""

    def describe(self) -> str:
        """Say that there are some: nobody reads them in a log, and who has them can guess at them.

        `repr` says no more, for it may get into a traceback.
        """
        return "(kept)"


@dataclass(frozen=True, slots=True)
class User:
    """One user."""

    name: str
    """Its access key: 1 to 64 letters, digits and . _ - @"""
    credentials: Credentials
    is_admin: bool = False
    """True: it may do everything, and its policies say nothing."""
    is_enabled: bool = True
    """False: it cannot log in, and what it opened ends."""
    policies: tuple[Policy, ...] = ()


def check_user(user: User) -> None:
    """Raise INVALID_ARGUMENT, naming field, value and limit, unless there may be such a user."""
    check_user_name("user", user.name)
    _check_credentials(user.credentials)
    _check_count("policies", len(user.policies), POLICIES_PER_USER_MAX)
    for policy in user.policies:
        check_policy(policy)


def _check_credentials(credentials: Credentials) -> None:
    size = len(credentials.salt)
    if not SALT_SIZE <= size <= SALT_SIZE_MAX:
        raise invalid(f"salt of {size} bytes, must be {SALT_SIZE} to {SALT_SIZE_MAX}")
    if not ROUNDS_MIN <= credentials.rounds <= ROUNDS_MAX:
        raise invalid(f"rounds {credentials.rounds}, must be {ROUNDS_MIN} to {ROUNDS_MAX}")
    for name, key in (
        ("stored_key", credentials.stored_key),
        ("server_key", credentials.server_key),
    ):
        if len(key) != KEY_SIZE:
            raise invalid(f"{name} of {len(key)} bytes, must be {KEY_SIZE}")


def check_policy(policy: Policy) -> None:
    """Raise INVALID_ARGUMENT, naming field, value and limit, unless there may be such a policy."""
    if not 1 <= policy.actions <= ALL_ACTIONS:
        raise invalid(f"actions {policy.actions}, must be 1 to {int(ALL_ACTIONS)}")
    if policy.match is Match.ALL:
        if policy.pattern:
            raise invalid(f"pattern {policy.pattern!r}: must be empty where all are meant")
    elif policy.kind is ResourceKind.CLUSTER:
        raise invalid(f"pattern {policy.pattern!r}: there is one cluster, so all must be meant")
    else:
        is_group = policy.kind is ResourceKind.GROUP
        most = GROUP_NAME_LENGTH_MAX if is_group else TOPIC_NAME_LENGTH_MAX
        check_name("pattern", policy.pattern, most)
    _check_count("networks", len(policy.networks), NETWORKS_PER_POLICY_MAX)
    for network in policy.networks:
        _check_network(network)


def _check_network(network: str) -> None:
    try:
        known = ipaddress.ip_network(network)
    except ValueError as error:
        raise invalid(f"network {network[:USER_NAME_SIZE_MAX]!r}: {error}") from None
    if str(known) != network:
        raise invalid(f"network {network!r}: must be written as {known}")


def _check_count(field_name: str, count: int, most: int) -> None:
    if count > most:
        raise invalid(f"{count} {field_name}, at most {most}")
