"""Drives one Raft group on an asyncio loop: threads, timers, and nothing that decides.

Owns: the worker that executes write rounds, the worker that saves the state, the order in which the
outputs of a group are carried out, and stopping the process when the storage fails (I16). Does not
own the rules of the group (`raft/group.py`), links (`links/`), nor what a command means.

Inputs are messages, link events, proposals, finished writes and deadlines. An input of which
something comes only marks the host as due. `_pump` runs once in the next turn of the loop and takes
everything that gathered. So frames and proposals that arrive together become one entry, one write
round and one message per peer. Apply runs in slices of bounded time, so that heartbeats go out
between them.

A pump or an input that raises ends the member: its disk cannot be read, or the group is in a state
that nobody has thought of.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dledger.clock import Clock
from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedFile
from dledger.log.writing.write_round import Round
from dledger.raft.api import Leadership, OnBarrier, OnLeadership
from dledger.raft.driver.deadline_timer import DEADLINE_SLACK_SECONDS, DeadlineTimer
from dledger.raft.driver.saving import SavedMachine, Saving
from dledger.raft.driver.shared_barriers import SharedBarriers
from dledger.raft.driver.silence import Silences
from dledger.raft.driver.waiters import AppliedWaiters
from dledger.raft.driver.worker import StartWorker
from dledger.raft.fail_stop import FailStop
from dledger.raft.group import RaftGroup
from dledger.raft.links.peer_link import PeerLink
from dledger.raft.wire.messages import Message
from dledger.types import Buffer, EntryKind, LogIndex, MemberId, OnSettled, Settled
from dledger_proto.errors import Code, DledgerError, Outcome

APPLY_SLICE_SECONDS: Final = 0.003
"""How long apply may hold the loop before messages and timers get a turn."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Times in seconds, sizes in bytes."""

    save_interval: float = 0.5
    """How long a change of the state may stay unsaved."""
    state_full: type[OSError] | None = None
    """What a flush raises when the disk had no room and nothing was begun; it is tried again."""


OnFailure = Callable[[BaseException], None]


