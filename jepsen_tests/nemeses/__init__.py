"""The faults by name, and the nemesis that carries a schedule of them out.

composites    several faults at once, aimed by role
damage        damage to the files of a stopped member: flipped bits, lost ends, old blocks
disks         disks that are slow, hang, fail, are full, or lose what was not synced
fault         what a fault is: it hurts the cluster, and pushes its own undoing
losing        which member may lose its data now
nemesis       begins the faults of each phase, waits, and undoes them
network       networks that are cut, slow, narrow or lossy, or reset connections
old_copy      a folder as it was some time ago, put back while the member is down
processes     processes that end, restart or stand still
surroundings  wrong clocks, slow machines, leadership that moves
"""

from collections.abc import Mapping
from typing import Final

from jepsen_tests.nemeses import (
    composites,
    damage,
    disks,
    network,
    old_copy,
    processes,
    surroundings,
)
from jepsen_tests.nemeses.fault import Fault

FAULTS: Final[Mapping[str, Fault]] = {
    fault.name: fault
    for module in (processes, network, disks, damage, old_copy, surroundings, composites)
    for fault in module.FAULTS
}
LOSING: Final = frozenset(fault.name for fault in FAULTS.values() if fault.loses_disk)
