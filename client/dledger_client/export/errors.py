"""Why an export does not go on: a stable code, what was found, what helps. Pure."""

import enum
import errno
from typing import Final

_LASTING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors that a retry does not help against. Others may pass, as that of a stale handle."""


class ExportCode(enum.StrEnum):
    """Stable; programs may compare it. The text of an error begins with DLEDGER_EXPORT_<code>."""

    BAD_OPTION = "BAD_OPTION"
    """A value outside its limits."""
    NOT_AN_EXPORT = "NOT_AN_EXPORT"
    """The folder holds no published version."""
    FOREIGN_CLUSTER = "FOREIGN_CLUSTER"
    """The folder belongs to another cluster."""
    OTHER_TOPIC = "OTHER_TOPIC"
    """The folder belongs to another topic, or to a deleted one of the same name."""
    OTHER_LAYOUT = "OTHER_LAYOUT"
    """The folder was begun with another layout."""
    NEWER_FORMAT = "NEWER_FORMAT"
    """A later program wrote it."""
    OLDER_FORMAT = "OLDER_FORMAT"
    """A program from before the first release wrote it."""
    DAMAGED = "DAMAGED"
    """A file contradicts itself or what a manifest says of it."""
    DATA_LOSS = "DATA_LOSS"
    """Records that were to be exported are trimmed."""
    UNREADABLE = "UNREADABLE"
    """Records that were to be exported cannot be decoded."""
    LOG_SHORTER = "LOG_SHORTER"
    """The log ends before what was exported of it."""
    CONFLICT = "CONFLICT"
    """Somebody else's file, or another manifest than that of the plan, is in the way."""
    VERSION_UNKNOWN = "VERSION_UNKNOWN"
    """No such version was published."""
    VERSION_GONE = "VERSION_GONE"
    """Files of an old version were collected after a compaction."""
    NOT_COMPARED = "NOT_COMPARED"
    """The log could not be read, so a file was not compared with it."""
    WRONG_ROWS = "WRONG_ROWS"
    """A file and the log hold different rows for one range."""
    NO_HARD_LINKS = "NO_HARD_LINKS"
    """The file system cannot publish exclusively."""
    FOLDER_FAILED = "FOLDER_FAILED"
    """The file system is full, refuses, or fails."""
    WORKER_DIED = "WORKER_DIED"
    """A process of the engine ended without saying why."""


class ExportError(Exception):
    """An expected failure of an export. Nothing that is published was changed."""

    def __init__(self, code: ExportCode, what: str, remedy: str) -> None:
        super().__init__(f"DLEDGER_EXPORT_{code}: {what}; {remedy}")
        self.code = code
        self.what = what
        self.remedy = remedy

    def __reduce__(self) -> tuple[type["ExportError"], tuple[ExportCode, str, str]]:
        """Travel between processes."""
        return type(self), (self.code, self.what, self.remedy)


def damaged(name: str, what: str) -> ExportError:
    """Return the error for a file that cannot be what it should be."""
    remedy = "put the file back from a copy, or export into a new folder"
    return ExportError(ExportCode.DAMAGED, f"{name}: {what}", remedy)


def is_lasting(error: OSError) -> bool:
    """Return whether a file system is full or refuses, and will until somebody acts."""
    return error.errno in _LASTING


def folder_failed(where: str, error: OSError) -> ExportError:
    """Return the error for an error of a file system."""
    help_first = (
        "make room, or correct the permissions" if is_lasting(error) else "look at the disk"
    )
    return ExportError(
        ExportCode.FOLDER_FAILED,
        f"{error.filename or where}: {error.strerror or error or type(error).__name__}",
        f"{help_first}, and run the export again: finished files are kept",
    )