class GroupHost:
    """One group on the running loop. All methods are called on the loop's thread."""

    def __init__(
        self,
        group: RaftGroup,
        machine: SavedMachine,
        log: CommitLog,
        settings: HostSettings,
        clock: Clock,
        on_failure: OnFailure,
        start_worker: StartWorker,
        *,
        name: str,
    ) -> None:
        self.group = group
        self._machine = machine
        self._clock = clock
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._writer = start_worker(f"write {name}")
        self._state_writer = start_worker(f"save {name}")
        self._saving = Saving(
            machine,
            log,
            self._state_writer,
            self._saved,
            interval=settings.save_interval,
            full=settings.state_full,
        )
        self._links: Mapping[MemberId, PeerLink] = {}
        self._scheduled = False
        self._timer = DeadlineTimer(self._loop, self._timer_fired)
        self._tick_due = False
        self._writing = False
        self._apply_waits = False
        self._follow_up_due = False
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._stopped = False
        self._failure: BaseException | None = None
        self._last_seen = group.last_seen
        self._applied_waiters = AppliedWaiters()
        self._barriers = SharedBarriers(self._ask_barrier)
        self._or_fail = FailStop(self._ends_here)
        self._is_mended: Callable[[BaseException], bool] = lambda _error: False
        self.round_took: Callable[[float], None] = lambda _seconds: None
        """Hears how long each write round took, its wait for the worker included."""
        self.silences = Silences(clock.monotonic())

    # What the member calls.

    def start(self, links: Mapping[MemberId, PeerLink]) -> None:
        """Start the group; its messages leave by these links, one to each other member."""
        self._links = links
        self.group.start(self._clock.monotonic())
        self._due()

    @property
    def leadership(self) -> Leadership:
        """Who leads, as the watchers heard last: see `leadership/last_seen.py`."""
        return self._last_seen.told

    @property
    def counts_unsynced(self) -> bool:
        return self.group.counts_unsynced

    @property
    def time_ms(self) -> int | None:
        return self.group.time_ms

    @property
    def applied_index(self) -> LogIndex:
        """The newest entry whose effects are visible here."""
        return self._machine.applied_index

    def watch_leadership(self, watcher: OnLeadership) -> None:
        """Call `watcher` on every change of role, term or leader."""
        self._last_seen.watch(watcher)

    def propose_nowait(
        self,
        kind: EntryKind,
        payloads: Sequence[Buffer],
        settled: OnSettled,
        *,
        frees_space: bool = False,
        rows: int = 0,
    ) -> None:
        """See `RaftGroup.propose`; `settled` is called on the loop."""
        if self._stopped:
            settled(_not_stored(Code.STORAGE_FAILED if self._failure else Code.SHUTTING_DOWN))
            return
        try:
            self.group.propose(kind, payloads, settled, frees_space=frees_space, rows=rows)
        except (OSError, DamagedFile) as error:
            self._fail(error)  # nothing was queued: the tail could not be measured
            settled(_not_stored(Code.STORAGE_FAILED))
            return
        except Exception as error:
            self._fail(error)
            raise
        if not self._scheduled and self.group.cuts_now:  # nothing else comes of a proposal
            self._due()

    async def propose(self, kind: EntryKind, payloads: Sequence[Buffer]) -> Settled:
        """Propose and wait; the outcome is in the result, nothing raises for it."""
        future: asyncio.Future[Settled] = self._loop.create_future()

        def settled(result: Settled) -> None:
            if not future.done():
                future.set_result(result)

        self.propose_nowait(kind, payloads, settled)
        return await future

    async def read_barrier(self) -> LogIndex:
        """Return a read index that a quorum confirmed after this call; NO_LEADER or NOT_LEADER.

        Callers that arrive while a confirmation is under way share the next one.
        """
        if self._stopped:
            raise DledgerError(Code.SHUTTING_DOWN, "the group is stopped")
        return await self._barriers.wait()

    async def wait_applied(self, index: LogIndex) -> None:
        """Wait until entry `index` is applied here."""
        if self._machine.applied_index >= index:
            return
        if self._stopped:
            raise DledgerError(Code.SHUTTING_DOWN, "the group is stopped")
        await self._applied_waiters.wait(index)

    async def transfer(self, target: MemberId | None, *, drains: bool = True) -> MemberId | None:
        """Hand leadership to `target`, or to the most caught-up member; NOT_LEADER when it failed.

        `drains`: wait until everything is applied here, so that its callers hear of it.

        Returns the leader as known at that moment; None while the new one has not spoken yet.
        """
        future: asyncio.Future[None] = self._loop.create_future()

        def done(is_done: bool, reason: str) -> None:
            if future.done():
                return
            if is_done:
                future.set_result(None)
            else:
                future.set_exception(DledgerError(Code.NOT_LEADER, f"not handed over: {reason}"))

        try:
            self.group.transfer(target, done, self._clock.monotonic(), drains=drains)
        except Exception as error:
            self._fail(error)
            raise
        self._due()
        await future
        return self.group.leader

    def lift_quarantine(self, member: MemberId, sentence: str) -> None:
        """End this member's quarantine, now: see `RaftGroup.lift_quarantine`."""
        self.group.lift_quarantine(member, sentence)
        self._due()

    async def save_state(self) -> None:
        """Save everything applied so far; returns when it is on disk."""
        while not self._saving.is_done and not self._stopped:
            self._saving.begin(self._clock.monotonic())
            await self._next_idle()

    async def stop(self) -> None:
        """Save the state, wait for the write round in flight, end the threads."""
        self.group.stop_admission()
        self._due()
        await self.save_state()
        while self._writing and not self._stopped:
            await self._next_idle()
        self._end()
        await self._loop.run_in_executor(None, self._writer.stop)
        await self._loop.run_in_executor(None, self._state_writer.stop)

    # What links call (`links.peer_link.LinkEvents`).

    def link_up(self, peer: MemberId) -> None:
        self.silences.link_up(peer)
        if not self._stopped:
            with self._or_fail:
                self.group.link_up(peer, self._clock.monotonic())
            self._due()

    def link_down(self, peer: MemberId) -> None:
        self.silences.link_down(peer, self._clock.monotonic())
        if not self._stopped:
            with self._or_fail:
                self.group.link_down(peer, self._clock.monotonic())
            self._due()

    def dial_failed(self, peer: MemberId) -> None:
        if not self._stopped:
            with self._or_fail:
                self.group.dial_failed(peer, self._clock.monotonic())
            self._due()

    def received(self, peer: MemberId, message: Message) -> None:
        if not self._stopped:
            with self._or_fail:
                self.group.receive(peer, message, self._clock.monotonic())
            self._due_if_changed()

    def failed(self, error: BaseException) -> None:
        """See `LinkEvents.failed`; also called by whoever finds damage when reading the log.

        Damage that somebody mends does not end the member.
        """
        if not self._is_mended(error):
            self._fail(error)

    def mend_by(self, is_mended: Callable[[BaseException], bool]) -> None:
        """Ask this of damage that was read: True when somebody mends it, and the member goes on."""
        self._is_mended = is_mended
        self.group.mend_by(is_mended)

    def end_by(self, error: BaseException) -> None:
        """End the member: this damage cannot be mended."""
        self._fail(error)

    def log_mended(self) -> None:
        """Go on with what could not be read; see `RaftGroup.log_mended`."""
        if not self._stopped:
            self.group.log_mended()
            self._due()

    # The pump.

    def _due(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._pump_or_fail)

    def _due_if_changed(self) -> None:
        """Pump if something would come of it."""
        if not self._scheduled and self.group.is_due(self._timer.at - DEADLINE_SLACK_SECONDS):
            self._due()

    def _pump_or_fail(self) -> None:
        self._scheduled = False
        if self._stopped:
            return
        with self._or_fail:
            self._pump()
        if not self._follow_up_due:
            # After the tasks that the pump woke, so that messages leave first.
            self._follow_up_due = True
            self._loop.call_soon(self._follow_up)

    def _pump(self) -> None:
        group = self.group
        now = self._clock.monotonic()
        if self._tick_due:
            self._tick_due = False
            group.tick(now)
        apply_until = now + APPLY_SLICE_SECONDS
        while True:
            outputs = group.outputs()
            for peer, message in outputs.messages:
                self._links[peer].send(message)
            if outputs.write is not None:
                self._start_write(outputs.write)
            self._apply_waits = self._apply_waits or outputs.apply_ready
            if not self._apply_waits or self._saving.is_behind:
                break
            if now >= apply_until:
                self._due()  # the rest in the next turn of the loop
                break
            self._apply_waits = group.apply_slice(now)
            if not group.has_outputs:
                break
            now = self._clock.monotonic()

    def _follow_up(self) -> None:
        """Do what concerns this member alone: leadership, callers of apply, saving, the timer."""
        self._follow_up_due = False
        if self._stopped:
            return
        group = self.group
        with self._or_fail:
            self._last_seen.tell(group.role, group.term, group.leader)
            self._applied_waiters.wake(self._machine.applied_index)
            now = self._clock.monotonic()
            self._saving.consider(now)
            self._arm(now)

    def _arm(self, now: float) -> None:
        if self._timer.fires_by(now + DEADLINE_SLACK_SECONDS):
            return
        deadline = self.group.next_deadline()
        save_at = self._saving.deadline()
        self._timer.set(deadline if save_at is None else min(deadline, save_at), now)

    def _timer_fired(self) -> None:
        self._tick_due = True
        self._due()

    # Write rounds.

    def _start_write(self, write_round: Round) -> None:
        assert not self._writing, "two write rounds in flight"
        self._writing = True
        began = self._clock.monotonic()

        def done(_result: object, error: BaseException | None) -> None:
            self._writing = False
            if self._stopped:
                return
            now = self._clock.monotonic()
            self.round_took(now - began)
            if error is None:
                with self._or_fail:
                    self.group.write_finished(write_round, now)
            elif isinstance(error, OSError):
                self.group.write_failed(write_round, error, now)
                self._fail(error)
                return
            else:
                self._fail(error)
                return
            # In the next turn of the loop: frames that arrived meanwhile are read first.
            if self._saving.waits_for_log:
                self._due()
            self._due_if_changed()
            self._tell_idle()

        self._writer.submit(write_round.execute, done)

    def _saved(self, error: BaseException | None) -> None:
        if self._stopped:
            return
        if error is not None:
            self._fail(error)
            return
        self._due()
        self._tell_idle()

    def _ask_barrier(self, done: OnBarrier) -> None:
        with self._or_fail:
            self.group.read_barrier(done, self._clock.monotonic())
        self._due()

    # Ends.

    def _next_idle(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        self._idle_waiters.append(future)
        return future

    def _tell_idle(self) -> None:
        waiters, self._idle_waiters = self._idle_waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)

    def _fail(self, error: BaseException) -> None:
        """The group cannot go on: nothing leaves any more, the process is told (I16)."""
        if self._failure is None:
            self._failure = error
            self._end()
            self._on_failure(error)

    def _ends_here(self, error: BaseException) -> bool:
        self._fail(error)
        return isinstance(error, Exception)

    def _end(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        self._timer.cancel()
        error = DledgerError(
            Code.STORAGE_FAILED if self._failure else Code.SHUTTING_DOWN, "the group is stopped"
        )
        self._barriers.stop(error)
        self.group.stop(self._clock.monotonic())
        self._applied_waiters.fail(error)
        self._tell_idle()


def _not_stored(code: Code) -> Settled:
    return Settled(outcome=Outcome.NOT_STORED, code=code, detail="the group is stopped")
