"""Looking at a running group from outside: what it puts out, is asked, answers and applies.

Owns: the places at which the world looks. Each stands before something leaves the group, so an
invariant is checked before anybody can act on what broke it. The product may catch what is raised
here; so a violation is also told to the world, which ends with it.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dledger.raft.api import OnBarrier, Outputs
from dledger.raft.wire.messages import Message
from dledger.state.events import Applied
from dledger.types import Buffer, EntryKind, LogIndex, OnSettled, Settled
from tests.sim.invariants.violation import Property, Violation

if TYPE_CHECKING:
    from tests.sim.member.process import Process


def watch(process: "Process") -> None:
    """Put the world's eyes on the group of a process that has opened and not started it."""
    group = process.group
    Watcher(process, group.outputs, group.propose, group.read_barrier, group.apply_slice)


class Watcher:
    """Stands between one group and its host."""

    def __init__(
        self,
        process: "Process",
        outputs: Callable[[], Outputs],
        propose: Callable[..., None],
        read_barrier: Callable[[OnBarrier, float], None],
        apply_slice: Callable[[float], bool],
    ) -> None:
        self._process = process
        self._world = process.member.world
        self._home = process.member.group
        self._outputs, self._propose = outputs, propose
        self._read_barrier, self._apply_slice = read_barrier, apply_slice
        group: Any = process.group
        group.outputs, group.propose = self.outputs, self.propose
        group.read_barrier, group.apply_slice = self.read_barrier, self.apply_slice
        process.machine.events.subscribe(self.applied)

    def _checked(self, look: Callable[[], None]) -> None:
        try:
            look()
        except Violation as violation:
            self._world.found(violation)
            raise

    def outputs(self) -> Outputs:
        """Look at the group before its messages leave. It must have announced what it has."""
        group, now = self._process.group, self._process.member.clock.monotonic()
        is_announced = group.has_outputs or group.next_deadline() <= now
        outputs = self._outputs()
        is_some = outputs.messages or outputs.write or outputs.apply_ready

        def look() -> None:
            if is_some and not is_announced:
                raise Violation(
                    Property.FETCHED, f"{self._process.name}: outputs that were not announced"
                )
            self._home.observer.look(self._process)
            for target, message in outputs.messages:
                self._sending(target, message)
            self._home.stepped(self._process.member, self._process)

        self._checked(look)
        return outputs

    def _sending(self, target: str, message: Message) -> None:
        self._home.observer.sending(self._process, target, message)
        self._world.trace(f"send {self._process.name} {target} {message.describe()}")

    def propose(
        self,
        kind: EntryKind,
        payloads: Sequence[Buffer],
        settled: OnSettled,
        *,
        frees_space: bool = False,
        rows: int = 0,
    ) -> None:
        """Check the outcome before whoever asked hears it."""

        def checked(outcome: Settled) -> None:
            self._checked(lambda: self._home.settled(self._process, outcome))
            settled(outcome)

        self._propose(kind, payloads, checked, frees_space=frees_space, rows=rows)

    def read_barrier(self, done: OnBarrier, now: float) -> None:
        """Whatever is committed anywhere by now must be covered (D9)."""
        floor = self._home.facts.committed_last

        def confirmed(index: LogIndex | None, reason: str) -> None:
            if index is not None and index < floor:
                self._checked(lambda: _stale(self._process.name, index, floor))
            done(index, reason)

        self._read_barrier(confirmed, now)

    def apply_slice(self, now: float) -> bool:
        """Let a slow machine take its time."""
        if self._process.member.apply_delay:
            self._process.loop.spend(self._process.member.apply_delay)
        return self._apply_slice(now)

    def applied(self, applied: Applied) -> None:
        """Compare what was applied, before any client hears of it."""
        process = self._process
        digest = process.machine.digest
        self._checked(
            lambda: self._home.observer.applied(process, applied.entry, applied.results, digest)
        )


def _stale(name: str, index: LogIndex, floor: int) -> None:
    raise Violation(
        Property.REAL_TIME_READS,
        f"{name} reads up to {index}, {floor} was committed when it asked",
    )
