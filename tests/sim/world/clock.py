"""Virtual time: one queue of events, and the clocks that members read.

Owns: the order in which everything of a simulated world happens. Two events of one instant run in
the order they were scheduled, so a seed replays exactly. Nothing here knows members or messages.
"""

import heapq
from collections.abc import Callable

WALL_START_MS = 1_800_000_000_000
"""The members' wall clocks show this when a world begins. Any fixed value would do."""
RIGHT_MS = 500
"""A clock that is off by at most this counts as right."""


class Timer:
    """A scheduled call; `cancel` forgets it."""

    __slots__ = ("arguments", "callback", "time")

    def __init__(
        self, time: float, callback: Callable[..., None], arguments: tuple[object, ...]
    ) -> None:
        self.time = time
        self.callback: Callable[..., None] | None = callback
        self.arguments = arguments

    def cancel(self) -> None:
        """Never run the call."""
        self.callback = None
        self.arguments = ()


class Scheduler:
    """Discrete events in virtual seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        self._queue: list[tuple[float, int, Timer]] = []
        self._sequence = 0

    def at(self, time: float, callback: Callable[..., None], *arguments: object) -> Timer:
        """Call `callback(*arguments)` at a virtual time, at once when that has passed."""
        self._sequence += 1
        timer = Timer(max(time, self.now), callback, arguments)
        heapq.heappush(self._queue, (timer.time, self._sequence, timer))
        return timer

    def after(self, delay: float, callback: Callable[..., None], *arguments: object) -> Timer:
        """Call `callback(*arguments)` after a virtual delay in seconds."""
        return self.at(self.now + delay, callback, *arguments)

    def run_until(self, end: float, after_step: Callable[[], None]) -> None:
        """Run every event up to `end`; `after_step` is called after each."""
        queue = self._queue
        while queue and queue[0][0] <= end:
            time, _, timer = heapq.heappop(queue)
            callback = timer.callback
            if callback is None:
                continue
            self.now = time
            self.steps += 1
            callback(*timer.arguments)
            after_step()
        self.now = max(self.now, end)


def true_ms(scheduler: Scheduler) -> int:
    """Return what a wall clock should say."""
    return WALL_START_MS + int(scheduler.now * 1_000)


class MemberClock:
    """The two clocks of one machine: monotonic follows virtual time, the wall clock may jump."""

    def __init__(
        self, scheduler: Scheduler, start_offset: float, changes: Callable[[], None]
    ) -> None:
        self._scheduler = scheduler
        self._monotonic_offset = start_offset
        self._changes = changes
        self._set_at = 0.0
        self._set_to_ms = WALL_START_MS
        self._rate = 1.0

    def set(self, offset_ms: int, rate: float = 1.0) -> None:
        """Set the wall clock so many ms ahead of true time; it runs at a rate from then on."""
        self._changes()
        self._set_at, self._rate = self._scheduler.now, rate
        self._set_to_ms = true_ms(self._scheduler) + offset_ms
        self._changes()

    @property
    def is_right(self) -> bool:
        """Tell whether the wall clock is off by at most RIGHT_MS."""
        return abs(self.wall_ms() - true_ms(self._scheduler)) <= RIGHT_MS

    def monotonic(self) -> float:
        """See `dledger.clock.Clock.monotonic`; members do not share a zero."""
        return self._scheduler.now + self._monotonic_offset

    def wall_ms(self) -> int:
        """See `dledger.clock.Clock.wall_ms`."""
        return self._set_to_ms + int((self._scheduler.now - self._set_at) * 1_000 * self._rate)
