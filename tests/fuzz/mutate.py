"""Changed inputs, drawn from a seeded `Random`: flips, cuts, lengths, splices, words. Pure.

Owns: the changes. Every change knows bytes only; what makes checksums right again is the target's.
"""

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

CHANGES_MAX: Final = 4
"""Of one input."""
INSERTED_BYTES_MAX: Final = 64
_FORMS: Final = ("<B", "<H", "<I", "<Q", ">I", ">Q")
_EDGES: Final = (0, 1, 2, 3, 4, 7, 8, 15, 16, 127, 128, 255, 256, 4_095, 65_535, 65_536)


def changed(random: Random, data: bytes, others: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """Return an input with one to a few changes; `others` give pieces for splices."""
    for _ in range(random.randint(1, CHANGES_MAX)):
        change = random.choice(_CHANGES)
        data = change(random, data, others, tokens)
    return data


def _flip(random: Random, data: bytes, *_: object) -> bytes:
    if not data:
        return random.randbytes(1)
    at = random.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << random.randrange(8),)) + data[at + 1 :]


def _byte(random: Random, data: bytes, *_: object) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + bytes((random.choice((0, 0x20, 0x7F, 0x80, 0xFF)),)) + data[at + 1 :]


def _cut(random: Random, data: bytes, *_: object) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _remove(random: Random, data: bytes, *_: object) -> bytes:
    first = random.randrange(len(data) + 1)
    return data[:first] + data[first + random.randint(1, INSERTED_BYTES_MAX) :]


def _insert(random: Random, data: bytes, *_: object) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.randbytes(random.randint(1, INSERTED_BYTES_MAX)) + data[at:]


def _double(random: Random, data: bytes, *_: object) -> bytes:
    first = random.randrange(len(data) + 1)
    piece = data[first : first + random.randint(1, INSERTED_BYTES_MAX)]
    return data[:first] + piece * random.choice((2, 3, 16)) + data[first + len(piece) :]


def _number(random: Random, data: bytes, *_: object) -> bytes:
    """Write a number of some size somewhere: a length, a count, an offset that lies."""
    form = struct.Struct(random.choice(_FORMS))
    most = (1 << 8 * form.size) - 1
    edges = (*_EDGES, len(data), len(data) + 1, most, most - 1, most >> 1, (most >> 1) + 1)
    value = random.choice(edges) if random.random() < 0.8 else random.randint(0, most)
    at = random.randrange(max(len(data) - form.size, 0) + 1)
    return data[:at] + form.pack(min(value, most)) + data[at + form.size :]


def _near(random: Random, data: bytes, *_: object) -> bytes:
    """Add a little to a number somewhere."""
    size = random.choice((1, 2, 4, 8))
    at = random.randrange(max(len(data) - size, 0) + 1)
    value = int.from_bytes(data[at : at + size], "little") + random.choice((-8, -1, 1, 8))
    return data[:at] + (value % (1 << 8 * size)).to_bytes(size, "little") + data[at + size :]


def _splice(random: Random, data: bytes, others: Sequence[bytes], _: object) -> bytes:
    other = random.choice(others) if others else data
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def _word(random: Random, data: bytes, _: object, tokens: Sequence[bytes]) -> bytes:
    if not tokens:
        return _number(random, data)
    at = random.randrange(len(data) + 1)
    end = at + random.choice((0, 0, 1, 4))
    return data[:at] + random.choice(tokens) * random.choice((1, 1, 1, 2, 64)) + data[end:]


_Change = Callable[[Random, bytes, Sequence[bytes], Sequence[bytes]], bytes]
_CHANGES: Final[Sequence[_Change]] = (
    _flip, _byte, _cut, _remove, _insert, _double, _number, _number, _near, _splice, _word, _word,
)  # fmt: skip
