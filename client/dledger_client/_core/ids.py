"""Producer ids and running numbers (D11, S117). Pure: random bytes and the clock are passed in.

A record's id is its producer's id (16 bytes) and a running number (8 bytes). A producer without a
name takes a random id and counts from 0. A named one has the same id in every life, so it starts
counting at a number that no earlier life can have reached: its start in milliseconds, times 2^20
(more than a thousand million records per second would be needed to reach the next life).
"""

import hashlib
from typing import Final

ID_SIZE: Final = 16
"""Bytes of the id of a producer, of one of its lives, of a topic."""
NAMED_NUMBER_SHIFT: Final = 20
NUMBER_MAX: Final = (1 << 63) - 1


def named_producer_id(cluster: str, name: str) -> bytes:
    """Return the 16-byte id of a producer name: the same in every process and every life."""
    text = b"dledger producer\0" + cluster.encode() + b"\0" + name.encode()
    return hashlib.blake2b(text, digest_size=ID_SIZE).digest()


def first_number(*, named: bool, wall_ms: int) -> int:
    """Return the running number of a new producer's first record."""
    if not named:
        return 0
    number = wall_ms << NAMED_NUMBER_SHIFT
    if not 0 <= number <= NUMBER_MAX:
        raise ValueError(
            f"wall clock {wall_ms} ms is outside 0..{NUMBER_MAX >> NAMED_NUMBER_SHIFT}"
        )
    return number
