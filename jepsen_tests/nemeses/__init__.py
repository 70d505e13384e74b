"""The faults by name."""

from collections.abc import Mapping
from typing import Final

from jepsen_tests.nemeses import composites, damage, disks, network, processes, surroundings
from jepsen_tests.nemeses.fault import Fault

FAULTS: Final[Mapping[str, Fault]] = {
    fault.name: fault
    for module in (processes, network, disks, damage, surroundings, composites)
    for fault in module.FAULTS
}
LOSING: Final = frozenset(
    {
        "wipe",
        "wipe-cut-off",
        "next-quorum-wiped",
        "bit-flips",
        "truncation",
        "deletion",
        "stale-blocks",
    }
)
"""After these a member must be filled again from the first entry of the log."""
