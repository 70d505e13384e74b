"""What time a group has: the majority's median clock, carried forward by the monotonic one (D8).

Owns: what is known of the members' wall clocks, the group's time that follows, how long a jump of
theirs waits, what an entry is stamped with, and whether this member's own clock is off. Pure.
Does not own how clocks travel (`replication/leader.py`, `replication/follower.py`), nor what a
member with a clock that is off leaves to others (`election.py`, `transfer.py`).

A *base* is a wall clock less the monotonic clock of this member, in milliseconds. A base stays the
same while no clock is set, so a reading that was heard once remains true. A slow message makes the
base of its sender look too low, never too high.
"""

import math
from typing import Final

from dledger.clock import Clock
from dledger.trace import Trace
from dledger.types import MemberId

CLOCK_OFFSET_MAX_MS: Final = 1_000
"""A stamp differs from the group's time by at most this. A member whose clock differs more says so,
and does not campaign while another member can."""
CLOCK_AGREES_MS: Final = 500
"""A clock that was off is right again within this. So is the clock of a member that takes over."""
ODD_SECONDS: Final = 5.0
"""A clock that is off for so long is logged, and a leader hands over."""
READING_SECONDS_MAX: Final = 1.0
"""A reading that took longer to arrive may be much too low, and does not lower a base."""
JUMP_MAX_MS: Final = 60_000
"""The group's time follows a jump of the majority's median at once, up to this size."""
JUMP_REST_SECONDS: Final = 600.0
"""A larger jump, ahead or back, must last so long before the group's time follows it. Of a median
that went to and fro meanwhile, as much as has lasted is followed."""


