"""Wall clocks that go wrong: they jump, drift, stand still, at one member, a majority or all.

Owns: these kinds of faults, and how many clocks of a world may be wrong at once. In most worlds a
majority stays right at any time. There the group's time must be right, too
(`invariants/delivery/right_stamps.py`).
"""

from random import Random
from typing import TYPE_CHECKING, Final

from tests.sim.faults.fault import Fault, Trait

if TYPE_CHECKING:
    from tests.sim.faults.nemesis import Nemesis
    from tests.sim.member.member import SimMember
    from tests.sim.world.group import Group

BORNE_SHARE: Final = 0.7
"""Of all seeds: in so many a majority of the clocks is right at any time."""
JUMPS_MS: Final = (-3_600_000, -5_000, -700, 800, 5_000, 3_600_000, 86_400_000, 30 * 86_400_000)
RATES: Final = (0.0, 0.5, 0.9, 1.1, 2.0)


def _victim(group: "Group", random: Random) -> "SimMember":
    """Return a member whose clock may be wrong now."""
    wrong = [member for member in group.members.values() if not member.clock.is_right]
    if group.clocks_borne and len(wrong) >= (len(group.names) - 1) // 2:
        return random.choice(wrong) if wrong else group.members[group.names[0]]
    return random.choice(list(group.members.values()))


def _may_be_wrong(group: "Group") -> bool:
    return not group.clocks_borne or len(group.names) > 2


def clock_jump(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Set a member's clock, back to right as well."""
    if not _may_be_wrong(group):
        return None
    member = _victim(group, random)
    jump_ms = random.choice((0, 0, *JUMPS_MS))
    member.clock.set(jump_ms)
    return f"{member.name} {jump_ms} ms"


def clock_drift(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Let a member's clock run at another rate, or stand still."""
    if not _may_be_wrong(group):
        return None
    member = _victim(group, random)
    rate = random.choice(RATES)
    member.clock.set(0, rate)
    nemesis.ends(random.uniform(2.0, 30.0), member.clock.set, 0)
    return f"{member.name} at {rate}"


def clocks_jump(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Set a majority's clocks, or all, to the same time, and back after a while."""
    if group.clocks_borne:
        return None
    names = list(group.names)
    chosen = random.sample(names, random.randint(len(names) // 2 + 1, len(names)))
    jump_ms = random.choice(JUMPS_MS)
    for name in chosen:
        group.members[name].clock.set(jump_ms)
        nemesis.ends(random.uniform(1.0, 25.0), group.members[name].clock.set, 0)
    return f"{','.join(sorted(chosen))} {jump_ms} ms"


FAULTS: Final = (
    Fault("clock-jump", clock_jump, Trait.ALONE, 2.0),
    Fault("clock-drift", clock_drift, Trait.ALONE),
    Fault("clocks-jump", clocks_jump, Trait.ALONE),
)  # fmt: skip
