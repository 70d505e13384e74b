"""What consumer groups of a seed share a topic, and who sends into it: drawn before the world is.

Owns: the draw. It has chance of its own, so a seed without it is what it was.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from dledger_client import ConsumeOrder, StartFrom

SHARE: Final = 1 / 4
"""Of the seeds have consumer groups that share a topic."""
ADMIN_HOST: Final = "v"
SENDER_HOST: Final = "vp"


@dataclass(frozen=True, slots=True)
class SharePlan:
    """One consumer group. Times in virtual seconds."""

    name: str
    order: ConsumeOrder
    start: StartFrom
    strategy: str
    retry_delays_ms: tuple[int, ...]
    retries_max: int
    session_ms: int
    lease_ms: int
    pause_failures: int
    consumers: tuple[str, ...]
    """Their hosts."""
    polls_share: float
    """Of the lives of consumers that poll."""
    failing_share: float
    """Of the records that a listener does not handle."""
    slow: float
    """What a listener takes, on average."""
    upset: float
    """Between two upsets of a consumer, on average."""

    @property
    def is_ordered(self) -> bool:
        """Tell whether records of a queue, or a key, follow each other."""
        return self.order is not ConsumeOrder.CONCURRENT


@dataclass(frozen=True, slots=True)
class DeliveryPlan:
    """The groups of one seed, and their producer."""

    groups: tuple[SharePlan, ...]
    send_interval: float
    delayed_share: float
    recalls: bool
    administered: float
    """Between two acts of the groups' administrator, on average; 0: it only creates."""
    keys: int

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts of all clients."""
        consumers = [host for group in self.groups for host in group.consumers]
        return ADMIN_HOST, SENDER_HOST, *consumers

    def describe(self) -> str:
        """Return what was drawn, in a few words."""
        groups = ", ".join(
            f"{len(group.consumers)} consumers by {group.order.name.lower()} "
            f"(start {group.start.name.lower()}, {group.strategy}, retries {group.retries_max}, "
            f"{group.failing_share:.0%} fail, {group.polls_share:.0%} poll)"
            for group in self.groups
        )
        return (
            f"groups of {groups}; sends each {1e3 * self.send_interval:.0f} ms, "
            f"{self.delayed_share:.0%} delayed, administered each {self.administered:.0f} s"
        )


def draw_delivery(seed: int) -> DeliveryPlan | None:
    """Draw what a seed delivers; None: nothing."""
    random = Random(f"delivery/{seed}")
    if random.random() >= SHARE:
        return None
    count = random.choice((1, 1, 2))
    hosts = [f"v{number}" for number in range(random.randint(2, 3))]
    split = [hosts] if count == 1 else [hosts[: len(hosts) // 2], hosts[len(hosts) // 2 :]]
    return DeliveryPlan(
        groups=tuple(
            _group(random, f"s{number}", tuple(mine)) for number, mine in enumerate(split)
        ),
        send_interval=random.choice((0.3, 0.6, 1.2)),
        delayed_share=random.choice((0.0, 0.2, 0.5)),
        recalls=random.random() < 0.5,
        administered=random.choice((0.0, 2.0, 6.0)),
        keys=random.choice((1, 3, 10)),
    )


def _group(random: Random, name: str, consumers: tuple[str, ...]) -> SharePlan:
    order = random.choice(list(ConsumeOrder))
    return SharePlan(
        name=name,
        order=order,
        start=random.choice((StartFrom.FIRST, StartFrom.LAST)),
        strategy=random.choice(("sticky", "sticky", "average", "circle", "consistent-hash")),
        retry_delays_ms=random.choice(((100,), (200, 1_000), (1_000, 3_000))),
        retries_max=random.choice((0, 1, 2, 3)),
        session_ms=random.choice((1_000, 2_000, 4_000)),
        lease_ms=random.choice((2_000, 4_000, 8_000)),
        pause_failures=random.choice((0, 0, 5)),
        consumers=consumers,
        polls_share=0.0 if order is not ConsumeOrder.CONCURRENT else random.choice((0.0, 0.5, 1.0)),
        failing_share=random.choice((0.0, 0.05, 0.2)),
        slow=random.choice((0.0, 0.02, 0.2)),
        upset=random.choice((3.0, 6.0, 12.0)),
    )
