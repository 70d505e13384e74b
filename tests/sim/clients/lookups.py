"""Lookups by key, message id, time and offset: what a member answers, and whether it is true.

Owns: the member's half (the state's own indexes and the bytes they lead to) and the judge's half,
which walks through everything that was ever applied. An answer says up to which entry it was given;
what lies behind that is not expected. By key the answers are those of the broker's own pages, each
record cut out of its batch: all that are live, each once, and no other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final

from dledger.state.values import QueueSpan
from dledger_broker.read.batches import read_batches
from dledger_broker.read.lookups import KeyQuestion, cursor_of, find_by_key, places_of
from dledger_proto.batch.codec import BatchView, Record, check_batch
from tests.sim.invariants.delivery.queue_contents import (
    QueueContents,
    QueueKey,
    StoredBatch,
    batch_key,
)
from tests.sim.invariants.violation import Property, Violation

if TYPE_CHECKING:
    from tests.sim.member.process import Process

HITS_MAX: Final = 1_024
KEYS_AT_THE_END: Final = 100
IDS_AT_THE_END: Final = 200
TIMES_AT_THE_END: Final = 50


@dataclass(frozen=True, slots=True)
class LookupKey:
    """Find records of the topic by a key, those of the newest batch first, `limit` in a page.

    Stored within a window (0: no end).
    """

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
    """Find the batch that holds an offset."""

    queue: QueueKey
    offset: int


Lookup = LookupKey | LookupId | LookupTime | LookupOffset


@dataclass(frozen=True, slots=True)
class Looked:
    """An answer: batches as (queue, base offset), or one offset, as of an applied index.

    By key: records as (queue, offset), each with its body.
    """

    applied: int
    minimums: Mapping[QueueKey, int]
    batches: tuple[tuple[QueueKey, int], ...] = ()
    offset: int = -1
    records: tuple[tuple[QueueKey, int, Record], ...] = ()
    data: bytes = b""
    """The first batch that was found."""


def look_up(process: "Process", request: Lookup) -> Looked:
    """Answer as the broker's use cases do. Raises DledgerError and DamagedBatch as they do."""
    machine = process.machine
    queues = process.member.world.plan.queues
    minimums = {queue: machine.queries.queue_bounds(*queue)[0] for queue in queues}
    applied = int(machine.applied_index)
    topic_id = queues[0][0]
    found: list[tuple[QueueKey, QueueSpan]] = []
    offset = -1
    match request:
        case LookupKey():
            records = _records(process, topic_id, request)
            return Looked(applied, minimums, records=records)
        case LookupId(producer_id, number):
            hit = machine.queries.lookup_message_id(producer_id, number)
            if hit is not None:
                found = [((hit.topic_id, hit.queue), hit.span)]
                offset = hit.offset
        case LookupTime(queue, time_ms):
            offset = machine.queries.offset_by_time(*queue, time_ms)
        case LookupOffset(queue, wanted):
            found = [(queue, machine.queries.lookup_offset(*queue, wanted))]
    data = bytes(read_batches(process.log, [found[0][1]])[0]) if found else b""
    batches = tuple((queue, span.base_offset) for queue, span in found)
    return Looked(applied, minimums, batches, offset, data=data)


def _records(
    process: "Process", topic_id: bytes, request: LookupKey
) -> tuple[tuple[QueueKey, int, Record], ...]:
    """Follow the pages of an answer to their end, as a client does."""
    question = KeyQuestion(
        topic_id, request.key.encode(), request.begin_ms, request.end_ms, request.limit
    )
    records: list[tuple[QueueKey, int, Record]] = []
    while True:
        places, following = places_of(process.machine.queries, question)
        found, stopped = find_by_key(process.log, question, places)
        for each in found:
            check_batch(each.batch)
            record = BatchView(each.batch).record(0)
            records.append(((each.topic_id, each.queue), each.offset, record))
        cursor = cursor_of(stopped, following)
        if not cursor:
            return tuple(records)
        question = replace(question, cursor=cursor)


