"""What a known bug is. `scripts` name scenarios made for it: "module.function" of tests/scenarios,
with a JSON argument after a colon; what they miss is hunted with seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.mutants.rewrite import Edit

SAFETY: Final = "test_safety_findings"
LIVENESS: Final = "test_liveness_findings"
DISK: Final = "test_disk_findings"
QUARANTINE: Final = "test_quarantine"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug: small, plausible, and real in some system."""

    name: str
    what: str
    edits: Sequence[Edit]
    scripts: Sequence[str] = ()
