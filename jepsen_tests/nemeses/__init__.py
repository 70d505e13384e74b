"""The faults by name.

composites    Several things at once, aimed by role
damage        Damage to the files of a stopped member: flipped bits, lost ends, old blocks
disks         Disks that are slow, hang, fail, are full, lose what was not synced, or are gone
fault         What a fault is: something done to the cluster, with its own undoing
losing        Which member may lose its data now
nemesis       Carries a schedule out: begins the faults of a phase, waits, undoes them all
network       Networks that are cut, slow, narrow, lossy, or reset connections
processes     Processes that end, restart, stand still
surroundings  Wrong clocks, slow machines, leadership that is handed round
"""

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
