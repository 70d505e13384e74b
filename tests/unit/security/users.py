"""Users for tests, and a login of one."""

from dledger.state.users.values import (
    Action,
    Credentials,
    Match,
    Policy,
    ResourceKind,
    User,
)
from dledger_broker.security.logins import Logins
from dledger_proto.login import scram
from dledger_proto.login.derivation import keys_of

SALT = b"0123456789abcdef"
NONCE = "abcdefghijklmnopqrstuvwx"


def user_of(name: str, secret: str = "secret", *policies: Policy, is_admin: bool = False) -> User:
    keys = keys_of(secret, SALT, scram.ROUNDS_MIN)
    credentials = Credentials(SALT, scram.ROUNDS_MIN, *keys)
    return User(name, credentials, is_admin=is_admin, policies=policies)


def allow(
    kind: ResourceKind,
    pattern: str,
    *actions: Action,
    allows: bool = True,
    networks: tuple[str, ...] = (),
) -> Policy:
    match = Match.EXACT
    if pattern.endswith("*"):
        pattern = pattern[:-1]
        match = Match.PREFIX if pattern else Match.ALL
    bits = Action(0)
    for action in actions:
        bits |= action
    return Policy(kind, match, pattern, int(bits), allows, networks)


def log_in(logins: Logins, name: str, peer: str, secret: str = "secret") -> str:
    """Return the token of a login."""
    login = scram.ClientLogin(name, secret, NONCE)
    final, token, _ = logins.finish(login.final(logins.begin(login.first, peer)), peer)
    login.check(final)
    return token
