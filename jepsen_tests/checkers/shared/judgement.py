"""What a checker says: valid, invalid or not known, with the operations that show it.

Owns the words of a verdict and how they merge. A checker is a pure function from the view of a
history to one Judgement; one that raises is a failure of the harness, never a pass.
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from jepsen_tests.checkers.shared.view import View

FINDINGS_MAX: Final = 1000
"""Of one checker that are kept with their text; the rest is counted."""
ROWS_MAX: Final = 12
"""Rows that one finding points to."""


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
    """Of all anomalies, also of those beyond FINDINGS_MAX."""
    facts: dict[str, float | int | str] = field(default_factory=dict[str, float | int | str])
    why: str = ""
    """Why nothing can be told."""
    is_asked: bool = True
    """The run was to show it; else that nothing can be told is no flaw of the run."""

    def add(self, kind: str, text: str, rows: Iterable[int] = ()) -> None:
        """Note an anomaly; the judgement is invalid from now on."""
        self.valid = Valid.NO
        self.count += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(kind, text, tuple(sorted(set(rows)))[:ROWS_MAX]))

    def unknown(self, why: str) -> None:
        """Say that too little happened to tell, unless an anomaly was found."""
        if self.valid is not Valid.NO:
            self.valid = Valid.UNKNOWN
            self.why = f"{self.why}; {why}" if self.why else why

    def kinds(self) -> set[str]:
        """Return the classes of the anomalies that are kept."""
        return {finding.kind for finding in self.findings}


Check = Callable[[View], Judgement]
ALWAYS: Final = ""
"""Of each run: stands for the functions that it is to do."""


@dataclass(frozen=True, slots=True)
class Checker:
    """A named rule: `number` is its heading in docs/chaos.md, `kinds` what it may find."""

    number: str
    name: str
    rule: str
    kinds: tuple[str, ...]
    check: Check
    asked_by: tuple[str, ...] = (ALWAYS,)
    """Functions, of which a run that is to do one has something to look at here."""


def merged(judgements: Sequence[Judgement]) -> Valid:
    """Return the worst: invalid, else unknown where the run was to show something, else valid."""
    verdicts = {
        judgement.valid
        for judgement in judgements
        if judgement.is_asked or judgement.valid is Valid.NO
    }
    for worst in (Valid.NO, Valid.UNKNOWN):
        if worst in verdicts:
            return worst
    return Valid.YES
