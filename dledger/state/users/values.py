"""What a user is: how it proves itself, what it may do, and the limits of these fields.

Owns: the values. Not: how a login goes (`dledger_proto.login`), what follows from policies
(`dledger_broker.security.deciding`), how users change (`commands.py`).
"""

import enum
from dataclasses import dataclass
from typing import Final

from dledger.state.commands.codec import Blob, UInt8, UInt32

USERS_MAX: Final = 10_000
POLICIES_PER_USER_MAX: Final = 64
NETWORKS_PER_POLICY_MAX: Final = 16
USER_NAME_SIZE_MAX: Final = 64


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

    salt: Blob
    """16 to 64 bytes."""
    rounds: UInt32
    """Of PBKDF2 with SHA-256: 4,096 to 1,000,000."""
    stored_key: Blob
    """32 bytes."""
    server_key: Blob
    """32 bytes."""


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
