"""One Raft group of one member, without I/O: what goes in, what comes out, who is told.

Owns: the order in which an input passes through the parts, what follows from a changed role, term,
leader or commit index, admission of proposals, fail-stop. Decisions are made in the parts:

  election  replication  following  membership (formation)  barrier  transfer  proposals  applying

and Raft itself in `_pysyncobj.Engine`. `raft/api.py` tells how a group is driven. All calls are made
from one thread; a callback may call back into the group.
"""

import math
from collections.abc import Sequence
from random import Random
from typing import Final

from dledger.clock import Clock
from dledger.log.errors import DamagedFile
from dledger.log.hard_state import HardState
from dledger.log.identity import Identity
from dledger.raft._pysyncobj import Engine
from dledger.raft.api import (
    GroupSettings,
    GroupStatus,
    Machine,
    OnBarrier,
    OnTransferred,
    Outputs,
    PeerMessage,
    Role,
    WriteRound,
)
from dledger.raft.applying import Applying
from dledger.raft.barrier import Barriers
from dledger.raft.clocks import ClockWatch
from dledger.raft.context import Context
from dledger.raft.election import Elections
from dledger.raft.following import Following
from dledger.raft.journal import InvariantBroken, Journal
from dledger.raft.membership import Hooks, Membership, Quarantine
from dledger.raft.message import (
    AppendAnswer,
    AppendRequest,
    BarrierAnswer,
    BarrierRequest,
    Hello,
    Message,
    PreVote,
    PreVoteAnswer,
    TermNotice,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
)
from dledger.raft.ports import RaftLog
from dledger.raft.proposals import Proposals, refuse
from dledger.raft.replication import Replication
from dledger.raft.storage import Storage
from dledger.raft.transfer import Transfer
from dledger.trace import Trace
from dledger.types import Buffer, EntryKind, LogIndex, MemberId, OnSettled, Term
from dledger_proto.errors import Code, DledgerError

IDLE_SECONDS_MAX: Final = 60.0
"""A group without anything to do is ticked so often nevertheless."""
RISK_SENTENCE: Final = "I accept that acknowledged messages may be lost"
"""What an operator must say to lift a quarantine (D18)."""


