"""What the model of a log keeps beside its values: store times, holds, versions of an export."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.unit.jepsen.model import Effect, World

Operation = tuple[str, str, Any, "Effect", dict[str, str]]
TICK_MS = 20
TTLS_MS = (5, 100, 2_000, 600_000, 600_000)
EXPORTED = "t"
"""The topic that is exported."""


class Refused(Exception):
    """The state does not allow it."""


@dataclass
class Kept:
    """Operations on what is stored; each is (function, key, value, effect, more of the row)."""

    world: "World"
    now_ms: int = 1_000
    times: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list[int]))
    holds: dict[tuple[str, str], tuple[int, int]] = field(
        default_factory=dict[tuple[str, str], tuple[int, int]]
    )
    owned: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    """Of each process the hold that it placed last."""
    versions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    turns: int = 0

    def tick(self) -> None:
        """Let store time go on, or stand still."""
        self.now_ms += self.world.random.randrange(TICK_MS)

    def stored(self, place: str, count: int) -> None:
        """Stamp new values."""
        self.times[place] += [self.now_ms] * count

    def trim(self, place: str, asked: int) -> int:
        """Raise a minimum as far as holds let it."""
        world = self.world
        alive = [
            at for (k, _), (at, until) in self.holds.items() if k == place and until > self.now_ms
        ]
        if alive and min(alive) <= world.minimum[place] < asked:
            raise Refused(f"HELD: from {min(alive)} on")
        world.minimum[place] = max(world.minimum[place], min([asked, *alive]))
        return world.minimum[place]

    def hold(self, p: int) -> Operation:
        """Place a hold, renew or release the last one."""
        random, world = self.world.random, self.world
        choice = random.random() if p in self.owned else 1.0
        if choice < 0.3:
            key = self.owned.pop(p)
            return "release", key[0], key[1], lambda: self.holds.pop(key, None) and None, {}
        self.turns += 1
        if choice > 0.6:
            self.owned[p] = random.choice(list(world.logs)), f"p{p}-{self.turns}"
        key = self.owned[p]
        low, high = world.minimum[key[0]], len(world.logs[key[0]])
        offset, ttl_ms = random.randint(low, high), random.choice(TTLS_MS)

        def hold() -> int:
            if offset < world.minimum[key[0]]:
                raise Refused("OFFSET_OUT_OF_RANGE: trimmed")
            self.holds[key] = offset, self.now_ms + ttl_ms
            return self.now_ms + ttl_ms

        asked = {"owner": key[1], "offset": offset, "ttl_ms": ttl_ms}
        return "hold", key[0], asked, hold, {}

    def lookup(self, p: int) -> Operation:
        """Look for what there is, or for what somebody may have sent."""
        del p
        random, world = self.world.random, self.world
        place = random.choice(list(world.logs))
        log = world.logs[place]
        if random.random() < 0.4 or not world.stored:
            offset = random.randint(0, len(log) + 1)
            return "lookup", place, offset, lambda: self._at(place, offset), {}
        value = random.choice(sorted(world.stored))
        place = next(k for k, values in world.logs.items() if value in values)
        topic = place.partition("/")[0]

        def find() -> list[list[Any]]:
            return self._at(place, world.stored[value])

        if random.random() < 0.5:
            return "lookup-id", topic, value, find, {}
        return "lookup-key", topic, f"{value}/0", find, {}

    def _at(self, place: str, offset: int) -> list[list[Any]]:
        log = self.world.logs[place]
        if not self.world.minimum[place] <= offset < len(log):
            return []
        return [[place, offset, log[offset], self.times[place][offset]]]

    def by_time(self, p: int) -> Operation:
        """Ask for a time, mostly one at which something was stored."""
        del p
        random, world = self.world.random, self.world
        place = random.choice(list(world.logs))
        time_ms = random.choice([*self.times[place], self.now_ms]) + random.randint(-1, 1)

        def ask() -> int:
            stored = enumerate(self.times[place])
            first = next((at for at, ms in stored if ms >= time_ms), len(world.logs[place]))
            return max(first, world.minimum[place])

        return "by-time", place, time_ms, ask, {}

    def export(self, p: int) -> Operation:
        """Publish a version, or show the newest one."""
        del p
        self.turns += 1

        def publish() -> dict[str, Any]:
            version = self._version()
            if not self.versions or version["start"] != version["end"]:
                self.versions.append(version)
            return self.versions[-1]

        return "export", EXPORTED, self.turns, publish, {}

    def _version(self) -> dict[str, Any]:
        world = self.world
        places = [place for place in world.logs if place.startswith(f"{EXPORTED}/")]
        before = self.versions[-1]["end"] if self.versions else dict.fromkeys(places, 0)
        end = {place: len(world.logs[place]) for place in places}
        first = {place: max(before[place], world.minimum[place]) for place in places}
        return {
            "version": len(self.versions), "adopted": False, "start": before, "end": end,
            "gaps": [[k, before[k], first[k]] for k in places if before[k] < first[k]],
            "lost": [],
            "rows": [[k, first[k], world.logs[k][first[k] : end[k]]] for k in places
                     if first[k] < end[k]],
        }  # fmt: skip

    def stamps(self, place: str) -> list[list[int]]:
        """Return the store time of each value that is not trimmed."""
        times = self.times[place]
        return [[at, 1, times[at]] for at in range(self.world.minimum[place], len(times))]
