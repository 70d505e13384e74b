"""What a healthy group promises without faults, or after one fault.

Owns: single disturbances of a group that has converged, each with its bound, and the draw of those
that a seed tries. The nemesis shows that nothing is lost whatever happens; how well the group does
meanwhile can only be told where nothing else happens. Bounds are virtual seconds; those that depend
on the network say how.
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from dledger.raft.api import Role
from dledger.raft.commit.gathering import GATHER_SECONDS
from dledger.state.commands.registry import encode
from dledger.state.queues.holds import ReleaseHold
from dledger.types import EntryKind, Settled
from dledger_proto.errors import Outcome
from tests.sim.invariants.violation import Property, Violation

if TYPE_CHECKING:
    from tests.sim.member.member import SimMember
    from tests.sim.world.world import World

CALM_MAX: Final = 20.0
"""From the end of the last disturbance until the group is calm again."""
STEP: Final = 0.01
SHARE: Final = 0.5
"""Each probe is tried in so many of the seeds."""
QUIET_SECONDS: Final = 4.0
DEAF_SECONDS: Final = 4.0
PAUSE_SECONDS: Final = 0.75
"""Shorter than a leader tolerates, longer than a follower tolerates (L2)."""
RESIGN_MAX: Final = 2.4
"""Two of the longest election timeouts: then a leader that hears nobody leads no more (L3)."""
SETTLE_MAX: Final = 4.0
SUFFIX_WRITES: Final = 100
"""How many proposals an isolated leader gets: half a second's worth."""
REJOIN_MAX: Final = 4.0
"""The links' own back-off is up to 1 s; one index per heartbeat would be 10 (L4)."""
MINORITY_SECONDS: Final = 3.0
REPLACE_MAX: Final = 0.45
"""A killed leader is replaced without waiting for the election timer (D17), plus ROUND_TRIPS."""
ROUND_TRIPS: Final = 6
LATENCY_MAX: Final = 0.03
"""Limit for the median of a write, on a network without latency."""
WRITES: Final = 9


def try_some(world: "World", probes: "dict[str, Probe]") -> None:
    """Try a drawn share of the probes, in a drawn order."""
    random = Random(f"probes/{min(probes)}/{world.plan.seed}")
    if len(world.names) < 3:
        return
    chosen = [name for name in sorted(probes) if random.random() < SHARE]
    random.shuffle(chosen)
    for name in chosen:
        leader = _calm(world)
        world.trace(f"probe {name} at {leader.name}")
        probes[name](world, random, leader)
        world.network.heal_all()
        world.counts[f"probe {name}"] += 1


def _fail(text: str) -> None:
    raise Violation(Property.CALM, text)


def _leader(world: "World") -> "SimMember | None":
    leaders = [member for member in world.members.values() if member.role is Role.LEADER]
    return leaders[0] if len(leaders) == 1 else None


def _term(member: "SimMember") -> int:
    assert member.process is not None
    return int(member.process.group.term)


def _calm(world: "World") -> "SimMember":
    """Wait until one member has led for a while, all others follow, and every link is open."""
    since = world.scheduler.now
    deadline = max(since, world.nemesis.over_at) + CALM_MAX
    while world.scheduler.now < max(since + 1.0, world.nemesis.over_at):
        leader = _leader(world)
        roles = sorted(member.role.value for member in world.members.values())
        followers = roles.count(Role.FOLLOWER.value)
        links = all(link.up for link in world.network.links.values())
        if leader is None or followers != len(roles) - 1 or not links:
            since = world.scheduler.now + STEP
        if world.scheduler.now > deadline:
            _fail(f"not calm after {CALM_MAX:.0f} s: {roles}, all links {links}")
        world.run_for(STEP)
    leader = _leader(world)
    assert leader is not None
    return leader


def _until(world: "World", condition: Callable[[], bool], limit: float, why: str) -> float:
    began = world.scheduler.now
    while not condition():
        if world.scheduler.now - began > limit:
            _fail(f"not within {limit:.2f} s: {why}")
        world.run_for(STEP / 5)
    return world.scheduler.now - began


