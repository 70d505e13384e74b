"""What becomes of old messages of a topic: deleted by age and size, or compacted by key.

Owns: the words, and how they are told on the wire: as values of a topic's two bounds.
"""

from typing import Final

from dledger_proto.limits import RETENTION_BY_KEY, RETENTION_DEFAULT

DELETE: Final = "delete"
COMPACT: Final = "compact"
CLEANUPS: Final = (DELETE, COMPACT)


def cleanup_of(retention_ms: int) -> str:
    """Return the word for a topic's bound of time."""
    return COMPACT if retention_ms == RETENTION_BY_KEY else DELETE


def bounds_of(
    cleanup: str | None, retention_ms: int | None, retention_bytes: int | None
) -> tuple[int | None, int | None]:
    """Return the bounds of time and size to send; None, for each of the three: it stays as it is.

    With DELETE a bound that is not given is the cluster's. ValueError for another word, and for
    COMPACT with a bound.
    """
    if cleanup is None:
        return retention_ms, retention_bytes
    if cleanup not in CLEANUPS:
        raise ValueError(f"cleanup {cleanup!r}, must be {' or '.join(CLEANUPS)}")
    if cleanup == DELETE:
        return retention_ms or RETENTION_DEFAULT, retention_bytes or RETENTION_DEFAULT
    if retention_ms or retention_bytes:
        raise ValueError(
            f"cleanup compact with retention {retention_ms or 0} ms and {retention_bytes or 0} "
            "bytes: a compacted topic has no bound"
        )
    return RETENTION_BY_KEY, RETENTION_DEFAULT
