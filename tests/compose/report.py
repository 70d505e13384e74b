"""What a run says while it goes on, past pytest's capture, and its table at the end."""

import time
from dataclasses import dataclass, field

from _pytest.capture import CaptureManager


@dataclass
class Report:
    """Lines with the time since the start, and the gaps of the faults."""

    capture: CaptureManager
    gaps: list[tuple[str, str, float]] = field(default_factory=list[tuple[str, str, float]])
    totals: list[tuple[str, object]] = field(default_factory=list[tuple[str, object]])
    _start: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """Print a line."""
        self._print(f"compose {time.monotonic() - self._start:6.1f} s  {text}")

    def table(self) -> None:
        """Print all gaps, and the totals."""
        rows = [f"  {fault:38}{member:12}{gap:6.2f}" for fault, member, gap in self.gaps]
        sums = [f"  {name:50}{value:>6}" for name, value in self.totals]
        self._print("\n".join([f"  {'fault':38}{'member':12}gap, s", *rows, "", *sums, ""]))

    def _print(self, text: str) -> None:
        with self.capture.global_and_fixture_disabled():
            print(f"\n{text}", end="", flush=True)