def _round_trip(world: "World") -> float:
    return 2 * world.plan.delay[1]


def _keeps(world: "World", leader: "SimMember", term: int, what: str) -> None:
    now = _leader(world)
    if now is not leader or _term(leader) != term:
        _fail(f"{what}: {leader.name} led term {term}, now {now and (now.name, _term(now))}")


def _propose(world: "World", leader: "SimMember") -> list[Settled]:
    """Propose something that changes nothing; the list gets its outcome."""
    process = leader.process
    assert process is not None
    settled: list[Settled] = []

    def done(outcome: Settled) -> None:
        world.settled(process, outcome)
        settled.append(outcome)

    release = ReleaseHold("nobody", *world.plan.queues[0])
    body, frees = encode(release), release.frees_space
    leader.input(lambda: process.group.propose(EntryKind.COMMANDS, [body], done, frees_space=frees))
    return settled


# While clients write.


def _deaf(world: "World", random: Random, leader: "SimMember") -> None:
    """L1: a follower that hears nobody, or only not the leader, disturbs nobody."""
    term = _term(leader)
    deaf = random.choice([name for name in world.names if name != leader.name])
    mute = [leader.name] if random.random() < 0.5 else [n for n in world.names if n != deaf]
    for name in mute:
        world.network.cut(name, deaf)
    world.run_for(DEAF_SECONDS)
    _keeps(world, leader, term, f"{deaf} did not hear {mute}")
    world.network.heal_all()
    world.run_for(2.0)
    _keeps(world, leader, term, f"{deaf} heard {mute} again")


def _paused_followers(world: "World", random: Random, leader: "SimMember") -> None:
    """L2: a pause of all followers deposes no leader while messages are on the way."""
    term = _term(leader)
    others = [member for member in world.members.values() if member is not leader]
    for member in others:
        member.pause()
    world.run_for(PAUSE_SECONDS)
    for member in others:
        member.lose_waiting_input()
        member.resume()
    world.run_for(2.5)
    _keeps(world, leader, term, "all followers paused")


def _isolated_leader(world: "World", random: Random, leader: "SimMember") -> None:
    """L3, L7: a cut-off leader steps down and answers callers, another leads; L4: it rejoins."""
    for name in world.names:
        if name != leader.name:
            world.network.cut(name, leader.name)
            world.network.cut(leader.name, name)
    settled = _propose(world, leader)
    for _ in range(SUFFIX_WRITES):
        _propose(world, leader)
        world.run_for(STEP / 2)
    resigned = lambda: leader.role is not Role.LEADER  # noqa: E731
    _until(world, resigned, RESIGN_MAX, f"{leader.name} hears nobody, and leads no more")
    _until(world, lambda: bool(settled), SETTLE_MAX, f"{leader.name} settles its proposals")
    _until(world, lambda: _leader(world) is not None, SETTLE_MAX, "another leads")
    world.network.heal_all()
    head, own = world.facts.committed_last, leader.process
    assert own is not None
    rejoined = lambda: own.machine.applied_index >= head  # noqa: E731
    _until(world, rejoined, REJOIN_MAX, f"{leader.name} replaces its suffix")


