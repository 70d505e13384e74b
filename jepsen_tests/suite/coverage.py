"""Which faults the runs of a suite did on each backend.

Owns what counts as done, as impossible on this machine, and as missed, and which further runs do
the missed faults. If one run left a fault out, another run may have done it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from jepsen_tests.nemeses import FAULTS
from jepsen_tests.nemeses.fault import CANNOT, HEALED_SECONDS
from jepsen_tests.run.schedule import enough_seconds
from jepsen_tests.suite.results import markdown_table
from jepsen_tests.suite.suites import SuiteEntry

Ran = tuple[SuiteEntry, Mapping[str, Any]]
"""A run: what it should do, and its results. They are empty if the run left none."""
NO_TIME: Final = "no time"
NO_RESULTS: Final = "no run that should do it came to its end"


@dataclass(frozen=True, slots=True)
class BackendCoverage:
    """What the runs did with the faults that a suite has for a backend."""

    backend: str
    done: Mapping[str, int]
    """How often each fault was done."""
    cannot: Mapping[str, str]
    """Faults that this machine cannot do, and why."""
    missed: Mapping[str, str]
    """Faults that a run should and could have done, and why no run did."""
    unplanned: Sequence[str]
    """Faults whose turn comes in later rounds."""


def coverage_by_backend(entries: Iterable[SuiteEntry], ran: Sequence[Ran]) -> list[BackendCoverage]:
    """Return the coverage of each backend of a suite's entries."""
    wanted: dict[str, set[str]] = {}
    for entry in entries:
        wanted.setdefault(entry.backend, set()).update(entry.faults)
    return [
        _covered(backend, sorted(faults), [each for each in ran if each[0].backend == backend])
        for backend, faults in wanted.items()
    ]


def _covered(backend: str, faults: Sequence[str], ran: Sequence[Ran]) -> BackendCoverage:
    done: Counter[str] = Counter()
    for _, results in ran:
        done.update(results.get("faults", {}))
    planned = {fault for entry, _ in ran for fault in entry.faults}
    left = [fault for fault in faults if fault in planned and not done[fault]]
    reasons = {fault: list(_reasons(fault, ran).values()) for fault in left}
    cannot = {f: why[0] for f, why in reasons.items() if why and all(map(_is_never, why))}
    return BackendCoverage(
        backend,
        {fault: done[fault] for fault in faults if done[fault]},
        cannot,
        {
            fault: next((each for each in why if not _is_never(each)), NO_RESULTS)
            for fault, why in reasons.items() if fault not in cannot
        },
        [fault for fault in faults if fault not in planned],
    )  # fmt: skip


def _reasons(fault: str, ran: Sequence[Ran]) -> dict[int, str]:
    """Return, by number of members, why no finished run did a fault that it should do.

    A run that says it cannot do the fault speaks for all runs of that size: another run may have
    left the fault out before it came so far.
    """
    found: dict[int, str] = {}
    for entry, results in ran:
        if results and fault in entry.faults:
            why = _why_not(fault, results)
            if entry.nodes not in found or _is_never(why):
                found[entry.nodes] = why
    return found


def _why_not(fault: str, results: Mapping[str, Any]) -> str:
    why: str = results.get("skipped", {}).get(fault, NO_TIME)
    return why


def _is_never(why: str) -> bool:
    return why.startswith(CANNOT)


def missed(entry: SuiteEntry, results: Mapping[str, Any]) -> dict[str, str]:
    """Return the faults that a run could have done and did not do, and why."""
    done = results.get("faults", {})
    why = {name: _why_not(name, results) for name in entry.faults if name not in done}
    return {name: each for name, each in why.items() if not _is_never(each)}


def made_up(found: Iterable[BackendCoverage], ran: Sequence[Ran]) -> list[SuiteEntry]:
    """Return further runs for the missed faults: like a run that could do them, and long enough."""
    lists: dict[SuiteEntry, list[str]] = {}
    for each in found:
        mine = [(entry, results) for entry, results in ran if entry.backend == each.backend]
        for fault in each.missed:
            able = (
                entry for entry, results in mine
                if results and fault in entry.faults
                and not _is_never(_reasons(fault, mine)[entry.nodes])
            )  # fmt: skip
            if (entry := next(able, None)) is not None:
                lists.setdefault(replace(entry, faults=(), seconds=0), []).append(fault)
    return [
        replace(
            entry,
            faults=tuple(faults),
            seconds=enough_seconds([FAULTS[fault].kind for fault in faults], HEALED_SECONDS),
        )
        for entry, faults in lists.items()
    ]


def coverage_table(found: Iterable[BackendCoverage]) -> list[str]:
    """Return the lines of a Markdown table. Each fault of a backend is in one cell of its row."""
    return markdown_table(
        ("backend", "faults done", "impossible here", "missed", "not in these rounds"),
        (
            (
                each.backend,
                f"{len(each.done)}: " + ", ".join(f"{f} {n}" for f, n in each.done.items()),
                _told(each.cannot), _told(each.missed), ", ".join(each.unplanned) or "-",
            )
            for each in found
        ),
    )  # fmt: skip


def _told(reasons: Mapping[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for fault, why in reasons.items():
        by_reason.setdefault(why, []).append(fault)
    return "; ".join(f"{', '.join(faults)} ({why})" for why, faults in by_reason.items()) or "-"
