"""Claims of granted queues in their home groups: taking, renewing, releasing (D21). Pure.

Owns: which queues are claimed when, what an answer of the home group means. Not: what happens to
the records of a queue (`core.py`).

A lease is measured from the moment at which its claim or renewal was sent: the home group counts
from a later moment. Nothing is handed out during the last twentieth of it.
"""

import math
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from dledger_client._core.group.actions import Action, Reply
from dledger_client._core.group.calls import QUEUES_PER_CALL, Asked, HomeCalls, Numbers
from dledger_client._core.group.progress import Progress, Range
from dledger_client._core.group.queues import HeldQueue, QueueState
from dledger_client._core.retry import BACKOFF_MAX
from dledger_client.errors import code_of
from dledger_proto.errors import MEANINGS, Code
from dledger_proto.v1 import delivery_pb2 as pb

RENEW_SHARE: Final = 3
"""Renewals in each lease."""
LEASE_MARGIN: Final = 0.05
"""Share of a lease, before its end, in which nothing is handed out any more."""
LEASED_RETRY_SECONDS: Final = 1.0
"""A queue that another consumer has is claimed again at the latest after this time: its holder may
release it before its lease ends."""
LOOK_AGAIN_SECONDS: Final = 20.0
"""A queue without a lease is claimed again after so long. Somebody may have reset its offset and
not reached the coordinator, and an idle consumer commits nothing: no answer would say so."""
PAUSED_RETRY_SECONDS: Final = 1.0
"""Until a paused group is asked again."""
NOT_THERE_YET: Final = frozenset(
    (Code.TOPIC_NOT_FOUND, Code.QUEUE_NOT_FOUND, Code.CONSUMER_GROUP_NOT_FOUND)
)
"""The home group may not have heard yet of what the coordinator granted."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a claim of one queue came to."""

    held: HeldQueue
    floor: int = -1
    """-1 with `is_new`: the home group knows none."""
    is_new: bool = False
    """It may be read from now on."""
    is_lost: bool = False
    was_reset: bool = False


class Claims:
    """Claims and releases of one consumer."""

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
        self._claims = HomeCalls(numbers, generator, actions)
        self._releases = HomeCalls(numbers, generator, actions)

    def pump(self, queues: Collection[HeldQueue], now: float) -> None:
        """Claim, renew and release what is due."""
        self._ask(
            self._claims, pb.ClaimQueuesRequest, now,
            [held for held in queues if not held.is_asking and _is_claim_due(held, now)],
        )  # fmt: skip
        self._ask(
            self._releases, pb.ReleaseQueuesRequest, now,
            [held for held in queues
             if held.state is QueueState.RELEASING and not held.is_asking],
        )  # fmt: skip

    def _ask(
        self,
        calls: HomeCalls,
        request: Callable[..., pb.ClaimQueuesRequest | pb.ReleaseQueuesRequest],
        now: float,
        due: list[HeldQueue],
    ) -> None:
        groups: dict[str, list[HeldQueue]] = {}
        for held in due:
            groups.setdefault(held.group, []).append(held)
        for group, waiting in groups.items():
            if not calls.may_ask(group, now):
                continue
            asked = waiting[:QUEUES_PER_CALL]
            wanted = [
                pb.ClaimQueuesRequest.Wanted(queue=held.ref(), epoch=held.epoch) for held in asked
            ]
            for held in asked:
                held.is_asking = True
            calls.ask(
                request(consumer_group=self._group, member_id=self._member_id, queues=wanted),
                Asked(group, asked, sent_at=now),
            )

    def answered(self, call: int, reply: Reply, now: float) -> list[Outcome] | None:
        """Take in an answer; return what it means, None when it is none of a claim."""
        asked = self._releases.taken(call, failed=False, now=now)
        if asked is not None:
            for held in asked.about:
                held.state = QueueState.GONE
            return []
        asked = self._claims.taken(call, failed=False, now=now)
        if asked is None:
            return None
        assert isinstance(reply, pb.ClaimQueuesReply), f"{type(reply).__name__} for a claim"
        return [
            self._outcome(held, row, asked.sent_at, reply.now_ms, now)
            for held, row in zip(asked.about, reply.rows, strict=True)
        ]

    def _outcome(
        self, held: HeldQueue, row: pb.ClaimQueuesReply.Row, sent_at: float, now_ms: int, now: float
    ) -> Outcome:
        held.is_asking = False
        if held.state not in (QueueState.CLAIMING, QueueState.SERVING, QueueState.LEAVING):
            return Outcome(held)
        code = code_of(row.code)
        if code is Code.LEASED:
            held.renew_at = now + min(max(row.lease_left_ms / 1_000, 0.01), LEASED_RETRY_SECONDS)
            return Outcome(held)
        if code is Code.GROUP_PAUSED:
            held.renew_at = now + PAUSED_RETRY_SECONDS
            return Outcome(held)
        if code is not Code.OK:
            is_lost = not MEANINGS[code].retriable and code not in NOT_THERE_YET
            held.renew_at = now + BACKOFF_MAX
            return Outcome(held, is_lost=is_lost)
        lease = row.lease_left_ms / 1_000
        held.lease_end = sent_at + lease * (1 - LEASE_MARGIN) if lease else math.inf
        held.renew_at = sent_at + (lease / RENEW_SHARE if lease else LOOK_AGAIN_SECONDS)
        if held.state is not QueueState.CLAIMING:
            return Outcome(held, was_reset=row.resets != held.resets)
        held.state = QueueState.SERVING
        held.resets = row.resets
        held.progress = Progress(
            max(row.floor, 0), (Range(done.first, done.end) for done in row.done)
        )
        held.attempts = {
            each.offset: (each.attempts, now + max(0, each.until_ms - now_ms) / 1_000)
            for each in row.suspended
        }
        return Outcome(held, row.floor, is_new=True)

    def unanswered(self, call: int, now: float) -> bool:
        """Take in that a call failed; it is made again. False: it was none of these."""
        for calls in (self._claims, self._releases):
            asked = calls.taken(call, failed=True, now=now)
            if asked is not None:
                for held in asked.about:
                    held.is_asking = False
                return True
        return False

    def next_deadline(self, queues: Collection[HeldQueue], now: float) -> float | None:
        """Return when `pump` has to be called next."""
        times = [*self._claims.pauses(now), *self._releases.pauses(now)]
        times += [
            held.renew_at for held in queues
            if not held.is_asking and now < held.renew_at < math.inf
        ]  # fmt: skip
        times += [held.lease_end for held in queues if now < held.lease_end < math.inf]
        return min(times, default=None)


def _is_claim_due(held: HeldQueue, now: float) -> bool:
    if held.state is QueueState.CLAIMING:
        return held.renew_at == math.inf or now >= held.renew_at
    return held.is_held and now >= held.renew_at
