"""A consumer in a group, without I/O: session, claims, commits, failures. Pure.

Owns: the life of each granted queue (`queues.py`). Not: what is fetched (`_core/consumer/`), what
runs when (`dispatch.py`), streams and calls (`_shell/group/`).

How to drive it, as `ProducerCore`: call an input, carry out `take_actions()`. Rules:
- a queue is read only while it is claimed, and while its lease lasts;
- a revoked queue is given back after `let_go`, its last commit, and the end of its claim, in this
  order; another grant of the same queue waits until the one before is gone;
- whatever belongs to an older claim changes nothing of a newer one.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dledger_client._core.consumer.state import Place
from dledger_client._core.group.actions import (
    Action,
    Ended,
    Joined,
    Reply,
    StartQueue,
    StopQueue,
    Why,
)
from dledger_client._core.group.calls import Numbers
from dledger_client._core.group.claims import Claims, Outcome
from dledger_client._core.group.commits import Commits, Refused
from dledger_client._core.group.failures import Failure, Failures
from dledger_client._core.group.queues import HeldQueue, QueueState
from dledger_client._core.group.session import Session, SessionState
from dledger_client._core.members import MemberChoice
from dledger_client._core.routes import RouteChange, RouteTable
from dledger_client.errors import client_error, code_of, error_of
from dledger_proto.errors import MEANINGS, Code, DledgerError
from dledger_proto.v1 import delivery_pb2 as pb

REFUSED_SECONDS: Final = 1.0
"""Until a queue is claimed again of which the home group refused something unexpected."""


class GroupCore:
    """One consumer of a consumer group."""

    def __init__(
        self,
        join: pb.Join,
        routes: RouteTable,
        members: MemberChoice,
        generator: random.Random,
        *,
        commit_interval: float,
    ) -> None:
        self._actions: list[Action] = []
        numbers = Numbers()
        group, member = join.consumer_group, join.member_id
        self._session = Session(join, routes, members, generator, self._actions)
        self._claims = Claims(group, member, numbers, generator, self._actions)
        self._commits = Commits(group, member, numbers, generator, self._actions, commit_interval)
        self._failures = Failures(group, member, numbers, generator, self._actions)
        self._held: dict[tuple[bytes, int], HeldQueue] = {}
        self._next: dict[tuple[bytes, int], pb.GrantedQueue] = {}
        """Granted while an older claim of the queue is still being given back."""
        self._let_go: set[HeldQueue] = set()
        self.is_closing = False
        self.ended: Ended | None = None

    # What is held.

    def queues(self) -> list[HeldQueue]:
        """Return all granted queues, whatever their state."""
        return list(self._held.values())

    def serving(self, place: Place) -> HeldQueue | None:
        """Return the claim of a queue that is read now."""
        for held in self._held.values():
            if held.place == place and held.state is QueueState.SERVING:
                return held
        return None

    @property
    def is_joined(self) -> bool:
        """True: the session stands."""
        return self._session.state is SessionState.JOINED

    # The session.

    def begin(self, coordinator: str, now: float) -> None:
        """Join the group."""
        self._session.begin(coordinator, now)
        self.pump(now)

    def session_reply(self, stream: int, reply: pb.SessionReply, now: float) -> None:
        """Take in what the coordinator says; older streams are not heard any more."""
        if stream != self._session.stream or self._session.state is SessionState.OVER:
            return
        match reply.WhichOneof("what"):
            case "joined":
                self._session.joined(reply.joined.group.settings.session_ms or 10_000, now)
                self._failures.is_ordered = reply.joined.group.settings.order != 0
                self._actions.append(Joined(reply.joined.group))
            case "assignment":
                self._assigned(reply.assignment.queues, now)
            case "nudge":
                for held in self._held.values():
                    held.renew_at = min(held.renew_at, now)
            case "ended":
                self._session_ended(reply.ended, now)
            case _:
                pass
        self.pump(now)

    def session_down(self, stream: int, error: DledgerError, now: float) -> None:
        """Take in that a stream ended; the consumer joins again and keeps what it holds."""
        if stream == self._session.stream and self._session.state is not SessionState.OVER:
            meaning = MEANINGS[error.code]
            is_final = meaning.definite and not meaning.retriable
            if is_final and not self._session.is_early(error.code, now):
                self._end(error, now)
            else:
                self._session.down(error, now)
            self.pump(now)

    def _session_ended(self, ended: pb.Ended, now: float) -> None:
        code = code_of(ended.code)
        error = error_of(code, ended.detail)
        if code is Code.SESSION_ENDED:
            for held in list(self._held.values()):
                self._lose(held, code)
            self._next.clear()
            self._session.rejoin(now)
        elif MEANINGS[code].retriable or not MEANINGS[code].definite:
            self._session.down(error, now)
        else:
            self._end(error, now)

    def _end(self, error: DledgerError, now: float) -> None:
        """Stop for good: the coordinator does not take this consumer."""
        if error.code is Code.SESSION_ENDED:
            self._session_ended(pb.Ended(code=error.code, detail=error.detail), now)
            return
        for held in list(self._held.values()):
            self._lose(held, error.code)
        self._session.end()
        self.ended = Ended(client_error(error))
        self._actions.append(self.ended)

    def _assigned(self, granted: Sequence[pb.GrantedQueue], now: float) -> None:
        """Take in everything that this consumer holds now (S97)."""
        if self.is_closing:
            return
        told = {(each.topic_id, each.queue): each for each in granted}
        for key, held in list(self._held.items()):
            grant = told.get(key)
            if grant is None or grant.epoch != held.epoch:
                if held.is_held or held.state is QueueState.CLAIMING:
                    self._lose(held, Code.FENCED)
            elif grant.revoked:
                self._revoke(held)
        self._next = {}
        gone: list[HeldQueue] = []
        for key, grant in told.items():
            known = self._held.get(key)
            if known is not None:
                if known.epoch != grant.epoch:
                    self._next[key] = grant
                continue
            held = _held_of(grant)
            if grant.revoked:
                gone.append(held)
            else:
                self._held[key] = held
        self._session.give_back(gone)
        self.pump(now)

    def _revoke(self, held: HeldQueue) -> None:
        if held.state is QueueState.CLAIMING:
            if held.is_asking:
                held.was_revoked = True
            else:
                held.state = QueueState.GONE
        elif held.state is QueueState.SERVING:
            held.state = QueueState.LEAVING
            self._actions.append(StopQueue(held, Why.REVOKED))

    def let_go(self, held: HeldQueue, now: float) -> None:
        """Say that nothing of a revoked queue is in hand any more: commit it and give it back."""
        if held.state is QueueState.LEAVING:
            self._let_go.add(held)
            self.pump(now)

    def _lose(self, held: HeldQueue, code: Code) -> None:
        """Drop a claim that is over: nothing of it is committed any more."""
        was_read = held.is_held
        held.state = QueueState.GONE
        self._let_go.discard(held)
        self._commits.lost(held, code)
        if self._held.get((held.topic_id, held.place[1])) is held:
            del self._held[held.topic_id, held.place[1]]
        if was_read:
            self._actions.append(StopQueue(held, Why.LOST))

    # Answers of home groups.

    def answered(self, call: int, reply: Reply, now: float) -> None:
        """Take in the answer of a call."""
        outcomes = self._claims.answered(call, reply, now)
        if outcomes is not None:
            for outcome in outcomes:
                self._claimed(outcome)
        else:
            refused = self._commits.answered(call, reply, now)
            if refused is None:
                refused = self._failures.answered(call, reply, now)
            for each in refused or ():
                self._refused(each, now)
        self.pump(now)

    def unanswered(self, call: int, now: float) -> None:
        """Take in that a call failed, or that nobody knows what became of it: it is made again."""
        is_known = (
            self._claims.unanswered(call, now)
            or self._commits.unanswered(call, now)
            or self._failures.unanswered(call, now)
        )
        assert is_known, f"call {call} is not under way"
        self.pump(now)

    def _claimed(self, outcome: Outcome) -> None:
        held = outcome.held
        if outcome.is_lost:
            self._lose(held, Code.FENCED)
        elif outcome.is_new and (held.was_revoked or self.is_closing):
            held.state = QueueState.RELEASING
        elif outcome.is_new:
            self._actions.append(StartQueue(held, outcome.floor))
        elif outcome.was_reset:
            self._start_again(held, Code.OFFSET_RESET)
        elif held.was_revoked and held.state is QueueState.CLAIMING:
            held.state = QueueState.GONE

    def _refused(self, refused: Refused, now: float) -> None:
        held = refused.held
        if not held.is_held:
            return
        if refused.is_lost:
            self._lose(held, refused.code)
        elif refused.code is Code.OFFSET_RESET:
            held.renew_at = now  # claim again: the answer tells of the reset
        else:
            # The home group knows something else of the queue: begin anew with what it knows.
            again = self._start_again(held, refused.code)
            if again is not None:
                again.renew_at = now + REFUSED_SECONDS

    def _start_again(self, held: HeldQueue, code: Code) -> HeldQueue | None:
        """Drop what is in hand of a queue whose offset was reset, and claim it anew (S113)."""
        self._commits.lost(held, code)
        self._let_go.discard(held)
        was_serving = held.state is QueueState.SERVING
        held.state = QueueState.GONE
        if not was_serving:
            return None
        again = HeldQueue(held.place, held.topic_id, held.group, held.epoch)
        self._held[held.topic_id, held.place[1]] = again
        self._actions.append(StopQueue(held, Why.RESET))
        return again

    # Progress.

    def fail(self, failure: Failure, now: float) -> None:
        """Tell a failure; `Failed` answers, unless the queue is lost."""
        if failure.held.is_held:
            self._failures.add(failure)
            self._failures.pump(now)

    def commit(self, queues: Iterable[HeldQueue], now: float) -> int:
        """Commit what is done of queues now; `CommitDone` with the returned number answers."""
        ticket = self._commits.request({held: held.progress.changes for held in queues})
        self.pump(now)
        return ticket

    def claim_again(self, places: Iterable[Place], now: float) -> None:
        """Learn of resets that this consumer has made itself."""
        for place in places:
            held = self.serving(place)
            if held is not None:
                held.renew_at = now
        self.pump(now)

    # The end.

    def close(self, now: float) -> None:
        """Let go of everything: once it is committed and released, `leave` frees all of it.

        Until then nothing is given back: the coordinator would grant it to this consumer again.
        """
        self.is_closing = True
        self._next.clear()
        for held in list(self._held.values()):
            self._revoke(held)
        self.pump(now)

    @property
    def is_empty(self) -> bool:
        """True: nothing is held any more."""
        return not self._held

    def leave(self) -> None:
        """Leave the group."""
        self._session.leave()

    # Time.

    def pump(self, now: float) -> None:
        """Do what is due. Called by every input."""
        self._session.pump(now)
        self._commits.pump(self._held.values(), now)
        self._failures.pump(now)
        for held in list(self._held.values()):
            if held.is_held and now >= held.lease_end:
                self._lease_over(held)
            elif held in self._let_go and not held.is_dirty and not self._is_failing(held):
                self._let_go.discard(held)
                held.state = QueueState.RELEASING
        self._claims.pump(self._held.values(), now)
        self._drop_gone()

    def _is_failing(self, held: HeldQueue) -> bool:
        return self._failures.is_waiting(held)

    def _lease_over(self, held: HeldQueue) -> None:
        """Stop before the lease ends; while the grant lasts, the queue is claimed again."""
        self._lose(held, Code.FENCED)
        if not self.is_closing:
            again = HeldQueue(held.place, held.topic_id, held.group, held.epoch)
            self._held[held.topic_id, held.place[1]] = again

    def _drop_gone(self) -> None:
        gone = [held for held in self._held.values() if held.state is QueueState.GONE]
        for held in gone:
            key = (held.topic_id, held.place[1])
            del self._held[key]
            grant = self._next.pop(key, None)
            if grant is not None and not grant.revoked:
                self._held[key] = _held_of(grant)
        if not self.is_closing:
            self._session.give_back(gone)

    def tick(self, now: float) -> None:
        """Let time pass."""
        self.pump(now)

    def routes_changed(self, change: RouteChange, now: float) -> None:
        """Take in what changed in the routes."""
        self._session.leader_changed(change, now)
        self.pump(now)

    def member_ready(self, address: str, now: float, *, is_ready: bool) -> None:
        """Take in whether a connection to a member stands."""
        del address, is_ready
        self.pump(now)

    def next_deadline(self, now: float) -> float | None:
        """Return when `tick` has to be called next."""
        times = [
            self._session.next_deadline(),
            self._claims.next_deadline(self._held.values(), now),
            self._commits.next_deadline(now),
            self._failures.next_deadline(now),
        ]
        return min((time for time in times if time is not None), default=None)

    def take_actions(self) -> list[Action]:
        """Return what the driver has to do now, in order."""
        taken = list(self._actions)
        self._actions.clear()
        return taken

    def committed(self) -> Mapping[Place, int]:
        """Return the floor of each queue that is held."""
        return {held.place: held.progress.floor for held in self._held.values() if held.is_held}


def _held_of(grant: pb.GrantedQueue) -> HeldQueue:
    return HeldQueue((grant.topic, grant.queue), grant.topic_id, grant.broker_group, grant.epoch)
