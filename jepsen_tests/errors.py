"""Failures of the harness itself, and the errors that each operation of a workload may meet.

Owns the table of these errors, by the names of the shared error table. Under faults any operation
may meet an error that says "ask elsewhere or later" or leaves the outcome open. All other errors
need a reason: the table names the workload and the function that may meet them. INTERNAL is in no
line, because it is a bug.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

CANCELLED: Final = "CANCELLED"
"""The error of an operation begins so when the harness itself ended the operation."""
LATER: Final = frozenset({
    "NOT_LEADER", "NO_LEADER", "WRONG_GROUP", "BUSY", "SHUTTING_DOWN", "NOT_FORMED", "DISK_FULL",
    "NOT_PROPOSED", "STORAGE_FAILED", "UNAVAILABLE", "UNKNOWN_OUTCOME", "STALE_LAYOUT",
    "TOO_MANY_IN_FLIGHT", "LEASED", "TOO_MANY_RANGES", "TOO_MANY_TIMERS",
    "GROUP_PAUSED",
})  # fmt: skip
"""Errors after which a caller may try again, and errors that leave the outcome open."""
_SEQUENCED: Final = frozenset({"SEQUENCE_GAP", "UNKNOWN_PRODUCER"})
"""Answers to a producer's last try, when an earlier message was certainly not stored."""
_FENCED: Final = _SEQUENCED | {"STALE_EPOCH"}
_TRIMMED: Final = frozenset({"OFFSET_OUT_OF_RANGE", "HEAD_TRIMMED"})
_OF_ALL: Final[Mapping[str, frozenset[str]]] = {
    "entries": frozenset({"INVALID_ARGUMENT", "HEAD_TRIMMED"}),
}
"""In each workload. A log may be too long for one answer, or its head is trimmed meanwhile."""
_OF_WORKLOAD: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    "log": {"send": _SEQUENCED},
    "retention": {"send": _SEQUENCED, **dict.fromkeys(("poll", "assign", "drain"), _TRIMMED)},
    "fifo": {"send": _FENCED, "zombie-send": _FENCED},
    "retry": {},
    "offsets": {"send": _SEQUENCED, "commit": frozenset({"OFFSET_BEHIND"})},
    "metadata": {"send": _SEQUENCED},
    "one-way": {"send": _FENCED, "zombie-send": _FENCED},
    "holds": {
        "send": _SEQUENCED,
        "trim": frozenset({"HELD"}),
        "hold": frozenset({"OFFSET_OUT_OF_RANGE", "TOO_MANY_HOLDS"}),
        **dict.fromkeys(("poll", "drain", "stamps"), _TRIMMED),
    },
    "lookups": {"send": _SEQUENCED},
    "times": {"send": _SEQUENCED},
    "groups": {"send": _SEQUENCED},
    "consume": {"send": _SEQUENCED},
    "delays": {"send": _SEQUENCED, "delay": _SEQUENCED, "recall": frozenset({"NOT_FOUND"})},
    "exports": {
        "send": _SEQUENCED,
        "trim": frozenset({"HELD"}),
        **dict.fromkeys(("poll", "drain"), _TRIMMED),
    },
}


def allowed_errors(workload: str, function: str) -> frozenset[str] | None:
    """Return the errors that an operation may end with; None for a workload that is not known."""
    of_workload = _OF_WORKLOAD.get(workload)
    if of_workload is None:
        return None
    more = (table.get(function, frozenset[str]()) for table in (of_workload, _OF_ALL))
    return LATER.union({CANCELLED}, *more)


class HarnessFailure(Exception):
    """The harness could not do its work. This says nothing about the product."""


class BadRequest(HarnessFailure):
    """The user named something unknown, or options that exclude each other. Nothing started."""


def unknown_name(what: str, name: str, known: Iterable[str]) -> BadRequest:
    """Return the error for an unknown name, with the nearest known one."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return BadRequest(f"no {what} {name!r}{hint} There are: {', '.join(names)}")
