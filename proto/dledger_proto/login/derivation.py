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


def client_keys_of(secret: str, salt: bytes, rounds: int) -> tuple[bytes, bytes]:
    """Return client key and server key: whoever has the first can log in. `rounds` take time."""
    salted = hashlib.pbkdf2_hmac(HASH, secret.encode(), salt, rounds)
    return hmac_of(salted, b"Client Key"), hmac_of(salted, b"Server Key")


def stored_key_of(client_key: bytes) -> bytes:
    """Return what a client key is compared with."""
    return hashlib.sha256(client_key).digest()


def keys_of(secret: str, salt: bytes, rounds: int) -> tuple[bytes, bytes]:
    """Return stored key and server key: what a member keeps, and from which nobody can log in."""
    client_key, server_key = client_keys_of(secret, salt, rounds)
    return stored_key_of(client_key), server_key
