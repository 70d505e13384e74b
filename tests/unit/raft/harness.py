"""A small group in one thread: real logs on simulated disks, links that are lists.

Owns: a clock that stands still until told, links that keep order and can be cut, members that can
be killed, wiped and started. Nothing happens by itself: `run` moves time and delivers everything,
`pump` delivers without moving time. Randomised schedules live in tests/sim, not here.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from dledger.log.commit_log import CommitLog
from dledger.log.folder import DataFolder
from dledger.log.settings import LogSettings
from dledger.log.writing.write_round import Round
from dledger.raft.api import GroupSettings, Role
from dledger.raft.group import RaftGroup
from dledger.raft.wire import loading, message_codec
from dledger.raft.wire.messages import Hello, Message
from dledger.types import Entry, EntryKind, LogIndex, MemberId, Settled
from dledger_proto.errors import Outcome
from tests.list_trace import ListTrace
from tests.sim.disk.disk import SimFileSystem

LOG_SETTINGS = LogSettings(
    segment_size=256 * 1024,
    tail_cache_bytes=64 * 1024,
    checkpoint_bytes=64 * 1024,
    allocate_bytes=16 * 1024,
    reserve_bytes=64 * 1024,
    low_water_bytes=64 * 1024,
)
FOLDER = "/data"


@dataclass
class TestClock:
    """One clock for all; wall clocks may differ."""

    now: float = 100.0
    wall_offset_ms: int = 0
    world: "World | None" = None

    def monotonic(self) -> float:
        return self.world.now if self.world is not None else self.now

    def wall_ms(self) -> int:
        return 1_800_000_000_000 + int(self.monotonic() * 1000) + self.wall_offset_ms


class ListMachine:
    """Keeps what it applied. Its disk is perfect: everything applied is saved."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, EntryKind, list[bytes]]] = []
        self.saved = 0
        self.needed = 0
        self.poison: bytes | None = None

    @property
    def applied_index(self) -> LogIndex:
        return LogIndex(len(self.entries))

    @property
    def saved_index(self) -> LogIndex:
        return LogIndex(self.saved)

    def apply(self, entry: Entry) -> Sequence[object]:
        assert entry.ref.index == self.applied_index + 1
        payloads = [bytes(payload) for payload in entry.payloads]
        if self.poison is not None and self.poison in payloads:
            raise RuntimeError("unknown command")
        self.entries.append((entry.ref.index, entry.ref.term, entry.kind, payloads))
        return [f"{entry.ref.index}:{place}" for place in range(len(payloads))]

    def head_needed(self) -> int:
        return self.needed

    @property
    def values(self) -> list[bytes]:
        return [
            payload
            for _, _, kind, payloads in self.entries
            if kind is EntryKind.COMMANDS
            for payload in payloads
        ]


@dataclass
class Call:
    """One proposal and how it ended."""

    value: bytes
    settled: list[Settled] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome | None:
        assert len(self.settled) <= 1, "settled twice"
        return self.settled[0].outcome if self.settled else None


