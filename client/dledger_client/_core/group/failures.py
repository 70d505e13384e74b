"""Failures of records, as they are told to home groups. Pure.

Owns: which failures wait, which are on their way, what the answers mean. Not: what the policy of
the group is: the home group decides when a record is delivered again (S105-S112).

A failure that is told twice counts once: it names the attempts that the consumer knows. Until the
home group has answered, the record is not done (S101).

A home group that refuses one failure (too many timers wait, the retry topic has not come there yet)
stops nothing else: the record stays in hand, and its failure is told again after a pause that
doubles up to REST_SECONDS_MAX, for as long as the consumer has the queue. No more failures wait so
than records are in hand (`flow.py`). A queue that is asked back waits for none of them: its next
owner gets the record.
"""

import heapq
import random
from collections import deque
from dataclasses import dataclass, replace
from itertools import islice

from dledger_client._core.group.actions import Action, Failed, FailureRests, Reply
from dledger_client._core.group.calls import QUEUES_PER_CALL, Asked, HomeCalls, Numbers
from dledger_client._core.group.commits import Refused
from dledger_client._core.group.queues import HeldQueue
from dledger_client.errors import code_of, error_of
from dledger_proto.errors import Code
from dledger_proto.v1 import delivery_pb2 as pb

BY_POLICY = -1
"""Delay of a retry: as the group decides."""
TO_DEAD_LETTERS = -2
ERROR_LENGTH_MAX = 1_000
"""Characters of an error's text that are kept."""
PAUSED_SECONDS = 1.0
"""How long nothing is handed out after a failure was refused because the group is paused."""
REST_SECONDS = 0.25
REST_SECONDS_MAX = 30.0
"""Until a failure that was refused is told again: at first, and at most."""
OTHER_KNOWLEDGE = frozenset((Code.INVALID_ARGUMENT, Code.OFFSET_OUT_OF_RANGE))
"""The home group knows something else of the record than this consumer."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One record that its listener did not handle."""

    held: HeldQueue
    offset: int
    attempts: int
    """Before this failure."""
    error: str
    delay_ms: int = BY_POLICY
    refusals: int = 0
    """So often the home group refused it."""


def _text(error: str) -> str:
    """Return a text as it can be sent: short, and without halves of characters."""
    return error[:ERROR_LENGTH_MAX].encode("utf-8", "replace").decode()


