"""Which kinds of faults belong together: what they take, whom they fit, when they strike.

Owns: sets of the nemesis's names. What each kind does is in `nemesis.py`.
"""

from typing import Final

from tests.sim.faults.old_copy import OLD_COPY

LOSING: Final = {"wipe", "damage-log", "damage-hard-state", "bad-sector", OLD_COPY}
"""Kinds that take a whole disk."""
POWER: Final = {
    "power-cut", "power-cut-all", "cut-then-choose", "damage-log", "damage-hard-state",
    "bad-sector", OLD_COPY,
}  # fmt: skip
"""Kinds with which `flush: async` may lose what it acknowledged."""
THEME_SHARE: Final = 0.5
"""Of the seeds: so many have the faults of one theme only."""
THEMES: Final = (
    LOSING | {"crash", "power-cut", "noise", "break-streams", "isolate", "transfer"},
    {
        "crash", "isolate", "one-way", "bridge", "hold-link", "noise", "break-streams", "pause",
        "stall", "transfer", "slow-disk", "client-cut", "producer-crash",
    },
    {
        "power-cut", "power-cut-all", "cut-then-choose", "crash", "crash-all", "crash-loop",
        "fail-state", "fail-disk", "hang-disk", "slow-disk", "full-disk", "rolling-restart", "stop",
        "producer-crash",
    },
)  # fmt: skip
"""Lost disks; elections and the network; what is written and how processes end."""
AT_WRITES: Final = {"crash", "pause", "stall", "isolate", "one-way", "stop"}
"""Kinds that find more while a write is on its way; power cuts see to it themselves."""
AT_ELECTIONS: Final = {
    "crash", "pause", "stall", "isolate", "one-way", "hang-disk", "power-cut", "client-cut",
    "fail-disk", "stop",
}  # fmt: skip
"""Kinds that may strike a leader which has just been elected."""
ALONE: Final = {
    "crash",
    "power-cut",
    "pause",
    "stop",
    "stall",
    "slow-disk",
    "hang-disk",
    "fail-state",
    "fail-disk",
    "full-disk",
    "clock-jump",
    "clock-drift",
    "clocks-jump",
    "client-cut",
    "producer-crash",
    "crash-loop",
    "slow-apply",
}
"""Kinds that make sense in a group of one."""