class Member:
    """One process and its disk."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = MemberId(name)
        self.fs = SimFileSystem(Random(f"{world.seed}/{name}"))
        self.clock = TestClock(world=world)
        self.machine = ListMachine()
        self.trace = ListTrace()
        self.boots = 0
        self.alive = False
        self.paused = False
        self.disk_stalls = False
        self.writing: Round | None = None
        self.fail_next: OSError | None = None
        self.group: RaftGroup
        self.log: CommitLog

    def start(self) -> None:
        assert not self.alive
        self.boots += 1
        random = Random(f"{self.world.seed}/{self.name}/{self.boots}")
        folder = DataFolder.open(self.fs, FOLDER, "c", "g", self.name, random)
        self.log = CommitLog(self.fs, folder, LOG_SETTINGS, random)
        self.group = RaftGroup(
            self.world.settings_of(self.name), folder.identity, self.log,
            folder.load_hard_state(), self.machine, self.clock, random, self.trace,
        )  # fmt: skip
        self.alive = True
        self.writing = None
        self.group.start(self.world.now)
        self.drain()
        for other in self.world.members.values():
            if other is not self and other.alive:
                self.world.connect(self.name, other.name)

    def kill(self, *, power_cut: bool = False) -> None:
        self.alive = False
        self.paused = False
        for other in self.world.members.values():
            if other is not self:
                self.world.disconnect(self.name, other.name)
        if power_cut:
            self.fs.power_cut(Random(1))
        else:
            self.fs.kill()
        self.group.stop(self.world.now)

    def wipe(self) -> None:
        self.fs = SimFileSystem(Random(f"{self.world.seed}/{self.name}/{self.boots}/new"))
        self.machine = ListMachine()

    def restart(self) -> None:
        if self.alive:
            self.kill()
        self.start()

    def drain(self) -> None:
        """Carry out outputs until there are none; writes end at once unless the disk stalls."""
        for _ in range(1000):
            announced = self.group.has_outputs or self.group.next_deadline() <= self.world.now
            outputs = self.group.outputs()
            gave = bool(outputs.messages or outputs.write or outputs.apply_ready)
            assert announced or not gave, f"{self.name}: outputs that were not announced"
            for target, message in outputs.messages:
                assert isinstance(message, Message)
                self.world.send(self.name, target, message)
            if outputs.write is not None:
                assert self.writing is None
                self.writing = outputs.write
            did = self.write()
            if outputs.apply_ready:
                self.group.apply_slice(self.world.now)
                did = True
            if not did and not outputs.messages:
                return
        raise AssertionError(f"{self.name}: outputs never end")

    def write(self) -> bool:
        """Finish the round in flight unless the disk stalls."""
        if self.writing is None or self.disk_stalls:
            return False
        write, self.writing = self.writing, None
        if self.fail_next is not None:
            self.group.write_failed(write, self.fail_next, self.world.now)
            return True
        write.execute()
        self.group.write_finished(write, self.world.now)
        return True

    def propose(self, *values: bytes) -> list[Call]:
        calls: list[Call] = []
        for value in values:
            call = Call(value)
            calls.append(call)
            self.group.propose(EntryKind.COMMANDS, [value], call.settled.append)
        self.drain()
        return calls

    def put(self, value: bytes) -> Call:
        return self.propose(value)[0]

    @property
    def role(self) -> Role:
        return self.group.role

    def terms(self) -> list[tuple[int, int]]:
        """Return (index, term) of the whole log."""
        return [
            (index, int(self.log.term_at(LogIndex(index)) or 0))
            for index in range(self.log.first_index, self.log.last_index + 1)
        ]

    def tick(self) -> None:
        if self.alive and not self.paused:
            self.group.tick(self.world.now)
            self.drain()


class World:
    """Members, links, time."""

    def __init__(
        self, names: str = "abc", *, seed: int = 1, start: bool = True, **settings: object
    ) -> None:
        self.seed = seed
        self.now = 100.0
        self.settings = {"gather_bytes": 0, **settings}  # a proposal is an entry unless asked
        self.names = [MemberId(name) for name in names]
        self.queues: dict[tuple[str, str], deque[bytes]] = {}
        self.up: set[frozenset[str]] = set()
        self.cut: set[tuple[str, str]] = set()
        """Directions in which everything vanishes while the link seems to stand."""
        self.held: set[tuple[str, str]] = set()
        """Directions in which messages wait."""
        self.sent: list[tuple[str, str, Message]] = []
        self.members = {name: Member(self, name) for name in self.names}
        if start:
            for member in self.members.values():
                member.start()

    def __getitem__(self, name: str) -> Member:
        return self.members[MemberId(name)]

    def settings_of(self, name: MemberId) -> GroupSettings:
        return GroupSettings("c", "g", name, self.names, **self.settings)  # type: ignore[arg-type]

    # Links.

    def connect(self, one: str, other: str) -> None:
        pair = frozenset((one, other))
        if pair in self.up:
            return
        self.up.add(pair)
        for source, target in ((one, other), (other, one)):
            self.queues[source, target] = deque()
            self[source].group.link_up(MemberId(target), self.now)
            self[source].drain()

    def disconnect(self, one: str, other: str, *, refused: bool = True) -> None:
        pair = frozenset((one, other))
        if pair not in self.up:
            return
        self.up.discard(pair)
        for source, target in ((one, other), (other, one)):
            self.queues[source, target].clear()
            if self[source].alive:
                self[source].group.link_down(MemberId(target), self.now)
                if refused:
                    self[source].group.dial_failed(MemberId(target), self.now)
                self[source].drain()

    def isolate(self, name: str) -> None:
        for other in self.names:
            if other != name:
                self.disconnect(name, other)

    def partition(self, *sides: str) -> None:
        """Let only members of one side reach each other, silently."""
        self.cut = {
            (one, other)
            for one in self.names
            for other in self.names
            if one != other and not any(one in side and other in side for side in sides)
        }

    def heal(self) -> None:
        self.cut.clear()
        for place, one in enumerate(self.names):
            for other in self.names[place + 1 :]:
                if self[one].alive and self[other].alive:
                    self.connect(one, other)

    def send(self, source: str, target: str, message: Message) -> None:
        loaded = loading.load(message, self[source].log)
        self.sent.append((source, target, message))
        if loaded is None:
            loading.check_held(message, self[source].log)
        if loaded is None or frozenset((source, target)) not in self.up:
            return
        if (source, target) in self.cut:
            return
        data = b"".join(message_codec.encode(loaded))
        self.queues[source, target].append(data)

    def inject(self, source: str, target: str, message: Message) -> None:
        """Let `source` say something its group would not say now, and deliver all of its queue."""
        self[source].group._context.outbox.send(MemberId(target), message)
        self[source].drain()
        self.deliver(source, target)

    def hold_all(self) -> None:
        """Let every message wait until `deliver` is called for its direction."""
        self.held = {(one, other) for one in self.names for other in self.names if one != other}

    def waiting(self, source: str, target: str) -> list[Message]:
        """Return the messages that wait in one direction."""
        return [message_codec.decode(data) for data in self.queues.get((source, target), ())]

    def deliver(self, source: str, target: str, count: int | None = None) -> int:
        """Deliver up to `count` waiting messages of one direction."""
        queue = self.queues.get((source, target), deque())
        done = 0
        member = self[target]
        while queue and (count is None or done < count) and member.alive and not member.paused:
            done += 1
            member.group.receive(MemberId(source), message_codec.decode(queue.popleft()), self.now)
            member.drain()
        return done

    def pump(self, rounds: int = 200) -> None:
        """Deliver everything that is not held, and end all writes, until nothing moves."""
        for _ in range(rounds):
            moved = 0
            for member in self.members.values():
                if member.alive and not member.paused and member.write():
                    moved += 1
                    member.drain()
            for source, target in list(self.queues):
                if (source, target) not in self.held:
                    moved += self.deliver(source, target)
            if not moved:
                return
        raise AssertionError("messages never end")

    def run(self, seconds: float, step: float = 0.01) -> None:
        """Let time pass."""
        for _ in range(round(seconds / step)):
            self.now += step
            for member in self.members.values():
                if member.alive and member.group.next_deadline() <= self.now:
                    member.tick()
            self.pump()

    # What the tests wait for.

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members.values() if member.alive]

    @property
    def leaders(self) -> list[Member]:
        return [member for member in self.alive if member.role is Role.LEADER]

    @property
    def leader(self) -> Member:
        leaders = self.leaders
        assert leaders, [member.group.status() for member in self.alive]
        return max(leaders, key=lambda member: member.group.term)

    def elect(self, name: str | None = None, seconds: float = 5.0) -> Member:
        """Run until somebody leads; then, if asked, hand over to `name`."""
        self.until(lambda: bool(self.leaders) and self.leader.group.commit_index > 1, seconds)
        leader = self.leader
        if name is not None and leader.name != name:
            leader.group.transfer(MemberId(name), lambda _done, _why: None, self.now)
            leader.drain()
            self.until(lambda: self[name].role is Role.LEADER, seconds)
            self.run(0.3)
            leader = self[name]
        return leader

    def until_led(self, seconds: float, other_than: Member | None = None) -> float:
        """Run until a member, another than the given one, leads; return how long it took."""
        return self.until(lambda: any(member is not other_than for member in self.leaders), seconds)

    def until(self, condition: Callable[[], bool], seconds: float = 5.0) -> float:
        """Run until the condition holds; return how long it took."""
        began = self.now
        while not condition():
            assert self.now - began < seconds, [member.group.status() for member in self.alive]
            self.run(0.01)
        return self.now - began

    def followers(self) -> list[Member]:
        leader = self.leader
        return [member for member in self.alive if member is not leader]

    def assert_equal_logs(self) -> None:
        logs = {member.name: member.terms() for member in self.alive}
        values = {member.name: member.machine.entries for member in self.alive}
        first = next(iter(logs))
        assert all(log == logs[first] for log in logs.values()), logs
        assert all(each == values[first] for each in values.values()), values


def hello_of(incarnation: bytes, state_number: int = 0, term: int = 0, **fields: Any) -> Hello:
    """Return a hello of which only what it says of its sender matters."""
    return Hello("c", "g", "", incarnation, state_number, term, **fields)