class Failures:
    """The failures of one consumer."""

    def __init__(
        self,
        group: str,
        member_id: str,
        numbers: Numbers,
        generator: random.Random,
        actions: list[Action],
    ) -> None:
        self._group = group
        self._member_id = member_id
        self._calls = HomeCalls(numbers, generator, actions)
        self._actions = actions
        self._waiting: dict[str, deque[Failure]] = {}
        self._sent: dict[str, list[Failure]] = {}
        self._resting: list[tuple[float, int, Failure]] = []
        """Refused ones, by when they are told again, and in which order they came."""
        self._refusals = 0
        self._mistaken: dict[tuple[bytes, int], tuple[int, int]] = {}
        """By queue: epoch and offset of the record of which the home group knew something else."""
        self.is_ordered = False
        """A record that failed stays in its queue."""

    def add(self, failure: Failure) -> None:
        """Tell a failure with the next call."""
        self._waiting.setdefault(failure.held.group, deque()).append(failure)

    def pump(self, now: float) -> None:
        """Send what waits."""
        while self._resting and self._resting[0][0] <= now:
            self.add(heapq.heappop(self._resting)[2])
        for group, waiting in list(self._waiting.items()):
            if not self._calls.may_ask(group, now):
                continue
            taken = list(islice(waiting, QUEUES_PER_CALL))
            portion = [failure for failure in taken if failure.held.is_held]
            if portion:
                self._send(group, portion)
            for _ in taken:
                waiting.popleft()
            if not waiting:
                del self._waiting[group]

    def _send(self, group: str, portion: list[Failure]) -> None:
        rows = [
            pb.FailRecordsRequest.Failed(
                queue=failure.held.ref(),
                epoch=failure.held.epoch,
                resets=failure.held.resets,
                offset=failure.offset,
                attempts=failure.attempts,
                error=_text(failure.error),
                delay_ms=failure.delay_ms,
            )
            for failure in portion
        ]
        request = pb.FailRecordsRequest(
            consumer_group=self._group, member_id=self._member_id, records=rows
        )
        self._sent[group] = portion
        self._calls.ask(request, Asked(group, [failure.held for failure in portion]))

    def answered(self, call: int, reply: Reply, now: float) -> list[Refused] | None:
        """Take in an answer; return what was refused, None when it is none of failures."""
        if not self._calls.is_mine(call):
            return None
        assert isinstance(reply, pb.FailRecordsReply), f"{type(reply).__name__} for failures"
        asked = self._calls.taken(call, failed=False, now=now)
        assert asked is not None, f"call {call} is not under way"
        refused: list[Refused] = []
        for failure, row in zip(self._sent.pop(asked.group), reply.rows, strict=True):
            code = code_of(row.code)
            if code is Code.OK:
                self._stored(failure, row, reply.now_ms, now)
            elif self._ends_the_claim(failure, code):
                refused.append(Refused(failure.held, code, row.detail))
            else:
                self._rest(failure, code, row.detail, now)
        return refused

    def _ends_the_claim(self, failure: Failure, code: Code) -> bool:
        """Return whether the queue is lost, or has to be claimed anew.

        A new claim tells what the home group knows. When that does not help, the failure rests.
        """
        if code in OTHER_KNOWLEDGE:
            held = failure.held
            queue, record = (held.topic_id, held.place[1]), (held.epoch, failure.offset)
            is_first = self._mistaken.get(queue) != record
            self._mistaken[queue] = record
            return is_first
        return code in (Code.FENCED, Code.OFFSET_RESET)

    def _rest(self, failure: Failure, code: Code, detail: str, now: float) -> None:
        held = failure.held
        pause = min(REST_SECONDS * 2.0 ** min(failure.refusals, 16), REST_SECONDS_MAX)
        if code is Code.GROUP_PAUSED:
            held.rest_until = now + PAUSED_SECONDS
        elif not failure.refusals:
            self._actions.append(FailureRests(held, failure.offset, error_of(code, detail), pause))
        self._refusals += 1
        again = replace(failure, refusals=failure.refusals + 1)
        heapq.heappush(self._resting, (now + pause, self._refusals, again))

    def _stored(
        self, failure: Failure, row: pb.FailRecordsReply.Row, now_ms: int, now: float
    ) -> None:
        held = failure.held
        if not held.is_held:
            return
        is_done = row.dead or not self.is_ordered
        if is_done:
            held.progress.done(failure.offset)
        again_at = now + max(0, row.due_ms - now_ms) / 1_000
        self._actions.append(Failed(held, failure.offset, row.attempts, is_done, again_at))

    def unanswered(self, call: int, now: float) -> bool:
        """Take in that a call failed; it is made again. False: it was none of these."""
        asked = self._calls.taken(call, failed=True, now=now)
        if asked is None:
            return False
        self._waiting.setdefault(asked.group, deque()).extendleft(
            reversed(self._sent.pop(asked.group))
        )
        return True

    def is_waiting(self, held: HeldQueue) -> bool:
        """Return whether a failure of this queue is on its way; those that rest are not."""
        if any(failure.held is held for failure in self._sent.get(held.group, ())):
            return True
        return any(failure.held is held for failure in self._waiting.get(held.group, ()))

    def next_deadline(self, now: float) -> float | None:
        """Return when `pump` has to be called next."""
        times = self._calls.pauses(now)
        if self._resting:
            times.append(self._resting[0][0])
        return min(times, default=None)
