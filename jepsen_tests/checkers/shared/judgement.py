"""What a checker says: valid, invalid or unknown, with the rows that show it.

Owns the words of a verdict and how they merge. A checker is a pure function from the view of a
history to one Judgement. A checker that raises is a failure of the harness, never a pass.
"""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from jepsen_tests.checkers.shared.view import View
from jepsen_tests.history.events import Op

FINDINGS_MAX: Final = 1000
"""So many findings of a checker are kept with their text. The rest is counted."""
ROWS_MAX: Final = 12
"""One finding points to at most so many rows."""


class Valid(enum.StrEnum):
    """The three verdicts."""

    YES = "valid"
    NO = "invalid"
    UNKNOWN = "unknown"
    """Too little happened to tell."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One anomaly: its class, a sentence with the numbers, and the rows of the history."""

    kind: str
    text: str
    rows: tuple[int, ...] = ()


@dataclass(slots=True)
class Judgement:
    """What one checker found. `facts` are figures worth showing, whatever the verdict."""

    checker: str
    valid: Valid = Valid.YES
    findings: list[Finding] = field(default_factory=list[Finding])
    count: int = 0
    """The number of all anomalies, with those beyond FINDINGS_MAX."""
    facts: dict[str, float | int | str] = field(default_factory=dict[str, float | int | str])
    why: str = ""
    """Why the verdict is unknown."""
    is_asked: bool = True
    """Whether the run should have shown this rule. If not, "unknown" is no flaw of the run."""

    def add(self, kind: str, text: str, rows: Iterable[int] = ()) -> None:
        """Note an anomaly; the judgement is invalid from now on."""
        self.valid = Valid.NO
        self.count += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(kind, text, tuple(sorted(set(rows)))[:ROWS_MAX]))

    def none_succeeded(self, kind: str, text: str, tried: Sequence[Op], row: int = 0) -> None:
        """Note an anomaly if all these operations failed, with the last error after the text.

        `row`: one more row of the history that shows it; 0: none.
        """
        if tried and not any(op.is_ok for op in tried):
            error = tried[-1].err or "no answer"
            rows = (*([row] if row else ()), *(op.i for op in tried))
            self.add(kind, f"{text}; the last error: {error}", rows)

    def unknown(self, why: str) -> None:
        """Say that too little happened to tell, unless an anomaly was found."""
        if self.valid is not Valid.NO:
            self.valid = Valid.UNKNOWN
            self.why = f"{self.why}; {why}" if self.why else why

    def kinds(self) -> set[str]:
        """Return the names of the anomalies that are kept."""
        return {finding.kind for finding in self.findings}


Check = Callable[[View], Judgement]
ALWAYS: Final = ""
"""Stands for all functions: each run should have something to look at."""


@dataclass(frozen=True, slots=True)
class Checker:
    """A named rule. `number` is its heading in docs/chaos.md, `kinds` the anomalies it may find."""

    number: str
    name: str
    rule: str
    kinds: tuple[str, ...]
    check: Check
    asked_by: tuple[str, ...] = (ALWAYS,)
    """A run that does one of these functions should have something to look at."""
    of_all_groups: bool = False
    """It looks at all broker groups of a history at once."""


def merged(judgements: Sequence[Judgement]) -> Valid:
    """Return the worst verdict: invalid; unknown if the run should have told; else valid."""
    verdicts = {
        judgement.valid
        for judgement in judgements
        if judgement.is_asked or judgement.valid is Valid.NO
    }
    for worst in (Valid.NO, Valid.UNKNOWN):
        if worst in verdicts:
            return worst
    return Valid.YES


def together(found: Mapping[str, Judgement]) -> Judgement:
    """Return what one checker says of all broker groups; a single one has no name."""
    if len(found) == 1:
        return next(iter(found.values()))
    parts = list(found.values())
    whole = Judgement(parts[0].checker, merged(parts))
    for group, part in found.items():
        whole.count += part.count
        whole.findings += [replace(each, text=f"{group}: {each.text}") for each in part.findings]
        whole.facts |= {f"{group}: {name}": fact for name, fact in part.facts.items()}
    del whole.findings[FINDINGS_MAX:]
    if all(part.valid is Valid.UNKNOWN for part in parts):
        whole.valid = Valid.UNKNOWN
    whole.is_asked = any(part.is_asked for part in parts)
    whole.why = "; ".join(f"{group}: {part.why}" for group, part in found.items() if part.why)
    whole.facts["looked_at"] = sum(int(part.facts["looked_at"]) for part in parts)
    return whole
