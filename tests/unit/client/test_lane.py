"""A queue's batches: sequences, strays, gaps, fences; by example and by random scripts.

The random scripts play a member that takes a lane's batches or refuses them, with tries that end
unknown and copies that arrive late, and check that what the lane says about each batch is true.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_client._core.producer.batch import Batch
from dledger_client._core.producer.lane import GATHER_SPAN, GatherLimits, Lane
from dledger_proto.batch.codec import Record

LIMITS = GatherLimits(batch_bytes=1_000, batch_records=3, linger=0.005, window=4)


def make_lane() -> Lane:
    return Lane("t", b"t" * 16, 0, "a", is_one_way=False)


def fill(lane: Lane, batches: int, *, now: float = 0.0) -> list[Batch]:
    """Add batches of one record each, closed."""
    added = []
    for _ in range(batches):
        batch, is_new = lane.append(Record(b"x"), 21, now + 10, now, LIMITS)
        assert is_new
        lane.close_open()
        added.append(batch)
    return added


def send_all(lane: Lane, now: float = 0.0) -> list[Batch]:
    sent = []
    while (batch := lane.next_due(now, LIMITS)) is not None:
        lane.send(batch)
        lane.check()
        sent.append(batch)
    return sent


def test_batches_close_by_records_bytes_and_budgets() -> None:
    lane = make_lane()
    first, is_new = lane.append(Record(b"x"), 21, 10.0, 0.0, LIMITS)
    assert is_new
    for _ in range(2):
        assert lane.append(Record(b"x"), 21, 10.0, 0.0, LIMITS) == (first, False)
    second, is_new = lane.append(Record(b"x"), 21, 10.0, 0.0, LIMITS)
    assert is_new, "three records are the limit"
    third, is_new = lane.append(Record(b"x"), 900, 10.0, 0.0, LIMITS)
    assert is_new, "bytes are over the limit"
    fourth, is_new = lane.append(Record(b"x"), 10, 10.0 + 2 * GATHER_SPAN, 0.0, LIMITS)
    assert is_new, "another budget"
    assert list(lane.ready) == [first, second, third]
    assert lane.open is fourth


def test_a_lone_record_leaves_at_once_and_the_next_gathers() -> None:
    lane = make_lane()
    first, _ = lane.append(Record(b"x"), 21, 10.0, 0.0, LIMITS)
    assert lane.due_at(LIMITS) == 0.0
    assert lane.next_due(0.0, LIMITS) is first
    lane.send(first)
    second, _ = lane.append(Record(b"x"), 21, 10.0, 0.001, LIMITS)
    assert lane.next_due(0.002, LIMITS) is None, "it gathers while one is in flight"
    assert lane.due_at(LIMITS) == pytest.approx(0.006)
    assert lane.next_due(0.0061, LIMITS) is second, "but not for longer than the linger"
    lane.remove(first)
    assert lane.next_due(0.002, LIMITS) is second, "and not when nothing is in flight"


def test_the_window_bounds_what_is_stamped() -> None:
    lane = make_lane()
    batches = fill(lane, 6)
    assert send_all(lane) == batches[:4]
    lane.remove(batches[0])
    assert send_all(lane) == [batches[4]]
    assert [batch.base_sequence for batch in lane.stamped] == [1, 2, 3, 4]


def test_a_failure_repeats_in_order_once_all_behind_it_are_answered() -> None:
    lane = make_lane()
    batches = fill(lane, 4)
    send_all(lane)
    lane.end_try(batches[1])
    lane.check()
    assert lane.next_due(0.0, LIMITS) is None, "two strays are on their way"
    lane.end_try(batches[2])
    assert lane.next_due(0.0, LIMITS) is None
    lane.end_try(batches[3])
    assert send_all(lane) == batches[1:]
    assert [batch.base_sequence for batch in lane.stamped] == [0, 1, 2, 3]


def test_a_back_off_holds_the_whole_lane() -> None:
    lane = make_lane()
    batches = fill(lane, 2)
    send_all(lane)
    for batch in batches:
        lane.end_try(batch)
    batches[0].retry_at = 5.0
    assert lane.next_due(4.9, LIMITS) is None
    assert lane.due_at(LIMITS) == 5.0
    assert send_all(lane, 5.0) == batches


def test_a_definite_gap_is_closed_by_stamping_anew() -> None:
    lane = make_lane()
    batches = fill(lane, 4)
    send_all(lane)
    lane.end_try(batches[1])
    lane.drop(batches[1])
    assert not lane.must_fence
    assert lane.gap_at == 1
    lane.end_try(batches[2])
    lane.close_gap()
    assert lane.gap_at == 1, "one is still on its way"
    lane.end_try(batches[3])
    lane.close_gap()
    lane.check()
    assert lane.gap_at is None
    assert send_all(lane) == batches[2:]
    assert [batch.base_sequence for batch in lane.stamped] == [0, 1, 2]


def test_a_gap_before_an_unknown_batch_needs_a_fence() -> None:
    lane = make_lane()
    batches = fill(lane, 3)
    send_all(lane)
    lane.end_try(batches[2])
    batches[2].maybe_stored = True
    lane.end_try(batches[1])
    lane.drop(batches[1])
    assert lane.must_fence, "a late copy of the third would fit behind what fills the gap"
    assert lane.next_due(0.0, LIMITS) is None
    lane.end_try(batches[0])
    stored, unknown = lane.new_epoch(None)
    assert stored == unknown == []
    assert send_all(lane) == [batches[0], batches[2]], "behind the gap: certainly not stored"
    assert [batch.base_sequence for batch in lane.stamped] == [0, 1]


def test_giving_up_an_unknown_batch_needs_a_fence() -> None:
    lane = make_lane()
    batches = fill(lane, 2)
    send_all(lane)
    for batch in batches:
        lane.end_try(batch)
        batch.maybe_stored = True
    lane.drop(batches[0])
    assert lane.must_fence
    assert batches[0].maybe_stored
    _, unknown = lane.new_epoch(None)
    assert unknown == [batches[1]]
    assert lane.is_idle


def test_the_last_sequence_tells_the_unknown_apart() -> None:
    lane = make_lane()
    batches = fill(lane, 3)
    send_all(lane)
    for batch in batches:
        lane.end_try(batch)
        batch.maybe_stored = True
    stored, unknown = lane.new_epoch(1)
    assert stored == batches[:2]
    assert unknown == []
    assert send_all(lane) == [batches[2]]
    assert batches[2].base_sequence == 0


def test_dropping_the_last_one_gives_its_sequence_back() -> None:
    lane = make_lane()
    batches = fill(lane, 2)
    send_all(lane)
    lane.end_try(batches[1])
    lane.drop(batches[1])
    assert not lane.must_fence
    assert lane.gap_at is None
    third = fill(lane, 1)[0]
    send_all(lane)
    assert third.base_sequence == 1


def test_unsent_batches_can_be_dropped_and_adopted() -> None:
    lane, other = make_lane(), make_lane()
    batches = fill(lane, 2)
    open_batch, _ = lane.append(Record(b"x"), 21, 10.0, 0.0, LIMITS)
    lane.drop(batches[0])
    lane.drop(open_batch)
    assert list(lane.ready) == [batches[1]]
    other.adopt(batches[0])
    assert send_all(other) == [batches[0]]


class LaneWorld:
    """A member with the rules of D11 that takes tries, or copies of them, late or never."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.lane = make_lane()
        self.epoch = 1
        self.next_sequence = 0
        self.stored: list[int] = []
        self.copies: list[tuple[int, Batch, int]] = []
        """(epoch, batch, sequence) of tries that may still arrive."""
        self.names: dict[Batch, int] = {}
        self.told_stored: set[int] = set()
        self.told_not_stored: set[int] = set()

    def member_takes(self, epoch: int, batch: Batch, sequence: int) -> bool:
        if epoch != self.epoch:
            return False
        if sequence == self.next_sequence:
            self.next_sequence += batch.count
            self.stored.append(self.names[batch])
            return True
        return sequence < self.next_sequence

    def step(self, choice: str) -> None:
        lane = self.lane
        waiting = [batch for batch in lane.stamped if batch.is_outstanding]
        if choice == "add":
            self.names[fill(lane, 1)[0]] = len(self.names)
        elif choice == "send":
            send_all(lane)
        elif choice == "answer" and waiting:
            self.answer(waiting[0])  # answers of one stream come in order
        elif choice == "late" and self.copies:
            at = self.data.draw(st.integers(0, len(self.copies) - 1))
            self.member_takes(*self.copies.pop(at))
        elif choice == "drop":
            self.drop()
        elif choice == "fence" and not waiting:
            self.epoch += 1
            self.next_sequence = 0
            _, unknown = lane.new_epoch(None)
            assert all(batch.maybe_stored for batch in unknown)
        lane.check()

    def answer(self, batch: Batch) -> None:
        does = self.data.draw(st.sampled_from(["take", "take", "refuse", "unknown", "lost"]))
        tried = (self.epoch, batch, batch.base_sequence)
        if does == "take" and self.member_takes(*tried):
            self.lane.remove(batch)
            batch.is_outstanding = False
            self.told_stored.add(self.names[batch])
        else:
            if does == "unknown":
                self.copies.append(tried)
            elif does == "lost":
                self.member_takes(*tried)
            batch.maybe_stored = batch.maybe_stored or does in ("unknown", "lost")
            self.lane.end_try(batch)
        self.lane.close_gap()

    def drop(self) -> None:
        lane = self.lane
        idle = [batch for batch in [*lane.stamped, *lane.ready] if not batch.is_outstanding]
        if idle:
            batch = self.data.draw(st.sampled_from(idle))
            if not batch.maybe_stored:
                self.told_not_stored.add(self.names[batch])
            lane.drop(batch)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_a_lane_says_is_true(data: st.DataObject) -> None:
    world = LaneWorld(data)
    for _ in range(data.draw(st.integers(5, 40))):
        world.step(data.draw(st.sampled_from(["add", "send", "answer", "late", "drop", "fence"])))
    for copy in world.copies:
        world.member_takes(*copy)
    assert len(world.stored) == len(set(world.stored)), "stored twice"
    assert world.told_stored <= set(world.stored)
    assert not world.told_not_stored & set(world.stored)
    assert world.stored == sorted(world.stored), "out of order"
