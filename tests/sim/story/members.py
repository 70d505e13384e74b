"""The state of every member at one moment, as a table.

Owns: what is shown of a member, and of the links from it that are not whole.
"""

from typing import TYPE_CHECKING, Final

from tests.sim.invariants.base import MemberFacts
from tests.sim.story.timeline import Lanes
from tests.sim.world.clock import true_ms

if TYPE_CHECKING:
    from tests.sim.world.world import World

HEADING: Final = (
    f"{'member':<7}{'now':<6}{'role':<12}{'term':>5}{'last':>7}{'durable':>9}{'commit':>8}"
    f"{'applied':>9}{'boot':>6}  {'clock':<13}links and disk"
)


def members_table(world: "World", lanes: Lanes) -> list[str]:
    """Return the table's lines; numbers are what the observer saw last."""
    lines = [HEADING]
    for name, member in world.members.items():
        facts = member.group.facts.members.get(name, MemberFacts(name))
        lines.append(
            f"{name:<7}{lanes.of(name):<6}{facts.role.value:<12}{facts.term:>5}{facts.last:>7}"
            f"{facts.durable:>9}{facts.commit:>8}{facts.applied:>9}{facts.boot:>6}"
            f"  {_clock(world, name):<13}{'; '.join(_troubles(world, name)) or 'whole'}"
        )
    return lines


def _clock(world: "World", name: str) -> str:
    off_ms = world.members[name].clock.wall_ms() - true_ms(world.scheduler)
    return "right" if world.members[name].clock.is_right else f"{off_ms:+} ms"


def _troubles(world: "World", name: str) -> list[str]:
    found = [f"{state} to {','.join(peers)}" for state, peers in _links_from(world, name).items()]
    clients = [each for each in world.client_names if world.network.path(each, name).cut]
    if clients:
        found.append(f"cut from {','.join(clients)}")
    group = world.members[name].group
    if name in group.lost:
        found.append("disk lost or damaged, not trusted again")
    if name in group.restored:
        found.append("disk replaced by an older copy")
    if name in group.absent:
        found.append("stays down")
    return found


def _links_from(world: "World", name: str) -> dict[str, list[str]]:
    """Return what is wrong with the links from a member, and the peers that they lead to."""
    wrong: dict[str, list[str]] = {}
    group = world.members[name].group
    for source, target in group.pairs:
        path = world.network.path(source, target)
        is_noisy = bool(path.loss or path.repeat or path.reorder)
        is_down = not group.has_link(source, target)
        states = {"cut": path.cut, "held": path.hold, "down": is_down, "noisy": is_noisy}
        for state, is_so in states.items():
            if is_so and source == name:
                wrong.setdefault(state, []).append(target)
    return wrong
