"""What one process of a run found: an input for each outcome, and each broken promise.

Owns: the folder of a run, which a process fills and the runner reads, also when the process was
ended. Not: what is kept for good (`corpus.py`).
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.fuzz.target import Verdict

COUNTED_EVERY: Final = 256
"""Executions between two notes of how many there were."""


class Found:
    """What a process writes down while it runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[str, int] = {}
        self._executions = 0
        for name in ("inputs", "problems"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def note(self, data: bytes, verdict: Verdict) -> None:
        """Count an input; write it down when nothing smaller had its outcome."""
        self._executions += 1
        if self._executions % COUNTED_EVERY == 0:
            self.write_count()
        if self._sizes.get(verdict.outcome, len(data) + 1) <= len(data):
            return
        self._sizes[verdict.outcome] = len(data)
        name = hashlib.sha256(verdict.outcome.encode()).hexdigest()[:16]
        (self._folder / "inputs" / name).write_bytes(data)
        if verdict.problem:
            said = {"problem": verdict.problem, "input": name}
            (self._folder / "problems" / name).write_text(json.dumps(said))

    def write_count(self) -> None:
        """Note how many executions there were."""
        (self._folder / "executions").write_text(str(self._executions))


def executions(folder: Path) -> int:
    """Return how many executions a process noted."""
    path = folder / "executions"
    return int(path.read_text()) if path.exists() else 0


def inputs(folder: Path) -> list[bytes]:
    """Return the inputs of a process, small ones first."""
    found = [path.read_bytes() for path in (folder / "inputs").glob("*")]
    return sorted(found, key=lambda data: (len(data), data))


def problems(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield each broken promise with its input."""
    for path in sorted((folder / "problems").glob("*")):
        said = json.loads(path.read_text())
        yield said["problem"], (folder / "inputs" / said["input"]).read_bytes()
