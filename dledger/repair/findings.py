"""What a scrub has found, mended and left. Pure.

Owns: the counts, and the list of what is still damaged. A damage that is found again counts once.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """One scrub: what it has read, and what came of it. The default: there was none yet."""

    number: int = 0
    """Of the scrubs of this process."""
    started_ms: int = 0
    ended_ms: int = 0
    """0: it is under way, or was broken off."""
    read_bytes: int = 0
    total_bytes: int = 0
    found: int = 0
    mended: int = 0


@dataclass(slots=True)
class Findings:
    """The newest scrub, and what is damaged now."""

    scrub: Scrubbed = field(default_factory=Scrubbed)
    left: dict[Hashable, str] = field(default_factory=dict[Hashable, str])
    """What is damaged and why it was not mended, by what it is recognised by."""
    found_ever: int = 0
    """Since the process began, by scrubs and by reads."""
    mended_ever: int = 0
    _now: set[Hashable] = field(default_factory=set[Hashable])
    """What the newest scrub has counted."""

    @property
    def says(self) -> str:
        """What is left, in a sentence; empty: nothing."""
        if not self.left:
            return ""
        first = next(iter(self.left.values()))
        more = f", and {len(self.left) - 1} more" if len(self.left) > 1 else ""
        return f"damaged on this disk and not mended: {first}{more}"

    def begin(self, started_ms: int, total_bytes: int) -> None:
        """A scrub begins. What earlier ones have left is found by it again, or is no more."""
        self.scrub = Scrubbed(self.scrub.number + 1, started_ms, 0, 0, total_bytes)
        self._now.clear()

    def read(self, size: int) -> None:
        """Some bytes were read."""
        self._change(read_bytes=self.scrub.read_bytes + size)

    def found(self, key: Hashable) -> None:
        """Something is damaged."""
        if key not in self._now:
            self._now.add(key)
            self._change(found=self.scrub.found + 1)
            self.found_ever += key not in self.left

    def mended(self, key: Hashable) -> None:
        """Something damaged is as it was written again."""
        self.left.pop(key, None)
        self._now.discard(key)
        self._change(mended=self.scrub.mended + 1)
        self.mended_ever += 1

    def leave(self, key: Hashable, why: str) -> bool:
        """Something could not be mended; True when this was not known."""
        is_new = key not in self.left
        self.left[key] = why
        return is_new

    def end(self, ended_ms: int) -> None:
        """The scrub has read everything: what it did not find is damaged no more."""
        for key in [key for key in self.left if key not in self._now]:
            del self.left[key]
        self._change(ended_ms=ended_ms)

    def _change(self, **values: int) -> None:
        self.scrub = replace(self.scrub, **values)
