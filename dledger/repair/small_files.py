"""The files of a data folder that are replaced as a whole: which of them cannot be read any more.

Owns: the list. Each has a checksum over all its bytes. A running member knows what they must hold,
so its next write round writes a damaged one again (`CommitLog.rewrite`).
"""

from collections.abc import Callable
from typing import Final

from dledger.log.atomic_file import CorruptFile, read_file
from dledger.log.checkpoint import CHECKPOINT_FILE, parse_checkpoint
from dledger.log.folder import IDENTITY_FILE, DataFolder
from dledger.log.hard_state import HARD_STATE_FILE, parse_hard_state
from dledger.log.identity import parse_identity

FILES: Final[dict[str, Callable[[bytes], object]]] = {
    IDENTITY_FILE: parse_identity,
    HARD_STATE_FILE: parse_hard_state,
    CHECKPOINT_FILE: parse_checkpoint,
}


def damaged_files(folder: DataFolder) -> list[str]:
    """Return the names of the files that do not hold what was written to them. Blocks; OSError."""
    found: list[str] = []
    for name, parse in FILES.items():
        try:
            content = read_file(folder.fs, f"{folder.path}/{name}")
            if content is None:
                found.append(name)
            else:
                parse(content)
        except CorruptFile:
            found.append(name)
    return found
