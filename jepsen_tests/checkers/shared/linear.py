"""The search for an order of operations on one number that explains what they returned.

This is the search of Wing and Gong with Lowe's memory of tried configurations. It takes any
operation that began before every other one was over, if the number allows the operation, and goes
on. A configuration says which operations are taken, which number they leave, and which unknown
writes were used. The search goes depth first: it mostly finds an existing order in one pass.

Three facts keep the search small and change no answer:

- An observation that is true now may be taken at once, because it changes nothing.
- A write of unknown outcome is needed only right before an operation that it makes possible. Then
  at most two are needed: one that lowers the number, one that raises it. Anywhere else the write
  can be left out, or moved to the next such operation.
- If there is no order even when unknown writes may happen more than once, there is no order. The
  search tries this first. A configuration then need not say which writes were used, and the answer
  is mostly the true one.
"""

import enum
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

STATES_MAX: Final = 500_000
"""The search gives up after so many configurations. Each takes a few microseconds."""
SHOWN_MAX: Final = 10
"""A finding shows at most so many numbers that the register could have held."""

Number = int | None


class Effect(enum.IntEnum):
    """What an operation does with the register, and what it needs."""

    WRITE = 0
    """Set the number."""
    RAISE = 1
    """Set the number, never to a lower one."""
    SEE = 2
    """See that the register holds just this number."""
    SEE_ABOVE = 3
    """See that the register holds a higher number."""


class RegisterOp(msgspec.Struct, frozen=True):
    """One operation: rows of its invocation and its end, what it does, with which number."""

    called: int
    returned: int
    does: Effect
    number: Number

    def allows(self, state: Number) -> bool:
        """Say whether the operation can happen while the register holds `state`."""
        if self.does is Effect.WRITE:
            return True
        if self.does is Effect.SEE:
            return state == self.number
        assert self.number is not None, "only a read may find nothing"
        if self.does is Effect.RAISE:
            return state is None or self.number >= state
        return state is not None and state > self.number

    def after(self, state: Number) -> Number:
        """Return what the register holds after the operation."""
        return self.number if self.writes else state

    @property
    def writes(self) -> bool:
        """Whether the operation sets the number."""
        return self.does <= Effect.RAISE


class Stuck(msgspec.Struct):
    """There is no order: the first operation that fits nowhere, and the numbers it could meet."""

    step: RegisterOp | None
    """None: the search gave up."""
    states: tuple[Number, ...] = ()


Config = tuple[int, int, Number, int]
"""How many steps are taken from the start; bits of steps taken after these; the number; bits of
unknown writes used."""


