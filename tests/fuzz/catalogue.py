"""The closed list of targets: every parser of bytes from a network or a disk has one."""

from collections.abc import Sequence
from typing import Final

from tests.fuzz.target import Target
from tests.fuzz.targets import (
    batches,
    calls,
    entries,
    exports,
    frames,
    logins,
    peers,
    small,
    state,
    texts,
)

TARGETS: Final[Sequence[Target]] = (
    *batches.TARGETS, *frames.TARGETS, *entries.TARGETS, *peers.TARGETS, *small.TARGETS,
    *state.TARGETS, *calls.TARGETS, *exports.TARGETS, *texts.TARGETS,
    *logins.TARGETS,
)  # fmt: skip

assert len({target.name for target in TARGETS}) == len(TARGETS), "names are unique"


def by_name() -> dict[str, Target]:
    """Return every target by its name."""
    return {target.name: target for target in TARGETS}
