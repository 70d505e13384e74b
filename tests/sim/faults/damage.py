"""Damage to a member's disk, as the nemesis does it: what was synced changes, or fails.

Owns: where damage may lie. An entry is damaged only below the newest synced position that a later
entry records: the last round before a power cut cannot be told from a torn one by anybody.
"""

import errno
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from dledger.log.hard_state import HARD_STATE_FILE
from dledger.types import EntryRef
from tests.sim.disk.disk import BAD_SECTOR
from tests.sim.disk.inode import SECTOR_SIZE
from tests.sim.faults.fault import Fault, Trait

if TYPE_CHECKING:
    from tests.sim.faults.nemesis import Nemesis
    from tests.sim.member.member import SimMember
    from tests.sim.world.group import Group

DATA: Final = "/data"
"""The folder of all data of every simulated member."""
FOLDER: Final = f"{DATA}/g"
"""The folder of its group."""
STATE: Final = "state"
"""Damage to the file of the saved state."""
NEWEST_ENTRIES: Final = 50
"""Half of the damage lies among so many: recovery reads these, older ones are met on reading."""


def _entry_place(member: "SimMember", random: Random) -> tuple[EntryRef, str, int] | None:
    """Return an entry below the newest recorded synced position, with file and offset of a byte."""
    facts = member.group.facts.members.get(member.name)
    held = [] if facts is None else [ref for ref in facts.log.values() if member.view.holds(ref)]
    if not held:
        return None
    newest = max(held, key=lambda ref: ref.index)
    synced = member.view.synced_position(newest)
    below = [ref for ref in held if ref.position + ref.size <= synced]
    if not below:
        return None
    ref = random.choice(below[-NEWEST_ENTRIES:] if random.random() < 0.5 else below)
    place = member.view.place(ref)
    assert place is not None
    return ref, place[0], place[1] + random.randrange(ref.size)


def _damage_log(member: "SimMember", random: Random) -> str:
    """Flip one bit of an entry; "" if there is none."""
    found = _entry_place(member, random)
    if found is None:
        return ""
    ref, path, offset = found
    member.flip(path, offset, 1 << random.randrange(8))
    member.damaged = f"entry {ref.index} at {path}+{offset}"
    return member.damaged


def _break_sector(member: "SimMember", random: Random) -> str:
    """Let a sector with a part of an entry fail with EIO when it is read; "" if there is none."""
    found = _entry_place(member, random)
    if found is None:
        return ""
    ref, path, offset = found
    member.break_sector(path, offset // SECTOR_SIZE)
    member.damaged = f"the sector of entry {ref.index} at {path}+{offset}"
    return member.damaged


def is_bad_sector(member: "SimMember", error: OSError) -> bool:
    """Tell whether an error is the sector that the nemesis broke; any other is a finding."""
    found = error.errno == errno.EIO and error.strerror == BAD_SECTOR
    member.group.counts["sectors found unreadable"] += found
    return found


def _damage_hard_state(member: "SimMember", random: Random) -> str:
    """Flip one bit of the hard state file; "" if there is none."""
    path = f"{FOLDER}/{HARD_STATE_FILE}"
    if not member.fs.exists(path) or not member.fs.size_of(path):
        return ""
    member.fs.flip(path, random.randrange(member.fs.size_of(path)), 1 << random.randrange(8))
    member.damaged = "hard state"
    return member.damaged


def _damage_state(member: "SimMember", random: Random) -> str:
    """Put back older pages of the saved state's file; "" if there are none."""
    if member.damaged or not member.state.lose_synced(random):
        return ""
    member.damaged = STATE
    return STATE


def damage_log(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Flip a bit in an entry that a later write says was synced: recovery must never cut it off."""
    return _damage(nemesis, group, random, _damage_log)


def rot_log(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Flip a bit in an entry under the process that uses it: a peer mends it (I15)."""
    member = random.choice(list(group.members.values()))
    if member.damaged or not group.may_lose_disk(member.name):
        return None
    what = _damage_log(member, random)
    if not what:
        return None
    group.lost.add(member.name)
    return f"{member.name} {what}"


def damage_hard_state(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Flip a bit of the hard state."""
    return _damage(nemesis, group, random, _damage_hard_state)


def damage_state(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Lose pages of the state that were synced: it must be found damaged, or be a whole commit."""
    return _damage(nemesis, group, random, _damage_state)


def rot_state(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Flip a bit in a row of the state, also under the process that reads it."""
    member = random.choice(list(group.members.values()))
    if member.damaged or not group.may_lose_disk(member.name) or not member.state.rot(random):
        return None
    member.damaged = STATE
    group.lost.add(member.name)
    return member.name


def bad_sector(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Let a sector with a part of an entry fail when it is read."""
    return _damage(nemesis, group, random, _break_sector)


def _damage(
    nemesis: "Nemesis", group: "Group", random: Random, damage: "Callable[[SimMember, Random], str]"
) -> str | None:
    member = random.choice(list(group.members.values()))
    if not group.may_lose_disk(member.name):
        return None
    member.power_cut()
    nemesis.later(0.05, 1.0, group.start_member, member.name)
    what = damage(member, random)
    if not what:
        return None
    group.lost.add(member.name)
    return f"{member.name} {what}"


FAULTS: Final = (
    Fault("damage-log", damage_log, Trait.LOSES_DISK | Trait.LOSES_UNSYNCED | Trait.OF_DISKS, 2.0),
    Fault("rot-log", rot_log, Trait.LOSES_DISK | Trait.LOSES_UNSYNCED | Trait.OF_DISKS, 2.0),
    Fault("damage-hard-state", damage_hard_state,
          Trait.LOSES_DISK | Trait.LOSES_UNSYNCED | Trait.OF_DISKS),
    Fault("damage-state", damage_state,
          Trait.LOSES_DISK | Trait.LOSES_UNSYNCED | Trait.OF_DISKS, 2.0),
    Fault("rot-state", rot_state, Trait.LOSES_DISK | Trait.LOSES_UNSYNCED | Trait.OF_DISKS, 2.0),
    Fault("bad-sector", bad_sector, Trait.LOSES_DISK | Trait.LOSES_UNSYNCED | Trait.OF_DISKS, 2.0),
)  # fmt: skip
