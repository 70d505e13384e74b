"""Damage to a stopped member's disk, as the nemesis does it: bytes that were synced change.

Owns: where damage may lie. An entry is damaged only below the newest synced position that a later
entry records: the last round before a power cut cannot be told from a torn one by anybody.
"""

from random import Random
from typing import TYPE_CHECKING, Final

from dledger.log.hard_state import HARD_STATE_FILE

if TYPE_CHECKING:
    from tests.sim.member import SimMember

FOLDER: Final = "/data/g"
"""The data folder of every simulated member."""
NEWEST_ENTRIES: Final = 50
"""Half of the damage lies among so many: recovery reads these, older ones are met on reading."""


def damage_log(member: "SimMember", random: Random) -> str:
    """Flip one bit of an entry below the newest recorded synced position; "" if none."""
    facts = member.world.facts.members.get(member.name)
    held = [] if facts is None else [ref for ref in facts.log.values() if member.view.holds(ref)]
    if not held:
        return ""
    newest = max(held, key=lambda ref: ref.index)
    synced = member.view.synced_position(newest)
    below = [ref for ref in held if ref.position + ref.size <= synced]
    if not below:
        return ""
    ref = random.choice(below[-NEWEST_ENTRIES:] if random.random() < 0.5 else below)
    place = member.view.place(ref)
    assert place is not None
    offset = place[1] + random.randrange(ref.size)
    member.fs.flip(place[0], offset, 1 << random.randrange(8))
    member.damaged = f"entry {ref.index} at {place[0]}+{offset}"
    return member.damaged


def damage_hard_state(member: "SimMember", random: Random) -> str:
    """Flip one bit of the hard state file; "" if there is none."""
    path = f"{FOLDER}/{HARD_STATE_FILE}"
    if not member.fs.exists(path) or not member.fs.size_of(path):
        return ""
    member.fs.flip(path, random.randrange(member.fs.size_of(path)), 1 << random.randrange(8))
    member.damaged = "hard state"
    return member.damaged
