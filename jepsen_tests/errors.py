"""How a run can go wrong apart from what it finds, and which errors its operations may meet.

Owns the table of the latter, by the names of the shared error table: what says "ask elsewhere or
later", or leaves the outcome open, any operation may meet under faults. Everything else says that
the request is wrong, or speaks of a state that only some workload brings about: the table names
function and workload. INTERNAL is in no line: it is a bug.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

CANCELLED: Final = "CANCELLED"
"""How the error of an operation begins that the harness itself ended."""
LATER: Final = frozenset({
    "NOT_LEADER", "NO_LEADER", "WRONG_GROUP", "BUSY", "SHUTTING_DOWN", "NOT_FORMED", "DISK_FULL",
    "NOT_PROPOSED", "STORAGE_FAILED", "UNAVAILABLE", "UNKNOWN_OUTCOME", "STALE_LAYOUT",
    "TOO_MANY_IN_FLIGHT",
})  # fmt: skip
"""What a caller may try again, as the shared table says, and what leaves the outcome open."""
_SEQUENCED: Final = frozenset({"SEQUENCE_GAP", "UNKNOWN_PRODUCER"})
"""The last that a producer heard of what it certainly did not store before its time was over."""
_FENCED: Final = _SEQUENCED | {"STALE_EPOCH"}
_TRIMMED: Final = frozenset({"OFFSET_OUT_OF_RANGE", "HEAD_TRIMMED"})
_OF_ALL: Final[Mapping[str, frozenset[str]]] = {
    "entries": frozenset({"INVALID_ARGUMENT", "HEAD_TRIMMED"}),
}
"""In each workload; the log may be too long to be told, and its head goes while it is."""
_OF_WORKLOAD: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    "log": {"send": _SEQUENCED},
    "retention": {"send": _SEQUENCED, **dict.fromkeys(("poll", "assign", "drain"), _TRIMMED)},
    "fifo": {"send": _FENCED, "zombie-send": _FENCED},
    "retry": {},
    "offsets": {"send": _SEQUENCED, "commit": frozenset({"OFFSET_BEHIND"})},
    "metadata": {"send": _SEQUENCED},
}


def allowed_errors(workload: str, function: str) -> frozenset[str] | None:
    """Return the names of errors that an operation may end with; None for no workload of ours."""
    of_workload = _OF_WORKLOAD.get(workload)
    if of_workload is None:
        return None
    more = (table.get(function, frozenset[str]()) for table in (of_workload, _OF_ALL))
    return LATER.union({CANCELLED}, *more)


class HarnessFailure(Exception):
    """The harness could not do its work; nothing is said about the product."""


class BadRequest(HarnessFailure):
    """What the user asked for does not exist or does not go together. Nothing was started."""


def unknown_name(what: str, name: str, known: Iterable[str]) -> BadRequest:
    """Return the error for a name that is not known, with the nearest that is."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return BadRequest(f"no {what} {name!r}{hint} There are: {', '.join(names)}")
