"""Damage to the file of a history: of its bytes, its lines, and the values in them."""

import json
import re
from pathlib import Path
from random import Random
from typing import Any, Final

from crc32c import crc32c

TAIL: Final = len(',"crc":"00000000"}\n')
ODD: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 1.5, 1 << 63, 1 << 64, 10**30, -(10**30), 1e308, "", "x", "1-1", "\0",
    "\ud800", "n1", "t/0", [], {}, [[]], [None], {"a": 1}, ["1-1"], [0, 1], [[["t/0", 0, ["1-1"]]]],
    "x" * 10_000, [0] * 1000,
)  # fmt: skip
RAW: Final = (
    b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0", b"1" * 400, b"1" * 5000, b"0.1e-400",
    b"[" * 200 + b"]" * 200, b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 50_000,
    b'"\\ud800"', b'"\xff\xfe"', b"\xff", b"nul", b"'x'", b"//", b"",
)  # fmt: skip


def signed(lines: list[bytes]) -> bytes:
    """Return lines, without the tails that hold their checksums, as a file of right ones."""
    crc, out = 0, bytearray()
    for text in lines:
        crc = crc32c(text, crc)
        out += b'%b,"crc":"%08x"}\n' % (text, crc)
    return bytes(out)


def damaged(good: bytes, random: Random) -> bytes:
    """Return the file with some damage; mostly with checksums that are right all the same."""
    if random.random() < 0.25:
        return _bytes(good, random)
    lines = [line[:-TAIL] for line in good.splitlines(keepends=True)]
    for _ in range(random.choice((1, 1, 2))):
        random.choice((_value, _value, _number, _number, _literal, _order))(lines, random)
    return signed(lines)


def _bytes(good: bytes, random: Random) -> bytes:
    data = bytearray(good)
    match random.randrange(5):
        case 0:
            return bytes(data[: random.randrange(len(data))])
        case 1:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        case 2:
            at = random.randrange(len(data))
            data[at:at] = random.randbytes(random.randint(1, 50))
        case 3:
            at = random.randrange(len(data))
            del data[at : at + random.randint(1, 200)]
        case _:
            return random.randbytes(random.randrange(300))
    return bytes(data)


def _value(lines: list[bytes], random: Random) -> None:
    """Put something odd where a value was, however deep, or another field in."""
    at = 0 if random.random() < 0.2 else random.randrange(len(lines))
    try:
        row = json.loads(lines[at] + b"}")
    except (ValueError, RecursionError):
        return
    node, key = row, random.choice([*row, "new"])
    while isinstance(node.get(key) if isinstance(node, dict) else node[key], (dict, list)):
        inner = node[key]
        if not inner or random.random() < 0.3:
            break
        node, key = (
            inner,
            random.choice(list(inner) if isinstance(inner, dict) else range(len(inner))),
        )
    if random.random() < 0.1 and isinstance(node, dict):
        node.pop(key, None)
    else:
        node[key] = random.choice(ODD)
    lines[at] = json.dumps(row, separators=(",", ":")).encode()[:-1]


def _number(lines: list[bytes], random: Random) -> None:
    """Put another number where one was."""
    at = random.randrange(len(lines))
    found = list(re.finditer(rb"(?<=[:,\[])-?\d+(?=[,\]}]|$)", lines[at]))
    if found:
        one = random.choice(found)
        numbers = (0, 1, int(one[0]) + random.choice((-1, 1, 2)), 1 << 31, 1 << 53, 1 << 62, 10**30)
        other = str(random.choice(numbers)).encode()
        lines[at] = lines[at][: one.start()] + other + lines[at][one.end() :]


def _literal(lines: list[bytes], random: Random) -> None:
    """Put bytes that are no JSON, or odd JSON, where something was."""
    at = random.randrange(len(lines))
    parts = lines[at].split(b":")
    parts[random.randrange(len(parts))] = random.choice(RAW)
    lines[at] = b":".join(parts)


def _order(lines: list[bytes], random: Random) -> None:
    """Leave lines out, double them, or put them elsewhere."""
    at = random.randrange(len(lines))
    line = lines.pop(at)
    for _ in range(random.randrange(3)):
        lines.insert(random.randrange(len(lines) + 1), line)


def write_damaged(path: Path, good: bytes, seed: int) -> None:
    """Write one of so many damaged files."""
    path.write_bytes(damaged(good, Random(seed)))
