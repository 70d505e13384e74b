"""Everything a seed decides before its world begins: sizes, speeds, who does what.

Owns: the draw. A failing seed prints this, and the seed alone brings the same plan back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from dledger.log.settings import LogSettings
from dledger.types import FlushMode
from tests.sim.clients.group.plan import DeliveryPlan, draw_delivery
from tests.sim.invariants.delivery.queue_contents import QueueKey

SAFETY_SECONDS_MIN = 40.0
SAFETY_SECONDS_MAX = 70.0
TOPIC_QUEUES = 2
COMPACTS_SHARE = 0.4
USERS_SHARE = 0.4
SMALL_TABLES_SHARE = 0.75
ASYNC_SHARE = 0.12
EXPIRY_SHARE = 0.5
"""Of the worlds with small tables and an administrator: consumer groups expire."""
GROUPS = (72, 23, 5)
"""How often a world has one, two and three groups."""
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """One seed's parameters. Times in virtual seconds."""

    seed: int
    groups: Mapping[str, tuple[str, ...]]
    """The members of each broker group; the first one is the control group."""
    safety_seconds: float
    faults_from: float
    """When the first fault may come; early ones hit the formation."""
    fault_gap: float
    """Between two faults, on average."""
    early_strikes: float
    """In this share of elections a fault strikes the new leader before it is settled."""
    delay: tuple[float, float]
    log: LogSettings
    heartbeat: float
    election_timeout: tuple[float, float]
    producers: int
    stamped_share: float
    send_interval: float
    records_max: int
    body_max: int
    window: int
    consumers: int
    fetch_bytes: int
    lookup_interval: float
    resets: bool
    trims: bool
    trim_interval: float
    trim_keep: int
    """Records that a trim leaves."""
    retention_ms: int
    """How long the topic keeps its records; 0: for the whole seed."""
    topic_id: bytes
    queues: tuple[QueueKey, ...]
    """The queues of the topic, those of the first group first."""
    queues_per_group: int
    gather_bytes: int
    name_servers: tuple[str, ...] = ()
    real_share: float = 0.5
    """Of the producers beside the first: so many are the product's own."""
    real_consumers: int = 1
    administers: bool = True
    """An administrator of the product changes topics of its own, and looks things up."""
    admin_interval: float = 1.0
    keys: int = 1
    """How many different keys the records have."""
    small_tables: bool = False
    """See `member/small_tables.py`."""
    carries_often: bool = False
    """Leaders carry old records forward every few seconds."""
    compacts: bool = False
    """There is a compacted topic, and leaders compact it every few seconds."""
    changes_users: bool = False
    """The administrator changes users, too."""
    flush: FlushMode = FlushMode.SYNC
    """With `ASYNC`, written bytes count as on disk, and no fault cuts power."""

    waits_for_callers: bool = False
    """Group commit knows that waiting pays. Otherwise it must find out."""

    delivery: DeliveryPlan | None = None
    """Consumer groups that share a topic of their own."""

    group_expiry_ms: int = 0
    """How long nobody uses a consumer group that is deleted; 0: none is."""

    refill_bytes_per_second: int = 64 * MIB
    absent_bytes_max: int = 8 * GIB
    """How much log a leader keeps for a member that is behind."""
    scrub_ms: int = 0
    """How often a member reads all of its log; 0: only what others read is mended."""

    def describe(self) -> str:
        """Return one line with every drawn parameter."""
        sizes = " ".join(
            f"{name}={value // KIB}K"
            for name, value in (
                ("segments", self.log.segment_size),
                ("tail", self.log.tail_cache_bytes),
                ("checkpoints", self.log.checkpoint_bytes),
                ("allocation", self.log.allocate_bytes),
                ("entries gather", self.gather_bytes),
            )
        )
        groups = " ".join("".join(names) for names in self.groups.values())
        trims = f"{self.trim_interval:.1f} s, keeping {self.trim_keep}" if self.trims else "none"
        return (
            f"seed {self.seed}: groups {groups}, {self.safety_seconds:.0f} s of faults "
            f"from {self.faults_from:.1f} s, one each {self.fault_gap:.1f} s, "
            f"new leaders struck {self.early_strikes:.0%}, link delay {1e3 * self.delay[0]:.1f}-"
            f"{1e3 * self.delay[1]:.1f} ms, {sizes}, producers {self.producers} "
            f"({self.stamped_share:.0%} stamped, each {1e3 * self.send_interval:.0f} ms, "
            f"<= {self.records_max} records of <= {self.body_max} B, window {self.window}), "
            f"consumers {self.consumers} (<= {self.fetch_bytes} B, resets {self.resets}, "
            f"lookups each {self.lookup_interval:.1f} s), "
            f"of the product's own: {self.real_share:.0%} of the producers, "
            f"{self.real_consumers} consumers, {int(self.administers)} administrators; "
            f"name servers {len(self.name_servers)}, "
            f"trims: {trims}, retention {self.retention_ms} ms, keys {self.keys}, "
            f"refills at {self.refill_bytes_per_second} B/s, "
            f"{self.absent_bytes_max} B for the absent, scrubs each {self.scrub_ms} ms, "
            f"small tables {self.small_tables}, carries often {self.carries_often}, "
            f"compacts {self.compacts}, changes users {self.changes_users}, "
            f"flush {self.flush.value}, waits for callers {self.waits_for_callers}, "
            f"consumer groups expire after {self.group_expiry_ms} ms; "
            f"{'no shared topic' if self.delivery is None else self.delivery.describe()}"
        )


