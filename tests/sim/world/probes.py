"""What a healthy group promises without faults, or after one fault.

Owns: single disturbances of a group that has converged, each with its bound, and the draw of those
that a seed tries. The nemesis shows that nothing is lost whatever happens; how well the group does
meanwhile can only be told where nothing else happens. Bounds are virtual seconds; those that depend
on the network say how.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from dledger.log.commit_log import CommitLog
from dledger.raft.api import Role
from dledger.raft.commit.gathering import GATHER_SECONDS
from dledger.state.commands.registry import encode
from dledger.state.queues.holds import ReleaseHold
from dledger.types import EntryKind, Settled
from dledger_proto.batch.codec import Record, encode_batch, parse_header
from dledger_proto.errors import Outcome
from tests.sim.clients.requests import AppendTogether, Fetch
from tests.sim.clients.wire import Answer
from tests.sim.invariants.delivery.queue_contents import batch_key
from tests.sim.invariants.violation import Property, Violation

if TYPE_CHECKING:
    from tests.sim.member.member import SimMember
    from tests.sim.world.group import Group

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
REFILL_MAX: Final = 12.0
"""The same, where the group kept too little log meanwhile: log and state of another come first."""
KEEPS_ALL_BYTES: Final = 1 << 30
MINORITY_SECONDS: Final = 3.0
REPLACE_MAX: Final = 0.45
"""A killed leader is replaced without waiting for the election timer (D17), plus ROUND_TRIPS."""
ROUND_TRIPS: Final = 6
LATENCY_MAX: Final = 0.03
"""Limit for the median of a write, on a network without latency."""
WRITES: Final = 9
READER_WAIT: Final = 3.0


def try_some(group: "Group", probes: "dict[str, Probe]") -> None:
    """Try a drawn share of the probes, in a drawn order."""
    random = Random(f"probes/{min(probes)}/{group.plan.seed}")
    if len(group.names) < 3:
        return
    chosen = [name for name in sorted(probes) if random.random() < SHARE]
    random.shuffle(chosen)
    for name in chosen:
        leader = _calm(group)
        group.trace(f"probe {name} at {leader.name}")
        probes[name](group, random, leader)
        group.network.heal_all()
        group.counts[f"probe {name}"] += 1


def _fail(text: str) -> None:
    raise Violation(Property.CALM, text)


def _term(member: "SimMember") -> int:
    assert member.process is not None
    return int(member.process.group.term)


def _calm(group: "Group") -> "SimMember":
    """Wait until one member has led for a while, all others follow, and every link is open."""
    since = group.scheduler.now
    deadline = max(since, group.world.nemesis.over_at) + CALM_MAX
    while group.scheduler.now < max(since + 1.0, group.world.nemesis.over_at):
        leader = group.leader
        roles = sorted(member.role.value for member in group.members.values())
        followers = roles.count(Role.FOLLOWER.value)
        links = group.links_up()
        if leader is None or followers != len(roles) - 1 or not links:
            since = group.scheduler.now + STEP
        if group.scheduler.now > deadline:
            _fail(f"not calm after {CALM_MAX:.0f} s: {roles}, all links {links}")
        group.run_for(STEP)
    leader = group.leader
    assert leader is not None
    return leader


def _until(group: "Group", condition: Callable[[], bool], limit: float, why: str) -> float:
    began = group.scheduler.now
    while not condition():
        if group.scheduler.now - began > limit:
            _fail(f"not within {limit:.2f} s: {why}")
        group.run_for(STEP / 5)
    return group.scheduler.now - began


def _round_trip(group: "Group") -> float:
    return 2 * group.plan.delay[1]


def _keeps(group: "Group", leader: "SimMember", term: int, what: str) -> None:
    now = group.leader
    if now is not leader or _term(leader) != term:
        _fail(f"{what}: {leader.name} led term {term}, now {now and (now.name, _term(now))}")


def _propose(group: "Group", leader: "SimMember") -> list[Settled]:
    """Propose something that changes nothing; the list gets its outcome."""
    process = leader.process
    assert process is not None
    settled: list[Settled] = []

    def done(outcome: Settled) -> None:
        settled.append(outcome)

    release = ReleaseHold("nobody", *group.plan.queues[0])
    body, frees = encode(release), release.frees_space
    leader.input(lambda: process.group.propose(EntryKind.COMMANDS, [body], done, frees_space=frees))
    return settled


# While clients write.


def _deaf(group: "Group", random: Random, leader: "SimMember") -> None:
    """L1: a follower that hears nobody, or only not the leader, disturbs nobody."""
    term = _term(leader)
    deaf = random.choice([name for name in group.names if name != leader.name])
    mute = [leader.name] if random.random() < 0.5 else [n for n in group.names if n != deaf]
    for name in mute:
        group.network.cut(name, deaf)
    group.run_for(DEAF_SECONDS)
    _keeps(group, leader, term, f"{deaf} did not hear {mute}")
    group.network.heal_all()
    group.run_for(2.0)
    _keeps(group, leader, term, f"{deaf} heard {mute} again")


def _paused_followers(group: "Group", random: Random, leader: "SimMember") -> None:
    """L2: a pause of all followers deposes no leader while messages are on the way."""
    term = _term(leader)
    others = [member for member in group.members.values() if member is not leader]
    for member in others:
        member.pause()
    group.run_for(PAUSE_SECONDS)
    for member in others:
        member.resume()
    group.run_for(2.5)
    _keeps(group, leader, term, "all followers paused")


def _isolated_leader(group: "Group", random: Random, leader: "SimMember") -> None:
    """L3, L7: a cut-off leader steps down and answers callers, another leads; L4: it rejoins."""
    for name in group.names:
        if name != leader.name:
            group.network.cut(name, leader.name)
            group.network.cut(leader.name, name)
    settled = _propose(group, leader)
    for _ in range(SUFFIX_WRITES):
        _propose(group, leader)
        group.run_for(STEP / 2)
    resigned = lambda: leader.role is not Role.LEADER  # noqa: E731
    _until(group, resigned, RESIGN_MAX, f"{leader.name} hears nobody, and leads no more")
    _until(group, lambda: bool(settled), SETTLE_MAX, f"{leader.name} settles its proposals")
    _until(group, lambda: group.leader is not None, SETTLE_MAX, "another leads")
    group.network.heal_all()
    head = group.facts.committed_last

    def rejoined() -> bool:
        own = leader.process  # a refill ends it, and starts another
        return own is not None and own.machine.applied_index >= head

    keeps_all = group.plan.absent_bytes_max >= KEEPS_ALL_BYTES
    limit = REJOIN_MAX if keeps_all else REFILL_MAX
    _until(group, rejoined, limit, f"{leader.name} replaces its suffix")


def _minority(group: "Group", random: Random, leader: "SimMember") -> None:
    """F8: one member less than a majority elects no leader, however often it answers."""
    others = [member for member in group.members.values() if member is not leader]
    gone = [leader, *random.sample(others, len(group.names) // 2)]
    for member in gone:
        member.kill()
    for pair in group.pairs:
        group.network.path(*pair).repeat = 0.5
    group.run_for(MINORITY_SECONDS)
    if group.leader is not None:
        _fail(f"somebody leads without {[member.name for member in gone]}")
    group.network.quiet()
    for member in gone:
        member.start()


def _killed_leader(group: "Group", random: Random, leader: "SimMember") -> None:
    """D17: a broken connection starts an election at once."""
    leader.kill()
    limit = REPLACE_MAX + ROUND_TRIPS * _round_trip(group)
    _until(group, lambda: group.leader is not None, limit, f"{leader.name} is replaced")
    leader.start()


def _latency(group: "Group", random: Random, leader: "SimMember") -> None:
    """L8: a write takes a round trip and two syncs, not a heartbeat."""
    took: list[float] = []
    for _ in range(WRITES):
        group.run_for(random.uniform(0.0, 0.2))
        settled = _propose(group, leader)
        took.append(_until(group, lambda: bool(settled), 1.0, "a write is settled"))  # noqa: B023
    median = sorted(took)[WRITES // 2]
    limit = LATENCY_MAX + 2 * _round_trip(group)
    if median > limit:
        _fail(f"half of the writes take above {1e3 * median:.0f} ms, not {1e3 * limit:.0f}")


def _transfer_under_load(group: "Group", random: Random, leader: "SimMember") -> None:
    """L15: a transfer of leadership leaves no write with an unknown outcome."""
    target = random.choice([member for member in group.members.values() if member is not leader])
    leader.transfer(target.name)
    writes: list[list[Settled]] = []
    for _ in range(100):
        if target.role is Role.LEADER:
            break
        writes.append(_propose(group, leader))
        group.run_for(0.002)
    _until(group, lambda: target.role is Role.LEADER, 1.0, f"{target.name} takes over")
    _until(group, lambda: all(writes), SETTLE_MAX, "what was proposed meanwhile is settled")
    unknown = sum(write[0].outcome is Outcome.UNKNOWN for write in writes)
    if unknown:
        _fail(f"{unknown} of {len(writes)} writes ended unknown by a transfer")


# While nobody writes.


def _quiet(group: "Group", random: Random, leader: "SimMember") -> None:
    """A group that is left alone keeps its leader, and puts on disk what it has."""
    term = _term(leader)
    group.run_for(QUIET_SECONDS)
    _keeps(group, leader, term, f"{QUIET_SECONDS:.0f} s without anything")
    for member in group.members.values():  # unless a duty of the leader has just written
        assert member.process is not None
        why = f"{member.name} idles, and puts on disk what it has"
        _until(group, partial(_is_on_disk, member.process.log), QUIET_SECONDS, why)


def _is_on_disk(log: CommitLog) -> bool:
    return log.durable_index == log.last_index and not log.checkpoint_is_behind


def _lost_news(group: "Group", random: Random, leader: "SimMember") -> None:
    """The first entry after a quiet time is lost: the leader sends it again after a heartbeat."""
    group.run_for(1.0)
    for pair in group.pairs:
        group.network.path(*pair).loss = 1.0
    settled = _propose(group, leader)
    group.run_for(0.02)
    group.network.quiet()
    limit = 1.5 * group.plan.heartbeat + 2 * _round_trip(group)
    _until(group, lambda: bool(settled), limit, "what was lost is sent again")


def _lone_caller(group: "Group", random: Random, leader: "SimMember") -> None:
    """One of several callers comes back alone: the leader does not wait for the others."""
    together = [_propose(group, leader) for _ in range(8)]
    _until(group, lambda: all(together), 1.0, "eight writes are settled")
    alone = _propose(group, leader)
    limit = 2 * GATHER_SECONDS + LATENCY_MAX + 2 * _round_trip(group)
    _until(group, lambda: bool(alone), limit, "one caller who comes back alone is answered")


def _waiting_readers(group: "Group", random: Random, leader: "SimMember") -> None:
    """S53: readers that wait at the ends of queues are woken by what one entry stores there."""
    world, answers = group.world, list[Answer]()
    if not group.has_topic():
        return
    name = random.choice(group.names)
    batches: list[bytes] = []
    for queue in group.queues:
        reading = Fetch(queue, world.contents.ends.get(queue, 0), 30_000, READER_WAIT)
        world.calls.call("admin", name, reading, READER_WAIT + 1.0, answers.append)
        batch = encode_batch(
            [Record(b"wakes")], topic_id=queue[0], queue=queue[1], stamp=None,
            base_number=0, base_time_ms=1,
        )  # fmt: skip
        send = world.oracle.invoke_send("admin", queue, 1, group.scheduler.now, idempotent=False)
        world.oracle.stamped(send, batch_key(parse_header(batch)))
        send.open_attempts = 1
        world.oracle.info_send(send)
        batches.append(batch)
    group.run_for(QUIET_SECONDS / 10)
    world.calls.call("admin", leader.name, AppendTogether(tuple(batches)), 2.0, lambda _: None)
    limit = 2 * group.plan.heartbeat + LATENCY_MAX + (ROUND_TRIPS + 2) * _round_trip(group)
    woken = lambda: len(answers) == len(batches)  # noqa: E731
    _until(group, woken, limit, f"readers that wait at {name} are woken")


Probe = Callable[["Group", Random, "SimMember"], None]
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
    "waiting-readers": _waiting_readers,
}
