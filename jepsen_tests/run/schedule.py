"""Draws from the seed when each fault begins and ends, before anything starts. Pure.

First comes each fault alone, in a drawn order, with quiet times between. Then come mixed subsets,
with a quiet period now and then. At the end come late faults, which are healed only when the run
heals: the final phase meets a group that is still hurt. Two faults of one handle are never mixed,
and some are mixed with none. The schedule is as long as the run. It names the faults that did not
fit.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

QUIET_SECONDS: Final = (2.0, 4.0)
"""The pause between two phases, for an election and some acknowledged sends. Doing and healing
faults takes time from this pause and may use it up."""
WARM_UP_SECONDS: Final = 3.0
TOGETHER_MAX: Final = 3
LATE_MAX: Final = 2
LATE_SECONDS: Final = 2.0
"""The time from the beginning of the late faults until the heal."""
QUIET_SHARE: Final = 0.2
"""The share of mixed phases without any fault."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """What the schedule must know of a fault."""

    name: str
    handle: str
    """The part of the cluster that the fault needs for itself alone."""
    seconds: tuple[float, float]
    """How long the fault lasts, at least and at most."""
    is_alone: bool = False
    """It is never mixed with another fault."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Faults that begin together, and are healed together."""

    at: float
    """Seconds after the workload began."""
    seconds: float
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The phases of a run, and the faults that did not fit."""

    seconds: float
    phases: tuple[Phase, ...]
    left_out: tuple[str, ...]
    late: Phase | None = None
    """The late faults, which last until the heal."""


def enough_seconds(kinds: Sequence[FaultKind], each_seconds: float) -> int:
    """Return a time that is long enough for each fault alone, whatever is drawn.

    `each_seconds`: how long it takes to do a fault and to heal it.
    """
    most = sum(kind.seconds[1] + QUIET_SECONDS[1] + each_seconds for kind in kinds)
    return math.ceil(WARM_UP_SECONDS + most)


def draw_schedule(kinds: Sequence[FaultKind], total_seconds: float, chance: Random) -> Schedule:
    """Return the schedule of a run. The same arguments give the same schedule."""
    by_name = {kind.name: kind for kind in kinds}
    phases: list[Phase] = []
    now = WARM_UP_SECONDS
    alone = sorted(by_name)
    chance.shuffle(alone)
    while alone:
        seconds = chance.uniform(*by_name[alone[0]].seconds)
        if now + seconds > total_seconds:
            break
        phases.append(Phase(now, seconds, (alone.pop(0),)))
        now += seconds + chance.uniform(*QUIET_SECONDS)
    late: Phase | None = None
    end = total_seconds
    if by_name and not alone and now + LATE_SECONDS <= total_seconds:
        end -= LATE_SECONDS
        names = _subset(by_name, chance, LATE_MAX)
        late = Phase(end, LATE_SECONDS, names or (chance.choice(sorted(by_name)),))
    while late is not None:
        names = _subset(by_name, chance, chance.randint(2, TOGETHER_MAX))
        low = max((by_name[name].seconds[0] for name in names), default=QUIET_SECONDS[0])
        high = max((by_name[name].seconds[1] for name in names), default=QUIET_SECONDS[1])
        seconds = chance.uniform(low, high)
        if now + seconds > end:
            break
        if names:
            phases.append(Phase(now, seconds, names))
        now += seconds + chance.uniform(*QUIET_SECONDS)
    return Schedule(total_seconds, tuple(phases), tuple(sorted(alone)), late)


def _subset(kinds: Mapping[str, FaultKind], chance: Random, most: int) -> tuple[str, ...]:
    """Return at most `most` names, no two of one handle, and now and then none or one alone."""
    if chance.random() < QUIET_SHARE:
        return ()
    chosen: dict[str, str] = {}
    for name in chance.sample(sorted(kinds), len(kinds)):
        if kinds[name].is_alone:
            if not chosen:
                return (name,)
            continue
        if len(chosen) < most:
            chosen.setdefault(kinds[name].handle, name)
    return tuple(sorted(chosen.values()))
