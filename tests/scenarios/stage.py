"""A stage for scripted interleavings: a simulated world without chance or clients.

Owns: the verbs that scripts are written in. Members, disks, clocks, recovery and all invariants are
those of `tests.sim`; only the network is ours: a stopped link keeps its messages in a list that
the script delivers, drops, repeats or withholds one by one. Every step checks every invariant.

    stage = Stage("abc")
    stage.elect("a")
    stage.stop("a", "b")                  what a sends b waits
    put = stage.put("a", "x1")
    stage.deliver("a", "b", 1)
    assert put.outcome is Outcome.STORED
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from dledger.log.settings import LogSettings
from dledger.raft.api import Role
from dledger.raft.replication.follower import parse_run
from dledger.raft.wire import message_codec, messages
from dledger.raft.wire.link_frame import encode_frame, parse_frame
from dledger.types import EntryKind, FlushMode, Position, Settled, Span
from dledger_proto.batch.codec import BatchView, Record, encode_batch
from dledger_proto.errors import Code, Outcome
from tests.sim.clients.requests import CreateTopic
from tests.sim.disk.disk import _Folder
from tests.sim.disk.durable import durable_copy
from tests.sim.disk.state_file import StateCopy
from tests.sim.faults.damage import FOLDER
from tests.sim.faults.old_copy import restore
from tests.sim.invariants.violation import Property, Violation
from tests.sim.world.plan import KIB, WorldPlan, draw_plan
from tests.sim.world.world import World

DELAY: Final = 0.001
ELECTION_MAX: Final = 10.0
LINKS_MAX: Final = 5.0
"""A dial and its back-off take a second each, at most."""
LOW_WATER_BYTES: Final = 256 * KIB


@dataclass(frozen=True, slots=True)
class DiskCopy:
    """Everything of one member: files, and rows of its state."""

    folder: _Folder
    state: StateCopy


@dataclass(slots=True)
class Put:
    """One proposal of a script."""

    value: str
    settled: Settled | None = None

    @property
    def outcome(self) -> Outcome | None:
        """Return how it ended; None while it has not."""
        return None if self.settled is None else self.settled.outcome

    @property
    def stored(self) -> bool:
        """Tell whether it was acknowledged."""
        return self.outcome is Outcome.STORED


class Stage(World):
    """A world that does only what the script says."""

    def __init__(
        self,
        names: str,
        seed: int = 1,
        *,
        segment_size: int = 1024 * KIB,
        tail_cache_bytes: int = 256 * KIB,
        checkpoint_bytes: int = 64 * KIB,
        start: str | None = None,
        flush: FlushMode = FlushMode.SYNC,
        gather_bytes: int = 0,
        refill_bytes_per_second: int = 64 * KIB * KIB,
        scrub_ms: int = 0,
        retention_ms: int = 0,
        absent_bytes_max: int = 8 << 30,
    ) -> None:
        log = LogSettings(
            segment_size=segment_size,
            tail_cache_bytes=tail_cache_bytes,
            checkpoint_bytes=checkpoint_bytes,
            allocate_bytes=256 * KIB,
            reserve_bytes=2_048 * KIB,
            low_water_bytes=LOW_WATER_BYTES,
        )
        plan = _still(draw_plan(seed, members=3), names, log)
        super().__init__(
            replace(
                plan,
                flush=flush,
                gather_bytes=gather_bytes,
                refill_bytes_per_second=refill_bytes_per_second,
                scrub_ms=scrub_ms,
                retention_ms=retention_ms,
                absent_bytes_max=absent_bytes_max,
            )
        )
        self.names = self.group.names
        self.stopped: dict[tuple[str, str], list[bytes]] = {}
        """Links that keep their messages, oldest first."""
        self.filters: list[Callable[[str, str, messages.Message], bool]] = []
        """A message for which any of these is true vanishes."""
        self.sent: list[tuple[float, str, str, messages.Message]] = []
        """Everything that left a member, as far as `keep_sent` asks."""
        self.keep_sent = False
        self.puts: list[Put] = []
        self.network.on_link_frame = self._on_frame
        for name in names if start is None else start:
            self.group.start_member(name)

    # Time.

    def run_until(self, condition: Callable[[], bool], limit: float, why: str) -> float:
        """Let time pass until a condition holds; return how long it took, in virtual seconds."""
        began = self.scheduler.now
        while not condition():
            assert self.scheduler.now - began < limit, f"{why}: not within {limit} s"
            self.run_for(0.005)
        return self.scheduler.now - began

    # The network.

    def _on_frame(self, source: str, target: str, frame: bytes) -> list[bytes]:
        """Look at each message of a link's frame; return what goes on, one frame for each."""
        passed: list[bytes] = []
        for view in parse_frame(frame):
            data = bytes(view)
            message = message_codec.decode(data)
            if self.keep_sent:
                self.sent.append((self.scheduler.now, source, target, message))
            if any(vanishes(source, target, message) for vanishes in self.filters):
                continue
            if (source, target) in self.stopped:
                self.stopped[source, target].append(data)
            else:
                passed.append(b"".join(encode_frame([[data]])))
        return passed

    def repeat(self, source: str, target: str, data: bytes) -> None:
        """Send a message once more by a link, past all filters."""
        self.network.inject(source, target, b"".join(encode_frame([[data]])))

    def stop(self, source: str, target: str) -> None:
        """Keep what `source` sends to `target` from now on."""
        self.stopped.setdefault((source, target), [])

    def flow(self, source: str, target: str, *, deliver: bool = True) -> None:
        """Let a link flow again; what was kept arrives first, or is dropped."""
        kept = self.stopped.pop((source, target), [])
        for data in kept if deliver else ():
            self.members[target].deliver(source, data)

    def flow_all(self, *, deliver: bool = True) -> None:
        """Let every stopped link flow again."""
        for source, target in list(self.stopped):
            self.flow(source, target, deliver=deliver)

    def deliver(self, source: str, target: str, count: int | None = None) -> int:
        """Deliver the oldest `count` kept messages (all by default); return how many."""
        kept = self.stopped[source, target]
        chosen = kept[: len(kept) if count is None else count]
        del kept[: len(chosen)]
        for data in chosen:
            self.members[target].deliver(source, data)
        return len(chosen)

    def kept(self, source: str, target: str) -> list[messages.Message]:
        """Return what a stopped link keeps, decoded."""
        return [message_codec.decode(data) for data in self.stopped[source, target]]

    def isolate(self, name: str) -> None:
        """Cut a member off from all others, noticed on both sides at once."""
        for other in self.names:
            if other != name:
                self.cut(name, other)

    def cut(self, a: str, b: str) -> None:
        """Cut a pair; both notice at once."""
        self.network.cut(a, b)
        self.network.cut(b, a)
        self.network.break_connections(a, b)
        self.network.break_connections(b, a)

    def join(self, name: str | None = None) -> None:
        """End the cuts of a member, or all."""
        for source, target in self.group.pairs:
            if name is None or name in (source, target):
                self.network.heal(source, target)

    def join_pair(self, a: str, b: str) -> None:
        """End the cut of one pair."""
        self.network.heal(a, b)
        self.network.heal(b, a)

    # Clients.

    def ask(self, name: str, request: object, answered: Callable[[Code], None]) -> None:
        """Let an administrator ask a member; `answered` takes the code."""
        self.calls.call("admin", name, request, 5.0, lambda answer: answered(answer.code))

    # Logs.

    def log_end(self, name: str) -> tuple[int, int]:
        """Return (index, chain CRC) of a member's last entry."""
        process = self.members[name].process
        assert process is not None, f"{name} does not run"
        return int(process.log.last_index), process.log.last_crc

    @staticmethod
    def carries_beyond(message: messages.Message, index: int) -> bool:
        """Tell whether a message carries an entry above an index."""
        if not isinstance(message, messages.AppendRequest) or message.frames is None:
            return False
        return parse_run(message).last > index

    # Disks.

    def copy_disk(self, name: str) -> DiskCopy:
        """Return a copy of what a member's disk holds at this moment."""
        member = self.members[name]
        return DiskCopy(durable_copy(member.fs, FOLDER), member.state.copy())

    def put_back(self, name: str, old: DiskCopy) -> None:
        """End a member and put an older copy of its disk back, which is used up."""
        restore(self.group, self.members[name], old.folder, old.state)

    # Leadership.

    def leads(self, name: str) -> bool:
        """Tell whether a member leads."""
        return self.members[name].role is Role.LEADER

    def start_member(self, name: str) -> None:
        """See `Group.start_member`."""
        self.group.start_member(name)

    def make_room(self, name: str) -> None:
        """See `Group.make_room`."""
        self.group.make_room(name)

    @property
    def leader(self) -> str:
        """Return who leads the highest term; "" when nobody does."""
        leading = [
            (m.process.group.term, m.name)
            for m in self.members.values()
            if m.process is not None and m.role is Role.LEADER
        ]
        return max(leading)[1] if leading else ""

    def term(self, name: str) -> int:
        """Return a member's term."""
        process = self.members[name].process
        assert process is not None, f"{name} does not run"
        return int(process.group.term)

    def elect(self, name: str) -> None:
        """Let `name` win the next election: nobody else may campaign, old leaders are cut off."""

        def mute(source: str, _target: str, message: messages.Message) -> bool:
            asks = isinstance(message, messages.PreVote | messages.VoteRequest)
            return asks and source != name

        for other in self.names:
            if other != name and self.leads(other):
                self.isolate(other)
        before = max(self.term(other) for other in self.names if self.members[other].running)
        self.filters.append(mute)
        try:
            self.run_until(
                lambda: self.leads(name) and self.term(name) > before,
                ELECTION_MAX,
                f"{name} is elected",
            )
        finally:
            self.filters.remove(mute)

    def formed(self) -> "Stage":
        """Wait for the first leader, make the topic; return the stage."""
        self.run_until(lambda: bool(self.leader), ELECTION_MAX, "the group forms")
        self.elect_first()
        return self

    def elect_first(self) -> None:
        """Let the first member lead, and the topic exist everywhere."""
        first = self.names[0]
        if not self.leads(first):
            self.elect(first)
            self.join()
        answers: list[Code] = []
        plan = self.plan
        request = CreateTopic(
            "t", plan.topic_id, len(plan.queues), tuple(plan.groups), plan.retention_ms
        )
        self.ask(first, request, answers.append)
        self.run_until(lambda: bool(answers), 5.0, "the topic is made")
        assert answers == [Code.OK], answers
        self.settle()

    def settle(self) -> None:
        """Let everything that can happen without new input happen, and every link come back."""
        self.run_for(0.5)
        running = {m.name for m in self.members.values() if m.running and not m.paused}
        cut = {pair for pair, path in self.network.paths.items() if path.cut}
        pairs = [
            (a, b) for a, b in self.group.pairs if {a, b} <= running and not {(a, b), (b, a)} & cut
        ]
        self.run_until(
            lambda: all(self.group.has_link(*pair) for pair in pairs), LINKS_MAX, "the links"
        )

    # Writing.

    def put(self, name: str, value: str, size: int = 0, due_ms: int = 0) -> Put:
        """Propose one record at a member, whatever it is; `due_ms`: to be delivered then."""
        put = Put(value)
        self.puts.append(put)
        topic_id, queue = self.plan.queues[0]
        body = value.encode().ljust(size, b".")
        batch = encode_batch(
            [Record(body)],
            topic_id=topic_id,
            queue=queue,
            stamp=None,
            base_number=len(self.puts),
            base_time_ms=1,
            delivery_time_ms=due_ms,
        )
        member = self.members[name]
        process = member.process
        assert process is not None, f"{name} does not run"

        def settled(outcome: Settled) -> None:
            assert put.settled is None, f"{value} was settled twice"
            put.settled = outcome

        member.input(process.host.propose_nowait, EntryKind.BATCHES, [batch], settled)
        return put

    def put_all(self, name: str, values: Iterable[str]) -> list[Put]:
        """Propose records one by one, each an entry of its own if the member leads."""
        return [self.put(name, value) for value in values]

    def stored_values(self, name: str) -> list[str]:
        """Return what a member's first queue holds, in order."""
        process = self.members[name].process
        assert process is not None, f"{name} does not run"
        machine = process.machine
        topic_id, queue = self.plan.queues[0]
        first, end = machine.queries.queue_bounds(topic_id, queue)
        found: list[str] = []
        while first + len(found) < end:
            for span in machine.queries.spans(topic_id, queue, first + len(found), 1 << 20):
                view = BatchView(process.log.read_span(Span(Position(span.place), span.size)))
                found += [bytes(view.body(i)).rstrip(b".").decode() for i in range(len(view))]
        return found

    # The end.

    def finish(self) -> None:
        """End all faults, converge, and compare: every acknowledged put on every member."""
        self.filters.clear()
        self.flow_all(deliver=False)
        self.join()
        for member in self.members.values():
            member.disk.quick()
            member.resume()
            member.start()
        self.run_until(self._converged, 30.0, "the group converges")
        check_log_and_digest(self)
        for name in self.names:
            values = self.stored_values(name)
            for put in self.puts:
                count = values.count(put.value)
                if put.stored and count != 1:
                    raise Violation(
                        Property.ACKNOWLEDGED_LOST, f"{put.value}: {count} times on {name}"
                    )
                if put.outcome is Outcome.NOT_STORED and count:
                    raise Violation(Property.OUTCOME, f"{put.value} failed, but is on {name}")

    def _converged(self) -> bool:
        leader = self.leader
        if not leader:
            return False
        ends = {
            (
                int(m.process.log.last_index),
                int(m.process.machine.applied_index),
                m.process.group.term,
            )
            for m in self.members.values()
            if m.process is not None
        }
        roles = sorted(m.role.value for m in self.members.values())
        follow = roles == sorted(["leader", *["follower"] * (len(self.names) - 1)])
        return follow and len(ends) == 1 and len({*next(iter(ends))[:2]}) == 1


def check_log_and_digest(stage: Stage) -> None:
    """Compare all logs and digests at the end of a script."""
    digests = {
        name: member.process.machine.digest
        for name, member in stage.members.items()
        if member.process is not None
    }
    if len(set(digests.values())) != 1:
        raise Violation(Property.STATE_MOVES_TOGETHER, f"digests at the end: {digests}")


def _still(plan: WorldPlan, names: str, log: LogSettings) -> WorldPlan:
    return replace(
        plan,
        groups={"g": tuple(names)},
        delay=(DELAY, DELAY),
        log=log,
        producers=0,
        consumers=0,
        trims=False,
        early_strikes=0.0,
        gather_bytes=0,  # each put becomes an entry of its own, unless a script asks
    )
