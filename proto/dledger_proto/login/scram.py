"""The messages of a login, as the client and as the member see them (RFC 5802, RFC 7677).

Owns: the text of the four messages, who proves what by them, the limits of their fields. Not owned:
who is a user, nonces that were used, what a login opens (`dledger_broker.security.logins`).

    client first   n,,n=USER,r=NONCE
    server first   r=NONCE OF BOTH,s=SALT,i=ROUNDS
    client final   c=biws,r=NONCE OF BOTH,p=PROOF
    server final   v=SIGNATURE

There is no channel binding: gRPC does not show what TLS would bind to. The member binds the login
to the connection instead.
"""

import base64
import binascii
import hmac
import re
from dataclasses import dataclass
from typing import Final

from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.login.derivation import KEY_SIZE, client_keys_of, hmac_of, stored_key_of
from dledger_proto.names import check_user_name

ROUNDS_MIN: Final = 4_096
ROUNDS_MAX: Final = 1_000_000
NONCE_SIZE: Final = 24
"""Random bytes of each side's nonce; its text is base64."""
NONCE_TEXT_MAX: Final = 128
MESSAGE_SIZE_MAX: Final = 1_024
GS2: Final = "n,,"
"""No channel binding."""
_BINDING: Final = base64.b64encode(GS2.encode()).decode()
_FIRST: Final = re.compile(r"n,,(n=([A-Za-z0-9._@-]{1,64}),r=([!-+\--~]{18,128}))")
_SERVER_FIRST: Final = re.compile(r"r=([!-+\--~]{18,256}),s=([A-Za-z0-9+/=]{1,128}),i=(\d{1,7})")
_FINAL: Final = re.compile(r"(c=biws,r=([!-+\--~]{18,256})),p=([A-Za-z0-9+/=]{1,64})")
_SERVER_FINAL: Final = re.compile(r"v=([A-Za-z0-9+/=]{1,64})")


@dataclass(frozen=True, slots=True)
class Asked:
    """A client's first message."""

    user: str
    nonce: str
    bare: str
    """The part of it that is signed."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What a member has of a user's secret."""

    salt: bytes
    rounds: int
    stored_key: bytes
    server_key: bytes


def nonce_text(random_bytes: bytes) -> str:
    """Return a nonce as it stands in messages."""
    return base64.b64encode(random_bytes).decode()


def client_first(user: str, nonce: str) -> str:
    """Return the first message of a login."""
    return f"{GS2}n={user},r={nonce}"


def parse_client_first(text: str) -> Asked:
    """Read a client's first message; INVALID_ARGUMENT."""
    found = _matched(_FIRST, "client_first", text)
    return Asked(found[2], found[3], found[1])


def server_first(asked: Asked, server_nonce: str, keys: Keys) -> str:
    """Return the member's first message."""
    salt = base64.b64encode(keys.salt).decode()
    return f"r={asked.nonce}{server_nonce},s={salt},i={keys.rounds}"


@dataclass(frozen=True, slots=True)
class Proof:
    """A client's final message."""

    nonce: str
    bare: str
    proof: bytes


def parse_client_final(text: str) -> Proof:
    """Read a client's final message; INVALID_ARGUMENT."""
    found = _matched(_FINAL, "client_final", text)
    return Proof(found[2], found[1], _decoded("client_final", found[3]))


def proves(first: Asked, server_first_text: str, final: Proof, keys: Keys) -> bool:
    """Tell whether the client knows the secret; the time does not depend on the bytes."""
    signed = f"{first.bare},{server_first_text},{final.bare}".encode()
    signature = hmac_of(keys.stored_key, signed)
    if len(final.proof) != KEY_SIZE:
        return False
    client_key = bytes(a ^ b for a, b in zip(final.proof, signature, strict=True))
    return hmac.compare_digest(stored_key_of(client_key), keys.stored_key)


def server_final(first: Asked, server_first_text: str, final: Proof, keys: Keys) -> str:
    """Return the message by which the member proves that it knows the user."""
    signed = f"{first.bare},{server_first_text},{final.bare}".encode()
    return f"v={base64.b64encode(hmac_of(keys.server_key, signed)).decode()}"


class ClientLogin:
    """A client's side of one login."""

    def __init__(self, user: str, secret: str, nonce: str) -> None:
        check_user_name("user", user)
        self._secret = secret
        self._nonce = nonce
        self.first = client_first(user, nonce)
        """To be sent first."""
        self._bare = self.first.removeprefix(GS2)
        self._expected = b""

    def final(self, server_first_text: str) -> str:
        """Return the answer to the member's first message.

        INVALID_ARGUMENT: the message is none, or would make the secret easy to guess. The call
        takes as long as `rounds` of PBKDF2 take.
        """
        found = _matched(_SERVER_FIRST, "server_first", server_first_text)
        nonce, salt, rounds = found[1], _decoded("server_first", found[2]), int(found[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise invalid("server_first: its nonce does not go on from the client's")
        if not ROUNDS_MIN <= rounds <= ROUNDS_MAX:
            raise invalid(f"server_first: {rounds} rounds, must be {ROUNDS_MIN} to {ROUNDS_MAX}")
        bare = f"c={_BINDING},r={nonce}"
        signed = f"{self._bare},{server_first_text},{bare}".encode()
        client_key, server_key = client_keys_of(self._secret, salt, rounds)
        signature = hmac_of(stored_key_of(client_key), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected = hmac_of(server_key, signed)
        return f"{bare},p={base64.b64encode(proof).decode()}"

    def check(self, server_final_text: str) -> None:
        """Check that the member knows the user: UNAUTHENTICATED when it does not."""
        found = _matched(_SERVER_FINAL, "server_final", server_final_text)
        shown = _decoded("server_final", found[1])
        if not self._expected or not hmac.compare_digest(shown, self._expected):
            raise DledgerError(
                Code.UNAUTHENTICATED, "the member did not prove that it knows the user"
            )


def _matched(form: re.Pattern[str], field: str, text: str) -> re.Match[str]:
    found = form.fullmatch(text) if len(text) <= MESSAGE_SIZE_MAX else None
    if found is None:
        raise invalid(f"{field} of {len(text)} characters: no such message of a login")
    return found


def _decoded(field: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{field}: no base64") from None
