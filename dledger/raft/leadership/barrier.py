"""Read barriers: up to which index must a reader have applied, to see all that was acknowledged?

Owns: the rounds of a leader, in which numbered requests are answered by a majority in the current
term (F16), the questions of a follower to its leader, and their time limit. Barriers that arrive
while a round is under way share the next one. Does not own what readers do with the index.
"""

import math
from typing import Final, NamedTuple

from dledger.raft.api import OnBarrier
from dledger.raft.context import Context
from dledger.raft.replication.leader import Replication
from dledger.raft.wire.messages import BarrierAnswer, BarrierRequest
from dledger.types import LogIndex, MemberId

BARRIERS_MAX: Final = 10_000
"""Waiting on one member; beyond it a barrier is refused."""
TIMEOUT_SHARE: Final = 2.0
"""A barrier waits for so many longest election timeouts."""


class _Waiting(NamedTuple):
    done: OnBarrier
    give_up_at: float
    asker: MemberId | None = None
    """Another member; None: a caller on this one."""
    without: MemberId | None = None
    """A quarantined member that asks. It does not count for its own barrier (D18 c)."""


class _Round(NamedTuple):
    read_index: int
    thresholds: dict[MemberId, int]
    """Of each peer: the first request number that was sent after the round began."""
    confirmed: set[MemberId]
    waiting: list[_Waiting]


class Barriers:
    """All barriers of a member, leader or not."""

    def __init__(self, context: Context, replication: Replication) -> None:
        self._context = context
        self._replication = replication
        self._queue: list[_Waiting] = []
        self._round: _Round | None = None
        self._number = context.first_number
        self._asked: list[_Waiting] = []
        """Follower: covered by the request of `_number` that is out."""
        self._ask_again_at = math.inf
        self._served: dict[MemberId, int] = {}
        """Leader: per peer the number it is being served for; repetitions of it are one."""

    def add(
        self,
        done: OnBarrier,
        asker: MemberId | None = None,
        without: MemberId | None = None,
    ) -> None:
        """Take a barrier; `done` is called once, here or later."""
        context = self._context
        if len(self._queue) >= BARRIERS_MAX:
            done(None, f"{BARRIERS_MAX} read barriers are waiting already")
            return
        limit = TIMEOUT_SHARE * context.settings.election_timeout_max
        self._queue.append(_Waiting(done, context.now + limit, asker, without))
        self.advance()

    def advance(self) -> None:
        """Begin what can begin; called whenever role, leader or commit index changed."""
        if not self._queue:
            return
        context = self._context
        engine = context.engine
        if engine.is_leader:
            if self._round is None and self._own_entry_committed():
                self._begin_round()
        elif not self._asked and engine.leader is not None:
            self._asked, self._queue = self._queue, []
            self._number += 1
            self._ask()

    def _own_entry_committed(self) -> bool:
        """Tell whether this leader knows all that earlier leaders have acknowledged."""
        context = self._context
        commit_index = LogIndex(context.engine.commit_index)
        return context.log.term_at(commit_index) == context.engine.term

    def _begin_round(self) -> None:
        replication = self._replication
        thresholds = {peer: each.number + 1 for peer, each in replication.peers.items()}
        waiting, self._queue = self._queue, []
        self._round = _Round(self._context.engine.commit_index, thresholds, set(), waiting)
        replication.heartbeat()
        self._finish_if_confirmed()

    def on_answer(self, peer: MemberId, number: int) -> None:
        """A counted answer of this reign came in."""
        current = self._round
        if current is not None and number >= current.thresholds[peer]:
            current.confirmed.add(peer)
            self._finish_if_confirmed()

    def _finish_if_confirmed(self) -> None:
        current = self._round
        assert current is not None, "no round to finish"
        if len(current.confirmed) + 1 < self._context.majority:
            return
        self._round = None
        for waiting in current.waiting:
            others = current.confirmed - {waiting.without}
            if len(others) + 1 >= self._context.majority:
                waiting.done(LogIndex(current.read_index), "")
            else:
                self._queue.append(waiting)
        self.advance()

    # Between members.

    def _ask(self) -> None:
        context = self._context
        self._ask_again_at = context.now + context.settings.heartbeat
        leader = context.engine.leader
        if leader is not None:
            context.send(leader, BarrierRequest(self._number, context.quarantined))

    def on_request(self, sender: MemberId, message: BarrierRequest) -> None:
        """Serve another member; a repeated request joins the one that is being served."""
        context = self._context
        if not context.engine.is_leader or self._served.get(sender) == message.number:
            return
        self._served[sender] = message.number
        number = message.number

        def answer(index: LogIndex | None, _reason: str) -> None:
            if self._served.get(sender) == number:
                del self._served[sender]
            context.send(
                sender,
                BarrierAnswer(number, context.engine.term, index or 0, index is not None),
            )

        if message.quarantined:
            self._replication.peers[sender].quarantined = True
        self.add(answer, sender, sender if message.quarantined else None)

    def on_barrier_answer(self, message: BarrierAnswer) -> None:
        """The leader knows the index for everybody who asked."""
        if message.number != self._number or not message.confirmed:
            return
        asked, self._asked = self._asked, []
        self._ask_again_at = math.inf
        for waiting in asked:
            waiting.done(LogIndex(message.index), "")
        self.advance()

    # Ends.

    def leadership_changed(self) -> None:
        """End the round of a reign. Its barriers wait for the next leader, within their time."""
        everything = self._take_all()
        self._ask_again_at = math.inf
        self._served.clear()
        self._queue = [each for each in everything if each.asker is None]
        for waiting in everything:
            if waiting.asker is not None:
                waiting.done(None, "leadership changed")  # it asks the next leader itself
        self.advance()

    def fail(self, reason: str) -> None:
        """Refuse everything that waits."""
        for waiting in self._take_all():
            waiting.done(None, reason)

    def _take_all(self) -> list[_Waiting]:
        in_round = [] if self._round is None else self._round.waiting
        everything = in_round + self._asked + self._queue
        self._asked, self._queue, self._round = [], [], None
        return everything

    def next_deadline(self) -> float:
        """Return when `tick` has something to do."""
        lists = (self._asked, self._queue, [] if self._round is None else self._round.waiting)
        give_up = min((each[0].give_up_at for each in lists if each), default=math.inf)
        return min(self._ask_again_at, give_up)

    def tick(self) -> None:
        """Give up on what waits too long, ask again."""
        now = self._context.now
        late: list[_Waiting] = []
        self._asked = _without_late(self._asked, now, late)
        self._queue = _without_late(self._queue, now, late)
        if self._round is not None:
            kept = _without_late(self._round.waiting, now, late)
            self._round = self._round._replace(waiting=kept) if kept else None
        if not self._asked:
            self._ask_again_at = math.inf
        elif now >= self._ask_again_at:
            self._ask()
        for waiting in late:
            waiting.done(None, "no majority confirmed the leader in time")
        self.advance()


def _without_late(waiting: list[_Waiting], now: float, late: list[_Waiting]) -> list[_Waiting]:
    if not waiting or waiting[0].give_up_at > now:
        return waiting
    late += [each for each in waiting if each.give_up_at <= now]
    return [each for each in waiting if each.give_up_at > now]