class GroupClock:
    """One member's knowledge of its group's time."""

    def __init__(self, clock: Clock, members: int, trace: Trace) -> None:
        self._clock = clock
        self._members = members
        self._trace = trace
        self._bases: dict[MemberId, int] = {}
        """Bases of the other members by their newest readings; kept when a member falls silent."""
        self._heard: set[MemberId] = set()
        """Members that gave a reading in this member's present reign."""
        self._base: int | None = None
        """The base of the group's time; None while nothing is known."""
        self._was_told = False
        """A leader has told the group's time; else this member only knows its own readings."""
        self._jump_at: float | None = None
        """Since when the median is off by more than JUMP_MAX_MS, always to the same side."""
        self._lasted = 0
        """The median that was nearest to the group's time since then."""
        self.jump_ms = 0
        """How far the majority's median is ahead of the group's time while a jump waits; else 0.
        Below 0 it is behind. A follower knows it from the leader."""
        self._off_since = math.inf
        self._told_odd = False

    # What is heard.

    def leader_says(self, group_ms: int, jump_ms: int = 0) -> None:
        """Take from the leader the group's time (0: not known) and a jump that waits."""
        if group_ms:
            self._base = group_ms - self._monotonic_ms()
            self._was_told, self._jump_at, self.jump_ms = True, None, jump_ms
        self.watch()

    def end_reign(self) -> None:
        """Count no reading for the next reign: a new leader hears a majority first."""
        self._heard.clear()
        self._jump_at = None

    def reading(self, member: MemberId, wall_ms: int, *, timely: bool) -> None:
        """Take a member's clock from an answer; `timely`: read within READING_SECONDS_MAX."""
        base = wall_ms - self._monotonic_ms()
        known = self._bases.get(member)
        if timely or known is None or base > known:
            self._bases[member] = base
        self._heard.add(member)
        if known is None and not self._was_told and self._hears_majority:
            self._base = None  # a majority replaces a smaller number of clocks: no jump
        self._agree()

    # The group's time.

    def _monotonic_ms(self) -> int:
        return int(self._clock.monotonic() * 1_000)

    def _own_base(self) -> int:
        return self._clock.wall_ms() - self._monotonic_ms()

    @property
    def _hears_majority(self) -> bool:
        return len(self._heard) + 1 > self._members // 2

    def _agree(self) -> None:
        """Let the group's time follow the median, as far as a majority was heard in this reign."""
        if not self._hears_majority:
            return
        bases = sorted((self._own_base(), *self._bases.values()))
        # Clocks that were never heard count as earlier: of three known of five, two may be ahead.
        median = bases[(self._members - 1) // 2 - (self._members - len(bases))]
        if self._base is None or abs(median - self._base) <= JUMP_MAX_MS:
            self._base, self._jump_at, self.jump_ms = median, None, 0
        else:
            self._wait(median, median - self._base)

    def _wait(self, median: int, jump_ms: int) -> None:
        """Go on with the group's time until a jump has lasted; a jump that turns waits anew."""
        now = self._clock.monotonic()
        if self._jump_at is None or jump_ms * self.jump_ms < 0:
            self._jump_at, self._lasted = now, median
            self._trace.event("clock_jumped", jump_ms=jump_ms, waits=JUMP_REST_SECONDS)
        self.jump_ms = jump_ms
        self._lasted = (min if jump_ms > 0 else max)(self._lasted, median)
        if now - self._jump_at >= JUMP_REST_SECONDS:
            self._trace.event("clock_followed", jump_ms=jump_ms - (median - self._lasted))
            self._base, self._jump_at, self.jump_ms = self._lasted, None, 0
            self._agree()  # what is left is a small step, or the next jump

    def group_ms(self) -> int | None:
        """Return the group's time; None while nothing is known of it."""
        self._agree()
        return None if self._base is None else self._base + self._monotonic_ms()

    def stamp_ms(self, last_ms: int) -> int:
        """Return what an entry is stamped with now, behind one stamped `last_ms`."""
        group_ms = self.group_ms()
        if group_ms is None:
            return last_ms
        own_ms = self._clock.wall_ms()
        earliest, latest = group_ms - CLOCK_OFFSET_MAX_MS, group_ms + CLOCK_OFFSET_MAX_MS
        return max(last_ms, min(max(own_ms, earliest), latest))

    @property
    def is_known(self) -> bool:
        """Tell whether there is a group's time to stamp by."""
        return self._base is not None or self.group_ms() is not None

    # Who is off.

    def offset_ms(self, member: MemberId | None = None) -> int | None:
        """Return a clock less the group's time, the own one by default; None: unknown."""
        self._agree()
        base = self._own_base() if member is None else self._bases.get(member)
        return None if base is None or self._base is None else base - self._base

    def _off_ms(self, member: MemberId | None = None) -> int | None:
        """Return how far a clock is off the majority's, the own one by default; None: unknown.

        While a jump waits, both are right: the majority's clock, and the time that goes on.
        """
        offset_ms = self.offset_ms(member)
        if offset_ms is None:
            return None
        return min(offset_ms, offset_ms - self.jump_ms, key=abs)

    def agrees(self, member: MemberId) -> bool:
        """Tell whether a member's clock is known to be right."""
        off_ms = self._off_ms(member)
        return off_ms is not None and abs(off_ms) <= CLOCK_AGREES_MS

    @property
    def is_off(self) -> bool:
        """The own clock was further off than CLOCK_OFFSET_MAX_MS, and does not agree again."""
        return self._off_since < math.inf

    def watch(self) -> None:
        """Compare this member's clock with the group's time; called with each heartbeat."""
        offset_ms, now = self._off_ms() or 0, self._clock.monotonic()
        if abs(offset_ms) <= CLOCK_AGREES_MS:
            self._off_since = math.inf
            if self._told_odd:
                self._told_odd = False
                self._trace.event("clock_agrees", offset_ms=offset_ms)
        elif abs(offset_ms) > CLOCK_OFFSET_MAX_MS:
            self._off_since = min(self._off_since, now)
        if not self._told_odd and self.is_odd:
            self._told_odd = True
            self._trace.event("clock_off", offset_ms=offset_ms)

    @property
    def is_odd(self) -> bool:
        """The clock is off for ODD_SECONDS: this is no late message and no short correction."""
        return self._clock.monotonic() - self._off_since >= ODD_SECONDS

    def describe(self, last_ms: int | None) -> list[str]:
        """Return what an operator must know, in sentences; `last_ms` is a leader's newest stamp."""
        said: list[str] = []
        group_ms = self.group_ms()
        if self.is_off:
            said.append(f"this member's clock is {self._off_ms()} ms off the majority's clock")
        if self._jump_at is not None:
            left = max(JUMP_REST_SECONDS - (self._clock.monotonic() - self._jump_at), 0.0)
            way = "ahead" if self.jump_ms > 0 else "back"
            said.append(
                f"the majority's clock jumped {way} by {abs(self.jump_ms)} ms: entries are stamped "
                f"without the jump for another {left:.0f} s"
            )
        ahead_ms = 0 if group_ms is None or last_ms is None else last_ms - group_ms
        if ahead_ms > CLOCK_OFFSET_MAX_MS:
            said.append(
                f"the newest stamp is {ahead_ms} ms ahead of the majority's clock: "
                f"time stamps stand still until the clock has caught up"
            )
        return said
