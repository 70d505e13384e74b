"""What the tidy rules share: which files and packages are ours, and how a rule is run.

A rule is a function of one file's text that yields what is wrong with it, one sentence each.
"""

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE_FOLDERS = ("dledger", "broker", "client", "proto", "jepsen_tests", "bench")
"""What we ship or run, without tests."""
NOT_OURS = re.compile(r"_pb2(_grpc)?\.pyi?$|^bench/prototype/")
"""Generated code, and the peer that benchmarks run beside ours: kept as it was measured."""
GENERATED = re.compile(r"^client/dledger_client/(producer|consumer|admin|push)\.py$")
"""Written by `client/generate_sync.py`."""

Rule = Callable[[str], Iterator[str]]


def our_files(*patterns: str) -> list[Path]:
    """Return every tracked or new file of these patterns that a person wrote; default: Python."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *(patterns or ("*.py",))],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    return [ROOT / name for name in listed if not NOT_OURS.search(name) and (ROOT / name).exists()]


def name_of(path: Path) -> str:
    """Return a file's path in the repository."""
    return path.relative_to(ROOT).as_posix()


def check(rule: Rule, files: Iterable[Path]) -> None:
    """Fail with everything that a rule finds in files."""
    wrong = [f"{name_of(path)}: {what}" for path in files for what in rule(path.read_text())]
    assert not wrong, "\n".join(wrong)
