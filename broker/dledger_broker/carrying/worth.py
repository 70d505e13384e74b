"""Whether a pass is worth its copies: what it would free, and how much it may copy for that. Pure.

Owns: the targets that come into question, and the share. Not owned: what is alive below a target
(`dledger.state.queues.carry`), the loop that measures it (`carrying`).
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

BYTES_FREED_PER_COPIED: Final = 4
"""A pass copies at most this part of what it frees; so a group writes a third more at most."""


class Sealed(NamedTuple):
    """A segment that takes no entries any more."""

    end: int
    """Position behind its last entry."""
    last_index: int


class Chance(NamedTuple):
    """A target, and how many bytes a pass towards it may copy."""

    target: int
    budget: int


def chances(
    first_position: int, sealed: Sequence[Sealed], head: int, applied_index: int
) -> Iterator[Chance]:
    """Iterate over targets, the farthest first, each half as far in segments as the one before.

    `head`: the lowest position that the state needs. What lies below its segment goes anyway.
    """
    ends = [each.end for each in sealed if each.last_index <= applied_index]
    begins = max([end for end in ends if end <= head], default=first_position)
    ends = [end for end in ends if end > head]
    while ends:
        yield Chance(ends[-1], (ends[-1] - begins) // BYTES_FREED_PER_COPIED)
        ends = ends[: len(ends) // 2]
