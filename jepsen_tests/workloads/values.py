"""Messages that can be recognised: a value, its checksum, and filling.

body = value | "|" | CRC32C of the value and the filling, 8 hex digits | "|" | filling
"""

from random import Random

from crc32c import crc32c


def body_of(value: str, random: Random, size: int) -> bytes:
    """Return a body of about `size` bytes that carries the value."""
    filling = random.randbytes(max(0, size - len(value) - 10))
    check = crc32c(filling, crc32c(value.encode()))
    return b"%b|%08x|%b" % (value.encode(), check, filling)


def value_of(body: bytes) -> str:
    """Return the value of a body, or "!" and hex when it is not one of ours."""
    value, _, rest = body.partition(b"|")
    check, bar, filling = rest.partition(b"|")
    if bar and check == b"%08x" % crc32c(filling, crc32c(value)) and value.isascii():
        return value.decode()
    return "!" + body[:40].hex()
