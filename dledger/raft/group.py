"""One Raft group of one member, without I/O: what goes in, what comes out, who is told.

Owns: the boundary that `raft/api.py` describes, and fail-stop. `wiring.py` makes the parts of a
group and tells them of inputs. A part decides: `commit/refusals.py` whether a proposal is taken,
`commit/cutting.py` when entries are made. Raft itself is in `engine/_pysyncobj.py`. All calls are
made from one thread. A callback may call back into the group.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from dledger.clock import Clock
from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedLog, LogFailed
from dledger.log.hard_state import HardState
from dledger.log.identity import Identity
from dledger.log.writing.write_round import Round
from dledger.raft.api import (
    GroupSettings,
    GroupStatus,
    Machine,
    OnBarrier,
    OnTransferred,
    Outputs,
    Role,
)
from dledger.raft.commit.proposals import refuse
from dledger.raft.context import Context
from dledger.raft.durability import Durability
from dledger.raft.fail_stop import FailStop
from dledger.raft.status import status_of
from dledger.raft.wire.messages import Hello, Message
from dledger.raft.wiring import Wiring
from dledger.trace import Trace
from dledger.types import Buffer, EntryKind, LogIndex, MemberId, OnSettled, Term
from dledger_proto.errors import Code, DledgerError

IDLE_SECONDS_MAX: Final = 60.0
"""The longest time between two ticks, also of a group that has nothing to do."""
STRANGERS_MAX: Final = 1_000
"""Unknown senders that are told apart in the trace."""
ROUND_SLOW_SECONDS: Final = 0.1
"""A write round that takes longer, its sync included, is in the trace."""
RISK_SENTENCE: Final = "I accept that acknowledged messages may be lost"
"""The sentence with which an operator takes the risk of lifting a quarantine (D18)."""


class RaftGroup:
    """See the module header. Invariant: a stopped group sends nothing and changes nothing."""

    def __init__(
        self,
        settings: GroupSettings,
        identity: Identity,
        log: CommitLog,
        hard_state: HardState,
        machine: Machine,
        clock: Clock,
        random: Random,
        trace: Trace,
    ) -> None:
        settings.check()
        now = clock.monotonic()
        durability = Durability(
            log,
            hard_state,
            settings.flush,
            hang_limit=settings.disk_hang_limit,
            flush_interval=settings.flush_interval,
            now=now,
        )
        self._context = Context(settings, log, durability, machine, clock, random, trace, now)
        self._wiring = wiring = Wiring(self._context, identity)
        self._membership = wiring.membership
        self._elections = wiring.elections
        self._replication = wiring.replication
        self._barriers = wiring.barriers
        self._transfer = wiring.transfer
        self._proposals = wiring.proposals
        self._refusals = wiring.refusals
        self._cutting = wiring.cutting
        self._applying = wiring.applying
        self.last_seen = wiring.last_seen
        self._guard = FailStop(self._fail_by)
        self._stopped = ""
        self._strangers: set[MemberId] = set()

    # Inputs: life.

    def start(self, now: float) -> None:
        """Take part from now on, as far as the disk says this member may.

        DamagedFile when state, hard state and log contradict each other.
        """
        with self._guard:
            self._context.now = now
            if not self._context.log.is_empty:
                self._wiring.begin_core()
            self._membership.advance()
            self._advance()

    def stop(self, now: float) -> None:
        """End: no message leaves any more, and every caller that waits is told."""
        self._context.now = now
        self.fail("the member stops", Code.SHUTTING_DOWN)

    def fail(self, reason: str, code: Code = Code.STORAGE_FAILED) -> None:
        """Stop for good (I16): refuse what waits, what is proposed is unknown."""
        if self._stopped:
            return
        self._stopped = reason
        context = self._context
        context.trace.event("stopped", reason=reason)
        context.outbox.close()
        context.gate.clear()
        self._transfer.fail(reason)
        self._barriers.fail(reason)
        self._proposals.refuse_waiting(code, reason)
        self._proposals.give_up(reason)

    def _fail_by(self, error: BaseException) -> bool:
        """Stop by what an input raised: a failed log, a broken invariant.

        A failed write of the worker thread may show here before `write_failed` is called. That
        error ends here. Any other error is a bug of ours, or damage, and is raised again.
        """
        self.fail(f"{type(error).__name__}: {error}")
        return isinstance(error, LogFailed)

    # Inputs: time, links, messages.

    def tick(self, now: float) -> None:
        """Do what is due at `now`, in seconds of the monotonic clock."""
        if self._stopped:
            return
        with self._guard:
            self._context.now = now
            paused = self._elections.guard_pause()
            self._membership.tick()
            if self._context.formed:
                self._wiring.tick(paused=paused)
            self._advance()

    def next_deadline(self) -> float:
        """Return when to call `tick` at the latest; always finite."""
        deadline = self._context.now + IDLE_SECONDS_MAX
        if self._stopped:
            return deadline
        deadline = min(deadline, self._context.durability.next_deadline)
        deadline = min(deadline, self._membership.next_deadline())
        return min(deadline, self._wiring.next_deadline()) if self._context.formed else deadline

    def link_up(self, peer: MemberId, now: float) -> None:
        """Messages to `peer` can leave from now on."""
        if self._stopped or peer not in self._context.peers:
            return
        with self._guard:
            self._context.now = now
            self._elections.guard_pause()
            self._wiring.link_up(peer)
            self._advance()

    def link_down(self, peer: MemberId, now: float) -> None:
        """The stream to `peer` broke; what it had not delivered is lost. It is dialled again."""
        if self._stopped or peer not in self._context.peers:
            return
        with self._guard:
            self._context.now = now
            self._wiring.link_down(peer)
            self._advance()

    def dial_failed(self, peer: MemberId, now: float) -> None:
        """The dial after a `link_down` was refused, or not answered in time (D17)."""
        if self._stopped or peer not in self._context.peers or not self._context.formed:
            return
        with self._guard:
            self._context.now = now
            self._elections.dial_failed(peer)
            self._advance()

    def receive(self, sender: MemberId, message: Message, now: float) -> None:
        """Take one message of a peer, as `wire.message_codec.decode` returned it."""
        context, membership = self._context, self._membership
        if self._stopped:
            return
        if sender not in context.peers:
            self._note_stranger(sender)  # L16
            return
        with self._guard:
            context.now = now
            self._elections.guard_pause()
            if isinstance(message, Hello):
                membership.on_hello(sender, message)
            elif membership.admit(sender, message) and context.formed:
                self._wiring.dispatch(sender, message)
            self._advance()

    def _note_stranger(self, sender: MemberId) -> None:
        if sender not in self._strangers and len(self._strangers) < STRANGERS_MAX:
            self._strangers.add(sender)
            self._context.trace.event("refused", sender=sender, reason="not a configured member")

    def needs_refill(self, now: float) -> bool:
        """Tell whether no leader can fill this member's log any more (D18).

        The entries that follow were trimmed, or this member is new and its group has trimmed the
        first entry. Ask while links are up: a member that is alone knows nothing.
        """
        self._context.now = now
        return not self._stopped and self._wiring.needs_refill

    @property
    def is_filled(self) -> bool:
        """Tell whether this member leads, or its leader's newest message fitted its log."""
        return not self._stopped and self._wiring.is_filled

    # Inputs: the disk.

    def write_finished(self, finished: Round, now: float) -> None:
        """The round that `outputs` gave was executed."""
        if self._stopped:
            return
        with self._guard:
            context = self._context
            context.now = now
            seconds = context.durability.finish_round(finished, now)
            if seconds >= ROUND_SLOW_SECONDS:
                context.trace.event(
                    "round_slow", seconds=seconds, synced=finished.synced, what=finished.describe()
                )
            self._membership.storage_moved()
            if context.formed:
                self._elections.storage_moved()
                if self._replication.commit_may_move():
                    context.engine.tick(now)
            self._advance()

    def write_failed(self, _failed: Round, error: OSError, now: float) -> None:
        """The round could not be written: this member promises nothing any more (I16)."""
        self._context.now = now
        self.fail(f"a write to the log failed: {error}")

    # Inputs: callers.

    def propose(
        self,
        kind: EntryKind,
        payloads: Sequence[Buffer],
        settled: OnSettled,
        *,
        frees_space: bool = False,
        rows: int = 0,
    ) -> None:
        """Ask for payloads to be stored together in one entry; `settled` is called exactly once.

        A proposal that `frees_space` is taken although the disk is low. Apply
        reads at most `rows` rows for the payloads; together with size and count that decides what
        shares an entry (`commit/proposals.py`, as does `portions` for many payloads).
        Refusals are definite and come through `settled`, too. The detail of NOT_LEADER is the id of
        the member to ask. With an index other than 0, an entry held the payloads and was replaced.
        """
        if self._stopped:
            refuse(settled, Code.STORAGE_FAILED, self._stopped)
        elif refusal := self._refusals.refusal(frees_space=frees_space):
            refuse(settled, *refusal)
        else:
            self._proposals.add(kind, payloads, settled, frees_space=frees_space, rows=rows)

    def read_barrier(self, done: OnBarrier, now: float) -> None:
        """Ask for an index that covers everything acknowledged before; on any member (D9)."""
        self._context.now = now
        if self._stopped or not self._context.formed:
            done(None, self._stopped or self._membership.reason)
        else:
            self._barriers.add(done)

    def transfer(
        self, target: MemberId | None, done: OnTransferred, now: float, *, drains: bool = True
    ) -> None:
        """Hand leadership to `target`, or to the most complete healthy member."""
        self._context.now = now
        if self._stopped or not self._context.formed:
            done(False, self._stopped or self._membership.reason)
            return
        with self._guard:
            self._cutting.cut(everything=True)
            self._replication.pump()
            self._transfer.begin(target, done, drains=drains)
            self._advance()

    def stop_admission(self) -> None:
        """Refuse proposals from now on as SHUTTING_DOWN; what was admitted goes on."""
        self._refusals.is_draining = True

    def lift_quarantine(self, member: MemberId, sentence: str) -> None:
        """End this member's quarantine at an operator's word, who must name the risk (D18).

        DledgerError INVALID_ARGUMENT for another member, another sentence, or no quarantine.
        """
        context = self._context
        if member != context.member:
            raise DledgerError(
                Code.INVALID_ARGUMENT,
                f"this is member {context.member!r}: send the call to member {member!r} itself",
            )
        if sentence != RISK_SENTENCE:
            raise DledgerError(Code.INVALID_ARGUMENT, f"the sentence must be {RISK_SENTENCE!r}")
        if self._stopped or not (context.formed and context.quarantined):
            raise DledgerError(Code.INVALID_ARGUMENT, f"member {member!r} is not in quarantine")
        self._wiring.lift_quarantine()
        self._advance()

    def apply_slice(self, now: float) -> bool:
        """Apply some committed entries; True when there are more.

        What the machine raises (an unknown command, a damaged log) stops the group and is raised
        on: a member that cannot apply an entry must not go on (F17).
        """
        context = self._context
        if self._stopped or not context.formed:
            return False
        context.now = now
        try:
            more = self._applying.slice()
        except Exception as error:
            self.fail(f"apply failed: {error}")
            raise
        if self._transfer.active:
            self._advance()
        return more

    # Damage in the log.

    def mend_by(self, is_mended: Callable[[DamagedLog], bool]) -> None:
        """Ask this when the log cannot be read: True when somebody mends the place (I15)."""
        self._context.is_mended = is_mended

    @property
    def waits_for_mending(self) -> bool:
        """Tell whether the entry that is to be applied next cannot be read."""
        return self._applying.waits_for_mending

    def log_mended(self) -> None:
        """Go on with what could not be read, and write what a scrub has left for a round."""
        self._applying.waits_for_mending = False
        self._context.durability.touch()

    # Outputs.

    def outputs(self) -> Outputs:
        """Return what the driver has to do now; see `raft/api.py`."""
        context = self._context
        self.last_seen.is_new = False
        write: Round | None = None
        with self._guard:
            if not self._stopped:
                if context.formed:
                    self._cutting.cut(everything=self._cutting.may_cut())
                    self._replication.pump()
                write = context.durability.take_round(context.now)
                self._release()
        ready = not self._stopped and context.formed and self._applying.ready
        return Outputs(list(context.outbox.take()), write, ready)

    @property
    def has_outputs(self) -> bool:
        """Tell whether `outputs` may give anything, or role, term or leader changed since the last.

        Else a later input or deadline brings something. So a driver need not drain after an input
        that only gathers or is only noted: a proposal that waits for the commit before it, or the
        second acknowledgement of an entry.
        """
        context = self._context
        if len(context.outbox) or len(context.gate) or context.durability.is_dirty:
            return True
        if self.last_seen.is_new:
            return True
        if self._stopped or not context.formed:
            return False
        return self._applying.ready or self._cutting.cuts_now

    def is_due(self, timer_at: float) -> bool:
        """Tell whether a driver whose timer is set to `timer_at` has something to do before."""
        return self.has_outputs or self.next_deadline() < timer_at

    @property
    def cuts_now(self) -> bool:
        """Tell whether `outputs` would make an entry of what waits."""
        return self._cutting.cuts_now

    def _release(self) -> None:
        context = self._context
        if len(context.gate) and context.formed:
            for target, message in context.gate.release(
                term=context.engine.term,
                hard_version=context.durability.durable_version,
                log_index=context.durability.covered_index,
            ):
                context.send(target, message)

    def _advance(self) -> None:
        if not self._stopped and self._context.formed:
            self._wiring.advance()

    # What people and tests look at.

    @property
    def role(self) -> Role:
        """What this member is to its group now."""
        context = self._context
        if self._stopped:
            return Role.STOPPED
        if not context.formed:
            return Role.UNFORMED
        return Role.QUARANTINED if context.quarantined else context.engine.role

    @property
    def time_ms(self) -> int | None:
        """What an entry would be stamped with now; None while this member does not know (D8)."""
        clocks = self._wiring.clocks
        return clocks.stamp_ms(self._context.log.last_time_ms) if clocks.is_known else None

    @property
    def term(self) -> Term:
        """The current term, 0 before the group has formed."""
        return Term(self._context.engine.term if self._context.formed else 0)

    @property
    def leader(self) -> MemberId | None:
        """Whom this member takes for the leader."""
        return self._context.engine.leader if self._context.formed else None

    @property
    def commit_index(self) -> LogIndex:
        """The highest index this member knows to be committed."""
        return LogIndex(self._context.engine.commit_index if self._context.formed else 0)

    @property
    def counts_unsynced(self) -> bool:
        """Tell whether what this leader acknowledges may not be synced by a majority (D4)."""
        return self._replication.counts_unsynced

    def status(self) -> GroupStatus:
        """Return a frozen picture."""
        return status_of(self._context, self._wiring, role=self.role, stopped=self._stopped)
