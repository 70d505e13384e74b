"""How a run can go wrong apart from what it finds, and words for a wrong word."""

import difflib
from collections.abc import Iterable


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
