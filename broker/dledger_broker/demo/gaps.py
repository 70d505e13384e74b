"""How long nothing was acknowledged: at each fault, and apart from faults. Pure.

Owns: the silence at each fault, the longest silence that no fault explains, and how soon the rate
was back. Times are seconds of the run. Not: what a run shows as a whole (`report.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

FAULT_SECONDS: Final = 1.0
"""A silence that begins at most so long after a fault is the fault's."""
WINDOW_SECONDS: Final = 0.5
"""Over which the rate is looked at."""
STEP_SECONDS: Final = 0.05
BEFORE_SECONDS: Final = 1.0
"""Before a fault: the rate that has to come back."""
BACK_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that was done to the group while the rows streamed."""

    at_s: float
    name: str
    member: str
    gap_s: float = 0.0
    """Between the last acknowledgement before and the first one after."""
    back_s: float | None = None
    """From that first one until the rate was at BACK_SHARE of what it was before the fault, for
    rows handed over since; None: not before the next fault, or the end."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One batch of rows acknowledged together."""

    at_s: float
    rows: int
    latency_s: float


def judged(faults: Sequence[Fault], acknowledged: Sequence[Acknowledgement]) -> list[Fault]:
    """Return the faults, in order of time, with their gaps and when the rate was back."""
    ends = [*(fault.at_s for fault in faults[1:]), float("inf")]
    found: list[Fault] = []
    for fault, end in zip(faults, ends, strict=True):
        earlier, later = _silence(fault, acknowledged)
        back_s = _back(fault.at_s, later, end, acknowledged)
        found.append(replace(fault, gap_s=round(later - earlier, 3), back_s=back_s))
    return found


def quiet_gap(faults: Sequence[Fault], acknowledged: Sequence[Acknowledgement]) -> float:
    """Return the longest silence that no fault explains."""
    times = sorted(each.at_s for each in acknowledged)
    gaps = (
        later - earlier
        for earlier, later in pairwise(times)
        if not any(_is_of(fault, earlier, later) for fault in faults)
    )
    return round(max(gaps, default=0.0), 3)


def idle_faults(faults: Sequence[Fault], acknowledged: Sequence[Acknowledgement]) -> list[str]:
    """Return a sentence for each fault behind the last acknowledgement: it proved nothing."""
    last_s = max((each.at_s for each in acknowledged), default=0.0)
    return [
        f"{fault.name} at {fault.at_s:.1f} s met no load: the last row was acknowledged before"
        for fault in faults
        if fault.at_s >= last_s
    ]


def _is_of(fault: Fault, earlier: float, later: float) -> bool:
    return later >= fault.at_s and earlier <= fault.at_s + FAULT_SECONDS


def _silence(fault: Fault, acknowledged: Sequence[Acknowledgement]) -> tuple[float, float]:
    """Return begin and end of the longest silence of a fault."""
    times = [0.0, *sorted(each.at_s for each in acknowledged)]
    silences = [pair for pair in pairwise(times) if _is_of(fault, *pair)]
    return max(silences, key=lambda pair: pair[1] - pair[0], default=(fault.at_s, fault.at_s))


def _back(
    fault_s: float, first_s: float, end_s: float, acknowledged: Sequence[Acknowledgement]
) -> float | None:
    """Return how long after `first_s` the rate was back. What waited meanwhile does not count."""
    before = sum(
        each.rows for each in acknowledged if fault_s - BEFORE_SECONDS <= each.at_s < fault_s
    )
    wanted = BACK_SHARE * before * WINDOW_SECONDS / BEFORE_SECONDS
    since = [each for each in acknowledged if each.at_s - each.latency_s >= first_s]
    last_s = min(end_s, max((each.at_s for each in since), default=first_s))
    step = 0
    while (begin := first_s + step * STEP_SECONDS) + WINDOW_SECONDS <= last_s:
        rows = sum(each.rows for each in since if begin <= each.at_s < begin + WINDOW_SECONDS)
        if rows >= wanted:
            return round(begin - first_s, 3)
        step += 1
    return None
