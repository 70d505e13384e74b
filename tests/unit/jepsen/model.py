"""Valid concurrent histories: clients of a small model of a replicated log, all from one seed.

Each operation takes effect at one moment between its two rows, or, when its outcome is unknown,
then, later or never. So every history is right, however odd it looks.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from jepsen_tests.history.events import History, Kind
from tests.unit.jepsen.delivery_model import ORDERS, Consuming, delay_some
from tests.unit.jepsen.stored_model import Kept, Refused
from tests.unit.jepsen.stories import NODES, READER, Story

PLACES = ("t/0", "t/1", "u/0")
GROUPS = ("g", "h")
SLOTS = 8
"""Processes at a time."""
CONSUMERS = 3
"""How many of them only read."""
FAULTS = ("kill", "pause", "partition", "transfer")
OF_KEPT = [5, 3, 3, 1]
"""How often lookups, times, holds and exports come."""
CHUNK = 7
"""Values that the final reader gets at a time."""
ERRORS = [
    "NOT_LEADER", "DEADLINE", "OFFSET_BEHIND", "CANCELLED", "HELD", "OFFSET_OUT_OF_RANGE",
]  # fmt: skip
READS = (
    "poll", "committed", "get", "bounds", "status", "drain", "entries", "lookup", "lookup-key",
    "lookup-id", "by-time", "export",
)  # fmt: skip
"""Functions that change nothing."""

Effect = Callable[[], Any]


@dataclass
class Member:
    """What one node knows of the Raft log."""

    term: int = 1
    last: int = 0
    commit: int = 0
    applied: int = 0
    down: bool = False


@dataclass
class Doing:
    """What a process is doing."""

    p: int
    f: str
    effect: Effect
    happened: bool = False
    result: Any = None
    error: str = ""


@dataclass
class World:
    """The log, its clients and its members."""

    random: Random
    story: Story = field(default_factory=lambda: Story(errors=ERRORS, least_ok={"send": [1, 0.01]}))
    logs: dict[str, list[str]] = field(default_factory=lambda: {place: [] for place in PLACES})
    minimum: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))
    stored: dict[str, int] = field(default_factory=dict[str, int])
    offsets: dict[str, int] = field(default_factory=dict[str, int])
    registers: dict[str, int] = field(default_factory=dict[str, int])
    positions: dict[int, dict[str, int]] = field(default_factory=dict[int, dict[str, int]])
    entries: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    members: dict[str, Member] = field(default_factory=lambda: {n: Member() for n in NODES})
    leader: str = "n1"
    leaders: dict[int, str] = field(default_factory=lambda: {1: "n1"})
    """Of each term."""
    term: int = 1
    values: int = 0
    busy: dict[int, Doing] = field(default_factory=dict[int, Doing])
    begun: set[int] = field(default_factory=set[int])
    late: list[Effect] = field(default_factory=list[Effect])
    retries: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])
    processes: list[int] = field(default_factory=lambda: list(range(SLOTS)))
    with_kept: bool = True
    """Also look up, ask for times, hold, export, consume in groups, and delay."""
    kept: Kept = field(init=False)

    def __post_init__(self) -> None:
        self.kept = Kept(self)

    def run(self, steps: int) -> History:
        """Let things happen, then heal, converge and read everything."""
        for node in NODES:
            self._resources(node)
        self.story.phase("faults")
        for _ in range(steps):
            self._step()
        self.story.phase("heal")
        self._heal()
        for slot in list(self.busy):
            self._end(slot)
        if self.with_kept:
            delay_some(self)
        self.story.phase("final")
        for _ in range(steps // 10):
            self._step(faults=False)
        for slot in list(self.busy):
            self._end(slot)
        self._close()
        return self.story.history()

    # What happens next.

    def _step(self, *, faults: bool = True) -> None:
        chance = self.random.random()
        self.kept.tick()
        if chance < 0.05 and faults:
            self._nemesis()
        elif chance < 0.10:
            self._members_go_on()
        elif chance < 0.13 and self.late:
            self._try(self.late.pop(self.random.randrange(len(self.late))))
        else:
            slot = self.random.randrange(SLOTS)
            doing = self.busy.get(slot)
            if doing is None:
                self._begin(slot)
            elif not doing.happened and self.random.random() < 0.4:
                self._happen(doing)
            else:
                self._end(slot)

    def _try(self, effect: Effect) -> None:
        with suppress(Refused):  # too late for it
            effect()

    def _happen(self, doing: Doing) -> None:
        doing.happened = True
        try:
            doing.result = doing.effect()
        except Refused as refused:
            doing.error = str(refused)

    def _end(self, slot: int) -> None:
        doing = self.busy.pop(slot)
        changes = doing.f not in READS
        chance = self.random.random()
        if not doing.happened and chance < 0.15:
            self.story.end(doing.p, kind=Kind.FAIL, err="NOT_LEADER: n2")
            return
        if changes and chance > 0.8:
            if not doing.happened and chance > 0.9:
                self.late.append(doing.effect)
            elif not doing.happened and chance > 0.85:
                self._happen(doing)
            self.story.end(doing.p, kind=Kind.INFO, err="DEADLINE")
            self.processes[slot] += SLOTS
            return
        if not doing.happened:
            self._happen(doing)
        if doing.error:
            self.story.end(doing.p, kind=Kind.FAIL, err=doing.error)
        else:
            self.story.end(doing.p, doing.result)

    def _begin(self, slot: int) -> None:
        p = self.processes[slot]
        if slot < CONSUMERS:
            begin = self.random.choices([self._poll, self._assign, self._crash], [8, 2, 1])[0]
        else:
            begin = self.random.choices(
                [self._send, self._resend, self._offset, self._register, self._bounds,
                 self._trim, self._member, self.kept.lookup, self.kept.by_time, self.kept.hold,
                 self.kept.export],
                [8, 2, 5, 3, 2, 1, 2, *(OF_KEPT if self.with_kept else [0] * len(OF_KEPT))],
            )[0]  # fmt: skip
        f, k, v, effect, more = begin(p)
        before = p - SLOTS if p >= SLOTS and p not in self.begun else -1
        self.begun.add(p)
        self.story.invoke(p, f, k, v, before=before, **more)
        self.busy[slot] = Doing(p, f, effect)

    # Operations: function, key, value, effect, more of the row.

    def _send(self, p: int) -> tuple[str, str, Any, Effect, dict[str, str]]:
        count = self.random.choice([1, 1, 1, 2, 3])
        mark = self.random.choice(["", "@a", "@b"])
        values = [f"{p}-{self.values + n}{mark}" for n in range(count)]
        self.values += count
        place, more = self.random.choice(PLACES), {}
        if self.random.random() < 0.4:
            key = self.random.randrange(4)
            place, more = PLACES[key % len(PLACES)], {"key": f"key{key} of {p}"}
        else:  # a later copy of a keyed send would be out of its order
            self.retries.append((place, values))
        forgets = self.random.random() < 0.05

        def send() -> list[int | None]:
            stored = self._append(place, values)
            return [None, 0] if forgets else [*stored]

        return "send", place, values, send, more

    def _resend(self, p: int) -> tuple[str, str, Any, Effect, dict[str, str]]:
        open_values = {tuple(row.v) for row in self._under_way("send", "resend")}
        choices = [each for each in self.retries if tuple(each[1]) not in open_values]
        if not choices:
            return self._send(p)
        place, values = self.random.choice(choices)
        return "resend", place, values, lambda: self._append(place, values), {}

    def _under_way(self, *functions: str) -> list[Any]:
        return [self.story._open[d.p] for d in self.busy.values() if d.f in functions]

    def _append(self, place: str, values: list[str]) -> list[int]:
        if values[0] not in self.stored:
            self.stored[values[0]] = len(self.logs[place])
            self.logs[place] += values
            self.kept.stored(place, len(values))
            self.entries.append((self.term, self.random.randrange(1 << 32)))
        return [self.stored[values[0]], self.term]

    def _offset(self, p: int) -> tuple[str, str, Any, Effect, dict[str, str]]:
        k = f"{self.random.choice(GROUPS)}@{self.random.choice(PLACES)}"
        f = self.random.choice(["commit", "commit", "committed", "reset"])
        if f == "committed":
            return f, k, None, lambda: self.offsets.get(k), {}
        asked = max(0, self.offsets.get(k, 0) + self.random.randrange(-2, 6))

        def write() -> None:
            if f == "commit" and self.offsets.get(k, -1) > asked:
                raise Refused(f"OFFSET_BEHIND: {self.offsets[k]}")
            self.offsets[k] = asked

        return f, k, asked, write, {}

    def _register(self, p: int) -> tuple[str, str, Any, Effect, dict[str, str]]:
        k = self.random.choice(["r", "s"])
        if self.random.random() < 0.5:
            return "get", k, None, lambda: self.registers.get(k), {}
        number = self.random.randrange(5)
        return "set", k, number, lambda: self.registers.__setitem__(k, number), {}

    def _bounds(self, p: int) -> tuple[str, str, Any, Effect, dict[str, str]]:
        place = self.random.choice(PLACES)
        return "bounds", place, None, lambda: [self.minimum[place], len(self.logs[place])], {}

    def _trim(self, p: int) -> tuple[str, str, Any, Effect, dict[str, str]]:
        place = self.random.choice(PLACES)
        asked = self.random.randrange(len(self.logs[place]) // 2 + 1)

        return "trim", place, asked, lambda: self.kept.trim(place, asked), {}

    def _assign(self, p: int) -> tuple[str, str, Any, Effect, dict[str, str]]:
        places = self.random.sample(PLACES, self.random.randrange(1, len(PLACES) + 1))
        offsets = {place: self.random.randrange(len(self.logs[place]) + 1) for place in places}
        return "assign", "", offsets, lambda: self.positions.__setitem__(p, dict(offsets)), {}

    def _crash(self, p: int) -> tuple[str, str, Any, Effect, dict[str, str]]:
        self.positions.pop(p, None)
        return "crash", "", None, lambda: self.positions.pop(p, None) and None, {}

    def _poll(self, p: int) -> tuple[str, str, Any, Effect, dict[str, str]]:
        def poll() -> list[Any]:
            at = self.positions.setdefault(p, dict(self.minimum))
            runs: list[Any] = []
            for place in self.random.choices(list(at), k=2):
                start = max(at[place], self.minimum[place])
                values = self.logs[place][start : start + self.random.randrange(6)]
                if values:
                    runs.append([place, start, values])
                    at[place] = start + len(values)
            return runs

        return "poll", "", None, poll, {}

    def _member(self, p: int) -> tuple[str, str, Any, Effect, dict[str, str]]:
        node, place = self.random.choice(NODES), self.random.choice(PLACES)
        f = self.random.choice(["status", "entries", "drain"])
        effects: dict[str, Effect] = {
            "status": lambda: self._status(node),
            "entries": lambda: self._entries(node),
            "drain": lambda: self._drain(place, self.random.randrange(100)),
        }
        if any(phase.k == "final" for phase in self.story.rows):
            f = "status"  # members converge first; all are drained at the very end
        return f, place if f == "drain" else "", None, effects[f], {"node": node}

    # Members and faults.

    def _status(self, node: str) -> dict[str, Any]:
        member = self.members[node]
        if member.down:
            raise Refused("NOT_LEADER: down")
        leads = node == self.leader and member.term == self.term
        return {
            "role": "leader" if leads else "follower", "term": member.term,
            "leader": self.leaders[member.term], "commit": member.commit,
            "applied": member.applied, "first": 1, "last": member.last, "incarnation": 1,
        }  # fmt: skip

    def _entries(self, node: str) -> dict[str, Any]:
        member = self.members[node]
        if member.down:
            raise Refused("NOT_LEADER: down")
        held = self.entries[: member.commit] + [(9, 9)] * (member.last - member.commit)
        return {
            "first": 1, "terms": [term for term, _ in held], "crcs": [crc for _, crc in held],
            "applied": member.applied, "digest": f"{member.applied:x}",
        }  # fmt: skip

    def _drain(self, place: str, end: int) -> list[Any]:
        start = self.minimum[place]
        values = self.logs[place][start:end]
        return [[place, start, values]] if values else []

    def _members_go_on(self) -> None:
        for member in self.members.values():
            if not member.down and self.random.random() < 0.7:
                member.term = self.term
                member.last = self.random.randrange(member.last, len(self.entries) + 1)
                member.commit = self.random.randrange(member.commit, member.last + 1)
                member.applied = self.random.randrange(member.applied, member.commit + 1)

    def _nemesis(self) -> None:
        if self.random.random() < 0.4:
            self._heal()
            return
        fault = self.random.choice(FAULTS)
        node = self.random.choice(NODES)
        if fault == "kill":
            member = self.members[node]
            member.down = True
            member.commit = member.applied = self.random.randrange(member.applied + 1)
        if fault != "pause":
            self.term += 1
            self.leader = self.leaders[self.term] = self.random.choice(NODES)
        self.story.fault(fault, node)

    def _heal(self) -> None:
        for member in self.members.values():
            member.down = False
        self.story.fault("heal", "")

    # The end.

    def _close(self) -> None:
        for place in PLACES:
            self.values += 1
            self.story.send(80, f"80-{self.values}", len(self.logs[place]), place)
            self._append(place, [f"80-{self.values}"])
            self.story.op(80, "stamps", place, result=self.kept.stamps(place))
            self.story.op(80, "bounds", place, result=[self.minimum[place], len(self.logs[place])])
        for _ in range(2):
            for node, member in self.members.items():
                member.term, member.last = self.term, len(self.entries)
                member.commit = member.applied = member.last
                self.story.on(node, "status", self._status(node))
        for node in NODES:
            self.story.on(node, "topics", {"t": "01", "u": "02"})
            self.story.on(node, "entries", self._entries(node))
            self._resources(node)
        for place, log in self.logs.items():
            self.story.op(READER, "assign", v={place: self.random.choice([0, self.minimum[place]])})
            for at in range(self.minimum[place], len(log), CHUNK):
                self.story.op(READER, "poll", result=[[place, at, log[at : at + CHUNK]]])
            for node in NODES:
                self.story.on(node, "drain", self._drain(place, len(log)), place)
        for order in ORDERS if self.with_kept else ():
            Consuming(self, order).run()

    def _resources(self, node: str) -> None:
        self.story.on(node, "resources", {"rss": 50 << 20, "files": 40, "threads": 9})


def valid_story(seed: int, steps: int = 250, *, with_kept: bool = True) -> Story:
    """Return a valid history, as rows that can be changed. `with_kept`: see `World`."""
    world = World(Random(seed), with_kept=with_kept)
    world.run(steps)
    return world.story
