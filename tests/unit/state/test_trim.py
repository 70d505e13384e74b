"""Trim, holds, garbage, and the lowest position that is still needed."""

from random import Random

import pytest

from dledger.state.queues.garbage import GARBAGE_ROWS_PER_ENTRY
from dledger.state.queues.holds import HOLDS_PER_QUEUE_MAX, Hold, ReleaseHold
from dledger.state.queues.table import ROWS_PER_BLOCK
from dledger.state.queues.trim import Trim
from dledger.state.results import Held, Refused, Trimmed
from dledger.state.tables import Table
from dledger.state.values import KeptFrom, LayoutPart
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import TIME_MS_MAX
from tests.unit.state.kit import (
    GROUP,
    OTHER_TOPIC,
    TOPIC,
    Driven,
    batch,
    code_of,
    create,
    offset_of,
    started,
)


def test_trim_moves_the_minimum_up_only() -> None:
    driven = started()
    driven.append(batch(5), batch(5))
    assert driven.one(Trim(TOPIC, 0, 3)) == Trimmed(3)
    assert driven.machine.queries.queue_bounds(TOPIC, 0) == (3, 10)
    assert driven.one(Trim(TOPIC, 0, 1)) == Trimmed(3)
    assert driven.one(Trim(TOPIC, 0, 10)) == Trimmed(10)
    assert driven.machine.queries.queue_bounds(TOPIC, 0) == (10, 10)
    assert driven.machine.queries.spans(TOPIC, 0, 10, 100) == []
    assert offset_of(driven.append(batch())[0]) == 10
    for offset in (-1, 12):
        assert code_of(driven.one(Trim(TOPIC, 0, offset))) is Code.OFFSET_OUT_OF_RANGE
    assert code_of(driven.one(Trim(TOPIC, 9, 0))) is Code.QUEUE_NOT_FOUND
    assert code_of(driven.one(Trim(OTHER_TOPIC, 0, 0))) is Code.TOPIC_NOT_FOUND


def test_reads_below_the_minimum_are_refused() -> None:
    driven = started()
    driven.append(batch(5), batch(5))
    driven.one(Trim(TOPIC, 0, 7))
    with pytest.raises(DledgerError) as caught:
        driven.machine.queries.spans(TOPIC, 0, 6, 100)
    assert caught.value.code is Code.OFFSET_OUT_OF_RANGE
    (span,) = driven.machine.queries.spans(TOPIC, 0, 7, 100)
    assert span.base_offset == 5, "batches are whole"
    assert driven.machine.queries.offset_by_time(TOPIC, 0, 0) == 7


def test_holds_stop_a_trim_until_they_end() -> None:
    driven = started()
    driven.append(batch(10), time_ms=1_000)
    assert driven.one(Hold("a", TOPIC, 0, 4, 5_000)) == Held(5_000)
    assert driven.one(Hold("b", TOPIC, 0, 6, 3_000)) == Held(3_000)
    assert driven.one(Trim(TOPIC, 0, 8)) == Trimmed(4, "a", 5_000)
    refused = driven.one(Trim(TOPIC, 0, 8))
    assert isinstance(refused, Refused)
    assert refused.code is Code.HELD
    assert refused.detail == (
        "a holds the queue from offset 4 on, until 1970-01-01 00:00:05+00:00; 2 holds in all"
    )
    assert driven.one(Trim(TOPIC, 0, 4)) == Trimmed(4)
    assert driven.one(Hold("a", TOPIC, 0, 5, 9_000)) == Held(9_000), "renewed, further up"
    assert driven.one(Trim(TOPIC, 0, 8)) == Trimmed(5, "a", 9_000)
    assert driven.one(ReleaseHold("a", TOPIC, 0)) == Held(0)
    assert driven.one(ReleaseHold("a", TOPIC, 0)) == Held(0)
    assert driven.one(Trim(TOPIC, 0, 8), time_ms=2_999) == Trimmed(6, "b", 3_000)
    assert driven.one(Trim(TOPIC, 0, 8), time_ms=3_000) == Trimmed(8), "until is exclusive"
    assert not [key for key in driven.rows() if key[0] == Table.HOLD], "ended holds are removed"


def test_whom_a_trim_waits_for_is_told_with_the_end_of_his_hold() -> None:
    for until_ms, told in (
        (1_700_000_000_999, "2023-11-14 22:13:20+00:00"),
        (TIME_MS_MAX, "9999-12-31 23:59:59+00:00"),
        (1 << 62, f"{1 << 62} ms"),
    ):
        driven = started()
        driven.append(batch(10), time_ms=1_000)
        driven.one(Hold("a", TOPIC, 0, 0, until_ms))
        refused = driven.one(Trim(TOPIC, 0, 8))
        assert isinstance(refused, Refused)
        assert refused.detail == f"a holds the queue from offset 0 on, until {told}"


