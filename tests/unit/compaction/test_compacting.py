"""The leader compacts a queue when enough is new, and never lets the last of a key go (S60)."""

from collections.abc import Sequence
from contextlib import closing

import pytest

from dledger.state.queues.compact import Compact
from dledger.state.queues.holds import ReleaseHold
from dledger.state.timers.commands import FireTimers
from dledger.state.values import Reference
from dledger_broker.compacting import compacting as module
from dledger_broker.compacting.compacting import LOOK_SECONDS, is_worth_it
from dledger_broker.read.batches import DamagedBatch
from dledger_proto.batch.codec import Compression, Record, encode_batch
from dledger_proto.limits import MIB, RETENTION_BY_KEY, RETENTION_DEFAULT
from tests.unit.compaction.kit import QUEUE, Leader, bodies, fill, keyed
from tests.unit.state.kit import TOPIC, delayed
from tests.unreadable import with_bad_bodies


def compacted(leader: Leader) -> dict[int, bytes]:
    """Let the leader compact; return the bodies that are left, by offset."""
    leader.run()
    assert not leader.failures
    return bodies(leader.records())


def test_the_last_record_of_each_key_stays() -> None:
    with closing(Leader()) as leader:
        leader.driven.append(keyed(("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b"1")))
        leader.driven.append(keyed(("c", b"2"), ("c", b"3")))
        fill(leader.driven, 6)
        left = compacted(leader)
        assert left == {1: b"1", 2: b"2", 5: b"3", 9: b"f3", 10: b"f4", 11: b"f5"}


def test_a_tombstone_goes_after_its_time_and_its_key_stays_deleted() -> None:
    with closing(Leader(tombstone_ms=1_000)) as leader:
        leader.driven.append(keyed(("a", b"1")))
        leader.driven.append(keyed(("a", b"")))
        fill(leader.driven, 4)
        assert compacted(leader)[1] == b"", "readers that are behind must see it"
        assert 0 not in compacted(leader)
        leader.driven.append(keyed(("x", b"")), time_ms=leader.driven.log.time_ms + 1_000)
        fill(leader.driven, 3)
        left = compacted(leader)
        assert 0 not in left
        assert 1 not in left


def test_a_tombstone_stays_as_long_as_an_older_record_of_its_key() -> None:
    with closing(Leader()) as leader:
        leader.driven.append(keyed(("a", b"1")))
        leader.driven.append(keyed(("a", b"")))
        fill(leader.driven, 4)
        row = leader.rows()[0]
        reference = Reference(row.position, 0, 1, row.size)
        references = leader.driven.machine._state.references
        number = references.new_pin(reference)
        left = compacted(leader)
        assert (left[0], left[1]) == (b"1", b"")
        assert leader.driven.machine.queries.compactable(*QUEUE).cleaned == 1
        references.unpin(row.position, number)
        left = compacted(leader)
        assert 0 not in left
        assert 1 not in left


def test_what_is_held_stays_and_what_lies_below_goes() -> None:
    with closing(Leader()) as leader:
        for _ in range(9):
            leader.driven.append(keyed(("a", b"1")))
        leader.hold(3)
        assert sorted(compacted(leader)) == [2, 3, 4, 5, 6, 7, 8]
        leader.driven.one(ReleaseHold("spark", *QUEUE))
        assert sorted(compacted(leader)) == [5, 6, 7, 8]


def test_a_hold_that_comes_meanwhile_keeps_what_is_above_it() -> None:
    """The leader did not see it when it looked at the queue; apply does."""
    with closing(Leader()) as leader:
        for _ in range(9):
            leader.driven.append(keyed(("a", b"1")))
        leader.before = lambda: leader.hold(3)
        leader.run()
        assert sorted(leader.records()) == [2, 3, 4, 5, 6, 7, 8]
        assert leader.refused


def test_a_tombstone_stays_as_long_as_a_record_that_nobody_compares() -> None:
    """One with several keys, or one that a timer brought, of a time without compaction."""
    with closing(Leader()) as leader:
        leader.keep(RETENTION_DEFAULT)
        several = [Record(b"several", keys=("a", "b"))]
        leader.driven.append(
            encode_batch(
                several, topic_id=TOPIC, queue=0, stamp=None, base_number=0, base_time_ms=1
            )
        )
        now = leader.driven.log.time_ms
        leader.driven.append(delayed(now + 10, keys=("c",)))
        leader.driven.one(FireTimers(now + 20, 9), now + 20)
        leader.keep(RETENTION_BY_KEY)
        leader.driven.append(keyed(("a", b""), ("b", b""), ("c", b""), ("d", b"")))
        fill(leader.driven, 4)
        left = compacted(leader)
        assert sorted(left)[:5] == [0, 1, 2, 3, 4]
        assert 5 not in left, "no older record of d is left"


def test_a_row_whose_runs_would_be_as_large_stays_whole() -> None:
    """Else a command could be much larger than a batch. Its tombstones stay, too."""
    with closing(Leader()) as leader:
        rows = [(("a", "b")[number % 2] + str(number), b"y") for number in range(40)]
        leader.driven.append(keyed(*rows))
        for number in range(1, 40, 2):
            leader.driven.append(keyed((f"b{number}", b"x")))
        fill(leader.driven, 4)
        before = leader.records()
        left = compacted(leader)
        assert all(offset in left for offset in range(1, 40, 2)), "superseded, but not worth it"
        assert leader.driven.machine.queries.compactable(*QUEUE).cleaned <= 40
        assert all(left[offset] == before[offset].body for offset in range(40, 60))


def test_a_batch_that_nobody_can_decompress_stays_whole_and_the_pass_goes_on() -> None:
    """Members take it. It goes once all its records are superseded."""
    with closing(Leader()) as leader:
        made = [Record(bytes(500), keys=(key,)) for key in "abcd"]
        batch = encode_batch(
            made, topic_id=TOPIC, queue=0, stamp=None, base_number=0, base_time_ms=1,
            compression=Compression.ZSTD,
        )  # fmt: skip
        leader.driven.append(with_bad_bodies(batch))
        leader.driven.append(keyed(("a", b"1")))
        fill(leader.driven, 7)
        leader.run()
        assert not leader.refused
        assert not leader.failures
        rows = [(row.base_offset, row.record_count, row.is_gone) for row in leader.rows()]
        assert rows[:3] == [(0, 4, False), (4, 1, False), (5, 3, True)]
        assert leader.driven.machine.queries.compactable(*QUEUE).cleaned == 4
        leader.driven.append(keyed(("b", b"1"), ("c", b"1"), ("d", b"1")))
        fill(leader.driven, 3)
        leader.run()
        assert leader.rows()[0].is_gone


def test_a_pass_that_is_refused_rests_too() -> None:
    with closing(Leader()) as leader:
        for _ in range(9):
            leader.driven.append(keyed(("a", b"1")))
        leader.before = lambda: leader.hold(0)
        leader.run(LOOK_SECONDS + module.AGAIN_SECONDS - 1)
        assert len(leader.refused) == 1


def test_records_without_a_key_of_their_own_stay() -> None:
    """They are of a time when the topic was not compacted."""
    with closing(Leader()) as leader:
        leader.keep(RETENTION_DEFAULT)
        for keys in ((), ("a", "b"), ("a",)):
            made = [Record(b"x", keys=keys)] * 2
            leader.driven.append(
                encode_batch(
                    made, topic_id=TOPIC, queue=0, stamp=None, base_number=0, base_time_ms=1
                )
            )
        leader.keep(RETENTION_BY_KEY)
        fill(leader.driven, 6, ("a",))
        left = sorted(compacted(leader))
        assert left[:4] == [0, 1, 2, 3]
        assert not {4, 5, 6, 7} & set(left)


def test_with_too_many_keys_a_pass_ends_early_and_the_next_goes_on() -> None:
    with closing(Leader()) as leader:
        leader.compare_keys(4)
        for number in range(12):
            leader.driven.append(keyed((f"k{number % 6}", b"%d" % number)))
        leader.run(LOOK_SECONDS + 1)
        first = leader.driven.machine.queries.compactable(*QUEUE).cleaned
        assert 0 < first < 9
        assert sorted(compacted(leader)) == [*range(3, 12)]
        assert leader.driven.machine.queries.compactable(*QUEUE).cleaned == 9


def test_what_is_left_does_not_stop_passes_at_the_same_key() -> None:
    """It keeps the cleaned offset back, and there are more keys behind it than a pass compares."""
    with closing(Leader()) as leader:
        leader.compare_keys(4)
        leader.driven.append(keyed(("a", b"1")))
        leader.driven.append(keyed(("a", b"")))
        for number in range(25):
            leader.driven.append(keyed((f"k{number % 6}", b"%d" % number)))
        row = leader.rows()[0]
        references = leader.driven.machine._state.references
        number = references.new_pin(Reference(row.position, 0, 1, row.size))
        left = compacted(leader)
        assert sorted(left) == [0, 1, *range(18, 27)], "of the key a both"
        assert ends(leader)[-1] == leader.driven.machine.queries.compactable(*QUEUE).cleaned == 1
        references.unpin(row.position, number)
        assert sorted(compacted(leader)) == [*range(18, 27)]


def test_a_pass_rests_when_a_hold_begins_within_a_batch() -> None:
    with closing(Leader()) as leader:
        leader.driven.append(keyed(("a", b"1")))
        leader.driven.append(keyed(("a", b"2")))
        leader.driven.append(keyed(("b", b"1"), ("b", b"2")))
        fill(leader.driven, 4)
        row = leader.rows()[0]
        leader.driven.machine._state.references.new_pin(Reference(row.position, 0, 1, row.size))
        leader.hold(3)
        leader.run(LOOK_SECONDS + module.AGAIN_SECONDS - 1)
        assert [each for each in ends(leader) if each >= 0] == [1]


@pytest.mark.parametrize("why", ["follows", "low disk", "other topic"])
def test_a_member_that_may_not_does_nothing(why: str) -> None:
    with closing(Leader()) as leader:
        leader.driven.append(keyed(("a", b"1"), ("a", b"2")))
        fill(leader.driven, 6)
        leader.leads = why != "follows"
        leader.log.space.low = why == "low disk"
        if why == "other topic":
            leader.keep(RETENTION_DEFAULT)
        leader.run()
        assert leader.proposed == []


def test_a_pass_that_loses_the_leadership_leaves_the_cleaned_offset() -> None:
    with closing(Leader()) as leader:
        leader.in_stretches(2)
        for _ in range(12):
            leader.driven.append(keyed(("a", b"1")))

        def lose() -> None:
            leader.leads = len(leader.proposed) < 1

        leader.before = lose
        leader.run()
        assert len(leader.proposed) == 2
        assert leader.driven.machine.queries.compactable(*QUEUE).cleaned == 0
        leader.before = lambda: None
        leader.leads = True
        assert sorted(compacted(leader)) == [8, 9, 10, 11]


def test_a_damaged_batch_ends_the_member() -> None:
    with closing(Leader()) as leader:
        leader.driven.append(keyed(("a", b"1"), ("a", b"2")))
        fill(leader.driven, 6)
        read = leader.log.read_span
        leader.log.read_span = lambda span: bytes(len(read(span)))  # type: ignore[method-assign]
        leader.run()
        assert leader.failures
        assert all(isinstance(failure, DamagedBatch) for failure in leader.failures)
        assert leader.proposed == []


def test_a_pass_rests_before_the_next_one() -> None:
    """What is pinned may be superseded for long: a pass must not begin again at once."""
    with closing(Leader()) as leader:
        leader.driven.append(keyed(("a", b"1")))
        leader.driven.append(keyed(("a", b"2")))
        fill(leader.driven, 4)
        row = leader.rows()[0]
        leader.driven.machine._state.references.new_pin(Reference(row.position, 0, 1, row.size))
        leader.run(LOOK_SECONDS + module.AGAIN_SECONDS - 1)
        assert [each for each in ends(leader) if each >= 0] == [1]


def ends(leader: Leader) -> Sequence[int]:
    return [each.cleaned for each in leader.proposed if isinstance(each, Compact)]


@pytest.mark.parametrize(
    ("old", "new", "worth"),
    [(0, MIB - 1, False), (0, MIB, True), (3 * MIB, 3 * MIB - 1, False), (3 * MIB, 3 * MIB, True)],
)
def test_half_must_be_new(old: int, new: int, worth: bool) -> None:
    assert is_worth_it(old, new) is worth
