"""Whatever happens to a compacted queue, the last record of each key stays, at its offset."""

from contextlib import closing
from random import Random
from typing import NamedTuple

import pytest

from dledger.state.machine import StateMachine
from dledger.state.queues.holds import Hold, ReleaseHold
from dledger.state.queues.trim import Trim
from dledger.state.values import Reference
from dledger.types import Position, Span
from dledger_broker.compacting import superseded
from dledger_proto.errors import Code
from dledger_proto.keyhash import key_hash
from tests.unit.compaction.kit import QUEUE, Leader, keyed
from tests.unit.state.carry_kit import carried, end_of, stretch
from tests.unit.state.kit import TOPIC, Driven

KEYS = "abcdef"
TOMBSTONE_MS = 500
LONG = 1_000.0
"""Enough for all passes that are needed when each compares few keys, seconds."""


class Written(NamedTuple):
    """A record that was appended."""

    key: str
    body: bytes
    time_ms: int


class World:
    """A leader, what was written, and chance."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.leader = Leader(tombstone_ms=TOMBSTONE_MS)
        self.leader.in_stretches(7, 1_000)
        self.leader.compare_keys(self.random.choice((4, superseded.KEYS_MAX)))
        self.leader.before = self.meanwhile
        self.written: list[Written] = []
        self.pins: list[tuple[int, int, bytes]] = []
        """Position, number, and the bytes that somebody refers to."""

    @property
    def driven(self) -> Driven:
        return self.leader.driven

    @property
    def minimum(self) -> int:
        bounds: tuple[int, int] = self.driven.machine.queries.queue_bounds(*QUEUE)
        return bounds[0]

    def append(self) -> None:
        records = []
        for _ in range(self.random.randint(1, 5)):
            body = b"" if self.random.random() < 0.2 else self.random.randbytes(100).hex().encode()
            records.append((self.random.choice(KEYS), body))
        time_ms = self.driven.log.time_ms + self.random.randint(0, 60)
        self.driven.append(keyed(*records, number=len(self.written)), time_ms=time_ms)
        self.written += [Written(key, body, time_ms) for key, body in records]

    def trim(self) -> None:
        at = self.minimum + self.random.randint(0, 6)
        self.driven.one(Trim(*QUEUE, min(at, len(self.written))))

    def pin(self) -> None:
        """A consumer fails a record, which is kept for a retry."""
        rows = [row for row in self.leader.rows() if not row.is_gone]
        if rows and len(self.pins) < 3:
            row = self.random.choice(rows)
            references = self.driven.machine._state.references
            reference = Reference(row.position, 0, 1, row.size)
            batch = self.leader.log.read_span(Span(Position(row.place), row.size))
            self.pins.append((row.position, references.new_pin(reference), batch))

    def unpin(self) -> None:
        if self.pins:
            references = self.driven.machine._state.references
            references.unpin(*self.pins.pop(self.random.randrange(len(self.pins)))[:2])

    def hold(self) -> None:
        offset = self.random.randint(self.minimum, len(self.written))
        until = self.driven.log.time_ms + self.random.randint(1, 200)
        self.driven.one(Hold("owner", *QUEUE, offset, until))

    def release(self) -> None:
        self.driven.one(ReleaseHold("owner", *QUEUE))

    def carry(self) -> None:
        """A pass carries old records forward, or a part of one."""
        self.driven.save()
        carried_so_far = self.driven.machine.queries.carried
        target = carried_so_far.target or end_of(self.driven)
        if target > carried_so_far.horizon:
            command = stretch(self.driven, target, limit=self.random.randint(1, 8))
            carried(self.driven.one(command))

    def restart(self) -> None:
        self.driven.save()
        self.driven.machine = StateMachine(self.driven.store, "g1")
        self.leader.compacting = None  # type: ignore[assignment]

    def meanwhile(self) -> None:
        """Something happens between a look at the queue and the command that follows from it."""
        if self.random.random() < 0.3:
            self.random.choice([self.append, self.trim, self.pin, self.unpin, self.hold])()
            if self.random.random() < 0.2:
                self.carry()

    def step(self) -> None:
        what = self.random.choices(
            [self.append, self.trim, self.pin, self.unpin, self.hold, self.release, self.carry,
             self.restart, self.compact],
            [30, 2, 2, 3, 1, 2, 4, 1, 3],
        )[0]  # fmt: skip
        what()

    def compact(self) -> None:
        self.leader.run()
        self.check()

    def check(self) -> None:
        assert not self.leader.failures
        assert {each.code for each in self.leader.refused} <= {Code.BUSY}
        there, minimum = self.leader.records(), self.minimum
        newest = {each.key: offset for offset, each in enumerate(self.written)}
        for offset, record in there.items():
            written = self.written[offset]
            assert (record.keys, record.body) == ((written.key,), written.body), offset
        now = self.driven.log.time_ms
        for offset in range(minimum, len(self.written)):
            written = self.written[offset]
            if offset in there:
                continue
            if newest[written.key] == offset:
                assert written.body == b""
                assert written.time_ms <= now - TOMBSTONE_MS
                assert not [
                    old for old in there if old < offset and self.written[old].key == written.key
                ], "a deleted key is back"
        for key, offset in newest.items():
            if offset in there:
                hits = self.driven.machine.queries.lookup_key(
                    TOPIC, key_hash(key.encode()), 0, 0, 99
                )
                spans = [hit.span for hit in hits.hits]
                assert any(
                    each.base_offset <= offset < each.base_offset + each.record_count
                    for each in spans
                ), (key, offset)
        needed = self.driven.machine.queries.head().needed
        for row in self.leader.rows():
            assert row.is_gone or row.place >= needed
        for position, _, batch in self.pins:
            place = self.driven.machine._state.copies.place(position)
            assert self.leader.log.read_span(Span(Position(place), len(batch))) == batch
            assert place >= needed

    def settle(self) -> None:
        """Let nothing keep records, and compact."""
        while self.pins:
            self.unpin()
        self.release()
        self.leader.before = lambda: None
        self.leader.run(LONG)
        self.check()
        _, _, stop = self.driven.machine.queries.compactable(*QUEUE)
        newest = {each.key: offset for offset, each in enumerate(self.written[:stop])}
        rows, live = self.leader.rows(), set(newest.values())
        for row in rows:
            offsets = set(range(row.base_offset, row.base_offset + row.record_count))
            if row.base_offset + row.record_count <= stop and not row.is_gone:
                assert offsets & live, "a row without the last record of any key is left"
        gone = [row.is_gone for row in rows]
        assert sum(gone) <= len(gone) // 2 + 2


def test_a_dozen_worlds() -> None:
    """As the next test: known bugs are hunted with these."""
    for seed in range(100, 112):
        test_the_last_record_of_each_key_stays(seed)


@pytest.mark.parametrize("seed", range(30))
def test_the_last_record_of_each_key_stays(seed: int) -> None:
    world = World(seed)
    with closing(world.leader):
        for _ in range(120):
            world.step()
        world.settle()