def test_holds_are_listed_in_pages() -> None:
    driven = started()
    driven.append(batch(10), time_ms=1_000)
    wanted = [
        KeptFrom(TOPIC, queue, owner, 0, 5_000 + queue)
        for queue in (0, 1, 3)
        for owner in ("a", "a-b", "b")
    ]
    for each in reversed(wanted):
        driven.one(Hold(each.owner, TOPIC, each.queue, each.offset, each.until_ms))
    for limit in (1, 2, 3, 4, 9, 100):
        found: list[KeptFrom] = []
        place = b""
        while True:
            page, place = driven.machine.queries.holds(None, None, place, limit)
            assert len(page) <= limit
            found += page
            if not place:
                break
        assert found == wanted
    machine = driven.machine
    assert machine.queries.holds(TOPIC, None, b"", 100)[0] == wanted
    assert machine.queries.holds(TOPIC, 1, b"", 100)[0] == wanted[3:6]
    assert machine.queries.holds(TOPIC, 2, b"", 100) == ([], b"")
    assert machine.queries.holds(OTHER_TOPIC, None, b"", 100) == ([], b"")
    for nonsense in (b"\xff", b"\xff" * 40, b"\0"):
        assert len(machine.queries.holds(TOPIC, 1, nonsense, 100)[0]) in {0, 3}


def test_holds_that_are_refused() -> None:
    driven = started()
    driven.append(batch(10), time_ms=1_000)
    driven.one(Trim(TOPIC, 0, 2))
    for hold, code in (
        (Hold("", TOPIC, 0, 4, 5_000), Code.INVALID_ARGUMENT),
        (Hold("x" * 121, TOPIC, 0, 4, 5_000), Code.INVALID_ARGUMENT),
        (Hold("a", TOPIC, 0, 4, 1_000), Code.INVALID_ARGUMENT),
        (Hold("a", TOPIC, 0, 1, 5_000), Code.OFFSET_OUT_OF_RANGE),
        (Hold("a", TOPIC, 0, 11, 5_000), Code.OFFSET_OUT_OF_RANGE),
        (Hold("a", TOPIC, 7, 0, 5_000), Code.QUEUE_NOT_FOUND),
    ):
        assert code_of(driven.one(hold)) is code
    for number in range(HOLDS_PER_QUEUE_MAX):
        driven.one(Hold(f"owner-{number}", TOPIC, 0, 4, 5_000 + number))
    assert code_of(driven.one(Hold("more", TOPIC, 0, 4, 9_000))) is Code.TOO_MANY_HOLDS
    assert driven.one(Hold("owner-3", TOPIC, 0, 4, 9_000)) == Held(9_000)
    assert driven.one(Hold("more", TOPIC, 0, 4, 9_000), time_ms=5_000) == Held(9_000)


def test_rows_go_a_few_with_each_entry() -> None:
    driven = started()
    blocks = 3 * GARBAGE_ROWS_PER_ENTRY + 5
    for _ in range(blocks):
        driven.append(*[batch()] * ROWS_PER_BLOCK)
    driven.append(batch(), batch())
    end = blocks * ROWS_PER_BLOCK + 2

    def rows() -> int:
        return sum(key[0] == Table.QUEUE_ROWS for key in driven.rows())

    assert rows() == blocks + 1
    driven.one(Trim(TOPIC, 0, end - 1))
    left = blocks + 1 - GARBAGE_ROWS_PER_ENTRY - 1  # one for the trim itself
    while left > 1:
        assert rows() == left
        driven.save()
        driven = Driven(driven.store, driven.log)
        driven.idle()
        left = max(left - GARBAGE_ROWS_PER_ENTRY, 1)
    driven.idle(2)
    assert rows() == 1
    assert not [key for key in driven.rows() if key[0] == Table.GARBAGE]
    assert driven.machine.queries.lookup_offset(TOPIC, 0, end - 1).base_offset == end - 1


def _count(driven: Driven, table: Table) -> int:
    return sum(key[0] == table for key in driven.rows())


@pytest.mark.parametrize("more", [0, 1, ROWS_PER_BLOCK - 1])
def test_a_queue_that_is_trimmed_to_its_end_again_and_again_leaves_nothing(more: int) -> None:
    """A full block at the end was kept, and the next trim began behind it."""
    driven = started()
    end = 0
    for _ in range(10):
        driven.append(*[batch()] * (ROWS_PER_BLOCK + more))
        end += ROWS_PER_BLOCK + more
        driven.one(Trim(TOPIC, 0, end))
        assert driven.machine.queries.queue_bounds(TOPIC, 0) == (end, end)
    driven.save()
    driven = Driven(driven.store, driven.log)
    driven.append(batch())
    assert driven.machine.queries.lookup_offset(TOPIC, 0, end).base_offset == end
    driven.one(Trim(TOPIC, 0, end + 1))
    driven.idle(2)
    assert _count(driven, Table.QUEUE_ROWS) <= 1
    assert _count(driven, Table.GARBAGE) == 0


