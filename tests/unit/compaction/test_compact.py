"""The command Compact: what apply lets go, what it refuses, and where what stays lies (S60, D7)."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import cast

import pytest

from dledger.state.consumers.settings import ConsumeOrder, StartFrom
from dledger.state.lookup import key_index
from dledger.state.progress.claims import ClaimQueues, WantedQueue
from dledger.state.progress.failures import FailedRecord, FailRecords
from dledger.state.queues.carry import Copy
from dledger.state.queues.compact import Compact, CutRow, joined
from dledger.state.queues.expire import Bound, ExpireRecords, Expiring
from dledger.state.queues.holds import Hold
from dledger.state.queues.trim import Trim
from dledger.state.results import Appended, Compacted, FailuresStored, Refused, Result
from dledger.state.tables import Table
from dledger.state.timers.schedules import SetSchedule
from dledger.state.topics.commands import DeleteTopic, UpdateTopic
from dledger.state.values import QueueSpan, Reference, Retention, TopicType
from dledger_broker.read.batches import read_batches
from dledger_offline.state import describe_row
from dledger_proto.batch.codec import BatchView, Record, cut_records, encode_batch
from dledger_proto.errors import Code, DledgerError
from dledger_proto.keyhash import key_hash
from dledger_proto.limits import RETENTION_BY_KEY, RETENTION_DEFAULT, RETENTION_FOREVER
from tests.unit.compaction.kit import QUEUE, Leader, bodies, compacted_topic, keyed
from tests.unit.state.carry_kit import carry, end_of, stretch
from tests.unit.state.groups_kit import SETTINGS, with_group
from tests.unit.state.kit import (
    TOPIC,
    Driven,
    batch,
    code_of,
    create,
    delayed,
    offset_of,
    started,
)

GONE_MAX = 0xFFFF_FFFF
BODY = bytes(200)
"""Large enough that a run of one record is worth it."""


def filled() -> Leader:
    """Return a leader of a queue with two full blocks of three rows, and a newest one.

    Offsets 0 to 3 are one batch, 4 and 5 one each, 6 to 8 one each.
    """
    leader = Leader()
    leader.driven.append(keyed(("a", b"0"), ("b", b"1"), ("c", b"2"), ("d", b"3")))
    for offset in range(4, 9):
        leader.driven.append(keyed(("e", b"%d" % offset)))
    return leader


def propose(
    leader: Leader,
    stays: dict[int, Sequence[tuple[int, int]]],
    *,
    first: int = 0,
    stop: int = 6,
    cleaned: int = -1,
    names: dict[int, int] | None = None,
) -> Result:
    """Apply a command that cuts rows, by base offset, down to runs (first record, count)."""
    by_offset = {row.base_offset: row for row in leader.rows()}
    rows: list[CutRow] = []
    runs: list[Copy] = []
    for offset, left in stays.items():
        row = by_offset[offset]
        rows.append(CutRow(offset, row.record_count))
        (whole,) = read_batches(leader.log, [row])
        for run in left:
            name = row.position + run[0]
            runs.append(Copy((names or {}).get(name, name), cut_records(BatchView(whole), *run)))
    command = Compact(*QUEUE, first, stop, cleaned, tuple(rows), tuple(runs))
    return leader.driven.one(command)


def kinds(leader: Leader) -> list[tuple[int, int, bool]]:
    return [(row.base_offset, row.record_count, row.is_gone) for row in leader.rows()]


def test_what_stays_keeps_its_offset_and_what_goes_is_named() -> None:
    with closing(filled()) as leader:
        before = leader.records()
        assert propose(leader, {0: [(1, 1), (3, 1)], 4: []}) == Compacted(3, 2)
        assert kinds(leader) == [
            (0, 1, True), (1, 1, False), (2, 1, True), (3, 1, False), (4, 1, True), (5, 1, False),
            (6, 1, False), (7, 1, False), (8, 1, False),
        ]  # fmt: skip
        after = leader.records()
        assert after == {offset: before[offset] for offset in (1, 3, 5, 6, 7, 8)}


def test_neighbours_that_are_gone_become_one_row() -> None:
    with closing(filled()) as leader:
        leader.driven.one(Trim(*QUEUE, 1))
        assert propose(leader, {0: [], 4: [], 5: []}, first=1) == Compacted(6, 0)
        assert kinds(leader)[0] == (0, 6, True)


def test_the_row_of_the_minimum_begins_anew() -> None:
    """Else the place of the minimum would go back, and a pass of carrying would miss the queue."""
    rows = [QueueSpan(at, 100 + at, 0, 1, 0, 1) for at in range(4)]
    assert [row.base_offset for row in joined(rows, 2)] == [0, 2]
    assert [row.base_offset for row in joined(rows, 0)] == [0]


def test_a_row_stands_for_no_more_offsets_than_its_number_can_hold() -> None:
    rows = [QueueSpan(0, 1, 0, GONE_MAX, 0, 1), QueueSpan(GONE_MAX, 2, 0, 1, 0, 1)]
    assert list(joined(rows, 0)) == rows


def test_a_second_pass_cuts_what_the_first_one_left() -> None:
    with closing(filled()) as leader:
        before = bodies(leader.records())
        propose(leader, {0: [(1, 3)]})
        propose(leader, {1: [(1, 1)]})
        after = bodies(leader.records())
        assert after == {offset: before[offset] for offset in (2, 4, 5, 6, 7, 8)}
        assert [row.position - leader.rows()[0].position for row in leader.rows()[:3]] == [0, 2, 3]


def test_runs_are_carried_forward_like_any_batch() -> None:
    with closing(filled()) as leader:
        propose(leader, {0: [(1, 1), (3, 1)], 4: [], 5: []})
        leader.driven.save()
        before, target = leader.records(), end_of(leader.driven)
        # Two runs, and the three rows of the newest block.
        assert carry(leader.driven, target) == 5
        leader.driven.save()
        assert leader.driven.machine.queries.head().needed == target
        assert leader.records() == before
        assert all(row.is_gone or row.place > target for row in leader.rows())


def test_a_run_is_carried_from_where_it_lies() -> None:
    """The place of a run counts, not its name: it may lie above what a pass frees."""
    with closing(filled()) as leader:
        target = end_of(leader.driven)
        propose(leader, {0: [(1, 1)]})
        assert carry(leader.driven, target) == 5, "rows 4 to 8"


def test_a_copy_of_a_row_that_was_cut_meanwhile_is_looked_at_again() -> None:
    """Nothing is damaged: the leader read the row before the cut was applied."""
    with closing(filled()) as leader:
        late = stretch(leader.driven, end_of(leader.driven))
        propose(leader, {0: [(0, 1), (3, 1)]})
        before, target = leader.records(), end_of(leader.driven)
        assert code_of(leader.driven.one(replace(late, target=target))) is Code.BUSY
        carry(leader.driven, target)
        assert leader.records() == before


def test_what_somebody_refers_to_stays_whole() -> None:
    with closing(filled()) as leader:
        row = leader.rows()[0]
        reference = Reference(row.position, 2, 1, row.size)
        number = leader.driven.machine._state.references.new_pin(reference)
        before = leader.records()
        assert code_of(propose(leader, {0: [(1, 1)], 4: []})) is Code.BUSY
        assert leader.records() == before
        leader.driven.machine._state.references.unpin(row.position, number)
        assert propose(leader, {0: [(1, 1)], 4: []}) == Compacted(4, 1)


@pytest.mark.parametrize("held", [0, 4, 5])
def test_a_hold_keeps_what_is_above_it(held: int) -> None:
    with closing(filled()) as leader:
        leader.driven.one(Hold("spark", *QUEUE, held, 1 << 40))
        assert code_of(propose(leader, {4: []})) is Code.BUSY
        assert propose(leader, {}, first=0, stop=0, cleaned=0) == Compacted(0, 0)


def test_the_newest_block_stays_as_it_is() -> None:
    with closing(filled()) as leader:
        assert code_of(propose(leader, {6: []}, stop=9)) is Code.BUSY
        assert code_of(propose(leader, {4: []}, stop=4)) is Code.BUSY, "behind the stretch"


def test_a_row_that_has_changed_since_is_looked_at_again() -> None:
    with closing(filled()) as leader:
        stale = CutRow(0, 4)
        propose(leader, {0: [(1, 3)]})
        for row in (stale, CutRow(1, 2), CutRow(7, 1), CutRow(2, 1)):
            command = Compact(*QUEUE, 0, 6, -1, (row,), ())
            assert code_of(leader.driven.one(command)) is Code.BUSY, row
        leader.driven.one(Trim(*QUEUE, 5))
        assert code_of(leader.driven.one(Compact(*QUEUE, 0, 6, -1, (), ()))) is Code.BUSY


def test_a_topic_that_keeps_all_is_not_compacted() -> None:
    driven = started(create())
    driven.append(*[batch() for _ in range(9)])
    assert code_of(driven.one(Compact(*QUEUE, 0, 0, 0, (), ()))) is Code.BUSY


def other_bytes(run: Copy) -> Copy:
    damaged = bytearray(run.batch)
    damaged[-1] ^= 1
    return Copy(run.position, bytes(damaged))


def test_a_run_of_other_bytes_is_refused() -> None:
    """As the next test: a known bug is hunted with it."""
    test_runs_must_lie_within_their_row_and_be_sound(
        lambda runs: [other_bytes(runs[0]), runs[1]], Code.CORRUPT_BATCH
    )


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda runs: [other_bytes(runs[0]), runs[1]], Code.CORRUPT_BATCH),
        (lambda runs: [Copy(runs[0].position, keyed(("a", b"x"))[:-4]), runs[1]],
         Code.CORRUPT_BATCH),
        (lambda runs: [Copy(runs[0].position, batch(queue=1, keys=("a",))), runs[1]],
         Code.CORRUPT_BATCH),
        (lambda runs: [runs[1], runs[0]], Code.INVALID_ARGUMENT),
        (lambda runs: [runs[0], runs[0], runs[1]], Code.INVALID_ARGUMENT),
        (lambda runs: [Copy(runs[0].position + 3, runs[0].batch), runs[1]], Code.BUSY),
        (lambda runs: [Copy(runs[0].position - 2, runs[0].batch), runs[1]], Code.INVALID_ARGUMENT),
        (lambda runs: [*runs, Copy(runs[1].position + 100_000, runs[1].batch)], Code.BUSY),
    ],
)  # fmt: skip
def test_runs_must_lie_within_their_row_and_be_sound(wrong: object, code: Code) -> None:
    assert callable(wrong)
    with closing(filled()) as leader:
        row = leader.rows()[0]
        (whole,) = read_batches(leader.log, [row])
        runs = [Copy(row.position + at, cut_records(BatchView(whole), at, 1)) for at in (1, 3)]
        before = leader.driven.rows()
        command = Compact(*QUEUE, 0, 6, -1, (CutRow(0, 4),), tuple(wrong(runs)))
        assert code_of(leader.driven.one(command)) is code
        assert {
            key: row for key, row in leader.driven.rows().items() if key[0] in (0x20, 0x21)
        } == {key: row for key, row in before.items() if key[0] in (0x20, 0x21)}
        command = Compact(*QUEUE, 0, 6, -1, (CutRow(0, 4),), tuple(runs))
        assert leader.driven.one(command) == Compacted(2, 2)


def test_a_row_whose_records_all_stay_is_no_cut() -> None:
    with closing(filled()) as leader:
        assert code_of(propose(leader, {0: [(0, 4)]})) is Code.INVALID_ARGUMENT


def test_a_lookup_by_key_finds_what_stays_and_only_that() -> None:
    with closing(filled()) as leader:
        propose(leader, {0: [(1, 1), (3, 1)]})
        queries = leader.driven.machine.queries
        found = {
            key: [(hit.span.base_offset, hit.before) for hit in
                  queries.lookup_key(TOPIC, key_hash(key.encode()), 0, 0, 9).hits]
            for key in "bd"
        }  # fmt: skip
        # All runs of the batch: the caller compares the keys.
        assert found == {"b": [(1, 1), (3, 3)], "d": [(1, 1), (3, 3)]}
        leader.driven.one(Trim(*QUEUE, 3))
        (hit,) = queries.lookup_key(TOPIC, key_hash(b"d"), 0, 0, 9).hits
        assert hit.span.base_offset == 3


def test_a_lookup_by_offset_says_what_became_of_a_message() -> None:
    with closing(filled()) as leader:
        propose(leader, {4: []})
        with pytest.raises(DledgerError) as caught:
            leader.driven.machine.queries.lookup_offset(*QUEUE, 4)
        assert caught.value.code is Code.NOT_FOUND
        assert "compaction" in caught.value.detail


def test_the_cleaned_offset_is_kept_and_goes_with_its_topic() -> None:
    with closing(filled()) as leader:
        assert leader.driven.machine.queries.compactable(*QUEUE) == (0, 0, 6)
        propose(leader, {}, first=6, stop=6, cleaned=5)
        assert leader.driven.machine.queries.compactable(*QUEUE) == (0, 5, 6)
        assert code_of(propose(leader, {}, first=6, stop=6, cleaned=10)) is Code.INVALID_ARGUMENT
        assert rows_of(leader.driven, Table.COMPACTED) == [{"cleaned": 5}]
        leader.driven.one(DeleteTopic(TOPIC))
        leader.driven.idle(3)  # the garbage goes with entries
        assert rows_of(leader.driven, Table.COMPACTED) == []


def rows_of(driven: Driven, table: Table) -> list[dict[str, object]]:
    """Return the rows of a table as `dledger inspect state` shows them."""
    return [
        dict(describe_row(table, key, value).value)
        for key, value in driven.rows().items()
        if key[0] == table
    ]


def test_inspect_shows_what_is_gone_and_up_to_where_names_were_given() -> None:
    with closing(filled()) as leader:
        propose(leader, {0: [(1, 1)]})
        (rows, *_) = rows_of(leader.driven, Table.QUEUE_ROWS)
        shown = cast("list[str]", rows["rows"])
        assert [line.endswith(" gone") for line in shown] == [True, False, True]
        position = leader.rows()[0].position
        assert {"up_to": position + 1} in rows_of(leader.driven, Table.META)


def test_the_setting_takes_no_other_bound_and_no_topic_that_waits() -> None:
    compact = Retention(RETENTION_BY_KEY)
    for wrong in (
        replace(create(), retention=Retention(RETENTION_BY_KEY, 1)),
        replace(create(), retention=Retention(RETENTION_BY_KEY, RETENTION_FOREVER)),
        replace(create(), retention=compact, type=TopicType.DELAY),
    ):
        driven = Driven()
        assert code_of(driven.one(wrong)) is Code.INVALID_ARGUMENT
        assert driven.machine.queries.topics() == []
    driven = started(create())
    bounded = UpdateTopic(TOPIC, retention_size=(1,))
    assert not isinstance(driven.one(bounded), Refused)
    assert (
        code_of(driven.one(UpdateTopic(TOPIC, retention_time_ms=(RETENTION_BY_KEY,))))
        is Code.INVALID_ARGUMENT
    )
    both = UpdateTopic(
        TOPIC, retention_time_ms=(RETENTION_BY_KEY,), retention_size=(RETENTION_DEFAULT,)
    )
    assert not isinstance(driven.one(both), Refused)
    assert driven.machine.queries.topics()[0].is_compacted


def test_each_message_needs_one_key_and_none_may_wait() -> None:
    driven = compacted_topic()
    assert [code_of(each) for each in driven.append(batch(2), batch(2, keys=("a", "b")))] == [
        Code.MESSAGE_ILLEGAL
    ] * 2
    assert code_of(driven.append(delayed(1 << 30, keys=("a",)))[0]) is Code.MESSAGE_ILLEGAL
    uneven = [Record(b"two", keys=("a", "b")), Record(b"none")]
    mixed = encode_batch(uneven, topic_id=TOPIC, queue=0, stamp=None, base_number=0, base_time_ms=1)
    assert code_of(driven.append(mixed)[0]) is Code.MESSAGE_ILLEGAL
    assert driven.machine.queries.queue_bounds(*QUEUE) == (0, 0)
    (result,) = driven.append(batch(2, keys=("a",)))
    assert offset_of(result) == 0
    schedule = SetSchedule("s", "* * * * *", "UTC", batch())
    assert code_of(driven.one(schedule)) is Code.INVALID_ARGUMENT


def test_a_repeat_is_known_also_when_its_topic_became_compacted() -> None:
    """The first copy is stored: "not stored" would make its sender store it elsewhere, too."""
    driven = started(create())
    driven.register()
    sent = batch(2, sequence=0)
    assert offset_of(driven.append(sent)[0]) == 0
    driven.one(UpdateTopic(TOPIC, retention_time_ms=(RETENTION_BY_KEY,)))
    (result,) = driven.append(sent)
    assert isinstance(result, Appended)
    assert result.duplicate


def test_no_bound_lets_records_of_a_compacted_topic_go() -> None:
    driven = compacted_topic()
    driven.append(batch(3, keys=("a",)))
    default = Retention(1, 1)
    for why in Bound:
        expiring = Expiring(*QUEUE, 3, why, 1)
        driven.one(ExpireRecords((expiring,), default), time_ms=1 << 40)
    assert driven.machine.queries.queue_bounds(*QUEUE) == (0, 3)


def test_a_failure_of_what_is_gone() -> None:
    """As the next test: a known bug is hunted with it."""
    test_what_fails_after_it_is_gone_is_done(ConsumeOrder.CONCURRENT)


@pytest.mark.parametrize("order", [ConsumeOrder.CONCURRENT, ConsumeOrder.QUEUE])
def test_what_fails_after_it_is_gone_is_done(order: ConsumeOrder) -> None:
    """A consumer had the record when compaction deleted it: nothing is left to try again."""
    with closing(filled()) as leader:
        driven = leader.driven
        with_group(replace(SETTINGS, start=StartFrom.FIRST, order=order), driven=driven)
        driven.one(ClaimQueues("billing", "a", (WantedQueue(*QUEUE, 5, 0),)))
        propose(leader, {4: []})
        failed = FailRecords("billing", "a", (FailedRecord(*QUEUE, 5, 0, 4, 0, -1, "bad"),))
        result = driven.one(failed)
        assert isinstance(result, FailuresStored)
        assert result.rows[0].code is Code.OK
        assert result.rows[0].is_dead == (order is ConsumeOrder.QUEUE)
        row = driven.machine.queries.progress("billing", *QUEUE).row
        assert row is not None
        assert row.is_done(4)
        assert driven.machine.queries.timers_waiting == 0


def test_the_key_index_forgets_what_is_gone_and_keeps_what_is_left() -> None:
    """Also when the minimum lies within a batch that was cut: its runs lie behind its position."""
    with pytest.MonkeyPatch.context() as patch, closing(Leader()) as leader:
        for name, value in (
            ("LEVEL_0_ENTRIES", 8), ("MERGE_PACE", 4), ("MERGE_STEP", 5), ("RUNS_PER_MERGE", 2),
            ("ENTRIES_PER_BLOCK", 5), ("LEVEL_0_BLOCK_SIZE", 200),
        ):  # fmt: skip
            patch.setattr(key_index, name, value)
        for number in range(60):
            leader.driven.append(
                keyed((f"x{number}", BODY), ("a", BODY), (f"y{number}", BODY), ("a", BODY))
            )
        for number in range(60):
            leader.driven.append(keyed(("b", b"%d" % number)))
        leader.run()
        leader.driven.one(Trim(*QUEUE, 4 * 20 + 1))
        for number in range(400):
            leader.driven.append(keyed((f"other{number}", b"")))
        queries = leader.driven.machine.queries

        def found(key: str) -> list[int]:
            hits = queries.lookup_key(TOPIC, key_hash(key.encode()), 0, 0, 99).hits
            return [hit.span.base_offset + 2 - hit.before for hit in hits]

        assert found("x19") == []
        assert found("y20") == [82]
        assert all(found(f"y{number}") for number in range(20, 60))
        places = list(leader.driven.machine._state.keys.find(TOPIC, key_hash(b"b"), 0, 1 << 50))
        assert len(places) < 40, "merges leave out what is gone"
