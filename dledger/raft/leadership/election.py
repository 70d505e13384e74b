"""When a member campaigns, and whom it answers: timers, pre-vote, votes, a lost leader.

Owns: the election timer and its randomness, pre-vote with leader stickiness (L1), the pause guard
(L2), campaigns on a broken connection (D17), repetition of unanswered requests (L12), refusal while
the disk hangs, in quarantine, or with a clock that is off (D8). The vote itself is the library's:
this module decides only whether the core is asked. What a vote must wait for is in `gate.py`.

A campaign, from quiet to won:

  timer, or leader lost --pre-vote to all--> majority would vote --core: term + 1, own vote-->
  vote requests leave when that is on disk --majority voted--> the core leads

A round that can no longer win is repeated after 0 to `campaign_jitter`, at most QUICK_ROUNDS_MAX
times in a row, then after a full timeout: a lone member in a partition stays quiet.
"""

import math
from typing import Final

from dledger.raft.context import Context
from dledger.raft.gate import VoteTally
from dledger.raft.wire.messages import PreVote, PreVoteAnswer, TermNotice, VoteAnswer, VoteRequest
from dledger.types import MemberId

QUICK_ROUNDS_MAX: Final = 5
CLOCK_OFF_TIMEOUTS: Final = 2
"""A member whose clock is off waits so many longest timeouts before it campaigns."""
GUARD_SHARE: Final = 0.59
"""A member that did not run for this share of a timeout was paused (L2). The rest of the timeout
covers the longest time between two heartbeats."""
ANSWERS_SHARE: Final = 0.75
"""How old a majority's answers may be when a leader's pause begins, as a share of the shortest
timeout: a quiet heartbeat takes 0.41 of it, the rest is time for the next answers."""
LOOK_SHARE: Final = 0.75
"""A member without any input looks at the clock after this share of that time, so it sees it runs.
Quiet heartbeats come more often, so a member that hears them need not look."""