def _minority(world: "World", random: Random, leader: "SimMember") -> None:
    """F8: one member less than a majority elects no leader, however often it answers."""
    others = [member for member in world.members.values() if member is not leader]
    gone = [leader, *random.sample(others, len(world.names) // 2)]
    for member in gone:
        member.kill()
    for link in world.network.links.values():
        link.repeat = 0.5
    world.run_for(MINORITY_SECONDS)
    if _leader(world) is not None:
        _fail(f"somebody leads without {[member.name for member in gone]}")
    world.network.quiet()
    for member in gone:
        member.start()


def _killed_leader(world: "World", random: Random, leader: "SimMember") -> None:
    """D17: a broken connection starts an election at once."""
    leader.kill()
    for (source, _), link in world.network.links.items():
        if source == leader.name:
            link.late_epoch = -1  # or who reads it late follows the dead until the timer fires
    limit = REPLACE_MAX + ROUND_TRIPS * _round_trip(world)
    _until(world, lambda: _leader(world) is not None, limit, f"{leader.name} is replaced")
    leader.start()


def _latency(world: "World", random: Random, leader: "SimMember") -> None:
    """L8: a write takes a round trip and two syncs, not a heartbeat."""
    took: list[float] = []
    for _ in range(WRITES):
        world.run_for(random.uniform(0.0, 0.2))
        settled = _propose(world, leader)
        took.append(_until(world, lambda: bool(settled), 1.0, "a write is settled"))  # noqa: B023
    median = sorted(took)[WRITES // 2]
    limit = LATENCY_MAX + 2 * _round_trip(world)
    if median > limit:
        _fail(f"half of the writes take above {1e3 * median:.0f} ms, not {1e3 * limit:.0f}")


def _transfer_under_load(world: "World", random: Random, leader: "SimMember") -> None:
    """L15: a transfer of leadership leaves no write with an unknown outcome."""
    target = random.choice([member for member in world.members.values() if member is not leader])
    leader.transfer(target.name)
    writes: list[list[Settled]] = []
    for _ in range(100):
        if target.role is Role.LEADER:
            break
        writes.append(_propose(world, leader))
        world.run_for(0.002)
    _until(world, lambda: target.role is Role.LEADER, 1.0, f"{target.name} takes over")
    _until(world, lambda: all(writes), SETTLE_MAX, "what was proposed meanwhile is settled")
    unknown = sum(write[0].outcome is Outcome.UNKNOWN for write in writes)
    if unknown:
        _fail(f"{unknown} of {len(writes)} writes ended unknown by a transfer")


# While nobody writes.


def _quiet(world: "World", random: Random, leader: "SimMember") -> None:
    """A group that is left alone keeps its leader, and puts on disk what it has."""
    term = _term(leader)
    world.run_for(QUIET_SECONDS)
    _keeps(world, leader, term, f"{QUIET_SECONDS:.0f} s without anything")
    for member in world.members.values():
        assert member.process is not None
        log = member.process.log
        if log.durable_index < log.last_index or log.checkpoint_is_behind:
            _fail(
                f"{member.name} idles with {log.durable_index} of {log.last_index} synced, "
                f"checkpoint behind: {log.checkpoint_is_behind}"
            )


def _lost_news(world: "World", random: Random, leader: "SimMember") -> None:
    """The first entry after a quiet time is lost: the leader sends it again after a heartbeat."""
    world.run_for(1.0)
    for link in world.network.links.values():
        link.loss = 1.0
    settled = _propose(world, leader)
    world.run_for(0.02)
    world.network.quiet()
    limit = 1.5 * world.plan.heartbeat + 2 * _round_trip(world)
    _until(world, lambda: bool(settled), limit, "what was lost is sent again")


def _lone_caller(world: "World", random: Random, leader: "SimMember") -> None:
    """One of several callers comes back alone: the leader does not wait for the others."""
    together = [_propose(world, leader) for _ in range(8)]
    _until(world, lambda: all(together), 1.0, "eight writes are settled")
    alone = _propose(world, leader)
    limit = 2 * GATHER_SECONDS + LATENCY_MAX + 2 * _round_trip(world)
    _until(world, lambda: bool(alone), limit, "one caller who comes back alone is answered")


Probe = Callable[["World", Random, "SimMember"], None]
UNDER_LOAD: Final[dict[str, Probe]] = {
    "deaf": _deaf,
    "paused-followers": _paused_followers,
    "minority": _minority,
    "isolated-leader": _isolated_leader,
    "killed-leader": _killed_leader,
    "latency": _latency,
    "transfer": _transfer_under_load,
}
IDLE: Final[dict[str, Probe]] = {
    "deaf-idle": _deaf,
    "quiet": _quiet,
    "lost-news": _lost_news,
    "lone-caller": _lone_caller,
}
