"""A duty with a loop of its own: the leader compacts the queues of compacted topics (S60).

Owns: which queue is worth a pass, the two walks of a pass, the pace. Not owned: which records stay
(`superseded`), what a command may change (`dledger.state.queues.compact` decides in apply).

A pass first reads what is new, then goes over the queue from its minimum, stretch by stretch. Each
command is applied before the next stretch is read. So an older record of a key goes before its
tombstone does. A pass that is refused, or that loses the leadership, is given up: the next one
begins from the start, and finds less to do.
"""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice, pairwise
from typing import Final, NamedTuple, TypeVar

import structlog

from dledger.state.queries import Queries
from dledger.state.queues.carry import COPIES_SIZE_TARGET, Copy
from dledger.state.queues.compact import ROWS_PER_STRETCH, Compact, CutRow
from dledger.state.queues.table import QueueId
from dledger.state.values import Compactable, QueueSpan, Topic
from dledger_broker.compacting.superseded import Comparison, cut, keys_of
from dledger_broker.group.group_view import GroupView
from dledger_broker.group.retention import held_from
from dledger_broker.process.logs import Quiet
from dledger_broker.read.batches import STORAGE_ERRORS, SpanReader, read_batches
from dledger_proto.batch.codec import BatchView
from dledger_proto.errors import DledgerError
from dledger_proto.limits import MIB

LOOK_SECONDS: Final = 10.0
TOPICS_PER_LOOK: Final = 256
NEW_BYTES_MIN: Final = MIB
"""With less that is new a pass is not worth it."""
READ_SIZE_MAX: Final = 4 * MIB
"""Bytes of batches that are in memory at once, unless one batch is larger."""
BYTES_PER_SECOND: Final = 16 * MIB
"""Of runs that are written; producers need the disk more."""
REST_SECONDS: Final = 0.01
"""Between two stretches, at least: other work of the member comes first..."""
REST_TIMES: Final = 3
"""...and so many times what the stretch took."""
AGAIN_SECONDS: Final = 30.0
"""Between two passes of a queue, at least..."""
AGAIN_TIMES: Final = 10
"""...and so many times what the first one took. What is pinned may leave much to be done again."""
_ANY_BYTES: Final = 1 << 62

T = TypeVar("T")


class _Counted(NamedTuple):
    """How many bytes a queue holds below and above its cleaned offset."""

    cleaned: int
    at: int
    """The offset where the count goes on."""
    old: int
    new: int


class Stretch(NamedTuple):
    """What of a stretch goes, and what of the cut rows stays."""

    stop: int
    """Behind the last row that was looked at."""
    rows: tuple[CutRow, ...]
    runs: tuple[Copy, ...]


