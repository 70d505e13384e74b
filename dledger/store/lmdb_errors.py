"""What an error of the state store means: damage, or a refusal that leaves the store sound.

`dledger repair` mends damage by setting the folder aside. A file without read permission, a lock of
another process, a full disk and a lack of memory are no damage: setting the data aside would lose a
copy for nothing.
"""

import errno
from typing import Final

import lmdb

from dledger.store.sealed import damaged
from dledger.store.store import StoreFailed

_DAMAGE: Final = (
    lmdb.BadValsizeError,
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
)
"""What liblmdb raises when it cannot make sense of pages. Not PanicError and BadTxnError: they
follow a failed write, and the file holds the commit before it."""
_UNREADABLE: Final = (errno.EIO, errno.EISDIR, errno.ENOTDIR)
"""Errors of the system that the same file gives for ever: the file is lost."""


def failure(place: str, what: str, error: lmdb.Error | OSError | MemoryError) -> StoreFailed:
    """Return the error to raise for one met while doing `what`: DamagedStore, or StoreFailed."""
    if isinstance(error, StoreFailed):
        return error
    if isinstance(error, _DAMAGE):
        return damaged(place, f"{what}: {error}")
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        if error.errno in _UNREADABLE:
            return damaged(place, f"{what}: {reason}")
        return StoreFailed(error.errno, f"state store {place}: {what}: {reason}", error.filename)
    if isinstance(error, MemoryError):
        return StoreFailed(errno.ENOMEM, f"state store {place}: {what}: no memory")
    return StoreFailed(f"state store {place}: {what}: {error}")
