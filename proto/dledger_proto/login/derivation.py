"""The keys that follow from a secret (RFC 5802, section 3)."""

import hashlib
import hmac
from typing import Final

HASH: Final = "sha256"
KEY_SIZE: Final = 32
SALT_SIZE: Final = 16


def hmac_of(key: bytes, message: bytes) -> bytes:
    """Return HMAC-SHA-256, 32 bytes."""
    return hmac.digest(key, message, HASH)


def client_key_of(secret: str, salt: bytes, rounds: int) -> bytes:
    """Return the key that a client proves to know; whoever has it can log in."""
    return hmac_of(_salted(secret, salt, rounds), b"Client Key")


def keys_of(secret: str, salt: bytes, rounds: int) -> tuple[bytes, bytes]:
    """Return stored key and server key: what a member keeps, and from which nobody can log in."""
    salted = _salted(secret, salt, rounds)
    stored = hashlib.sha256(hmac_of(salted, b"Client Key")).digest()
    return stored, hmac_of(salted, b"Server Key")


def _salted(secret: str, salt: bytes, rounds: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASH, secret.encode(), salt, rounds)
