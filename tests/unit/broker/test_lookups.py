"""Lookups of single records: exact, bounded, checked, and off the loop's thread."""

import asyncio
import threading
from collections.abc import Awaitable, Sequence
from random import Random
from typing import cast

import pytest
from crc32c import crc32c

from dledger.log.commit_log import CommitLog
from dledger.log.errors import SpanGone
from dledger.state.values import KeyHit, KeyHits, QueueSpan
from dledger.types import Span
from dledger_broker.read import lookups
from dledger_broker.read.lookups import LOOKUPS_AT_ONCE, Found, KeyQuestion, Lookups
from dledger_proto.batch import compression as codecs
from dledger_proto.batch.codec import (
    BatchView,
    Compression,
    Record,
    check_batch,
    cut_record,
    encode_batch,
)
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import (
    BATCH_SIZE_MAX,
    BODY_SIZE_MAX,
    KIB,
    LOOKUP_ANSWER_SIZE_TARGET,
    LOOKUP_READ_SIZE_TARGET,
    MIB,
)
from tests.unit.broker.fakes import TOPIC
from tests.unit.broker.test_messaging import FakeQueries, Host, messaging


def batch_of(
    records: Sequence[Record], number: int = 0, compression: Compression = Compression.NONE
) -> bytes:
    return encode_batch(
        records, topic_id=TOPIC, queue=0, stamp=None, base_number=number, base_time_ms=1,
        compression=compression,
    )  # fmt: skip


def unreadable(records: Sequence[Record]) -> bytes:
    """Return a batch whose bodies do not decompress, with a checksum that is right."""
    broken = bytearray(batch_of(records, compression=Compression.LZ4))
    assert broken[15] == Compression.LZ4
    stored = int.from_bytes(broken[104:108], "little")
    broken[-stored:] = b"\xff" * stored
    broken[4:8] = crc32c(bytes(broken[8:])).to_bytes(4, "little")
    return bytes(broken)


class Stored(FakeQueries):
    """Batches one behind the other, in one queue; each is found by each key's hash."""

    def __init__(self, batches: Sequence[bytes], minimum: int = 0) -> None:
        self.minimum = minimum
        self.data = b"".join(batches)
        self.reads: list[int] = []
        self.rows: list[QueueSpan] = []
        position = offset = 0
        for batch in batches:
            count = check_batch_count(batch)
            self.rows.append(QueueSpan(offset, position, 0, count, len(batch), 1))
            position, offset = position + len(batch), offset + count
        self.end = offset

    def lookup_key(
        self,
        topic_id: bytes,
        key_hash: int,
        begin_ms: int,
        end_ms: int,
        limit: int,
        up_to: int | None = None,
    ) -> KeyHits:
        behind = [each for each in reversed(self.rows) if up_to is None or each.position <= up_to]
        hits = [KeyHit(0, span) for span in behind[:limit]]
        return KeyHits(hits, behind[limit].position if len(behind) > limit else None)

    def lookup_offset(self, topic_id: bytes, queue: int, offset: int) -> QueueSpan:
        return next(
            each
            for each in self.rows
            if each.base_offset <= offset < each.base_offset + each.record_count
        )

    def queue_bounds(self, topic_id: bytes, queue: int) -> tuple[int, int]:
        return self.minimum, self.end

    # The log's half.

    def read_span(self, span: Span) -> bytes:
        """Return what lies there."""
        self.reads.append(span.size)
        return self.data[span.position : span.position + span.size]

    def path_of(self, position: int) -> str:
        """Return a name."""
        return f"log/{position}"


def check_batch_count(batch: bytes) -> int:
    return BatchView(batch).header.record_count


def lookups_of(stored: Stored, host: Host | None = None) -> Lookups:
    core = messaging(host or Host(), b"", 0, stored)
    core.view.log = cast("CommitLog", stored)
    return core.lookups


async def all_pages(group: Lookups, question: KeyQuestion) -> list[list[Found]]:
    pages: list[list[Found]] = []
    while True:
        found, cursor = await group.by_key(question)
        pages.append(found)
        if not cursor:
            return pages
        question = KeyQuestion(
            question.topic_id, question.key, limit=question.limit, cursor=cursor,
            places_only=question.places_only,
        )  # fmt: skip