def test_many_trims_in_each_entry_do_not_pile_up() -> None:
    queues = 4 * GARBAGE_ROWS_PER_ENTRY
    driven = started(create(layout=(LayoutPart(GROUP, queues),)))
    waiting: list[int] = []
    driven.append(*(batch(queue=queue) for queue in range(queues) for _ in range(ROWS_PER_BLOCK)))
    driven.run(*(Trim(TOPIC, queue, ROWS_PER_BLOCK) for queue in range(queues)))
    before = _count(driven, Table.GARBAGE)
    driven.idle()
    assert before - _count(driven, Table.GARBAGE) == GARBAGE_ROWS_PER_ENTRY // 2, "a range is a row"
    for offset in range(1, 6):
        for _ in range(ROWS_PER_BLOCK if offset == 3 else 1):  # one that frees blocks
            driven.append(*(batch(queue=queue) for queue in range(queues)))
        ends = [driven.machine.queries.queue_bounds(TOPIC, queue)[1] for queue in range(queues)]
        driven.run(*(Trim(TOPIC, queue, end) for queue, end in enumerate(ends)))
        waiting.append(_count(driven, Table.GARBAGE))
    assert max(waiting) <= queues
    assert waiting[-1] == 0


@pytest.mark.parametrize("restarted_at", range(1, 7))
def test_a_member_that_restarted_deletes_the_same_rows(restarted_at: int) -> None:
    """Where deleting goes on is memory only: with several ranges it must not show in the digest."""
    digests: list[list[bytes]] = []
    for restarts in (False, True):
        driven = started()
        for queue in (2, 0, 1):  # the ranges are deleted in another order than their keys
            for _ in range(2 * GARBAGE_ROWS_PER_ENTRY - 5):
                driven.append(*[batch(queue=queue)] * ROWS_PER_BLOCK)
            driven.append(batch(queue=queue))
        end = (2 * GARBAGE_ROWS_PER_ENTRY - 5) * ROWS_PER_BLOCK
        driven.run(*(Trim(TOPIC, queue, end) for queue in (2, 0, 1)))
        found: list[bytes] = []
        for entry in range(8):
            if restarts and entry == restarted_at:
                driven.save()
                driven = Driven(driven.store, driven.log)
            driven.idle()
            found.append(driven.machine.digest)
        assert sum(key[0] == Table.QUEUE_ROWS for key in driven.rows()) == 3
        digests.append(found)
    assert digests[0] == digests[1]


def test_head_needed_is_that_of_the_flush_not_of_later_trims() -> None:
    driven = started()
    driven.append(batch(5))
    driven.append(batch(5))
    first = driven.log.entries[-1].starts[0]
    driven.one(Trim(TOPIC, 0, 5))
    flush = driven.machine.freeze()
    assert flush is not None
    driven.one(Trim(TOPIC, 0, 10))
    flush.execute()
    driven.machine.flush_finished(flush)
    assert driven.machine.head_needed() == first


def test_the_whole_log_stays_until_something_is_trimmed() -> None:
    """No member trims by itself, not even entries that no row refers to."""
    driven = started()
    driven.append(batch(5))
    driven.save()
    assert driven.machine.head_needed() == 0
    driven.one(Trim(TOPIC, 0, 2))
    driven.save()
    first = driven.log.entries[-2].starts[0]
    assert driven.machine.head_needed() == first > 0
    assert Driven(driven.store, driven.log).machine.head_needed() == first


def needed(driven: Driven) -> int:
    """What the saved state refers to, by walking over every visible row."""
    if not any(driven.machine.queries.queue_bounds(TOPIC, queue)[0] for queue in range(4)):
        return 0
    positions = [driven.log.position]
    for topic in driven.machine.queries.topics():
        for queue in range(4):
            low, high = driven.machine.queries.queue_bounds(topic.topic_id, queue)
            if low < high:
                positions.append(
                    driven.machine.queries.lookup_offset(topic.topic_id, queue, low).position
                )
    return min(positions)


@pytest.mark.parametrize("seed", range(5))
def test_head_needed_equals_brute_force(seed: int) -> None:
    """It follows saves, never what is only in memory: a power cut would bring it back."""
    driven, random = started(), Random(seed)
    assert driven.machine.head_needed() == 0
    saved = 0
    for _ in range(300):
        queue = random.randrange(4)
        low, high = driven.machine.queries.queue_bounds(TOPIC, queue)
        match random.randrange(8):
            case 0 | 1:
                driven.one(Trim(TOPIC, queue, random.randint(low, high)))
            case 2:
                driven.save()
                assert needed(driven) >= saved, "it never goes down"
                saved = needed(driven)
            case 3:
                driven.save()
                saved = needed(driven)
                driven = Driven(driven.store, driven.log)
            case _:
                driven.append(*(batch(random.randint(1, 9), queue=queue) for _ in range(3)))
        assert driven.machine.head_needed() == saved
    for queue in range(4):
        driven.one(Trim(TOPIC, queue, driven.machine.queries.queue_bounds(TOPIC, queue)[1]))
    driven.save()
    assert driven.machine.head_needed() == driven.log.position
