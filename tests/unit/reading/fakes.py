"""A cluster to plan against: queues in memory, and who holds them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from dledger_client.reading import Edge, Hold, HoldRequest, ReadPlan
from dledger_client.reading.plan import Place, QueueState, resolve
from tests.unit.proto.samples import TOPIC_ID

TOPIC = "orders"
GROUP = "g1"


@dataclass(slots=True)
class FakeQueue:
    """Store times of all records that there ever were, and how many of them are trimmed."""

    times_ms: Sequence[int]
    minimum: int = 0

    def by_time(self, time_ms: int) -> int:
        """Return the first offset stored at or after a time, of those that there still are."""
        found = (at for at, stored in enumerate(self.times_ms) if stored >= time_ms)
        return max(next(found, len(self.times_ms)), self.minimum)


@dataclass(slots=True)
class FakePlanner:
    """Stands for `Planner`."""

    queues: Mapping[int, FakeQueue]
    holds: dict[Place, list[Hold]] = field(default_factory=dict[Place, list[Hold]])
    """Of plans that were not released."""
    asked: list[int] = field(default_factory=list[int])
    """How many times were asked for, call by call."""
    cluster: str = "c1"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Keep what there is: a hold outlives a connection."""

    def states(self, topics: Sequence[str], times_ms: Sequence[int] = ()) -> list[QueueState]:
        """Return all queues."""
        assert list(topics) == [TOPIC]
        if times_ms:
            self.asked.append(len(times_ms))
        return [
            QueueState(
                TOPIC, TOPIC_ID, number, GROUP, queue.minimum, len(queue.times_ms),
                by_time={each: queue.by_time(each) for each in times_ms},
            )
            for number, queue in sorted(self.queues.items())
        ]  # fmt: skip

    def freeze(
        self,
        topics: Sequence[str],
        start: Edge,
        end: Edge,
        *,
        hold: HoldRequest | None = None,
        fail_on_data_loss: bool = True,
        only: Iterable[Place] | None = None,
    ) -> ReadPlan:
        """Return a plan, and hold it."""
        assert only is None
        found, gaps = resolve(
            self.states(topics), start, end, fail_on_data_loss=fail_on_data_loss
        )  # fmt: skip
        plan = ReadPlan(self.cluster, tuple(found), tuple(gaps), {}, hold)
        for place, held in plan.holds.items():
            assert self.queues[place[1]].minimum <= held.offset
            self.holds.setdefault(place, []).append(held)
        return plan

    def release(self, plan: ReadPlan) -> None:
        """Let go of what a plan holds."""
        for place, held in plan.holds.items():
            self.holds[place].remove(held)
