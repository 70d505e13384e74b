"""Whether operations on one number can be put in an order that explains what they returned.

The search of Wing and Gong, with Lowe's memory of the configurations that were tried: take any
operation that began before every other one was over, if the number allows it, and go on. A
configuration is which operations are taken, the number they leave, and which unknown ones were
used. Depth first: a history that has an order is mostly found in one pass.

Two facts keep it small, and change no answer:
- an observation that is true now may be taken at once, for it changes nothing;
- a write of unknown outcome is needed only right before an operation that it makes possible, and
  then at most two of them: one that lowers the number, one that raises it. Anywhere else it can
  be left out, or moved to the next such operation.
"""

import enum
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

STATES_MAX: Final = 500_000
"""Configurations that are tried before giving up; each costs a few microseconds."""
SHOWN_MAX: Final = 10
"""Numbers that are shown of what the register could have held."""

Number = int | None


class Does(enum.Enum):
    """What an operation does with the number, and what it needs."""

    WRITE = "write"
    """Set it."""
    RAISE = "raise"
    """Set it; never to less than it is."""
    SEE = "see"
    """It is just this."""
    SEE_ABOVE = "see above"
    """It is more than this."""


class Step(msgspec.Struct, frozen=True):
    """One operation: rows of its invocation and its end, what it does, with which number."""

    called: int
    returned: int
    does: Does
    number: Number

    def allows(self, state: Number) -> bool:
        """Say whether it can happen while the register holds `state`."""
        if self.does is Does.WRITE:
            return True
        if self.does is Does.SEE:
            return state == self.number
        assert self.number is not None, "only a read may find nothing"
        if self.does is Does.RAISE:
            return state is None or self.number >= state
        return state is not None and state > self.number

    def after(self, state: Number) -> Number:
        """Return what the register holds then."""
        return self.number if self.writes else state

    @property
    def writes(self) -> bool:
        """It changes the number."""
        return self.does in (Does.WRITE, Does.RAISE)


class Stuck(msgspec.Struct):
    """No order was found: the first operation that fits nowhere, and what it could have met."""

    step: Step | None
    """None: the search was given up."""
    states: tuple[Number, ...] = ()


Config = tuple[int, int, Number, int]
"""How many steps are taken from the start; bits of those taken after; number; unknown ones used."""


class _Search:
    def __init__(self, certain: Sequence[Step], pending: Sequence[Step]) -> None:
        self.certain = sorted(certain, key=lambda step: step.called)
        self.pending = sorted(pending, key=lambda step: step.called)
        self._furthest = 0
        self._blocking: Step | None = None
        self._states: set[Number] = set()

    def run(self, states_max: int) -> Stuck | None:
        stack: list[Config] = [(0, 0, None, 0)]
        tried: set[Config] = set(stack)
        while stack:
            config = stack.pop()
            if config[0] == len(self.certain):
                return None
            if len(tried) > states_max:
                return Stuck(None)
            for after in self._next(config):
                if after not in tried:
                    tried.add(after)
                    stack.append(after)
        shown = sorted(self._states, key=lambda state: -1 if state is None else state)
        return Stuck(self._blocking, tuple(shown[:SHOWN_MAX]))

    def _next(self, config: Config) -> list[Config]:
        base, mask, state, used = config
        candidates = self._candidates(base, mask)
        blocking = min((self.certain[at] for at in candidates), key=lambda step: step.returned)
        self._note(blocking, state)
        for at in candidates:
            step = self.certain[at]
            if not step.writes and step.allows(state):
                return [(*_taken(base, mask, at), state, used)]
        found: list[Config] = []
        for at in reversed(candidates):  # the stack gives back the last one first
            step = self.certain[at]
            if step.allows(state):
                found.append((*_taken(base, mask, at), step.after(state), used))
                continue
            for enabled, spent in self._enabled(step, state, used, blocking.returned):
                found.append((*_taken(base, mask, at), step.after(enabled), spent))
        return found

    def _candidates(self, base: int, mask: int) -> list[int]:
        """Return the steps not taken that began before any other of these was over."""
        found: list[int] = []
        first_end = self.certain[base].returned
        for at in range(base, len(self.certain)):
            step = self.certain[at]
            if step.called > first_end:
                break
            if not mask >> (at - base) & 1:
                found.append(at)
                first_end = min(first_end, step.returned)
        return found

    def _enabled(
        self, step: Step, state: Number, used: int, before: int
    ) -> Iterator[tuple[Number, int]]:
        """Yield numbers that unknown writes can leave so that the step fits, and their bits."""
        free = list(self._free(used, before))
        for bit, write in free:
            if not step.allows(write.number):
                continue
            if write.allows(state):
                yield write.number, used | bit
                continue
            for lower_bit, lower in free:
                if lower.does is Does.WRITE and write.allows(lower.number):
                    yield write.number, used | bit | lower_bit

    def _free(self, used: int, before: int) -> Iterator[tuple[int, Step]]:
        """Yield unknown writes that were called in time; of equal ones the first."""
        given: set[tuple[Does, Number]] = set()
        for at, step in enumerate(self.pending):
            if step.called > before:
                return
            what = step.does, step.number
            if not used >> at & 1 and what not in given:
                given.add(what)
                yield 1 << at, step

    def _note(self, blocking: Step, state: Number) -> None:
        if blocking.returned > self._furthest:
            self._furthest, self._blocking = blocking.returned, blocking
            self._states.clear()
        if blocking.returned == self._furthest:
            self._states.add(state)


def _taken(base: int, mask: int, at: int) -> tuple[int, int]:
    mask |= 1 << (at - base)
    run = (~mask & (mask + 1)).bit_length() - 1  # how many are taken from the start
    return base + run, mask >> run


def linearize(
    certain: Sequence[Step], pending: Sequence[Step], states_max: int = STATES_MAX
) -> Stuck | None:
    """Return None when there is an order; `pending` may have happened at any time or never."""
    return _Search(certain, pending).run(states_max)
