"""A cluster to plan against: queues in memory, who holds them, and time that a test lets pass."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Condition, Event
from typing import Final, Self

from dledger_client.reading import Edge, Hold, HoldRequest, ReadPlan
from dledger_client.reading.plan import Place, QueueState, resolve
from tests.unit.proto.samples import TOPIC_ID

DEADLINE_SECONDS: Final = 60.0
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
        chosen = None if only is None else set(only)
        states = [each for each in self.states(topics) if chosen is None or each.place in chosen]
        found, gaps = resolve(states, start, end, fail_on_data_loss=fail_on_data_loss)
        plan = ReadPlan(self.cluster, tuple(found), tuple(gaps), {}, hold)
        for place, held in plan.holds.items():
            assert self.queues[place[1]].minimum <= held.offset
            # Who comes back by the same name moves his hold.
            others = [each for each in self.holds.get(place, []) if each.owner != held.owner]
            self.holds[place] = [*others, held]
        return plan

    def renew(self, plan: ReadPlan) -> None:
        """Do nothing: here nothing ends by its time."""

    def release(self, plan: ReadPlan) -> None:
        """Let go of what a plan holds."""
        for place, held in plan.holds.items():
            others = [each for each in self.holds[place] if each.owner != held.owner]
            self.holds[place] = others


class FakeTime:
    """Seconds that pass when a test says so, and one thread that waits for them."""

    def __init__(self) -> None:
        self.now = 0.0
        self._moved = Condition()
        self._until: float | None = None
        """What the thread waits for; None while it is at work."""

    def event(self) -> Event:
        """Return an event whose timeouts are of this time."""
        return _TimedEvent(self)

    def advance(self, seconds: float) -> None:
        """Let time pass; return when the thread has done all that was due, and waits again."""
        end = self.now + seconds
        with self._moved:
            while True:
                assert self._moved.wait_for(lambda: self._until is not None, DEADLINE_SECONDS)
                assert self._until is not None
                if self._until > end:
                    self.now = end
                    return
                self.now, self._until = self._until, None
                self._moved.notify_all()

    def wait(self, event: Event, seconds: float) -> None:
        """Return when they have passed, or the event is set."""
        with self._moved:
            self._until = self.now + seconds
            self._moved.notify_all()
            done = self._moved.wait_for(
                lambda: self._until is None or event.is_set(), DEADLINE_SECONDS
            )
            assert done, "time stands still"

    def wake(self) -> None:
        """Have the thread look at its event."""
        with self._moved:
            self._moved.notify_all()


class _TimedEvent(Event):
    def __init__(self, time: FakeTime) -> None:
        super().__init__()
        self._time = time

    def set(self) -> None:
        super().set()
        self._time.wake()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._time.wait(self, timeout)
        return self.is_set()
