"""The inputs that are kept: one for each outcome of a target, and each that was a finding.

Owns: the files, named by the hash of what they hold, and their bounds. A new outcome keeps an input
only as long as there is room. Seeds are not kept: encoders make them again.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HOME: Final = Path(__file__).parent
CORPUS: Final = HOME / "corpus"
FINDINGS: Final = HOME / "findings"
"""Inputs that once broke a promise: they are tried in every test run."""
KEPT_BYTES_MAX: Final = 300_000
"""Of all inputs of `corpus/` together."""
KEPT_INPUT_BYTES_MAX: Final = 2_048
HASH_DIGITS: Final = 16


def kept(folder: Path, target: str) -> Sequence[bytes]:
    """Return the inputs that a folder keeps of a target, in the order of their names."""
    return [path.read_bytes() for path in sorted((folder / target).glob("*"))]


def keep(folder: Path, target: str, data: bytes) -> Path:
    """Write an input, unless it is there."""
    path = folder / target / hashlib.sha256(data).hexdigest()[:HASH_DIGITS]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def size(folder: Path) -> tuple[int, int]:
    """Return how many inputs a folder keeps, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def has_room(data: bytes) -> bool:
    """Tell whether an input may join the corpus."""
    return len(data) <= KEPT_INPUT_BYTES_MAX and size(CORPUS)[1] + len(data) <= KEPT_BYTES_MAX
