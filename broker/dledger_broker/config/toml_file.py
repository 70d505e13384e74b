"""A member's file as values: read, and bounded before anything looks at them.

Owns: what a file may be, whatever its keys mean. Python's reader of TOML follows tables into one
another as deep as they go, and takes numbers of any length: both end in errors that name no file.
For a key of n names it takes memory for n * n of them.
"""

import tomllib
from pathlib import Path
from typing import Any, Final, cast

from dledger_broker.config.checks import ConfigError, Problem

LINE_LENGTH_MAX: Final = 2_048
"""Characters; a key cannot have more names than fit in a line."""
NESTING_MAX: Final = 16
"""Tables and lists within one another; a configuration needs four."""
NUMBER_BITS_MAX: Final = 64
"""With the sign, as TOML has them."""

Raw = dict[str, Any]
"""Values as TOML gives them; pydantic checks their types next."""


def read_toml(path: Path) -> Raw:
    """Return what a file holds; ConfigError when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
        limit = _too_long(text)
        if not limit:
            found = tomllib.loads(text)
            limit = _beyond(found)
            if not limit:
                return found
    except OSError as error:
        limit = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        limit = f"is not UTF-8 at byte {error.start}"
    except tomllib.TOMLDecodeError as error:
        limit = f"is not TOML: {error}"
    except RecursionError:
        limit = _too_deep()
    raise ConfigError([Problem("file", str(path), limit)])


def _too_long(text: str) -> str:
    """Return which line is too long; empty: none."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LINE_LENGTH_MAX:
            return f"has {len(line)} characters in line {number}, at most {LINE_LENGTH_MAX}"
    return ""


def _beyond(found: Raw) -> str:
    """Return which bound the values break; empty: none."""
    left: list[tuple[object, int]] = [(found, 1)]
    while left:
        value, depth = left.pop()
        if isinstance(value, int) and value.bit_length() >= NUMBER_BITS_MAX:
            return f"has a number of more than {NUMBER_BITS_MAX} bits"
        if not isinstance(value, dict | list):
            continue
        if depth > NESTING_MAX:
            return _too_deep()
        inner = (
            cast("Raw", value).values() if isinstance(value, dict) else cast("list[object]", value)
        )
        left += ((each, depth + 1) for each in inner)
    return ""


def _too_deep() -> str:
    return f"has tables or lists within one another, at most {NESTING_MAX} deep"
