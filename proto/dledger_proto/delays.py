"""The delay levels, RocketMQ's table (S105): level n is the n-th delay."""

from typing import Final

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
DELAY_LEVELS_MS: Final = {
    "1s": _SECOND, "5s": 5 * _SECOND, "10s": 10 * _SECOND, "30s": 30 * _SECOND,
    "1m": _MINUTE, "2m": 2 * _MINUTE, "3m": 3 * _MINUTE, "4m": 4 * _MINUTE, "5m": 5 * _MINUTE,
    "6m": 6 * _MINUTE, "7m": 7 * _MINUTE, "8m": 8 * _MINUTE, "9m": 9 * _MINUTE,
    "10m": 10 * _MINUTE, "20m": 20 * _MINUTE, "30m": 30 * _MINUTE, "1h": _HOUR, "2h": 2 * _HOUR,
}  # fmt: skip
"""The delay of each level by its published name, in the order of the levels from 1 on."""
_BY_LEVEL: Final = tuple(DELAY_LEVELS_MS.values())
DELAY_LEVEL_MAX: Final = len(_BY_LEVEL)


def delay_of_level(level: int) -> int:
    """Return the delay of a level; a level above the last means the last. ValueError below 1."""
    if level < 1:
        raise ValueError(f"delay_level {level}, must be 1 to {DELAY_LEVEL_MAX}")
    return _BY_LEVEL[min(level, DELAY_LEVEL_MAX) - 1]