class Elections:
    """Timers and tallies of one member. Invariant: at most one of the two tallies is open."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._deadline = math.inf
        self._contact_at = -math.inf
        """When a current leader was last heard; -inf when this member knows none."""
        self._lost_at: float | None = None
        """The link to the leader broke; at this time it counts as lost (D17)."""
        self._gone_at = -math.inf
        """When a leader was lost whose last messages may still arrive (D17)."""
        self._voted_at = -math.inf
        """When this member last voted for another."""
        self._is_doubted = False
        """Messages of a lost leader came; they may be its last, so `_lost_at` stands."""
        self._number = context.first_number
        self._pre_vote: VoteTally | None = None
        self._vote: VoteTally | None = None
        self._round_term = -1
        """The term in which the open tally was begun. In any other term the tally is void."""
        self._resend_at = math.inf
        self._eager = False
        """The leader is known to be lost: a refused pre-vote is repeated quickly, too."""
        self._quick_left = QUICK_ROUNDS_MAX
        self._quick_round = False
        self._alone_version: int | None = None
        """The hard state with the vote of a group of one for itself, on its way to disk."""
        self._waited_for_clocks = False
        self.clock_is_off = False
        self._last_input = context.now

    # Time.

    def rearm(self) -> None:
        """Wait a full random timeout again."""
        settings = self._context.settings
        self._deadline = self._context.now + self._context.random.uniform(
            settings.election_timeout_min, settings.election_timeout_max
        )

    def _rearm_quickly(self) -> None:
        context = self._context
        self._quick_left -= 1
        self._quick_round = True
        self._deadline = context.now + context.random.uniform(0.0, context.settings.campaign_jitter)

    @property
    def _paused_after(self) -> float:
        context = self._context
        shortest = context.settings.election_timeout_min
        if not (context.formed and context.engine.is_leader):
            return shortest * GUARD_SHARE
        longest = context.settings.election_timeout_max  # it judges by check-quorum (L3)
        return min(longest * GUARD_SHARE, longest - shortest * ANSWERS_SHARE)

    def guard_pause(self) -> bool:
        """Note an input; True when this process did not run for too long before it (L2).

        Messages that arrived meanwhile are still unread. So the silence of a leader or of a
        majority proves nothing, and timers start anew.
        """
        context = self._context
        gap = context.now - self._last_input
        self._last_input = context.now
        if gap <= self._paused_after:
            return False
        context.trace.event("paused", gap_seconds=gap)
        if self._lost_at is None:
            self.rearm()
        if context.formed:
            context.engine.excuse_silence(context.now)
        return True

    def next_deadline(self) -> float:
        """Return when `tick` has something to do."""
        guard = self._last_input + self._paused_after * LOOK_SHARE
        if self._context.engine.is_leader:
            return guard
        lost = math.inf if self._lost_at is None else self._lost_at
        return min(self._deadline, self._resend_at, lost, guard)

    def tick(self) -> None:
        """Do what is due."""
        context = self._context
        now = context.now
        if context.engine.is_leader:
            return
        if self._lost_at is not None and now >= self._lost_at:
            self._lose_leader("no answer to the redial")
        if now >= self._deadline:
            self._campaign_is_due()
        elif now >= self._resend_at:
            self._ask_again()

    # Who leads.

    def leader_heard(self, leader: MemberId) -> None:
        """An append message of the current leader was taken."""
        self._contact_at = self._context.now
        self._close()
        self._eager = self._quick_round = False
        self._doubt_if_late(leader)
        if not self._is_doubted:
            self._lost_at = None
        self._waited_for_clocks = False
        self.rearm()

    def _doubt_if_late(self, leader: MemberId) -> None:
        """Give a leader that was lost a moment ago until the redial's limit to prove it lives.

        What it sent before it died may arrive after its redial was refused. Without this doubt a
        follower would believe in it for a whole election timeout. A leader that still speaks after
        the limit is believed: `_lose_leader` ends the doubt.
        """
        context = self._context
        redial = context.settings.link_loss_redial
        late = context.now - self._gone_at <= redial and leader not in context.outbox.up
        if late and not self._is_doubted:
            self._is_doubted = True
            self._lost_at = context.now + redial
        self._gone_at = -math.inf

    def link_down(self, peer: MemberId) -> None:
        """The link to a peer broke. A leader has until the redial's limit to come back."""
        context = self._context
        if context.engine.leader == peer and self._lost_at is None:
            self._lost_at = context.now + context.settings.link_loss_redial

    def link_up(self, peer: MemberId) -> None:
        """The link stands again."""
        if self._context.engine.leader == peer:
            self._lost_at = None
            self._is_doubted = False

    def dial_failed(self, peer: MemberId) -> None:
        """The first dial after a link was refused, or not answered in time (D17)."""
        context = self._context
        if peer == context.journal.vote:
            self._voted_at = -math.inf  # it is gone: no words of it are on their way
        if context.engine.leader == peer:
            self._lose_leader("redial failed")

    def _lose_leader(self, why: str) -> None:
        context = self._context
        context.trace.event("leader_lost", peer=context.engine.leader, why=why)
        self._lost_at = None
        self._gone_at = -math.inf if self._is_doubted else context.now
        self._is_doubted = False
        self._contact_at = -math.inf
        context.engine.forget_leader()
        if self._may_campaign() and self._vote is None:
            self._close()
            self._eager = True
            self._quick_left = QUICK_ROUNDS_MAX
            self._rearm_quickly()

    # Campaigning.

    def _may_campaign(self) -> bool:
        context = self._context
        return not (context.quarantined or context.durability.hangs(context.now))

    def _campaign_is_due(self) -> None:
        context = self._context
        if not self._quick_round:
            self._quick_left = QUICK_ROUNDS_MAX
        self._quick_round = False
        self._close()
        if not self._may_campaign():
            self.rearm()
            return
        if self.clock_is_off and not self._waited_for_clocks:
            self._waited_for_clocks = True
            longest = context.settings.election_timeout_max
            self._deadline = context.now + CLOCK_OFF_TIMEOUTS * longest
            return
        self._number += 1
        self._pre_vote = VoteTally(self._number, context.member, len(context.settings.members))
        self._round_term = context.engine.term
        self.rearm()
        if self._pre_vote.won:
            # A group of one leads the moment it campaigns, so its vote goes to disk before.
            context.durability.set_term(context.engine.term + 1, context.member)
            self._alone_version = context.durability.version
            return
        self._ask_again()

    def _ask_again(self) -> None:
        """Send the open request to those who have not answered it, with the same number (L12)."""
        context = self._context
        log = context.log
        tally = self._pre_vote or self._vote
        if tally is None:
            self._close()
            return
        self._resend_at = context.now + context.settings.heartbeat
        for peer in context.peers:
            if peer in tally.granted or peer in tally.refused:
                continue
            term = context.engine.term
            if self._pre_vote is not None:
                context.send(peer, PreVote(tally.number, term + 1, log.last_index, log.last_term))
            else:
                request = VoteRequest(tally.number, term, log.last_index, log.last_term)
                self._when_durable(peer, request)
        self._give_up_if_hopeless()

    def storage_moved(self) -> None:
        """A round is on disk: a group of one may lead now."""
        durable = self._context.durability.durable_version
        if self._alone_version is not None and durable >= self._alone_version:
            self._alone_version = None
            self.campaign("alone")

    def campaign(self, why: str) -> None:
        """Begin a new term at once. Vote requests leave when this member's vote is on disk."""
        context = self._context
        self._close()
        self._lost_at = None
        self._contact_at = -math.inf
        self.rearm()
        if not context.engine.campaign(context.now):
            return
        context.trace.event("campaign", term=context.engine.term, why=why)
        if context.engine.is_leader:
            return
        self._number += 1
        self._vote = VoteTally(self._number, context.member, len(context.settings.members))
        self._round_term = context.engine.term
        self._ask_again()

    def _close(self) -> None:
        self._pre_vote = self._vote = None
        self._resend_at = math.inf

    def term_changed(self) -> None:
        """Drop a round that was begun in another term, and ask again soon."""
        if self._round_term != self._context.engine.term and (self._pre_vote or self._vote):
            self._close()
            if self._quick_left > 0:
                self._rearm_quickly()

    def _give_up_if_hopeless(self) -> None:
        """Repeat a round that cannot win any more, quickly if that may help."""
        tally = self._pre_vote or self._vote
        if tally is None or tally.won or not tally.hopeless(self._context.outbox.up):
            return
        quickly = self._eager or self._vote is not None
        self._close()
        if quickly and self._quick_left > 0:
            self._rearm_quickly()
        else:
            self._eager = False

    def _when_durable(self, target: MemberId, message: VoteRequest | VoteAnswer) -> None:
        context = self._context
        context.gate.hold(
            target,
            message,
            term=context.engine.term,
            hard_version=context.durability.version,
            log_index=0,
        )

    # What others ask.

    def on_pre_vote(self, sender: MemberId, message: PreVote) -> None:
        """Say whether a vote would be given; nothing changes by it."""
        context = self._context
        term = context.engine.term
        if message.term <= term:
            context.send(sender, TermNotice(term))
            return
        heard = context.now - self._contact_at < context.settings.election_timeout_min
        granted = not (
            context.quarantined
            or context.engine.is_leader
            or heard
            or self._has_just_elected(sender)
            or not self._is_complete(message.last_index, message.last_term)
        )
        context.send(sender, PreVoteAnswer(message.number, term, granted))

    def _has_just_elected(self, asks: MemberId) -> bool:
        """Return whether the first words of a member that this one voted for may be on their way.

        Of two candidates at once one wins. Without this the other may depose it a moment later.
        """
        context = self._context
        journal = context.journal
        if journal.term != context.engine.term or journal.vote in (None, context.member, asks):
            return False
        return context.now - self._voted_at < context.settings.link_loss_redial

    def _is_complete(self, last_index: int, last_term: int) -> bool:
        log = self._context.log
        return (last_term, last_index) >= (log.last_term, log.last_index)

    def on_pre_vote_answer(self, sender: MemberId, message: PreVoteAnswer) -> None:
        """Count who would vote; a majority makes this member a candidate."""
        context = self._context
        context.engine.adopt_term(sender, message.term, context.now)
        tally = self._pre_vote
        if tally is None or (tally.number, self._round_term) != (
            message.number,
            context.engine.term,
        ):
            return
        tally.add(sender, granted=message.granted)
        if not tally.won:
            self._give_up_if_hopeless()
        elif self._may_campaign():
            self.campaign("pre-vote won")

    def on_vote_request(self, sender: MemberId, message: VoteRequest) -> None:
        """Let the core vote, and answer; a vote given before is told again (L12)."""
        context = self._context
        engine = context.engine
        if message.term < engine.term:
            context.send(sender, TermNotice(engine.term))
            return
        if context.quarantined:
            engine.adopt_term(sender, message.term, context.now)
            granted = False
        elif (context.journal.term, context.journal.vote) == (message.term, sender):
            granted = True
        else:
            granted = engine.vote_request(
                sender, message.term, message.last_index, message.last_term, context.now
            )
            if granted:
                context.trace.event("vote", candidate=sender, term=message.term)
                self._voted_at = context.now
                self._close()
                self.rearm()
        answer = VoteAnswer(message.number, message.term, engine.term, granted)
        if granted:
            self._when_durable(sender, answer)
        else:
            context.send(sender, answer)

    def on_vote_answer(self, sender: MemberId, message: VoteAnswer) -> None:
        """Hand a voter's first grant to the core (F8)."""
        context = self._context
        engine = context.engine
        engine.adopt_term(sender, message.voter_term, context.now)
        tally = self._vote
        if tally is None or not engine.term == self._round_term == message.term:
            return
        if tally.number != message.number:
            return
        if tally.add(sender, granted=message.granted):
            engine.vote_granted(sender, message.term, context.now)
        if engine.is_leader:
            self._close()
        else:
            self._give_up_if_hopeless()

    def on_timeout_now(self, sender: MemberId, term: int) -> None:
        """Campaign at once, without pre-vote, if the current leader says so."""
        context = self._context
        if self._may_campaign() and context.engine.timeout_now(sender, term, context.now):
            self.campaign(f"{sender} hands over")

    def leadership_lost(self) -> None:
        """Be a follower that has not heard of a leader yet."""
        self._close()
        self._contact_at = -math.inf
        self.rearm()
