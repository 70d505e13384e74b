"""Leadership transfer: drain, wait for the target, hand over, or go on as before.

Owns: the stages of one transfer and its time limit. While a transfer is `active`, no entries are
made (`commit/cutting.py`). TimeoutNow is the library's. Stages:

  drain      no new entries are made; everything in the log becomes committed and is applied here,
             so that no proposed call fails (skipped when this member's disk hangs)
  catch up   the target gets everything on its disk; its disk is healthy
  ordered    TimeoutNow is sent; this ends when this member hears of another leader or a new term
"""

import math
from typing import Final

from dledger.raft.api import OnTransferred
from dledger.raft.context import Context
from dledger.raft.leadership.clocks import GroupClock
from dledger.raft.replication.leader import Replication
from dledger.raft.wire.messages import TimeoutNow
from dledger.types import MemberId

HANG_RETRY_SECONDS: Final = 1.0
"""Pause between two attempts to hand over because the disk hangs."""
CLOCK_RETRY_SECONDS: Final = 60.0
"""Pause between two attempts to hand over because the clock is off. Each delays callers."""


class Transfer:
    """At most one transfer at a time."""

    def __init__(self, context: Context, replication: Replication, clocks: GroupClock) -> None:
        self._context = context
        self._clocks = clocks
        self._replication = replication
        self._target: MemberId | None = None
        self._wanted: MemberId | None = None
        self._give_up_at = math.inf
        self._drains = True
        self._ordered_term: int | None = None
        self._done: OnTransferred | None = None
        self._hang_retry_at = 0.0
        self._clock_retry_at = -math.inf
        self.nobody_is_right = False
        """This member leads although its clock is off, and found no member to hand over to."""

    @property
    def active(self) -> bool:
        """No entries are made while this holds."""
        return self._done is not None

    @property
    def hint(self) -> str:
        """The member that probably leads next; empty when none was chosen."""
        return self._target or ""

    def begin(self, target: MemberId | None, done: OnTransferred, *, drains: bool = True) -> None:
        """Start handing over to `target`, or to the best one; `done` is called once."""
        context = self._context
        if not context.engine.is_leader:
            done(False, "this member does not lead")
        elif self.active:
            done(False, "a transfer is under way")
        elif target == context.member:
            done(True, "")  # also a call that is repeated: it is done
        elif target is not None and target not in context.peers:
            done(False, f"target {target!r} is not one of {', '.join(context.peers)}")
        elif not context.peers:
            done(False, "the group has no other member")
        else:
            self._wanted = target
            self._target = None
            self._drains = drains
            self._done = done
            self._ordered_term = None
            self._give_up_at = context.now + context.settings.election_timeout_max
            self.advance()

    def begin_if_disk_hangs(self) -> None:
        """Hand over, again and again, while the own disk does not answer (D17)."""
        context = self._context
        if self.active or context.now < self._hang_retry_at or not context.engine.is_leader:
            return
        if context.peers and context.durability.hangs(context.now):
            self._hang_retry_at = context.now + HANG_RETRY_SECONDS
            context.trace.event("disk_hangs", seconds=context.settings.disk_hang_limit)
            self.begin(None, lambda _done, _reason: None, drains=False)

    def begin_if_clock_is_odd(self) -> None:
        """Hand over to the best follower whose clock is right; go on while there is none (D8)."""
        context, replication = self._context, self._replication
        if not (context.engine.is_leader and self._clocks.is_odd):
            self.nobody_is_right = False
            return
        if self.active or context.now < self._clock_retry_at:
            return
        right = [
            peer
            for peer in replication.transfer_candidates()
            if self._clocks.agrees(peer)
            and replication.peers[peer].match >= context.engine.commit_index
        ]
        if right:
            self._clock_retry_at = context.now + CLOCK_RETRY_SECONDS
            self.begin(right[0], lambda _done, _reason: None)
        elif not self.nobody_is_right:
            context.trace.event("clock_kept", offset_ms=self._clocks.offset_ms())
        self.nobody_is_right = not right

    def advance(self) -> None:
        """Go on as far as the log and the followers allow."""
        context = self._context
        if not self.active or self._ordered_term is not None or not context.engine.is_leader:
            return
        if self._drains and context.machine.applied_index < context.log.last_index:
            return
        candidates = self._replication.transfer_candidates()
        if self._wanted is not None:
            candidates = [peer for peer in candidates if peer == self._wanted]
        if not candidates or not self._replication.all_matched(candidates[0]):
            return
        target = candidates[0]
        if context.engine.order_campaign(target, context.now):
            self._target = target
            self._ordered_term = context.engine.term
            context.send(target, TimeoutNow(context.engine.term))

    def leadership_changed(self) -> None:
        """Another term began: handed over, if it was ordered."""
        context = self._context
        if not self.active:
            return
        if self._ordered_term is None:
            self._finish(done=False, reason="leadership was lost before the hand-over")
        elif context.engine.leader is not None or context.engine.term > self._ordered_term:
            self._finish(done=True, reason=f"handed over to {self._target}")

    def next_deadline(self) -> float:
        """Return when `tick` has something to do."""
        if self.active:
            return self._give_up_at
        hang_at = self._context.durability.hang_at
        if hang_at is None or not self._context.engine.is_leader or not self._context.peers:
            return math.inf
        return max(hang_at, self._hang_retry_at)

    def tick(self) -> None:
        """Give up in time, so that admission resumes."""
        if self.active and self._context.now >= self._give_up_at:
            self._finish(done=False, reason="the target was not ready in time")
        self.begin_if_disk_hangs()
        self.begin_if_clock_is_odd()

    def fail(self, reason: str) -> None:
        """Stop a transfer because the member stops."""
        if self.active:
            self._finish(done=False, reason=reason)

    def _finish(self, *, done: bool, reason: str) -> None:
        call, self._done = self._done, None
        self._give_up_at = math.inf
        self._context.trace.event("transfer", target=self._target, done=done, reason=reason)
        assert call is not None, "no transfer to finish"
        call(done, reason)