class Group:
    """See the module header. Invariant: a stopped group sends nothing and changes nothing."""

    def __init__(
        self,
        settings: GroupSettings,
        identity: Identity,
        log: RaftLog,
        hard_state: HardState,
        machine: Machine,
        clock: Clock,
        random: Random,
        trace: Trace,
    ) -> None:
        settings.check()
        storage = Storage(log, hard_state, settings.durability, settings.disk_hang_limit)
        now = clock.monotonic()
        context = Context(settings, log, storage, machine, clock, random, trace, now)
        self._context = context
        genesis = b""
        if not log.is_empty and log.first_index == 1:
            genesis = bytes(log.entries(LogIndex(1), LogIndex(1), 1)[0].payloads[0])
        self._hooks = Hooks(self._begin_core, self._new_life, self._quarantine_ended)
        self._membership = Membership(
            context, identity.incarnation, identity.group_id, genesis, self._hooks
        )
        self._clocks = ClockWatch(clock)
        self._elections = Elections(context)
        self._replication = Replication(context)
        self._following = Following(context, self._elections, self._clocks)
        self._barriers = Barriers(context, self._replication)
        self._replication.on_answer = self._barriers.on_answer
        self._quarantine = Quarantine(context, self._membership, self._barriers)
        self._transfer = Transfer(context, self._replication)
        self._proposals = Proposals()
        self._applying = Applying(context, self._proposals)
        self._admits = True
        self._stopped = ""
        self._seen: tuple[Role, int, MemberId | None] = (Role.UNFORMED, 0, None)
        self._commit_seen = 0
        self._tail_seen = (0, 0)
        self._tail_bytes = 0
        self._refused: set[MemberId] = set()

    # Inputs: life.

    def start(self, now: float) -> None:
        """Take part from now on, as far as the disk says this member may."""
        self._context.now = now
        if not self._context.log.is_empty:
            self._begin_core()
        self._membership.advance()
        self._advance()

    def _begin_core(self) -> None:
        """Make the core: the genesis entry is on disk."""
        context = self._context
        state = context.storage.state
        applied = context.machine.applied_index
        if applied > context.log.last_index:
            raise DamagedFile(
                f"state of member {context.member}",
                f"it has applied entry {applied}, the log ends at {context.log.last_index}",
            )
        journal = Journal(
            context.log,
            context.clock,
            term=state.term,
            vote=state.vote,
            # The first entry is the same on each member from the start, so it is committed (F14).
            commit_index=max(1, applied),
            on_hard_state=context.storage.set_term,
            on_truncated=self._on_truncated,
        )
        engine = Engine(
            context.member,
            context.settings.members,
            journal,
            fallback_timeout=context.settings.election_timeout_max,
            covered_index=lambda: context.storage.covered_index,
            now=context.now,
        )
        context.set_core(engine, journal)
        if engine.term != state.term:  # a log with entries of a newer term than the hard state
            raise DamagedFile("hard state", f"term {state.term}, the log has {engine.term}")
        self._elections.begin()
        if state.quarantined:
            life = self._membership.incarnation.hex()
            context.trace.event("quarantined", incarnation=life)

    def _on_truncated(self, first: int, last: int) -> None:
        context = self._context
        context.trace.event("truncated", first=first, last=last, term=context.engine.term)

    def stop(self, now: float) -> None:
        """End: nothing leaves any more, everybody who waits is told."""
        self._context.now = now
        self._fail("the member stops", Code.SHUTTING_DOWN)

    def _fail(self, reason: str, code: Code) -> None:
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

    # Inputs: time, links, messages.

    def tick(self, now: float) -> None:
        """Do what is due at `now`, in seconds of the monotonic clock."""
        if self._stopped:
            return
        context = self._context
        context.now = now
        paused = self._elections.guard_pause()
        self._membership.tick()
        if context.formed:
            if not paused:
                self._elections.tick()
            self._replication.tick()
            self._barriers.tick()
            self._transfer.tick()
            self._proposals.tick(now)
            self._applying.trim(self._floor())
            context.engine.tick(now)
        self._advance()

    def next_deadline(self) -> float:
        """Return when to call `tick` at the latest; always finite."""
        deadline = self._context.now + IDLE_SECONDS_MAX
        if self._stopped:
            return deadline
        deadline = min(deadline, self._membership.next_deadline())
        if self._context.formed:
            decide_by = self._proposals.decide_by
            deadline = min(
                deadline,
                self._elections.next_deadline(),
                self._replication.next_deadline(),
                self._barriers.next_deadline(),
                self._transfer.next_deadline(),
                math.inf if decide_by is None else decide_by,
            )
        return deadline

    def link_up(self, peer: MemberId, now: float) -> None:
        """Messages to `peer` can leave from now on."""
        if self._stopped or peer not in self._context.peers:
            return
        context = self._context
        context.now = now
        self._elections.guard_pause()
        context.outbox.up.add(peer)
        self._membership.link_up(peer)
        if context.formed:
            self._elections.link_up(peer)
            self._replication.link_changed(peer)
        self._advance()

    def link_down(self, peer: MemberId, now: float) -> None:
        """The stream to `peer` broke; what it had not delivered is lost. It is dialled again."""
        if self._stopped or peer not in self._context.peers:
            return
        context = self._context
        context.now = now
        context.outbox.up.discard(peer)
        context.gate.forget(peer)
        self._membership.link_down(peer)
        if context.formed:
            self._elections.link_down(peer)
            self._replication.link_changed(peer)
        self._advance()

    def dial_failed(self, peer: MemberId, now: float) -> None:
        """The dial after a `link_down` was refused, or not answered in time (D17)."""
        if self._stopped or peer not in self._context.peers:
            return
        self._context.now = now
        if self._context.formed:
            self._elections.dial_failed(peer)
        self._advance()

    def receive(self, sender: MemberId, message: PeerMessage, now: float) -> None:
        """Take one message of a peer, as `message.decode` returned it."""
        context = self._context
        if self._stopped:
            return
        if sender not in context.peers or not isinstance(message, Message):
            self._refuse_stranger(sender)  # L16
            return
        context.now = now
        self._elections.guard_pause()
        if isinstance(message, Hello):
            self._membership.on_hello(sender, message)
        elif self._membership.admit(sender, message) and context.formed:
            try:
                self._dispatch(sender, message)
            except InvariantBroken as broken:
                self._fail(str(broken), Code.STORAGE_FAILED)
                raise
            except ValueError as damaged:
                # Damaged on the way: as if it had been lost. Nothing of it was kept.
                context.trace.event(
                    "dropped", sender=sender, message=message.describe(), reason=str(damaged)
                )
        self._advance()

    def _refuse_stranger(self, sender: MemberId) -> None:
        if sender not in self._refused and len(self._refused) < 1_000:
            self._refused.add(sender)
            self._context.trace.event("refused", sender=sender, reason="not a configured member")

    def _dispatch(self, sender: MemberId, message: Message) -> None:
        context = self._context
        engine = context.engine
        match message:
            case AppendRequest():
                self._following.on_append(sender, message)
                self._elections.clock_is_off = self._clocks.is_off
            case AppendAnswer():
                engine.adopt_term(sender, message.own_term, context.now)
                self._replication.on_append_answer(sender, message)
                engine.tick(context.now)
            case PreVote():
                self._elections.on_pre_vote(sender, message)
            case PreVoteAnswer():
                self._elections.on_pre_vote_answer(sender, message)
            case VoteRequest():
                self._elections.on_vote_request(sender, message)
            case VoteAnswer():
                self._elections.on_vote_answer(sender, message)
            case TermNotice():
                engine.adopt_term(sender, message.term, context.now)
            case TimeoutNow():
                self._elections.on_timeout_now(sender, message.term)
            case BarrierRequest():
                self._barriers.on_request(sender, message)
            case BarrierAnswer():
                self._barriers.on_barrier_answer(message)
            case _:
                raise ValueError(f"no handler for {message.describe()}")

    # Inputs: the disk.

    def write_finished(self, finished: WriteRound, now: float) -> None:
        """The round that `outputs` gave is on disk."""
        if self._stopped:
            return
        context = self._context
        context.now = now
        context.storage.finish_round(finished)
        self._membership.storage_moved()
        if context.formed:
            context.engine.tick(now)
        self._advance()

    def write_failed(self, failed: WriteRound, error: OSError, now: float) -> None:
        """The round could not be written: this member promises nothing any more (I16)."""
        self._context.now = now
        self._fail(f"a write to the log failed: {error}", Code.STORAGE_FAILED)

    def set_disk_low(self, low: bool) -> None:
        """The free space is below (above again) the low-water mark (I16)."""
        self._context.disk_low = low

    # Inputs: callers.

    def propose(self, kind: EntryKind, payloads: Sequence[Buffer], settled: OnSettled) -> None:
        """Ask for payloads to be stored together in one entry; `settled` is called exactly once.

        Refusals are definite and come through `settled`, too. Of NOT_LEADER the detail is the id of
        the member to ask, empty when it is not known.
        """
        context = self._context
        limits = context.settings
        if self._stopped:
            refuse(settled, Code.STORAGE_FAILED, self._stopped)
        elif not context.formed:
            refuse(settled, Code.NOT_FORMED, self._membership.reason)
        elif not context.engine.is_leader:
            leader = context.engine.leader
            refuse(settled, Code.NO_LEADER if leader is None else Code.NOT_LEADER, leader or "")
        elif not self._admits:
            refuse(settled, Code.SHUTTING_DOWN, "the member is draining")
        elif context.disk_low:
            refuse(settled, Code.DISK_FULL, "free space is below the low-water mark")
        elif self._proposals.waiting_bytes >= limits.waiting_bytes_max:
            refuse(settled, Code.BUSY, f"{limits.waiting_bytes_max} bytes wait for an entry")
        elif self._own_tail_bytes() + self._proposals.waiting_bytes >= limits.uncommitted_bytes_max:
            refuse(settled, Code.BUSY, f"{limits.uncommitted_bytes_max} bytes are not committed")
        else:
            self._proposals.add(kind, payloads, settled)

    def _own_tail_bytes(self) -> int:
        """Return the size of what is in the log and not committed (L10)."""
        context = self._context
        tail = (context.engine.commit_index, context.log.last_index)
        if tail != self._tail_seen:
            self._tail_seen = tail
            self._tail_bytes = context.log.size_between(LogIndex(tail[0] + 1), LogIndex(tail[1]))
        return self._tail_bytes

    def read_barrier(self, done: OnBarrier, now: float) -> None:
        """Ask for an index that covers everything acknowledged before; on any member (D9)."""
        self._context.now = now
        if self._stopped:
            done(None, self._stopped)
        elif not self._context.formed:
            done(None, self._membership.reason)
        else:
            self._barriers.add(done)

    def transfer(self, target: MemberId | None, done: OnTransferred, now: float) -> None:
        """Hand leadership to `target`, or to the most complete healthy member."""
        self._context.now = now
        if self._stopped or not self._context.formed:
            done(False, self._stopped or self._membership.reason)
            return
        self._cut(everything=True)
        self._transfer.begin(target, done)

    def stop_admission(self) -> None:
        """Refuse proposals from now on as SHUTTING_DOWN; what was admitted goes on."""
        self._admits = False

    def lift_quarantine(self, member: MemberId, sentence: str) -> None:
        """End this member's quarantine at an operator's word, who must name the risk (D18).

        DledgerError INVALID_ARGUMENT for another member, another sentence, or no quarantine.
        """
        context = self._context
        if member != context.member:
            raise DledgerError(Code.INVALID_ARGUMENT, f"member {member!r}: say it to that member")
        if sentence != RISK_SENTENCE:
            raise DledgerError(Code.INVALID_ARGUMENT, f"sentence: must be {RISK_SENTENCE!r}")
        if self._stopped or not (context.formed and context.quarantined):
            raise DledgerError(Code.INVALID_ARGUMENT, f"member {member!r} is not in quarantine")
        self._quarantine.lift(self._hooks)
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
            self._fail(f"apply failed: {error}", Code.STORAGE_FAILED)
            raise
        if self._transfer.active:
            self._advance()
        return more

    # Outputs.

    def outputs(self) -> Outputs:
        """Return what the driver has to do now; see `raft/api.py`."""
        context = self._context
        write = None
        if not self._stopped:
            if context.formed:
                self._cut(everything=not context.storage.round_in_flight)
                self._replication.pump()
            write = context.storage.take_round(context.now)
            self._release()
        ready = not self._stopped and context.formed and self._applying.ready
        return Outputs(list(context.outbox.take()), write, ready)

    def _cut(self, *, everything: bool) -> None:
        """Make entries of waiting proposals (group commit): never artificially delayed."""
        context = self._context
        if self._proposals.are_waiting and context.engine.is_leader and not self._transfer.active:
            self._proposals.cut(self._append, everything=everything)

    def _append(self, kind: EntryKind, payloads: Sequence[Buffer]) -> tuple[LogIndex, Term]:
        ref = self._context.journal.append_new(kind, payloads, self._context.engine.term)
        return ref.index, ref.term

    def _release(self) -> None:
        context = self._context
        if len(context.gate) and context.formed:
            for target, message in context.gate.release(
                term=context.engine.term,
                hard_version=context.storage.durable_version,
                log_index=context.storage.covered_index,
            ):
                context.send(target, message)

    # What follows from an input.

    def _advance(self) -> None:
        context = self._context
        if self._stopped or not context.formed:
            return
        self._observe()
        self._quarantine.advance(self._hooks)
        if self._transfer.active:
            self._transfer.advance()
        self._observe()

    def _observe(self) -> None:
        """Act on a changed role, term, leader or commit index."""
        context = self._context
        engine = context.engine
        seen = (engine.role, engine.term, engine.leader)
        if seen != self._seen:
            before, self._seen = self._seen, seen
            self._role_changed(before)
        commit = engine.commit_index
        if commit != self._commit_seen:
            self._commit_seen = commit
            term = context.log.term_at(LogIndex(commit))
            context.trace.event("commit", index=commit, term=term)
            if engine.is_leader:
                self._replication.commit_moved()
                self._barriers.advance()

    def _role_changed(self, before: tuple[Role, int, MemberId | None]) -> None:
        context = self._context
        engine = context.engine
        role, term, leader = self._seen
        context.trace.event("role", role=role.value, term=term, leader=leader)
        if term != before[1]:
            self._elections.term_changed()
        led, leads = before[0] is Role.LEADER, role is Role.LEADER
        if leads and not (led and term == before[1]):
            self._replication.begin_reign()
            self._replication.tick()
            self._proposals.leadership_won()
        elif led and not leads:
            self._replication.end_reign()
            self._elections.leadership_lost()
            self._proposals.leadership_lost(context.now, leader or self._transfer.hint)
        if leader is not None or led:
            self._transfer.leadership_changed() if not leads else None
            self._barriers.leadership_changed()
        engine.tick(context.now)

    def _new_life(self, peer: MemberId) -> None:
        self._replication.forget_data(peer)

    def _quarantine_ended(self) -> None:
        self._elections.rearm()

    def _floor(self) -> int:
        """Return above what this member may not trim its log."""
        if self._context.engine.is_leader:
            return self._replication.trim_floor()
        return self._following.trim_floor

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

    def status(self) -> GroupStatus:
        """Return a frozen picture."""
        context = self._context
        log = context.log
        leads = context.formed and context.engine.is_leader
        offset_ms = self._clocks.offset_ms
        if leads:
            offset_ms = context.clock.wall_ms() - self._replication.group_wall_ms()
        return GroupStatus(
            role=self.role,
            term=self.term,
            leader=self.leader,
            first_index=LogIndex(log.first_index),
            last_index=LogIndex(log.last_index),
            durable_index=LogIndex(log.durable_index),
            commit_index=self.commit_index,
            applied_index=context.machine.applied_index,
            group_id=self._membership.group_id,
            incarnation=self._membership.incarnation.hex(),
            reason=self._reason(),
            peers=self._replication.status(self._membership.recorded),
            clock_offset_ms=offset_ms,
        )

    def _reason(self) -> str:
        context = self._context
        refusals = [f"{peer} refused: {why}" for peer, why in self._membership.refusals.items()]
        parts = [self._stopped or self._membership.reason, *refusals]
        if context.formed and self._clocks.is_off:
            parts.append(f"the clock is {self._clocks.offset_ms} ms off the majority's")
        if context.storage.hangs(context.now):
            parts.append("the disk hangs")
        if context.disk_low:
            parts.append("free disk space is below the low-water mark")
        return "; ".join(part for part in parts if part)
