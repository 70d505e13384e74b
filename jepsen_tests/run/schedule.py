"""When which fault begins and ends: drawn from the seed before anything starts. Pure.

Owns the order: every fault alone first, in a drawn order, with quiet times between; then mixed
subsets, shifting, with a quiet period now and then; in the end late faults, which begin after all
others and are not healed before the workload is told to heal: the end meets a group that is still
hurt. What cannot happen twice at once (two faults of one handle) is never mixed. The plan is as
long as it was asked to be; what did not fit is named.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

QUIET_SECONDS: Final = (2.0, 4.0)
"""Planned between two phases, for a leader and some acknowledged sends. What it takes to do faults
and to heal them comes off it: nothing may be left."""
WARM_UP_SECONDS: Final = 3.0
TOGETHER_MAX: Final = 3
LATE_MAX: Final = 2
LATE_SECONDS: Final = 2.0
"""From the beginning of the late faults until all is healed."""
QUIET_SHARE: Final = 0.2
"""Of the mixed phases, how many have no fault at all."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """What the schedule must know of a fault."""

    name: str
    handle: str
    """Which part of the cluster it takes hold of; one fault at a time has hold of it."""
    seconds: tuple[float, float]
    """How long it lasts, at least and at most."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Faults that begin together, and are healed together."""

    at: float
    """Seconds after the workload began."""
    seconds: float
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The phases of a run, and which faults found no time."""

    seconds: float
    phases: tuple[Phase, ...]
    left_out: tuple[str, ...]
    late: Phase | None = None
    """The last one, which lasts until all is healed."""


def enough_seconds(kinds: Sequence[FaultKind], each_seconds: float) -> int:
    """Return a time in which each comes alone, whatever is drawn, if none takes longer to do."""
    most = sum(kind.seconds[1] + QUIET_SECONDS[1] + each_seconds for kind in kinds)
    return math.ceil(WARM_UP_SECONDS + most)


def draw_schedule(kinds: Sequence[FaultKind], total_seconds: float, chance: Random) -> Schedule:
    """Return the phases of a run; the same arguments give the same ones."""
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
    """Return at most so many names, no two of one handle; none now and then."""
    if chance.random() < QUIET_SHARE:
        return ()
    chosen: dict[str, str] = {}
    for name in chance.sample(sorted(kinds), len(kinds)):
        if len(chosen) < most:
            chosen.setdefault(kinds[name].handle, name)
    return tuple(sorted(chosen.values()))
