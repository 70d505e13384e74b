"""The smallest part of a list that still fails: delta debugging (Zeller and Hildebrandt, 2002).

Owns: the search. It knows nothing of faults: it is told whether a part fails, and how many
questions it may ask. What it returns failed when it was asked; when the questions did not run out,
no element can be left out of it alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Budget:
    """How many questions are left."""

    left: int

    def take(self) -> bool:
        """Take one; False when none is left."""
        if self.left <= 0:
            return False
        self.left -= 1
        return True


def ddmin(items: Sequence[T], fails: Callable[[Sequence[T]], bool], budget: Budget) -> list[T]:
    """Return a small part of `items`, in their order, that fails. All of them are known to."""
    kept = list(items)
    parts = 2
    if kept and budget.take() and fails([]):
        return []
    while len(kept) >= 2:
        size = -(-len(kept) // parts)
        chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
        smaller = _first_failing(kept, chunks, fails, budget)
        if smaller is not None:
            parts = max(2, parts - 1) if len(smaller) > size else 2
            kept = smaller
        elif size == 1 or budget.left <= 0:
            break
        else:
            parts = min(len(kept), 2 * parts)
    return kept


def _first_failing(
    kept: Sequence[T],
    chunks: Sequence[Sequence[T]],
    fails: Callable[[Sequence[T]], bool],
    budget: Budget,
) -> list[T] | None:
    """Return the first chunk, or else the first rest without a chunk, that fails."""
    rests = [[each for other in chunks if other is not chunk for each in other] for chunk in chunks]
    candidates = [*chunks, *(rests if len(chunks) > 2 else [])]
    for candidate in candidates:
        if not budget.take():
            return None
        if fails(candidate):
            return list(candidate)
    return None