def test_records_alone_are_answered_not_their_batches() -> None:
    """A thousand records of a KiB with one key in a batch; the default limit."""

    async def run() -> None:
        records = [Record(b"%04d" % n + bytes(KIB), keys=("k",)) for n in range(1_000)]
        group = lookups_of(Stored([batch_of(records)]))
        first, cursor = await group.by_key(KeyQuestion(TOPIC, b"k"))
        assert [each.offset for each in first] == list(range(32))
        assert cursor
        assert sum(len(each.batch) for each in first) < 32 * (KIB + 200)
        found = [each for page in await all_pages(group, KeyQuestion(TOPIC, b"k")) for each in page]
        assert [each.offset for each in found] == list(range(1_000))
        for number, each in enumerate(found):
            check_batch(each.batch)
            view = BatchView(each.batch)
            assert view.record(0) == records[number]._replace(time_ms=1)
            assert view.message_id(0) == bytes(16) + number.to_bytes(8, "big")

    asyncio.run(run())


def test_an_answer_is_bounded_in_bytes_and_in_bytes_read() -> None:
    """Sixty batches of the largest size with one key: one record of each answer, or few batches."""

    async def run() -> None:
        body = bytes(BODY_SIZE_MAX)
        large = batch_of([Record(body, keys=("k",))])
        stored = Stored([large] * 60)
        pages = await all_pages(lookups_of(stored), KeyQuestion(TOPIC, b"k", limit=1_024))
        assert [len(page) for page in pages] == [1] * 60
        assert [page[0].offset for page in pages] == list(range(59, -1, -1))
        stored.reads.clear()
        places = KeyQuestion(TOPIC, b"k", limit=1_024, places_only=True)
        pages = await all_pages(lookups_of(stored), places)
        assert [each.offset for page in pages for each in page] == list(range(59, -1, -1))
        assert all(not each.batch for page in pages for each in page)
        assert max(map(len, pages)) == LOOKUP_READ_SIZE_TARGET // len(large)
        assert len(stored.reads) == 60

    asyncio.run(run())


def test_pages_hold_every_record_once_whatever_their_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(seed: int) -> None:
        random = Random(seed)
        monkeypatch.setattr(lookups, "LOOKUP_ANSWER_SIZE_TARGET", random.choice((1, 900, 5_000)))
        monkeypatch.setattr(lookups, "LOOKUP_READ_SIZE_TARGET", random.choice((1, 900, 5_000)))
        batches: list[bytes] = []
        expected: list[list[int]] = []
        offset = 0
        minimum = random.randrange(20)
        for _ in range(random.randrange(1, 12)):
            rows = [
                Record(
                    random.randbytes(random.randrange(300)),
                    keys=random.choice(((), ("k",), ("k", "o", "k"), ("o",))),
                )
                for _ in range(random.randrange(1, 9))
            ]
            batches.append(batch_of(rows, compression=random.choice(list(Compression))))
            expected.append(
                [
                    offset + n
                    for n, row in enumerate(rows)
                    if "k" in row.keys and offset + n >= minimum
                ]
            )
            offset += len(rows)
        group = lookups_of(Stored(batches, minimum))
        limit = random.choice((1, 2, 5, 1_024))
        pages = await all_pages(group, KeyQuestion(TOPIC, b"k", limit=limit))
        found = [each.offset for page in pages for each in page]
        assert found == [each for batch in reversed(expected) for each in batch], seed
        assert max(map(len, pages)) <= limit

    for seed in range(60):
        asyncio.run(run(seed))


def test_a_record_that_cannot_be_decoded_is_its_own_error_alone() -> None:
    async def run() -> None:
        rows = [Record(b"same " * 100, keys=("k",)), Record(b"same " * 100, keys=("other",))]
        host = Host()
        stored = Stored([batch_of(rows), unreadable(rows), batch_of(rows)])
        group = lookups_of(stored, host)
        ((newest, broken, oldest),) = await all_pages(group, KeyQuestion(TOPIC, b"k"))
        assert (newest.offset, broken.offset, oldest.offset) == (4, 2, 0)
        assert newest.problem is None
        assert oldest.problem is None
        assert broken.problem is not None
        assert broken.problem.code is Code.UNREADABLE_BATCH
        assert not broken.batch
        (places,) = await all_pages(group, KeyQuestion(TOPIC, b"k", places_only=True))
        assert [each.offset for each in places] == [4, 2, 0], "no body is needed to tell them"
        single = await group.at(TOPIC, 0, 3, stored.rows[1])
        assert single.offset == 3
        assert single.problem is not None
        assert host.failures == [], "it is as it was sent: no damage of this disk"

    asyncio.run(run())