class _Search:
    """One search; `again` lets unknown writes happen more than once."""

    def __init__(
        self, certain: Sequence[RegisterOp], pending: Sequence[RegisterOp], *, again: bool
    ) -> None:
        self.certain = sorted(certain, key=lambda step: step.called)
        self.pending = sorted(pending, key=lambda step: step.called)
        self.again = again
        self.cheated = False
        """The order that was found uses an unknown write twice."""
        self._called = [step.called for step in self.certain]
        self._returned = [step.returned for step in self.certain]
        self._fitting: dict[RegisterOp, list[int]] = {}
        self._furthest = 0
        self._blocking: RegisterOp | None = None
        self._states: set[Number] = set()

    def run(self, states_max: int) -> Stuck | None:
        stack: list[Config] = [(0, 0, None, 0)]
        tried: set[tuple[Number, ...]] = set()
        while stack:
            config = stack.pop()
            if config[0] == len(self.certain):
                self.cheated = bool(config[3] >> len(self.pending))
                return None
            if len(tried) > states_max:
                return Stuck(None)
            for after in self._next(config):
                key = after[:3] if self.again else after
                if key not in tried:
                    tried.add(key)
                    stack.append(after)
        shown = sorted(self._states, key=lambda state: -1 if state is None else state)
        return Stuck(self._blocking, tuple(shown[:SHOWN_MAX]))

    def _next(self, config: Config) -> list[Config]:
        """Return what can follow, the most promising last: the stack returns that one first."""
        base, mask, state, used = config
        candidates = self._candidates(base, mask)
        for at in candidates:
            step = self.certain[at]
            if step.does >= Effect.SEE and step.allows(state):
                return [(*_taken(base, mask, at), state, used)]
        candidates.sort(key=self._returned.__getitem__, reverse=True)
        blocking = self.certain[candidates[-1]]
        promising: list[Config] = []
        found: list[Config] = []
        for at in candidates:
            step = self.certain[at]
            if step.allows(state):
                after = (*_taken(base, mask, at), step.number, used)  # a write, or it were taken
                helps = not blocking.writes and blocking.allows(step.number)
                (promising if helps else found).append(after)
            elif self.pending:
                for enabled, spent in self._enabled(step, state, used, blocking.returned):
                    found.append((*_taken(base, mask, at), step.after(enabled), spent))
        if not found and not promising:
            self._note(blocking, state)
        return found + promising

    def _candidates(self, base: int, mask: int) -> list[int]:
        """Return the steps not yet taken that began before any other such step was over."""
        called, returned = self._called, self._returned
        found: list[int] = []
        first_end = returned[base]
        at, end = base, len(called)
        while at < end and called[at] <= first_end:
            if not mask & 1:
                found.append(at)
                first_end = min(first_end, returned[at])
            mask >>= 1
            at += 1
        return found

    def _enabled(
        self, step: RegisterOp, state: Number, used: int, before: int
    ) -> Iterator[tuple[Number, int]]:
        """Yield numbers after which the step fits, made by unknown writes, and the bits used."""
        given: set[tuple[Effect, Number]] = set()
        for at in self._that_fit(step):
            write, spent = self.pending[at], self._spend(used, at)
            if write.called > before or spent is None or (write.does, write.number) in given:
                continue
            given.add((write.does, write.number))  # an equal write would give the same
            if write.allows(state):
                yield write.number, spent
                continue
            for lower, reset in enumerate(self.pending):
                both = self._spend(spent, lower)
                if reset.called > before or reset.does is not Effect.WRITE or both is None:
                    continue
                if write.allows(reset.number):
                    yield write.number, both

    def _that_fit(self, step: RegisterOp) -> list[int]:
        """Return the unknown writes after which a step would fit."""
        found = self._fitting.get(step)
        if found is None:
            found = [
                at
                for at, write in enumerate(self.pending)
                if step.allows(write.number)
                and (step.does is not Effect.RAISE or write.does is Effect.WRITE)
            ]
            self._fitting[step] = found
        return found

    def _spend(self, used: int, at: int) -> int | None:
        """Mark an unknown write as used; None if it was used and may not be used again."""
        if not used >> at & 1:
            return used | 1 << at
        return used | 1 << len(self.pending) if self.again else None

    def _note(self, blocking: RegisterOp, state: Number) -> None:
        """Remember where the search stopped, if this is the furthest point."""
        if blocking.returned > self._furthest:
            self._furthest, self._blocking = blocking.returned, blocking
            self._states.clear()
        if blocking.returned == self._furthest:
            self._states.add(state)


def _taken(base: int, mask: int, at: int) -> tuple[int, int]:
    mask |= 1 << (at - base)
    run = (~mask & (mask + 1)).bit_length() - 1  # the number of steps taken from the start
    return base + run, mask >> run


def linearize(
    certain: Sequence[RegisterOp], pending: Sequence[RegisterOp], states_max: int = STATES_MAX
) -> Stuck | None:
    """Return None if there is an order. `pending` may have happened at any time, or never."""
    loose = _Search(certain, pending, again=True)
    stuck = loose.run(states_max)
    if stuck is not None and stuck.step is not None:
        return stuck
    if stuck is None and not loose.cheated:
        return None
    return _Search(certain, pending, again=False).run(states_max)
