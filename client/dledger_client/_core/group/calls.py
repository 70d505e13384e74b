"""Calls to home groups: which are under way, and when a home group is asked again. Pure.

Owns: numbers of calls, what each was about, the pause after a failed one. Not: what is asked
(`claims.py`, `commits.py`, `failures.py`).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dledger_client._core.group.actions import Action, Ask, Request
from dledger_client._core.group.queues import HeldQueue
from dledger_client._core.retry import backoff

QUEUES_PER_CALL: Final = 256
"""Queues, or records, that one call is about."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One call under way."""

    group: str
    about: Sequence[HeldQueue]
    changes: tuple[int, ...] = ()
    """Of a commit: what each queue's progress was."""
    sent_at: float = 0.0
    places: tuple[int, ...] = ()
    """Of failures: the offset of each record."""


class HomeCalls:
    """The calls of one kind: at most one to each home group at a time."""

    def __init__(self, numbers: "Numbers", generator: random.Random, actions: list[Action]) -> None:
        self._numbers = numbers
        self._random = generator
        self._actions = actions
        self._asked: dict[int, Asked] = {}
        self._busy: dict[str, int] = {}
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}

    def may_ask(self, group: str, now: float) -> bool:
        """Return whether a home group may be asked now."""
        return group not in self._busy and now >= self._not_before.get(group, 0.0)

    def ask(self, request: Request, asked: Asked) -> None:
        """Make a call."""
        number = self._numbers.next()
        self._asked[number] = asked
        self._busy[asked.group] = number
        self._actions.append(Ask(number, asked.group, request))

    def is_mine(self, call: int) -> bool:
        """Return whether a call is one of these."""
        return call in self._asked

    def taken(self, call: int, *, failed: bool, now: float) -> Asked | None:
        """Return what a call that ended was about; None for a call of another kind."""
        asked = self._asked.pop(call, None)
        if asked is None:
            return None
        del self._busy[asked.group]
        if failed:
            self._failures[asked.group] = failures = self._failures.get(asked.group, 0) + 1
            self._not_before[asked.group] = now + backoff(failures, self._random)
        else:
            self._failures.pop(asked.group, None)
            self._not_before.pop(asked.group, None)
        return asked

    @property
    def is_busy(self) -> bool:
        """True: a call is under way."""
        return bool(self._busy)

    def pauses(self, now: float) -> list[float]:
        """Return when pauses end."""
        return [at for at in self._not_before.values() if at > now]


class Numbers:
    """Numbers of calls."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """Return the next number."""
        self._last += 1
        return self._last