class Judge:
    """Compares answers with everything that was applied."""

    def __init__(self, contents: QueueContents) -> None:
        self._contents = contents

    def check(self, who: str, request: Lookup, looked: Looked) -> None:
        """Raise unless an answer is what a walk through all records finds."""
        match request:
            case LookupKey():
                self._check_key(who, request, looked)
            case LookupId():
                self._check_id(who, request, looked)
            case LookupTime():
                self._check_time(who, request, looked)
            case LookupOffset():
                self._check_offset(who, request, looked)
        if looked.batches:
            queue, base_offset = looked.batches[0]
            row = self._contents.queues[queue][base_offset]
            if batch_key(check_batch(looked.data)) != row.key:
                self._fail(who, request, looked, f"the bytes are not those of {row}")

    def _fail(self, who: str, request: Lookup, looked: Looked, why: str) -> None:
        found = looked.batches[:5] or [each[:2] for each in looked.records[:5]]
        shown = f"{found} {looked.offset} as of {looked.applied}"
        raise Violation(Property.LOOKUP, f"{who}: {request} found {shown}: {why}")

    def _check_key(self, who: str, request: LookupKey, looked: Looked) -> None:
        """All live records with the key, those of the newest batch first, and no other."""
        end_ms = request.end_ms or 1 << 62
        due: dict[StoredBatch, list[tuple[QueueKey, int]]] = {}
        for row, place in self._contents.keyed.get(request.key, ()):
            offset = row.base_offset + place
            in_window = request.begin_ms <= row.store_time_ms <= end_ms
            if row.index <= looked.applied and in_window and offset >= looked.minimums[row.queue]:
                due.setdefault(row, []).append((row.queue, offset))
        expected = [place for row in reversed(due) for place in due[row]]
        found = [(queue, offset) for queue, offset, _ in looked.records]
        if found != expected:
            missing = [each for each in expected if each not in found][:3]
            others = [each for each in found if each not in expected][:3]
            why = f"missing {missing}, more than is due {others}, of {len(expected)}"
            self._fail(who, request, looked, why)
        for queue, offset, record in looked.records:
            if request.key not in record.keys:
                self._fail(who, request, looked, f"{queue} {offset} has the keys {record.keys}")

    def _check_id(self, who: str, request: LookupId, looked: Looked) -> None:
        row = self._contents.rows.get((request.producer_id, request.number))
        due = -1
        if row is not None and row.index <= looked.applied:
            offset = row.base_offset + request.number - row.base_number
            due = offset if offset >= looked.minimums[row.queue] else -1
        at = ((row.queue, row.base_offset),) if row is not None and due >= 0 else ()
        if (looked.offset, looked.batches) != (due, at):
            self._fail(who, request, looked, f"it lies at {due} in {at}")

    def _check_time(self, who: str, request: LookupTime, looked: Looked) -> None:
        minimum = due = looked.minimums[request.queue]
        for row in self._contents.queues.get(request.queue, {}).values():
            if row.index > looked.applied:
                break
            due = max(row.end, minimum)
            if row.store_time_ms >= request.time_ms and row.end > minimum:
                due = max(row.base_offset, minimum)
                break
        if looked.offset != due:
            self._fail(who, request, looked, f"{due} is the first")

    def _check_offset(self, who: str, request: LookupOffset, looked: Looked) -> None:
        ((queue, base_offset),) = looked.batches
        row = self._contents.queues[queue].get(base_offset)
        if row is None or not row.base_offset <= request.offset < row.end:
            self._fail(who, request, looked, f"that batch is {row}")

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
                return LookupKey(key_of(random, keys), begin_ms, end_ms, limit)
            case 1:
                return LookupId(row.producer_id, max(row.base_number + random.randint(-1, 8), 0))
            case 2:
                return LookupTime(queue, row.store_time_ms + random.randint(-1, 1))
            case _:
                return LookupOffset(queue, row.base_offset + random.randrange(row.record_count))

    def check_everything(self, process: "Process", random: Random) -> None:
        """Look for many keys, ids and times at one member, at the end of a run."""
        contents, who = self._contents, f"the end at {process.name}"
        keys = sorted(contents.keyed)
        for key in [*random.sample(keys, min(KEYS_AT_THE_END, len(keys))), "no such key"]:
            self._ask(process, who, LookupKey(key))
        ids = sorted(contents.rows)
        for producer_id, number in random.sample(ids, min(IDS_AT_THE_END, len(ids))):
            self._ask(process, who, LookupId(producer_id, number))
        for queue, rows in sorted(contents.queues.items()):
            for row in random.choices(list(rows.values()), k=TIMES_AT_THE_END):
                self._ask(process, who, LookupTime(queue, row.store_time_ms + random.randint(0, 1)))

    def _ask(self, process: "Process", who: str, request: Lookup) -> None:
        self.check(who, request, look_up(process, request))


def key_of(random: Random, keys: int) -> str:
    """Return one of so many keys; a few are on most records."""
    return f"k{min(random.randrange(keys), random.randrange(keys))}"
