"""An older copy of a member's data folder is put back, as from a backup: it has forgotten.

Owns: when that may be done to a group that must bear it. The product notices such a copy as soon as
somebody hears of it who knows better, and promises nothing before (docs/decisions). So the copy
comes back at a moment when nobody needs what it has forgotten: all its entries are on the disks of
a majority without it, and no vote of a term that it knows can be asked for again. It is one member
of a world, always the same, and none of its copies is older than its present life.
"""

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from dledger.log.hard_state import HardState
from dledger.raft.api import Role
from dledger.types import MemberId
from tests.sim.disk.disk import _Folder
from tests.sim.disk.durable import durable_copy, put_back
from tests.sim.disk.state_file import StateCopy
from tests.sim.faults.damage import FOLDER
from tests.sim.faults.fault import Fault, Trait

if TYPE_CHECKING:
    from tests.sim.faults.nemesis import Nemesis
    from tests.sim.member.member import SimMember
    from tests.sim.world.group import Group

OLD_COPY: Final = "old-copy"
AGE_MIN: Final = 0.5
AGE_MAX: Final = 10.0
"""How old the copy is when it may come back first, virtual seconds."""
TRIES_MAX: Final = 40
TRY_INTERVAL: Final = 0.1


@dataclass(frozen=True, slots=True)
class Copy:
    """What a disk held at a moment, in which life of its member."""

    life: bytes | None
    folder: _Folder
    state: StateCopy


def old_copy(nemesis: "Nemesis", group: "Group", random: Random) -> str | None:
    """Take a copy now and put it back later. It begins when it is put back."""
    name = min(group.restored) if group.restored else random.choice(list(group.names))
    member = group.members[name]
    state = member.view.hard_state()
    facts = group.facts.members.get(name)
    if state is None or state.quarantined or facts is None or facts.last <= 1:
        return None
    copy = Copy(_life(member, state), durable_copy(member.fs, FOLDER), member.state.copy())
    nemesis.later(AGE_MIN, AGE_MAX, _come_back, nemesis, group, member, copy, TRIES_MAX)
    return None


def _come_back(
    nemesis: "Nemesis", group: "Group", member: "SimMember", copy: Copy, tries: int
) -> None:
    if not nemesis.running or (group.restored and member.name not in group.restored):
        return
    if not _may_forget(group, member, copy):
        if tries > 1:
            nemesis.after(TRY_INTERVAL, _come_back, nemesis, group, member, copy, tries - 1)
        return
    restore(group, member, copy.folder, copy.state)
    nemesis.begun(member.name)
    nemesis.later(0.01, 1.0, group.start_member, member.name)


def restore(group: "Group", member: "SimMember", folder: _Folder, state: StateCopy) -> None:
    """End a member and replace its disk by a copy, which is used up."""
    member.kill()
    member.wipe()
    put_back(member.fs, FOLDER, folder)
    member.state.put_back(state)
    group.observer.wiped(member.name, is_copy=True)
    group.restored.add(member.name)


def _life(member: "SimMember", state: HardState) -> bytes | None:
    return state.incarnations.get(MemberId(member.name))


def _may_forget(group: "Group", member: "SimMember", copy: Copy) -> bool:
    state = member.view.hard_state()
    if (
        state is None
        or state.quarantined
        or state.incarnations.get(MemberId(member.name)) != copy.life
    ):
        return False
    facts = group.facts.members[member.name]
    last = facts.log.get(facts.last)
    if last is None:
        return False
    others = group.facts.on_disk.get(last.crc, set()) - {member.name}
    if len(others) < group.facts.majority:
        return False
    for other in group.members.values():
        known = other.view.hard_state()
        if other is not member and (known is None or known.term < state.term):
            return False
        if other is not member and other.role is Role.CANDIDATE:
            return False
    return True


FAULTS: Final = (
    Fault(OLD_COPY, old_copy, Trait.LOSES_DISK | Trait.LOSES_UNSYNCED | Trait.OF_DISKS, 3.0),
)  # fmt: skip
