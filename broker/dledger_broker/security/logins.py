"""Logins: who proves a secret on which connection, and what it may be taken for until when.

Owns: proofs under way, tokens, the waits after refused proofs, and their bounds. Not owned: the
messages (`dledger_proto.login.scram`), users (`dledger.state.users`), what they may do
(`deciding`).

A token holds for the connection that it was given to, for TOKEN_SECONDS, and as long as the user's
credentials are what they were. A user that does not exist is answered like one that does, with keys
that nobody knows; only another member would answer with another salt.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dledger.clock import Clock
from dledger.state.users.values import User
from dledger_proto.errors import Code, DledgerError
from dledger_proto.login import scram
from dledger_proto.login.derivation import KEY_SIZE, SALT_SIZE, hmac_of

TOKENS_MAX: Final = 100_000
"""Then the user that has most of them loses the one that it used longest ago."""
TOKEN_SECONDS: Final = 3_600.0
TOKEN_BYTES: Final = 32
PROOFS_MAX: Final = 1_024
PROOFS_PER_PEER_MAX: Final = 4
"""Of one connection: it pushes its own proofs out, and not those of others."""
PROOF_SECONDS: Final = 10.0
WAITS_MAX: Final = 10_000
"""Of users at addresses; those that were refused longest ago are forgotten first."""
WAIT_MIN_SECONDS: Final = 0.1
WAIT_MAX_SECONDS: Final = 30.0
UNDECIDED_WAIT_MAX_SECONDS: Final = 1.0
"""After proofs that this member could not decide about: their secret may be the right one."""
REFUSALS_FREE: Final = 3
"""So many refused proofs in a row cause no wait: a secret may just have been changed."""

FindUser = Callable[[str], User | None]


@dataclass(frozen=True, slots=True)
class Login:
    """What a token stands for."""

    user: User
    """As it was when it logged in."""
    peer: str
    until: float


@dataclass(frozen=True, slots=True)
class _Proof:
    asked: scram.Asked
    server_first: str
    keys: scram.Keys
    user: User | None
    peer: str
    until: float
    is_current: bool
    """False: this member could not confirm what it knows of the user."""


class Logins:
    """The logins of one process."""

    def __init__(self, find_user: FindUser, clock: Clock) -> None:
        self._find_user = find_user
        self._clock = clock
        self._tokens: dict[str, Login] = {}
        self._of_users: dict[str, OrderedDict[str, None]] = {}
        """The tokens of each user, in the order of their last use."""
        self._proofs: OrderedDict[str, _Proof] = OrderedDict()
        self._waits: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        """By user and host: refusals in a row, and until when to wait. A stranger elsewhere keeps
        nobody out. A program with a wrong secret does keep out those of the same user and host."""
        self._nobody = secrets.token_bytes(KEY_SIZE)

    def begin(self, client_first: str, peer: str, *, is_current: bool = True) -> str:
        """Return the member's first message; BUSY while its user has to wait at its address.

        `is_current`: what this member knows of users is confirmed.
        """
        asked = scram.parse_client_first(client_first)
        now = self._clock.monotonic()
        self._check_wait(asked.user, peer, now)
        user = self._find_user(asked.user)
        keys = self._nobodys(asked.user) if user is None else _keys_of(user)
        nonce = scram.nonce_text(secrets.token_bytes(scram.NONCE_SIZE))
        first = scram.server_first(asked, nonce, keys)
        while self._proofs and next(iter(self._proofs.values())).until <= now:
            self._proofs.popitem(last=False)
        own = [nonce for nonce, proof in self._proofs.items() if proof.peer == peer]
        if len(own) >= PROOFS_PER_PEER_MAX:
            del self._proofs[own[0]]
        elif len(self._proofs) >= PROOFS_MAX:
            self._proofs.popitem(last=False)
        self._proofs[asked.nonce + nonce] = _Proof(
            asked, first, keys, user, peer, now + PROOF_SECONDS, is_current
        )
        return first

    def asked_user(self, client_final: str) -> str:
        """Return whom a proof is of, whether or not it holds; empty: none such is under way."""
        proof = self._proofs.get(scram.parse_client_final(client_final).nonce)
        return "" if proof is None else proof.asked.user

    def finish(self, client_final: str, peer: str) -> tuple[str, str, User]:
        """Return the member's final message, a token, and whose it is; UNAUTHENTICATED.

        A proof is taken once: sending it again finds nothing. UNAVAILABLE says that nothing is
        decided: the client begins anew, at another member perhaps.
        """
        final = scram.parse_client_final(client_final)
        now = self._clock.monotonic()
        proof = self._proofs.pop(final.nonce, None)
        if proof is None or proof.peer != peer or proof.until <= now:
            raise DledgerError(
                Code.UNAVAILABLE,
                "no login is under way that this proof belongs to: it took more than "
                f"{PROOF_SECONDS:g} s, was used before, or came by another connection",
            )
        proven = scram.proves(proof.asked, proof.server_first, final, proof.keys)
        user = proof.user
        current = self._find_user(proof.asked.user)
        if not proven or user is None or not user.is_enabled or not _is_still(user, current):
            longest = WAIT_MAX_SECONDS if proof.is_current else UNDECIDED_WAIT_MAX_SECONDS
            self._refused(proof.asked.user, peer, now, longest)
            if not proof.is_current:
                sentence = "this member has no leader to ask, and may know an older secret"
                raise DledgerError(Code.UNAVAILABLE, sentence)
            raise DledgerError(Code.UNAUTHENTICATED, "user or secret is wrong")
        self._waits.pop((user.name, host_of(peer)), None)
        token = secrets.token_urlsafe(TOKEN_BYTES)
        if len(self._tokens) >= TOKENS_MAX:
            most = max(self._of_users, key=lambda name: len(self._of_users[name]))
            self._forget(next(iter(self._of_users[most])))
        self._tokens[token] = Login(user, peer, now + TOKEN_SECONDS)
        self._of_users.setdefault(user.name, OrderedDict())[token] = None
        server_final = scram.server_final(proof.asked, proof.server_first, final, proof.keys)
        return server_final, token, user

    def user_of(self, token: str, peer: str) -> User:
        """Return the user of a token, as it is now; UNAUTHENTICATED when the token has ended."""
        login = self._tokens.get(token)
        if login is not None and login.peer == peer and login.until > self._clock.monotonic():
            user = self._find_user(login.user.name)
            if user is not None and user.is_enabled and _is_still(login.user, user):
                self._of_users[user.name].move_to_end(token)
                return user
            self._forget(token)
        raise DledgerError(Code.UNAUTHENTICATED, "the login has ended, or there was none: log in")

    def _forget(self, token: str) -> None:
        name = self._tokens.pop(token).user.name
        del self._of_users[name][token]
        if not self._of_users[name]:
            del self._of_users[name]

    def _check_wait(self, user: str, peer: str, now: float) -> None:
        _, until = self._waits.get((user, host_of(peer)), (0, now))
        if until > now:
            raise DledgerError(
                Code.BUSY, f"too many refused logins of this user here: wait {until - now:.1f} s"
            )

    def _refused(self, user: str, peer: str, now: float, longest: float) -> None:
        key = user, host_of(peer)
        times, until = self._waits.pop(key, (0, now))
        times += 1
        seconds = 0.0
        if times > REFUSALS_FREE:
            seconds = WAIT_MIN_SECONDS * 2.0 ** min(times - REFUSALS_FREE - 1, 20)
        self._waits[key] = times, max(until, now + min(seconds, longest))
        if len(self._waits) > WAITS_MAX:
            self._waits.popitem(last=False)

    def _nobodys(self, user: str) -> scram.Keys:
        """Return keys of a user that does not exist: the same each time, as a user's are."""
        salt = hmac_of(self._nobody, user.encode())[:SALT_SIZE]
        return scram.Keys(salt, scram.ROUNDS_MIN, self._nobody, self._nobody)


def host_of(peer: str) -> str:
    """Return the host in what gRPC calls a peer: ipv4:1.2.3.4:5, ipv6:%5B::1%5D:5, unix:..."""
    family, _, rest = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return peer
    return rest.rpartition(":")[0].removeprefix("%5B").removesuffix("%5D").strip("[]")


def _keys_of(user: User) -> scram.Keys:
    of = user.credentials
    return scram.Keys(of.salt, of.rounds, of.stored_key, of.server_key)


def _is_still(before: User, now: User | None) -> bool:
    return now is not None and now.credentials == before.credentials
