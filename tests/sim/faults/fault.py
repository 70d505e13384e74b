"""What a fault of the simulation is: its name, what it does, where it fits; and one that struck.

Owns the interface. A fault is one `Fault` in the list `FAULTS` of its module; the nemesis draws
from all these lists.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.sim.faults.nemesis import Nemesis
    from tests.sim.member.member import SimMember
    from tests.sim.world.group import Group


class Trait(enum.Flag):
    """What the draw of a world must know of a fault."""

    ALONE = enum.auto()
    """It makes sense in a group of one."""
    LOSES_DISK = enum.auto()
    """It takes a whole disk."""
    LOSES_UNSYNCED = enum.auto()
    """With it, `flush: async` may lose what it acknowledged."""
    AT_WRITES = enum.auto()
    """It finds more while a write is on its way. Power cuts see to that themselves."""
    AT_ELECTIONS = enum.auto()
    """It may strike a leader that has just been elected."""
    OF_DISKS = enum.auto()
    """Belongs to the theme of lost disks."""
    OF_LINKS = enum.auto()
    """Belongs to the theme of elections and the network."""
    OF_WRITES = enum.auto()
    """Belongs to the theme of what is written and how processes end."""


THEMES: Final = (Trait.OF_DISKS, Trait.OF_LINKS, Trait.OF_WRITES)
THEME_SHARE: Final = 0.5
"""This share of the seeds has the faults of one theme only."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that can go wrong."""

    name: str
    """As seeds print it."""
    begin: "Callable[[Nemesis, Group, Random], str | None]"
    """Does the fault, and arranges its end; returns whom it hit, or None when it cannot be now."""
    traits: Trait
    weight: float = 1.0
    """How often it is drawn, compared with other faults."""


@dataclass(slots=True, eq=False)
class Strike:
    """One fault as it comes in one seed."""

    name: str
    """The number of its turn, or member and term of the new leader that it strikes."""
    kind: str
    """The name of the `Fault`."""
    random: Random
    """All the chance that it needs, so that leaving out another fault does not change it."""
    group: "Group"
    """The group that it strikes."""
    aim: "SimMember | None" = None
    """Whom it strikes; None: it chooses."""
    began: float | None = None
    """When it began, virtual seconds. None: it waits for its moment, or could not begin."""
    detail: str = ""
    """Whom it hit, and how."""
    ended: float | None = None
    """When the last of its ends came that has come."""
    open_ends: int = 0
    """Ends that are arranged and still to come."""
