"""Lookups by key, message id, time and offset: what is asked, and whether an answer is true.

Owns: the judge, who walks through everything that was ever applied. A member answers as of some
entry between the newest that was committed when it was asked (D9) and the newest that anybody has
applied when the answer is there. So the judge accepts what is right as of one of these. By key the
answer holds every record once, those of the newest batch first.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from dledger_broker.read.lookups import KeyQuestion, cursor_of, find_by_key, places_of
from dledger_proto.batch.codec import BatchView, Record
from tests.sim.invariants.delivery.queue_contents import Contents, QueueKey, StoredBatch
from tests.sim.invariants.violation import Property, Violation

if TYPE_CHECKING:
    from tests.sim.member.process import Process
    from tests.sim.world.group import Group

T = TypeVar("T")

HITS_MAX: Final = 1_024
KEYS_AT_THE_END: Final = 100
IDS_AT_THE_END: Final = 200
TIMES_AT_THE_END: Final = 50
"""Lookups at the end of a run, over all members of a group: they hold the same, as digests say."""


@dataclass(frozen=True, slots=True)
class LookupKey:
    """Find records of a topic by a key, `limit` in a page, stored within a window (0: no end)."""

    topic_id: bytes
    key: str
    begin_ms: int = 0
    end_ms: int = 0
    limit: int = HITS_MAX


@dataclass(frozen=True, slots=True)
class LookupId:
    """Find a message by its producer's id and its number."""

    producer_id: bytes
    number: int


@dataclass(frozen=True, slots=True)
class LookupTime:
    """Find the first offset of a queue that was stored at or after a time."""

    queue: QueueKey
    time_ms: int


@dataclass(frozen=True, slots=True)
class LookupOffset:
    """Find the record at an offset."""

    queue: QueueKey
    offset: int


Lookup = LookupKey | LookupId | LookupTime | LookupOffset


@dataclass(frozen=True, slots=True)
class Found:
    """A record that a lookup found."""

    queue: QueueKey
    offset: int
    record: Record


@dataclass(frozen=True, slots=True)
class Span:
    """Between these a lookup was answered: indexes of applied entries, minimums of queues."""

    floor: int
    ceiling: int
    lowest: dict[QueueKey, int]
    """The queues' minimums when it was asked."""
    highest: dict[QueueKey, int]
    """The most that was ever asked of trims by the time of the answer."""


