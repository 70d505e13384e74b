"""Checks of numbers that callers give, before anything depends on them. Pure.

Owns: the sentence that names field, value and limit. Not: what a message may hold
(`message_checks.py`).
"""

from dledger_client.config import TIMEOUT_MS_MAX
from dledger_client.errors import invalid
from dledger_proto.limits import OFFSET_MAX

UINT32_MAX = (1 << 32) - 1
"""Of a number on the wire whose own limit only the members know."""


def check_integer(field: str, value: object, maximum: int = OFFSET_MAX, minimum: int = 0) -> None:
    """Raise InvalidRequest unless `value` is an integer from `minimum` to `maximum`."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise invalid(f"{field}: {value!r}, must be an integer from {minimum} to {maximum}")


def checked_timeout(timeout_ms: object) -> float:
    """Return milliseconds as seconds; InvalidRequest unless a number from 0 to TIMEOUT_MS_MAX."""
    if not isinstance(timeout_ms, int | float) or not 0 <= timeout_ms <= TIMEOUT_MS_MAX:
        raise invalid(f"timeout_ms: {timeout_ms!r}, must be a number from 0 to {TIMEOUT_MS_MAX}")
    return timeout_ms / 1_000