def test_bodies_are_decompressed_in_the_pool_and_few_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[str] = []
    running: list[int] = []
    lock = threading.Lock()
    real = codecs.decompress

    def noted(compression: int, stored: memoryview, size: int) -> bytes:
        with lock:
            threads.append(threading.current_thread().name)
        return bytes(real(compression, stored, size))

    monkeypatch.setattr("dledger_proto.batch.view.decompress", noted)

    class Counting(Stored):
        at_once = 0

        def read_span(self, span: Span) -> bytes:
            with lock:
                self.at_once += 1
                running.append(self.at_once)
            found = super().read_span(span)
            with lock:
                self.at_once -= 1
            return found

    async def run() -> None:
        rows = [Record(b"same " * 100, keys=("k",))] * 2
        group = lookups_of(Counting([batch_of(rows, compression=Compression.LZ4)]))
        answers = await asyncio.gather(*(group.by_key(KeyQuestion(TOPIC, b"k")) for _ in range(30)))
        assert all(len(found) == 2 for found, _ in answers)
        assert max(running) <= LOOKUPS_AT_ONCE

    asyncio.run(run())
    assert len(threads) == 30, "once for each batch that is read"
    assert threading.main_thread().name not in threads


def test_no_record_of_a_damaged_batch_is_answered() -> None:
    """I15: its checksum is that of the whole batch, so it is compared before the cut; I16."""

    async def run(offset: int | None) -> None:
        host = Host()
        stored = Stored([batch_of([Record(b"one", keys=("k",)), Record(b"two", keys=("k",))])])
        data = bytearray(stored.data)
        data[-1] ^= 1  # of the second record, the first would be as it was sent
        stored.data = bytes(data)
        group = lookups_of(stored, host)
        if offset is None:
            asked: Awaitable[object] = group.by_key(KeyQuestion(TOPIC, b"k"))
        else:
            asked = group.at(TOPIC, 0, offset, stored.rows[0])
        with pytest.raises(DledgerError) as raised:
            await asked
        assert raised.value.code is Code.STORAGE_FAILED
        assert len(host.failures) == 1

    for offset in (None, 0, 1):
        asyncio.run(run(offset))


def test_what_is_trimmed_while_it_is_looked_up_is_left_out() -> None:
    """The state knows of the trim before the log's head goes."""

    class Trimmed(Stored):
        def read_span(self, span: Span) -> bytes:
            if span.position < self.rows[0].position or not self.reads:
                self.reads.append(0)
                del self.rows[0]
                raise SpanGone("trimmed")
            return super().read_span(span)

    async def run() -> None:
        host = Host()
        batch = batch_of([Record(b"", keys=("k",))])
        group = lookups_of(Trimmed([batch] * 3), host)
        (page,) = await all_pages(group, KeyQuestion(TOPIC, b"k"))
        assert [each.offset for each in page] == [2, 1]
        assert host.failures == []

    asyncio.run(run())


@pytest.mark.parametrize("cursor", [b"x", bytes(13), b"\xff" * 12])
def test_a_cursor_that_no_answer_gave_is_refused(cursor: bytes) -> None:
    async def run() -> None:
        with pytest.raises(DledgerError) as raised:
            await lookups_of(Stored([])).by_key(KeyQuestion(TOPIC, b"k", cursor=cursor))
        assert raised.value.code is Code.INVALID_ARGUMENT

    asyncio.run(run())


def test_bounds_leave_room_for_the_largest_record() -> None:
    record = Record(bytes(BODY_SIZE_MAX), keys=("k" * 100,), properties={"p": "x" * 30_000})
    view = BatchView(batch_of([record]))
    assert LOOKUP_ANSWER_SIZE_TARGET < BATCH_SIZE_MAX < 16 * MIB
    check_batch(cut_record(view, 0))