class Judge:
    """Compares answers with everything that was applied in the groups."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def check(self, who: str, request: Lookup, answer: object, span: Span) -> None:
        """Raise unless an answer is what a walk through all records finds."""
        match request:
            case LookupKey():
                assert isinstance(answer, tuple)
                self._check_key(who, request, answer, span)
            case LookupId():
                assert isinstance(answer, tuple)
                self._check_id(who, request, answer, span)
            case LookupTime():
                assert isinstance(answer, int)
                self._check_time(who, request, answer, span)
            case LookupOffset():
                assert isinstance(answer, tuple)
                self._check_offset(who, request, answer)

    def _fail(self, who: str, request: Lookup, answer: object, span: Span, why: str) -> None:
        shown = answer
        if isinstance(answer, tuple):
            shown = [(found.queue, found.offset) for found in answer[:5]]
        between = f"between {span.floor} and {span.ceiling}"
        raise Violation(Property.LOOKUP, f"{who}: {request} found {shown} {between}: {why}")

    def _check_key(
        self, who: str, request: LookupKey, answer: tuple[Found, ...], span: Span
    ) -> None:
        """All live records with the key, those of the newest batch first, and no other."""
        end_ms = request.end_ms or 1 << 62
        allowed: dict[StoredBatch, list[tuple[QueueKey, int]]] = {}
        due: set[tuple[QueueKey, int]] = set()
        for row, place in self._contents.keyed.get(request.key, ()):
            offset = row.base_offset + place
            in_window = request.begin_ms <= row.store_time_ms <= end_ms
            if row.queue not in span.lowest or not in_window:
                continue
            if row.index <= span.ceiling and offset >= span.lowest[row.queue]:
                allowed.setdefault(row, []).append((row.queue, offset))
                if row.index <= span.floor and offset >= span.highest[row.queue]:
                    due.add((row.queue, offset))
        order = [place for row in reversed(allowed) for place in allowed[row]]
        found = [(each.queue, each.offset) for each in answer]
        ranks = {place: rank for rank, place in enumerate(order)}
        missing = due.difference(found)
        others = [each for each in found if each not in ranks]
        if missing or others:
            why = f"missing {sorted(missing)[:3]}, more than is due {others[:3]}, of {len(order)}"
            self._fail(who, request, answer, span, why)
        if not _rises([ranks[each] for each in found]):
            self._fail(who, request, answer, span, "not in the order of the log, or twice")
        for each in answer:
            if request.key not in each.record.keys:
                why = f"{each.queue} {each.offset} has the keys {each.record.keys}"
                self._fail(who, request, answer, span, why)

    def _check_id(self, who: str, request: LookupId, answer: tuple[Found, ...], span: Span) -> None:
        row = self._contents.rows.get((request.producer_id, request.number))
        places = [(each.queue, each.offset) for each in answer]
        if row is None or row.queue not in span.lowest:
            if places:
                self._fail(who, request, answer, span, "nobody stored it here")
            return
        offset = row.base_offset + request.number - row.base_number
        may_be = row.index <= span.ceiling  # who finds it does not ask whether it is trimmed
        must_be = row.index <= span.floor and offset >= span.highest[row.queue]
        if ((places or must_be) and places != [(row.queue, offset)]) or (places and not may_be):
            self._fail(who, request, answer, span, f"it is at {offset} of {row}")

    def _check_time(self, who: str, request: LookupTime, answer: int, span: Span) -> None:
        lowest, highest = span.lowest[request.queue], span.highest[request.queue]
        first = last = -1
        end = lowest
        for row in self._contents.queues.get(request.queue, {}).values():
            if row.index > span.ceiling:
                break
            if row.index > span.floor and first < 0:
                first = end  # nothing later was there yet, perhaps
            matches = row.store_time_ms >= request.time_ms and row.end > lowest
            if matches and first < 0:
                first = row.base_offset
            if matches and row.end > highest:
                last = row.base_offset
                break
            end = max(row.end, lowest)
        first, last = (end if first < 0 else first), (end if last < 0 else last)
        if not max(first, lowest) <= answer <= max(last, highest):
            self._fail(who, request, answer, span, f"the first is from {first} to {last}")

    def _check_offset(self, who: str, request: LookupOffset, answer: tuple[Found, ...]) -> None:
        if [(each.queue, each.offset) for each in answer] != [(request.queue, request.offset)]:
            raise Violation(Property.LOOKUP, f"{who}: {request} found {answer}")

    def draw(self, random: Random, queues: tuple[QueueKey, ...], keys: int) -> Lookup | None:
        """Return something to ask for; None when nothing is stored yet."""
        queue = random.choice(queues)
        rows = self._contents.queues.get(queue)
        if not rows:
            return None
        row = rows[random.choice(list(rows))]
        match random.randrange(4):
            case 0:
                begin_ms, end_ms = sorted((row.store_time_ms, random.choice((0, 1 << 50))))
                limit = random.choice((3, 20, HITS_MAX))
                return LookupKey(queue[0], key_of(random, keys), begin_ms, end_ms, limit)
            case 1:
                return LookupId(row.producer_id, max(row.base_number + random.randint(-1, 8), 0))
            case 2:
                return LookupTime(queue, row.store_time_ms + random.randint(-1, 1))
            case _:
                return LookupOffset(queue, row.base_offset + random.randrange(row.record_count))

    def check_everything(self, group: "Group", process: "Process", random: Random) -> None:
        """Look for many keys, ids and times in one member's state, at the end of a run."""
        who = f"the end at {process.name}"
        queries = process.machine.queries
        minimums = {queue: queries.queue_bounds(*queue)[0] for queue in group.queues}
        applied = int(process.machine.applied_index)
        span = Span(applied, applied, minimums, minimums)
        topic_id = group.queues[0][0]
        members = len(group.names)
        keys = sorted(self._contents.keyed)
        for key in [*_some(random, keys, KEYS_AT_THE_END // members), "no such key"]:
            self.check(who, LookupKey(topic_id, key), _all_pages(process, topic_id, key), span)
        ids = sorted(self._contents.rows)
        for producer_id, number in _some(random, ids, IDS_AT_THE_END // members):
            hit_by_id = queries.lookup_message_id(producer_id, number)
            of_id: tuple[Found, ...] = ()
            if hit_by_id is not None:
                place = hit_by_id.topic_id, hit_by_id.queue
                of_id = (Found(place, hit_by_id.offset, Record(b"")),)
            self.check(who, LookupId(producer_id, number), of_id, span)
        for queue in group.queues:
            rows = list(self._contents.queues.get(queue, {}).values())
            for row in _some(random, rows, TIMES_AT_THE_END // members):
                time_ms = row.store_time_ms + random.randint(0, 1)
                answer = queries.offset_by_time(*queue, time_ms)
                self.check(who, LookupTime(queue, time_ms), answer, span)


def _all_pages(process: "Process", topic_id: bytes, key: str) -> tuple[Found, ...]:
    """Return the records with a key, in all pages that the broker makes of them."""
    question = KeyQuestion(topic_id, key.encode(), 0, 0, HITS_MAX)
    found: list[Found] = []
    while True:
        places, following = places_of(process.machine.queries, question)
        hits, stopped = find_by_key(process.log, question, places)
        for hit in hits:
            record = BatchView(hit.batch).record(0)
            found.append(Found((hit.topic_id, hit.queue), hit.offset, record))
        cursor = cursor_of(stopped, following)
        if not cursor:
            return tuple(found)
        question = replace(question, cursor=cursor)


def _some(random: Random, all_of_them: Sequence[T], count: int) -> Sequence[T]:
    return random.sample(all_of_them, min(count, len(all_of_them)))


def _rises(ranks: Sequence[int]) -> bool:
    return all(a < b for a, b in itertools.pairwise(ranks))


def key_of(random: Random, keys: int) -> str:
    """Return one of so many keys; a few are on most records."""
    return f"k{min(random.randrange(keys), random.randrange(keys))}"
