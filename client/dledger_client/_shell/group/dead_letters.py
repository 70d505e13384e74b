"""Dead letters of a consumer group: found by filters, sent to it again, dropped.

Whoever settles dead letters goes through them in portions, each one entry of the log. What is
settled is never settled again, so a job that was broken off is simply run again.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from dledger_client._core.arguments import UINT32_MAX, check_integer
from dledger_client._core.message_checks import check_group
from dledger_client._shell import calls
from dledger_client._shell.answers import found_records
from dledger_client._shell.cluster import Cluster
from dledger_client.errors import OffsetOutOfRange, QueueNotFound, invalid
from dledger_client.model import DeadRecord, SettledRecords
from dledger_proto.errors import Code
from dledger_proto.limits import TIME_MS_MAX
from dledger_proto.names import DEAD_LETTER_TOPIC_PREFIX
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2 as dpb

PAGE: Final = 500
PORTION: Final = 100
"""Dead letters that one command of the log settles."""
RATE_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters are meant."""

    since_ms: int = 0
    until_ms: int = 0
    """They died before this time; 0: no end."""
    key: str = ""
    error: str = ""
    """A part of the last error."""
    limit: int = UINT32_MAX

    def check(self) -> None:
        """Raise INVALID_ARGUMENT for a number that is none."""
        check_integer("since_ms", self.since_ms)
        check_integer("until_ms", self.until_ms)
        check_integer("limit", self.limit, UINT32_MAX)


class DeadLetters:
    """Calls about dead letters, to the broker groups that hold them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def found(self, name: str, wanted: LetterFilter) -> AsyncGenerator[DeadRecord]:
        """Yield the dead letters that are meant, group by group, the oldest first."""
        check_group(name)
        wanted.check()
        await self._cluster.wait_loaded(self._cluster.config.call_timeout_ms / 1_000)
        left = wanted.limit
        until_ms = wanted.until_ms or TIME_MS_MAX
        for group in self._cluster.routes.group_names():
            async for dead in self._of_group(name, group):
                if not left:
                    return
                if not wanted.since_ms <= dead.died_ms < until_ms:
                    continue
                if wanted.error not in dead.error:
                    continue
                if wanted.key and wanted.key not in await self._keys(name, dead):
                    continue
                left -= 1
                yield dead

    async def one(self, name: str, group: str, offset: int) -> DeadRecord | None:
        """Return the dead letter at an offset of a broker group; None when it is settled."""
        check_group(name)
        check_integer("dead_offset", offset)
        async for dead in self._of_group(name, group, offset, 1):
            return dead if dead.dead_offset == offset else None
        return None

    async def resend(
        self, name: str, wanted: LetterFilter, *, rate: float, resent_max: int, dry_run: bool
    ) -> SettledRecords:
        """Send dead letters again; with `dry_run` only count what would be sent."""
        check_integer("resent_max", resent_max, UINT32_MAX)
        if isinstance(rate, bool) or not 0 <= rate <= RATE_MAX:
            raise invalid(f"rate: {rate!r}, must be a number from 0 to {RATE_MAX}")
        if dry_run:
            guarded = [
                bool(resent_max) and dead.resent >= resent_max
                async for dead in self.found(name, wanted)
            ]
            return SettledRecords(settled=guarded.count(False), left_by_guard=guarded.count(True))
        return await self._settle(name, wanted, rate=rate, resent_max=resent_max, resend=True)

    async def purge(self, name: str, wanted: LetterFilter) -> SettledRecords:
        """Drop dead letters for good."""
        return await self._settle(name, wanted, rate=0, resent_max=0, resend=False)

    async def _settle(
        self, name: str, wanted: LetterFilter, *, rate: float, resent_max: int, resend: bool
    ) -> SettledRecords:
        # All are looked up first: a dead letter that dies again meanwhile is not one of them.
        places: dict[tuple[str, int], list[int]] = {}
        async for dead in self.found(name, wanted):
            places.setdefault((dead.broker_group, dead.dead_queue), []).append(dead.dead_offset)
        portion = min(PORTION, max(int(rate), 1)) if rate else PORTION
        codes: list[int] = []
        for (group, queue), offsets in places.items():
            for at in range(0, len(offsets), portion):
                request = dpb.SettleDeadLettersRequest(
                    consumer_group=name,
                    queue=queue,
                    offsets=offsets[at : at + portion],
                    resend=resend,
                    resent_max=resent_max,
                )
                reply = await self._cluster.call(calls.SETTLE_DEAD_LETTERS, request, group=group)
                codes += reply.codes
                if rate:
                    await asyncio.sleep(len(request.offsets) / rate)
        return _counted(codes)

    async def _of_group(
        self, name: str, group: str, offset: int = 0, page: int = PAGE
    ) -> AsyncGenerator[DeadRecord]:
        """Yield the dead letters of one broker group from an offset on, page by page."""
        request = dpb.ListDeadLettersRequest(consumer_group=name, offset=offset, limit=page)
        while request.offset >= 0:
            try:
                reply = await self._cluster.call(calls.LIST_DEAD_LETTERS, request, group=group)
            except QueueNotFound:
                return  # a broker group that joined after the consumer group was created
            for letter in reply.letters:
                yield DeadRecord(
                    broker_group=group,
                    dead_queue=reply.queue,
                    dead_offset=letter.offset,
                    died_ms=letter.died_ms,
                    topic=letter.topic,
                    topic_id=letter.topic_id,
                    queue=letter.queue,
                    offset=letter.origin_offset,
                    attempts=letter.attempts,
                    resent=letter.resent,
                    error=letter.error,
                )
            request.offset = reply.next if page > 1 else -1

    async def _keys(self, name: str, dead: DeadRecord) -> tuple[str, ...]:
        """Return the keys of a dead letter's message; () when nobody can decode it any more."""
        ref = pb.QueueRef(topic=DEAD_LETTER_TOPIC_PREFIX + name, queue=dead.dead_queue)
        request = pb.LookupOffsetRequest(queue=ref, offset=dead.dead_offset)
        try:
            reply = await self._cluster.call(calls.LOOKUP_OFFSET, request, group=dead.broker_group)
        except OffsetOutOfRange:
            return ()  # it was settled meanwhile
        found = found_records(reply.records, self._cluster.routes)
        return tuple(found[0].record.keys) if found and found[0].error is None else ()


def _counted(codes: Sequence[int]) -> SettledRecords:
    settled, guarded, blocked = map(codes.count, (Code.OK, Code.HELD, Code.TOO_MANY_RANGES))
    return SettledRecords(
        settled=settled,
        left_by_guard=guarded,
        left_by_ranges=blocked,
        others=len(codes) - settled - guarded - blocked,
    )
