"""Commits of what is done: every so often, by hand, and before a queue is given back. Pure.

Owns: which queues are committed when, what the answers mean. Not: what is done (`progress.py`).

One commit is under way to a home group at a time, so commits of a queue arrive in order. A commit
of unknown outcome is sent again: the floor never goes back, so a second copy changes nothing.
"""

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from dledger_client._core.group.actions import Action, CommitDone, Reply
from dledger_client._core.group.calls import QUEUES_PER_CALL, Asked, HomeCalls, Numbers
from dledger_client._core.group.progress import RANGES_MAX
from dledger_client._core.group.queues import HeldQueue, QueueState
from dledger_client.errors import ClientError, code_of, error_of
from dledger_proto.errors import MEANINGS, Code
from dledger_proto.v1 import broker_pb2 as pb

AGAIN: Final = frozenset(
    code for code, meaning in MEANINGS.items() if meaning.retriable or not meaning.definite
)
"""What is refused so, or whose outcome nobody knows, is sent again after a pause."""


_GONE: Final = frozenset(
    (Code.FENCED, Code.TOPIC_NOT_FOUND, Code.QUEUE_NOT_FOUND, Code.CONSUMER_GROUP_NOT_FOUND)
)


@dataclass(frozen=True, slots=True)
class Refused:
    """A commit, or a failure, that the home group did not take."""

    held: HeldQueue
    code: Code
    detail: str = ""

    @property
    def is_lost(self) -> bool:
        """True: the queue belongs to somebody else, or is gone."""
        return self.code in _GONE


class Commits:
    """The commits of one consumer."""

    def __init__(
        self,
        group: str,
        member_id: str,
        numbers: Numbers,
        generator: random.Random,
        actions: list[Action],
        interval: float,
    ) -> None:
        self._group = group
        self._member_id = member_id
        self._interval = interval
        """Seconds; 0: only by hand."""
        self._next_at = 0.0
        self._calls = HomeCalls(numbers, generator, actions)
        self._actions = actions
        self._tickets: dict[int, dict[HeldQueue, int]] = {}
        self._last_ticket = 0

    def request(self, queues: Mapping[HeldQueue, int]) -> int:
        """Ask for a commit of each queue's progress as of `changes`; return a number for it."""
        self._last_ticket += 1
        waiting = {held: changes for held, changes in queues.items() if held.committed < changes}
        self._tickets[self._last_ticket] = waiting
        if not waiting:
            self._end(self._last_ticket, None)
        return self._last_ticket

    def _end(self, ticket: int, error: ClientError | None) -> None:
        del self._tickets[ticket]
        self._actions.append(CommitDone(ticket, error))

    def pump(self, queues: Collection[HeldQueue], now: float) -> None:
        """Send what is due."""
        is_time = bool(self._interval) and now >= self._next_at
        if is_time:
            self._next_at = now + self._interval
        asked_for = {held for waiting in self._tickets.values() for held in waiting}
        groups: dict[str, list[HeldQueue]] = {}
        for held in queues:
            is_due = is_time or held in asked_for or held.state is QueueState.LEAVING
            if is_due and held.is_held and held.is_dirty:
                groups.setdefault(held.group, []).append(held)
        for group, due in groups.items():
            if self._calls.may_ask(group, now):
                self._send(group, due[:QUEUES_PER_CALL])

    def _send(self, group: str, due: list[HeldQueue]) -> None:
        request = pb.CommitOffsetsRequest(
            consumer_group=self._group,
            member_id=self._member_id,
            offsets=[
                pb.GroupOffset(
                    queue=held.ref(),
                    offset=held.progress.floor,
                    epoch=held.epoch,
                    resets=held.resets,
                    done=[
                        pb.OffsetRange(first=done.first, end=done.end)
                        for done in held.progress.ranges()[:RANGES_MAX]
                    ],
                )
                for held in due
            ],
        )
        changes = tuple(held.progress.changes for held in due)
        self._calls.ask(request, Asked(group, due, changes))

    def answered(self, call: int, reply: Reply, now: float) -> list[Refused] | None:
        """Take in an answer; return what was refused, None when it is none of a commit."""
        if not self._calls.is_mine(call):
            return None
        assert isinstance(reply, pb.CommitOffsetsReply), f"{type(reply).__name__} for a commit"
        waits = any(code_of(number) in AGAIN for number in reply.codes)
        asked = self._calls.taken(call, failed=waits, now=now)
        assert asked is not None, f"call {call} is not under way"
        refused: list[Refused] = []
        for held, changes, number in zip(asked.about, asked.changes, reply.codes, strict=True):
            code = code_of(number)
            # Of a floor that is behind the stored one everything is done already.
            if code in (Code.OK, Code.OFFSET_BEHIND):
                held.committed = max(held.committed, changes)
                self._settle(held)
            elif code not in AGAIN:
                refused.append(Refused(held, code))
        return refused

    def unanswered(self, call: int, now: float) -> bool:
        """Take in that a call failed; its queues are committed again. False: it was no commit."""
        return self._calls.taken(call, failed=True, now=now) is not None

    def _settle(self, held: HeldQueue) -> None:
        """End the waits for what is committed now."""
        for ticket, waiting in list(self._tickets.items()):
            if waiting.get(held, held.committed + 1) <= held.committed:
                del waiting[held]
                if not waiting:
                    self._end(ticket, None)

    def lost(self, held: HeldQueue, code: Code) -> None:
        """End the waits for a queue whose claim is over."""
        for ticket, waiting in list(self._tickets.items()):
            if held in waiting:
                self._end(ticket, error_of(code, f"{held.name}: offset is not committed"))

    def next_deadline(self, now: float) -> float | None:
        """Return when `pump` has to be called next."""
        times = self._calls.pauses(now)
        if self._interval:
            times.append(self._next_at)
        return min(times, default=None)