class Compacting:
    """Compacts the queues of one group while this member leads it."""

    def __init__(self, view: GroupView) -> None:
        self._view = view
        self._queries: Queries = view.machine.queries
        self._log = structlog.get_logger().bind(group=view.names.group, member=view.names.member)
        self._quiet = Quiet(view.clock)
        self._round: Iterator[Topic] = iter(())
        self._counted: dict[QueueId, _Counted] = {}
        self._rests: dict[QueueId, float] = {}
        """Before that no pass of a queue begins."""

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._may_go_on:
                self._counted.clear()
                continue
            topics = list(islice(self._round, TOPICS_PER_LOOK))
            if not topics:
                compacted = [each for each in self._queries.topics() if each.is_compacted]
                self._forget_others(compacted)
                self._round = iter(compacted)
                topics = list(islice(self._round, TOPICS_PER_LOOK))
            for topic in topics:
                for number in self._queries.written_queues(topic):
                    await self._look((topic.topic_id, number))

    @property
    def _may_go_on(self) -> bool:
        return self._view.leads and not self._view.log.space.low

    async def _look(self, queue: QueueId) -> None:
        if self._view.clock.monotonic() < self._rests.get(queue, 0.0):
            return
        try:
            if await self._is_worth_it(queue):
                await self._pass_and_rest(queue)
        except STORAGE_ERRORS as error:
            self._view.host.failed(error)
        except DledgerError as error:
            left_out = self._quiet.admit(error.code)
            if left_out is not None:
                self._log.info(
                    "compaction begins anew",
                    topic_id=queue[0].hex(), queue=queue[1], reason=str(error),
                    others_since=left_out,
                )  # fmt: skip

    async def _pass_and_rest(self, queue: QueueId) -> None:
        """Compact a queue; then it rests, also after a failure, unless there is more to do."""
        clock = self._view.clock
        began = clock.monotonic()
        has_more = False
        try:
            has_more = not await self._pass(queue)
        finally:
            self._counted.pop(queue, None)
            if not has_more:
                now = clock.monotonic()
                self._rests[queue] = now + max(AGAIN_SECONDS, AGAIN_TIMES * (now - began))

    def _forget_others(self, topics: Sequence[Topic]) -> None:
        known = {topic.topic_id for topic in topics}
        for noted in (self._counted, self._rests):
            for queue in [each for each in noted if each[0] not in known]:
                del noted[queue]

    def _bounds(self, queue: QueueId) -> Compactable:
        """Return what of a queue can be compacted now: nothing from a hold on."""
        found = self._queries.compactable(*queue)
        held = held_from(self._queries, queue, self._view.now_ms)
        return found._replace(stop=max(found.minimum, min(found.stop, held)))

    async def _is_worth_it(self, queue: QueueId) -> bool:
        """Tell whether enough is new."""
        while self._may_go_on:
            minimum, cleaned, stop = self._bounds(queue)
            counted = self._counted.get(queue)
            if counted is None or counted.cleaned != cleaned or counted.at < minimum:
                counted = _Counted(cleaned, minimum, 0, 0)
            spans = self._rows(queue, counted.at, stop, _ANY_BYTES)
            if not spans:
                return is_worth_it(counted.old, counted.new)
            ends = ((span.base_offset + span.record_count, span.size) for span in spans)
            old = sum(size for end, size in ends if end <= cleaned)
            new = sum(span.size for span in spans) - old
            at = spans[-1].base_offset + spans[-1].record_count
            self._counted[queue] = _Counted(cleaned, at, counted.old + old, counted.new + new)
            await asyncio.sleep(REST_SECONDS)
        return False

    async def _pass(self, queue: QueueId) -> bool:
        """Compact a queue; False: there is more to do at once."""
        comparison = Comparison(self._view.now_ms - self._view.tombstone_ms)
        minimum, cleaned, stop = self._bounds(queue)
        end, gone, is_all = max(minimum, cleaned), 0, False
        while not is_all:
            end, is_all = await self._compare(queue, comparison, max(end, minimum), stop)
            more = await self._walk(queue, comparison, end)
            if more is None:
                return False
            gone += more
            done = min(comparison.cleaned, end)
            await self._view.commands.propose(Compact(*queue, end, end, done, (), ()))
            if done == end:
                break
            # The next pass would begin where this one did, and come no further.
            comparison.newest.clear()
            minimum = self._queries.compactable(*queue).minimum
        self._log.info("queue compacted", topic_id=queue[0].hex(), queue=queue[1], gone=gone)
        return is_all

    async def _walk(self, queue: QueueId, comparison: Comparison, end: int) -> int | None:
        """Let superseded records below an offset go; return how many. None: it is not done."""
        at, gone = 0, 0
        while self._may_go_on:
            began = self._view.clock.monotonic()
            minimum = self._queries.compactable(*queue).minimum
            at = max(at, minimum)
            spans = self._rows(queue, at, end, READ_SIZE_MAX)
            if not spans:
                break
            pinned = {span.position for span in spans if self._queries.is_pinned(span.position)}
            job = partial(look_at, self._view.log, spans, comparison, pinned, minimum)
            found = await self._in_pool(job)
            if found.rows or _can_be_joined(spans):
                command = Compact(*queue, at, found.stop, -1, found.rows, found.runs)
                gone += (await self._view.commands.propose(command)).gone
            at = found.stop
            size = sum(len(run.batch) for run in found.runs)
            taken = self._view.clock.monotonic() - began
            await asyncio.sleep(max(size / BYTES_PER_SECOND, REST_SECONDS, REST_TIMES * taken))
        else:
            return None
        return gone if at >= end else None

    async def _compare(
        self, queue: QueueId, comparison: Comparison, first: int, stop: int
    ) -> tuple[int, bool]:
        """Note the keys of what is new.

        Returns up to which offset there was room for them, and whether that is all.
        """
        at = first
        while self._may_go_on:
            began = self._view.clock.monotonic()
            spans = self._rows(queue, at, stop, READ_SIZE_MAX)
            if not spans:
                return at, True
            at = await self._in_pool(partial(note_keys, self._view.log, spans, comparison))
            if at < spans[-1].base_offset + spans[-1].record_count:
                break
            taken = self._view.clock.monotonic() - began
            await asyncio.sleep(max(REST_SECONDS, REST_TIMES * taken))
        return at, False

    def _rows(self, queue: QueueId, at: int, stop: int, max_bytes: int) -> list[QueueSpan]:
        """Return the next rows that end at an offset or below: up to ROWS_PER_STRETCH."""
        if at >= stop:
            return []
        spans = self._queries.spans(*queue, at, max_bytes)[:ROWS_PER_STRETCH]
        return [span for span in spans if span.base_offset + span.record_count <= stop]

    async def _in_pool(self, job: "partial[T]") -> T:
        return await asyncio.get_running_loop().run_in_executor(self._view.pool, job)


def is_worth_it(old: int, new: int) -> bool:
    """Tell whether a queue with so many bytes below and above its cleaned offset gets a pass."""
    return new >= max(NEW_BYTES_MIN, old)


def note_keys(log: SpanReader, spans: Sequence[QueueSpan], comparison: Comparison) -> int:
    """Note the keys of rows; return the offset behind the last for which there was room. Blocks."""
    at = spans[0].base_offset
    for span, batch in zip(spans, read_batches(log, spans), strict=True):
        if not comparison.note(span, batch):
            return at
        at = span.base_offset + span.record_count
    return at


def look_at(
    log: SpanReader,
    spans: Sequence[QueueSpan],
    comparison: Comparison,
    pinned: set[int],
    minimum: int,
) -> Stretch:
    """Return what of some rows goes: at least of one, then while COPIES_SIZE_TARGET lasts. Blocks.

    `pinned` are the positions of rows that stay whole.
    """
    rows: list[CutRow] = []
    runs: list[Copy] = []
    size, stop = 0, spans[0].base_offset
    for span, batch in zip(spans, read_batches(log, spans), strict=True):
        end = span.base_offset + span.record_count
        if span.is_gone:
            stop = end
            continue
        view, keys = BatchView(batch), keys_of(span, batch)
        left = comparison.left_of(span, view, keys, minimum)
        made = None if left is None or span.position in pinned else cut(span, view, left)
        if made is None:
            comparison.leave(span, keys, minimum)
            stop = end
            continue
        more = sum(len(run.batch) for run in made)
        if rows and size + more > COPIES_SIZE_TARGET:
            break
        rows.append(CutRow(span.base_offset, span.record_count))
        runs += made
        size += more
        stop = end
    return Stretch(stop, tuple(rows), tuple(runs))


def _can_be_joined(spans: Sequence[QueueSpan]) -> bool:
    """Tell whether neighbouring rows are gone: they become one."""
    return any(one.is_gone and other.is_gone for one, other in pairwise(spans))
