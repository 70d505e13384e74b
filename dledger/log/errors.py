"""What can be wrong with a data folder or a log, as exceptions that name file and place.

An error of the disk is an OSError and passes through. These classes are for conclusions from bytes
that could be read, and for calls that come after a failure.
"""

from typing import Final

from dledger.log.atomic_file import CorruptFile, NewerFile
from dledger.types import Position
from dledger_proto.errors import Code, DledgerError

REFILL: Final = (
    "`dledger repair` explains the damage and sets the data folder aside; the member then returns "
    "empty and is refilled by its group"
)
"""What to do about a data folder that must not be used, in a sentence."""


class FolderInUse(DledgerError):
    """Another process holds the lock of the data folder."""

    def __init__(self, folder: str) -> None:
        super().__init__(
            Code.INVALID_ARGUMENT, f"data folder {folder} is in use by another process"
        )
        self.folder = folder


class WrongFolder(DledgerError):
    """The data folder belongs to another cluster, group or member; `detail` names both."""

    def __init__(self, detail: str) -> None:
        super().__init__(Code.WRONG_CLUSTER, detail)


class DamagedFile(DledgerError):
    """A file of the data folder is missing or does not hold what was written to it.

    The text says which file, what was found and expected, and what to do. `label` names the rule.
    """

    def __init__(self, file: str, reason: str, *, label: str = "") -> None:
        suffix = f" [{label}]" if label else ""
        super().__init__(Code.STORAGE_FAILED, f"{file}: {reason}. {REFILL}.{suffix}")
        self.file = file
        self.reason = reason


class NewerFormat(DledgerError):
    """A file of the data folder was written by a later dledger; it is not damaged."""

    def __init__(self, file: str, reason: str) -> None:
        detail = f"{file}: {reason}; start the dledger that wrote it, or a later one"
        super().__init__(Code.UNSUPPORTED_FORMAT, detail)
        self.file = file


class DamagedIdentity(DamagedFile):
    """The identity file is unreadable, or missing beside a log."""


class DamagedHardState(DamagedFile):
    """Term and vote cannot be known. Never read as "no vote": the member must not go on."""


class DamagedLog(DamagedFile):
    """Bytes that were acknowledged cannot be read back.

    `row` is the label of the recovery table's row that decided so, or "READ" for damage found
    later, by a checksum on reading (I15).
    """

    def __init__(self, file: str, position: Position, row: str, reason: str) -> None:
        super().__init__(file, reason, label=row)
        self.position = position
        self.row = row


class LogFailed(DledgerError):
    """An earlier write or sync failed; nothing may be promised any more by this process."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(Code.STORAGE_FAILED, f"an earlier write or sync failed: {cause}")
        self.cause = cause


class SpanGone(DledgerError):
    """The log does not hold these bytes (any more): trimmed, cut off, or not yet written."""

    def __init__(self, detail: str) -> None:
        super().__init__(Code.HEAD_TRIMMED, detail)


def refusal_of(kind: type[DamagedFile], file: str, error: CorruptFile) -> DamagedFile | NewerFormat:
    """Return what a file that cannot be used is refused with: damage of a kind, or too new."""
    if isinstance(error, NewerFile):
        return NewerFormat(file, str(error))
    return kind(file, f"the file does not hold what was written to it: {error}")
