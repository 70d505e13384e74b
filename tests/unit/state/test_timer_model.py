"""Timers against a model: random sends, recalls, firings, trims and restarts.

The oracle: every delayed record is delivered exactly once, unless it was recalled, in the order of
its time and then of the log, not before its time by the stamps, and soon after; the log is never
trimmed above what a timer or a row needs; what was carried forward is the same batch, and lies
where the log stays; nothing is left when all is trimmed.
"""

from dataclasses import dataclass
from random import Random

import pytest

from dledger.state.queues.copies import FIRST
from dledger.state.queues.trim import Trim
from dledger.state.results import Appended, CarriedForward, Refused, TimerRecalled, TimersFired
from dledger.state.tables import Table
from dledger.state.timers.commands import FireTimers, RecallTimer
from dledger_broker.read.batches import size_of_batch
from dledger_proto.batch.codec import ProducerStamp, Record, encode_batch
from tests.unit.state.carry_kit import EntriesLog, bytes_at, stretch
from tests.unit.state.kit import PRODUCER, TOPIC, Driven, started

QUEUES = 2
TABLES = (
    Table.TIMER,
    Table.TIMER_BY_ID,
    Table.ORIGIN,
    Table.PIN,
    Table.REFERENCE_AT,
    Table.COPY,
    Table.COPY_PLACE,
)


@dataclass
class Waiting:
    """A delayed record that is not delivered."""

    due_ms: int
    order: int
    queue: int
    number: int
    place: tuple[int, int]
    """Position of its batch, and its place in it."""


class Model:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.driven: Driven = started()
        self.driven.register()
        self.now_ms = 10_000
        self.waiting: list[Waiting] = []
        self.queues: list[list[tuple[int, int]]] = [[] for _ in range(QUEUES)]
        """Of each queue, the place of each record that it ever held."""
        self.minimums = [0] * QUEUES
        self.sequences = [0] * QUEUES
        self.number = 0

    def send(self) -> None:
        random, queue = self.random, self.random.randrange(QUEUES)
        count = random.randint(1, 4)
        due_ms = random.choice((0, self.now_ms + random.randint(-20, 300)))
        batch = encode_batch(
            [Record(b"x", keys=random.choice(((), ("k",))))] * count, topic_id=TOPIC, queue=queue,
            stamp=ProducerStamp(PRODUCER, 1, self.sequences[queue]), base_number=self.number,
            base_time_ms=1, delivery_time_ms=max(due_ms, 0),
        )  # fmt: skip
        copies = random.choice((1, 1, 2))
        results = self.driven.append(*[batch] * copies, time_ms=self.now_ms)
        position = self.driven.log.entries[-1].starts[0]
        places = [(position, at) for at in range(count)]
        offset = -1
        if due_ms > self.now_ms:
            for at, place in enumerate(places):
                number = self.number + at
                self.waiting.append(Waiting(due_ms, self.number, queue, number, place))
        else:
            offset = len(self.queues[queue])
            self.queues[queue] += places
        assert results[0] == Appended(offset, count)
        assert results[1:] == [Appended(offset, count, duplicate=True)] * (copies - 1)
        self.sequences[queue] += count
        self.number += count

    def fire(self) -> None:
        at_most = self.random.choice((1, 3, 1_000))
        up_to_ms = self.now_ms + self.random.choice((-50, 0, 1_000))
        result = self.driven.one(FireTimers(up_to_ms, at_most), time_ms=self.now_ms)
        assert isinstance(result, TimersFired)
        due = [each for each in self.waiting if each.due_ms <= min(up_to_ms, self.now_ms)]
        due.sort(key=lambda each: (each.due_ms, each.order, each.number))
        bounds = [self.driven.machine.queries.queue_bounds(TOPIC, at)[1] for at in range(QUEUES)]
        grown = sum(bounds) - sum(map(len, self.queues))
        for each in due[:grown]:
            self.queues[each.queue].append(each.place)
            self.waiting.remove(each)
        assert result.more == (grown < len(due))
        assert bounds == [len(queue) for queue in self.queues]

    def recall(self) -> None:
        if not self.number:
            return
        number = self.random.randrange(self.number)
        result = self.driven.one(RecallTimer(PRODUCER, number), time_ms=self.now_ms)
        found = [each for each in self.waiting if each.number == number]
        assert isinstance(result, TimerRecalled if found else Refused)
        for each in found:
            self.waiting.remove(each)

    def trim(self) -> None:
        queue = self.random.randrange(QUEUES)
        offset = self.random.randint(self.minimums[queue], len(self.queues[queue]))
        self.driven.one(Trim(TOPIC, queue, offset), time_ms=self.now_ms)
        self.minimums[queue] = offset

    def carry(self) -> None:
        """Begin a pass, or go on with one; now and then another leader begins anew."""
        carried = self.driven.machine.queries.carried
        target = carried.target
        if not target or self.random.random() < 0.2:
            target = self.random.randint(carried.horizon + 1, self.driven.log.position)
        limit = self.random.choice((1, 3, 1_000))
        result = self.driven.one(stretch(self.driven, target, limit=limit), time_ms=self.now_ms)
        assert isinstance(result, CarriedForward), result

    def restart(self) -> None:
        if self.random.random() < 0.5:
            self.driven.save()
        before = self.driven.machine.digest
        self.driven.machine.close()
        self.driven = Driven(self.driven.store, self.driven.log)
        assert self.driven.machine.digest == before

    def check(self) -> None:
        queries = self.driven.machine.queries
        needed = [each.place[0] for each in self.waiting]
        for number, (records, minimum) in enumerate(zip(self.queues, self.minimums, strict=True)):
            for offset in range(minimum, len(records)):
                span = queries.lookup_offset(TOPIC, number, offset)
                assert records[offset] == (
                    span.position,
                    span.first_record + offset - span.base_offset,
                )
                needed.append(span.position)
        for each in self.waiting:
            assert queries.lookup_message_id(PRODUCER, each.number) is None
        self.driven.save()
        head = self.driven.machine.head_needed()
        carried = queries.carried
        assert (
            head == max(min(needed, default=self.driven.log.position), carried.horizon) or head == 0
        )
        for position in needed:
            place = self.driven.machine._state.copies.place(position)
            size = size_of_batch(EntriesLog(self.driven.log), position)
            assert head <= place
            assert bytes_at(self.driven, place, size) == bytes_at(self.driven, position, size)


@pytest.mark.parametrize("seed", range(12))
def test_timers_do_what_the_model_does(seed: int) -> None:
    model = Model(seed)
    acts = (model.send, model.fire, model.recall, model.trim, model.carry)
    for step in range(250):
        model.now_ms += model.random.choice((0, 1, 10, 60))
        model.random.choices(acts, (5, 3, 2, 1, 2))[0]()
        if step % 25 == 24:
            model.check()
            model.restart()
    model.now_ms += 1_000
    while model.waiting:
        model.fire()
    model.check()
    for queue in range(QUEUES):
        if len(model.queues[queue]) > model.minimums[queue]:
            model.driven.one(Trim(TOPIC, queue, len(model.queues[queue])), time_ms=model.now_ms)
    model.driven.one(stretch(model.driven, model.driven.log.position, FIRST))
    model.driven.idle(40)
    assert not [key for key in model.driven.rows() if key[0] in TABLES]
