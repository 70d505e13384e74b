"""Everything a seed decides before its world begins: sizes, speeds, who does what.

Owns: the draw. A failing seed prints this, and the seed alone brings the same plan back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from dledger.log.settings import LogSettings
from dledger.raft.api import GroupSettings
from dledger.types import FlushMode, MemberId
from tests.sim.invariants.delivery.queue_contents import QueueKey

SAFETY_SECONDS_MIN = 40.0
SAFETY_SECONDS_MAX = 70.0
TOPIC_QUEUES = 2
SMALL_TABLES_SHARE = 0.75
ASYNC_SHARE = 0.12
KIB = 1024


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """One seed's parameters. Times in virtual seconds."""

    seed: int
    members: tuple[str, ...]
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
    topic_id: bytes
    queues: tuple[QueueKey, ...]
    gather_bytes: int
    keys: int = 1
    """How many different keys the records have."""
    small_tables: bool = False
    """See `member/small_tables.py`."""
    flush: FlushMode = FlushMode.SYNC
    """With `ASYNC`, written bytes count as on disk, and no fault cuts power."""

    waits_for_callers: bool = False
    """Group commit knows that waiting pays. Otherwise it must find out."""
    lazy_driver: bool = False
    """Members drain only when a drain is due, as a host does. Otherwise after each input."""

    def group_settings(self, member: str) -> GroupSettings:
        """Return what a member is configured with."""
        return GroupSettings(
            cluster="sim",
            group="g",
            member=MemberId(member),
            members=[MemberId(name) for name in self.members],
            heartbeat=self.heartbeat,
            election_timeout_min=self.election_timeout[0],
            election_timeout_max=self.election_timeout[1],
            gather_bytes=self.gather_bytes,
            flush=self.flush,
        )

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
        trims = f"{self.trim_interval:.1f} s, keeping {self.trim_keep}" if self.trims else "none"
        return (
            f"seed {self.seed}: members {len(self.members)}, {self.safety_seconds:.0f} s of faults "
            f"from {self.faults_from:.1f} s, one each {self.fault_gap:.1f} s, "
            f"new leaders struck {self.early_strikes:.0%}, link delay {1e3 * self.delay[0]:.1f}-"
            f"{1e3 * self.delay[1]:.1f} ms, {sizes}, producers {self.producers} "
            f"({self.stamped_share:.0%} stamped, each {1e3 * self.send_interval:.0f} ms, "
            f"<= {self.records_max} records of <= {self.body_max} B, window {self.window}), "
            f"consumers {self.consumers} (<= {self.fetch_bytes} B, resets {self.resets}, "
            f"lookups each {self.lookup_interval:.1f} s), "
            f"trims: {trims}, keys {self.keys}, small tables {self.small_tables}, "
            f"flush {self.flush.value}, waits for callers {self.waits_for_callers}, "
            f"lazy driver {self.lazy_driver}"
        )


def draw_plan(seed: int, *, members: int = 0) -> WorldPlan:
    """Draw a seed's plan; `members` fixes the size of the group."""
    random, pace = Random(f"plan/{seed}"), Random(f"pace/{seed}")
    weather = Random(f"weather/{seed}")
    count = members or random.choices((1, 3, 5), (3, 62, 35))[0]
    slowest = random.choice((0.001, 0.003, 0.01, 0.03))
    topic_id = random.randbytes(16)
    producers = random.randint(2, 4)
    return WorldPlan(
        seed=seed,
        members=tuple("abcde"[:count]),
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
        topic_id=topic_id,
        queues=tuple((topic_id, queue) for queue in range(TOPIC_QUEUES)),
        gather_bytes=random.choice((0, 2, 64)) * KIB,
        keys=random.choice((5, 50, 1_000)),
        small_tables=random.random() < SMALL_TABLES_SHARE,
        flush=FlushMode.ASYNC if random.random() < ASYNC_SHARE else FlushMode.SYNC,
        waits_for_callers=pace.random() < 1 / 3,
        lazy_driver=pace.random() < 1 / 3,
    )


def client_names(plan: WorldPlan) -> Sequence[str]:
    """Return the names of all clients of a plan."""
    producers = [f"p{number}" for number in range(plan.producers)]
    return [*producers, *(f"c{number}" for number in range(plan.consumers)), "admin"]
