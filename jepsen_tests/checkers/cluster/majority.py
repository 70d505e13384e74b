"""When several faults together left no majority, though none of them did so alone.

The budget of a fault says that a majority bears it, or how long there is no majority. Two faults
that overlap and hit different members may take the majority together. A member in quarantine, whose
data an earlier fault took, counts as missing too: it leaves quarantine only when it hears all other
members. While such faults are in force nobody can write, whatever the product does. Time in which
one fault alone takes the majority is in its own budget. Quarantine without a fault in force is the
product's own time.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from jepsen_tests.checkers.cluster.deaths import DAMAGES
from jepsen_tests.checkers.shared.view import View, grouped
from jepsen_tests.history.events import WHOLE, Op
from jepsen_tests.history.faults import FaultInForce

TAKES_AWAY: Final = (
    "kill", "pause", "isolate", "partition", "power-cut", "hung-sync", "cut-while-slow",
)  # fmt: skip
"""Names of faults begin so whose targets take no part while the faults are in force."""
COMES_BACK: Final = ("pause-leaders",)
"""Of these faults the targets take part again before the heal."""
WIPES: Final = ("wipe", "next-quorum-wiped")
"""Names of faults begin so after which a member is in quarantine until it is whole. Damage leads
there too, when the member finds it."""
QUARANTINED: Final = "quarantined"
_OF_SEVERAL: Final = re.compile(r"([\w.-]+) (?:killed|cut off)\b")

Span = tuple[int, int]


class _Away(NamedTuple):
    """Members that take no part for a time. `fault` is false of a member in quarantine."""

    start: int
    end: int
    nodes: frozenset[str]
    fault: bool


def without_majority(view: View) -> list[Span]:
    """Return the disjoint times in which only several faults together left no majority."""
    nodes = view.header.nodes
    majority = len(nodes) // 2 + 1
    away = [_of_fault(fault, nodes) for fault in view.faults]
    by_node = grouped(view.statuses, lambda op: op.node)
    away += [
        each for each in _quarantines(by_node, view.history.ended)
        if _has_reason(each, view, by_node)
    ]  # fmt: skip
    moments = sorted({t for each in away for t in (each.start, each.end)})
    spans: list[Span] = []
    for start, end in itertools.pairwise(moments):
        present = [each for each in away if each.start <= start < each.end]
        alone = max((len(each.nodes) for each in present), default=0)
        together = frozenset[str]().union(*(each.nodes for each in present))
        left, left_by_one = len(nodes) - len(together), len(nodes) - alone
        if left < majority <= left_by_one and any(each.fault and each.nodes for each in present):
            spans.append((start, end))
    return spans


def time_within(spans: Iterable[Span], since: int, until: int) -> int:
    """Return how much of the time between two moments lies in disjoint spans."""
    return sum(max(0, min(end, until) - max(start, since)) for start, end in spans)


def _of_fault(fault: FaultInForce, nodes: Sequence[str]) -> _Away:
    named = set[str]()
    if fault.name.startswith(TAKES_AWAY) and not fault.name.startswith(COMES_BACK):
        one = _OF_SEVERAL.search(fault.targets)
        named = {one[1]} if one else set(re.findall(r"[\w.-]+", fault.targets))
        if "all" in named:
            named |= set(nodes)
    return _Away(fault.done, fault.end, frozenset(named & set(nodes)), fault=True)


def _has_reason(away: _Away, view: View, statuses: Mapping[str, Sequence[Op]]) -> bool:
    """Say whether an earlier fault explains why a member is in quarantine.

    A wipe explains nothing after the member led or followed again.
    """
    (node,) = away.nodes
    wholes = (op.began for op in statuses[node] if op.result["role"] in WHOLE)
    whole = max((began for began in wholes if began < away.start), default=0)
    return any(
        fault.name.startswith(DAMAGES) or (fault.name.startswith(WIPES) and whole <= fault.done)
        for fault in view.faults
        if fault.start < away.start and fault.hits(node, view.header.nodes)
    )


def _quarantines(statuses: Mapping[str, Sequence[Op]], ended: int) -> list[_Away]:
    """Return the times between a member's first answer "quarantined" and its next other answer."""
    found: list[_Away] = []
    for node, ops in statuses.items():
        since: int | None = None
        for op in sorted(ops, key=lambda op: op.done):
            if op.result["role"] == QUARANTINED:
                since = op.ended if since is None else since
            elif since is not None:
                found.append(_Away(since, op.ended, frozenset([node]), fault=False))
                since = None
        if since is not None:
            found.append(_Away(since, ended, frozenset([node]), fault=False))
    return found