def draw_plan(seed: int, *, members: int = 0) -> WorldPlan:
    """Draw a seed's plan; `members` fixes the size of the group."""
    plan = _draw(seed, members)
    plan = replace(
        plan,
        scrub_ms=Random(f"scrub/{seed}").choice((0, 3_000, 10_000)),
        compacts=Random(f"compact/{seed}").random() < COMPACTS_SHARE,
        changes_users=Random(f"users/{seed}").random() < USERS_SHARE,
    )
    if not members and plan.small_tables and plan.administers:
        plan = replace(plan, group_expiry_ms=_group_expiry_ms(seed, plan.delivery))
    if not plan.trims:
        return plan
    refill = Random(f"refill/{seed}")
    return replace(
        plan,
        retention_ms=_retention_ms(seed),
        refill_bytes_per_second=refill.choice((256 * KIB, 2 * MIB, 64 * MIB)),
        absent_bytes_max=refill.choice((64 * KIB, 256 * KIB, 8 * GIB)),
        carries_often=Random(f"carry/{seed}").random() < 0.6,
    )


def _draw(seed: int, members: int) -> WorldPlan:
    random, pace = Random(f"plan/{seed}"), Random(f"pace/{seed}")
    weather, cast = Random(f"weather/{seed}"), Random(f"cast/{seed}")
    count = members or random.choices((1, 3, 5), (3, 62, 35))[0]
    groups = _groups(
        count, 1 if members else Random(f"groups/{seed}").choices((1, 2, 3), GROUPS)[0]
    )
    slowest = random.choice((0.001, 0.003, 0.01, 0.03))
    topic_id = random.randbytes(16)
    producers = random.randint(2, 4)
    return WorldPlan(
        seed=seed,
        groups=groups,
        safety_seconds=random.uniform(SAFETY_SECONDS_MIN, SAFETY_SECONDS_MAX),
        faults_from=random.choice((0.0, 2.0, 5.0)),
        fault_gap=weather.choice((0.6, 1.6, 1.6, 3.0)),
        early_strikes=weather.choice((0.0, 0.0, 0.3, 0.7)),
        delay=(slowest / 10, slowest),
        log=LogSettings(
            segment_size=random.choice((16, 32, 64)) * KIB,
            tail_cache_bytes=random.choice((2, 16, 256)) * KIB,
            checkpoint_bytes=random.choice((1, 4, 32)) * KIB,
            allocate_bytes=random.choice((16, 64)) * KIB,
            reserve_bytes=2_048 * KIB,
            low_water_bytes=256 * KIB,
        ),
        heartbeat=0.1,
        election_timeout=(0.6, 1.2),
        producers=producers,
        stamped_share=random.choice((0.6, 0.8, 1.0)),
        send_interval=random.uniform(0.08, 0.25) * producers,
        records_max=random.choice((1, 3, 8)),
        body_max=random.choice((16, 100, 600, 3_000)),
        window=random.choice((1, 3, 8)),
        consumers=random.randint(1, 2),
        fetch_bytes=random.choice((500, 4_000, 30_000)),
        lookup_interval=weather.choice((0.6, 2.0, 5.0)),
        resets=random.random() < 0.4,
        trims=random.random() < 0.4,
        trim_interval=random.uniform(1.0, 6.0),
        trim_keep=random.choice((0, 10, 100)),
        retention_ms=0,
        topic_id=topic_id,
        queues=tuple((topic_id, queue) for queue in range(TOPIC_QUEUES * len(groups))),
        queues_per_group=TOPIC_QUEUES,
        gather_bytes=random.choice((0, 2, 64)) * KIB,
        # A group hears of other groups by name servers alone.
        name_servers=cast.choice(((), ("ns1",), ("ns1", "ns2"))[len(groups) > 1 :]),
        real_share=cast.choice((0.0, 0.5, 0.5, 1.0)),
        real_consumers=cast.choice((0, 1, 1, 2)),
        administers=cast.random() < 0.6,
        admin_interval=cast.choice((0.5, 1.0, 3.0)),
        keys=random.choice((5, 50, 1_000)),
        small_tables=random.random() < SMALL_TABLES_SHARE,
        flush=FlushMode.ASYNC if random.random() < ASYNC_SHARE else FlushMode.SYNC,
        waits_for_callers=pace.random() < 1 / 3,
        delivery=None if members else draw_delivery(seed),
    )


def _retention_ms(seed: int) -> int:
    """Draw how long the topic keeps its records: longer than most readers need, but not all."""
    return Random(f"retention/{seed}").choice((0, 3_000, 10_000, 30_000))


def _group_expiry_ms(seed: int, delivery: DeliveryPlan | None) -> int:
    """Draw when consumer groups expire: those that share a topic are never away for so long."""
    random = Random(f"group expiry/{seed}")
    if random.random() >= EXPIRY_SHARE:
        return 0
    return random.choice((6_000, 10_000)) if delivery is None else 30_000


def _groups(members: int, count: int) -> dict[str, tuple[str, ...]]:
    """Return so many groups; with several, none has more than three members."""
    if count == 1:
        return {"g": tuple("abcde"[:members])}
    size = min(members, 3)
    names = "abcdefijk"
    return {
        group: tuple(names[place * size : (place + 1) * size])
        for place, group in enumerate("ghl"[:count])
    }


def hosts_of(producer: str) -> tuple[str, str]:
    """Return the two hosts on which the lives of a producer run by turns."""
    return producer, f"{producer}z"


def client_names(plan: WorldPlan) -> Sequence[str]:
    """Return the hosts of all clients of a plan."""
    producers = [host for number in range(plan.producers) for host in hosts_of(f"p{number}")]
    consumers = [f"c{number}" for number in range(plan.consumers)]
    consumers += [f"r{number}" for number in range(plan.real_consumers)]
    shared = () if plan.delivery is None else plan.delivery.hosts
    return [*producers, *consumers, "admin", "u", "keeper", *shared]
