"""Idempotent producers (D11): every row of the verdict table, and histories against a model."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.state.command import ExpireProducers, RegisterProducer, UpdateTopic
from dledger.state.producers import (
    ACTIVITY_STEP_MS,
    EXPIRED_AT_ONCE_MAX,
    EXPIRED_ROWS_MAX,
    WINDOW_BATCHES,
)
from dledger.state.results import Appended, LastSequence, ProducersExpired, Refused, Result
from dledger.state.tables import Table
from dledger.state.values import LayoutPart, ProducerInfo
from dledger_proto.errors import Code
from tests.unit.state.kit import (
    GROUP,
    OTHER_TOPIC,
    PRODUCER,
    TOPIC,
    Driven,
    batch,
    code_of,
    create,
    offset_of,
    started,
)


def test_registering() -> None:
    """A new id gets epoch 1, a known one keeps its epoch, a fence raises it."""
    driven = started()
    assert driven.register().epoch == 1
    assert driven.register().epoch == 1
    assert driven.register(fence=True).epoch == 3, "who takes over leaves one out"
    assert driven.register(fence=True).epoch == 5
    assert driven.register(epoch=5).epoch == 5
    assert driven.register(epoch=6, fence=True).epoch == 6
    assert driven.register(epoch=6, fence=True).epoch == 6, "asked again: it is the same"
    assert driven.register(epoch=9).epoch == 9
    assert driven.register(epoch=12, fence=True).epoch == 12
    assert code_of(driven.one(RegisterProducer(PRODUCER, False, 11))) is Code.STALE_EPOCH
    assert driven.register(b"Q" * 16, epoch=5).epoch == 5
    assert driven.register(b"R" * 16, fence=True).epoch == 1
    assert code_of(driven.one(RegisterProducer(bytes(16)))) is Code.INVALID_ARGUMENT
    last = (1 << 32) - 1
    assert driven.register(b"S" * 16, epoch=last).epoch == last
    assert code_of(driven.one(RegisterProducer(b"S" * 16, True))) is Code.INVALID_ARGUMENT


def test_who_was_fenced_cannot_take_the_next_epoch_for_its_own() -> None:
    """A zombie that fences its own past names the epoch above its own: not its successor's."""
    driven = started()
    mine = driven.register(fence=True).epoch
    renewed = driven.register(epoch=mine + 1, fence=True).epoch
    assert renewed == mine + 1
    successor = driven.register(fence=True).epoch
    for held in (mine, renewed):
        refused = driven.one(RegisterProducer(PRODUCER, True, held + 1))
        assert code_of(refused) is Code.STALE_EPOCH
    assert driven.register().epoch == successor


def test_a_renewal_that_is_asked_for_again_tells_the_same() -> None:
    driven = started()
    mine = driven.register(fence=True).epoch
    driven.append(batch(3, sequence=0, epoch=mine))
    first = driven.register(epoch=mine + 1, fence=True)
    assert first.last == (LastSequence(TOPIC, 0, 2),)
    assert driven.register(epoch=mine + 1, fence=True) == first


def test_registering_tells_the_last_sequences_of_the_epoch_until_now() -> None:
    """So a sender that fences its own past learns what of it was stored, and nobody else's."""
    driven = started()
    assert driven.register().last == ()
    driven.append(batch(3, sequence=0), batch(1, queue=2, sequence=0), batch(2, sequence=3))
    first = (LastSequence(TOPIC, 0, 4), LastSequence(TOPIC, 2, 0))
    assert driven.register().last == first
    assert driven.register(fence=True).last == first
    assert driven.register(fence=True).last == (), "nothing was stored in epoch 3"
    driven.append(batch(2, queue=2, sequence=0, epoch=5))
    assert driven.register(epoch=6, fence=True).last == (LastSequence(TOPIC, 2, 1),)
    driven.append(batch(queue=1, sequence=0, epoch=6))
    assert driven.register(epoch=8).last == (), "epoch 7 is left out"


def test_verdicts() -> None:
    driven = started()
    assert code_of(driven.append(batch(sequence=0))[0]) is Code.UNKNOWN_PRODUCER
    driven.register(epoch=5)
    assert code_of(driven.append(batch(sequence=0, epoch=4))[0]) is Code.STALE_EPOCH
    assert code_of(driven.append(batch(sequence=0, epoch=6))[0]) is Code.UNKNOWN_PRODUCER
    assert code_of(driven.append(batch(sequence=1, epoch=5))[0]) is Code.SEQUENCE_GAP
    assert offset_of(driven.append(batch(3, sequence=0, epoch=5))[0]) == 0
    assert offset_of(driven.append(batch(2, sequence=3, epoch=5))[0]) == 3
    assert code_of(driven.append(batch(1, sequence=6, epoch=5))[0]) is Code.SEQUENCE_GAP
    assert driven.append(batch(3, sequence=0, epoch=5))[0] == Appended(0, 3, duplicate=True)
    assert driven.append(batch(2, sequence=3, epoch=5))[0] == Appended(3, 2, duplicate=True)
    for count, sequence in ((2, 0), (4, 0), (1, 1), (1, 4), (3, 3)):
        result = driven.append(batch(count, sequence=sequence, epoch=5))[0]
        assert code_of(result) is Code.SEQUENCE_GAP, (count, sequence)
    assert driven.machine.queue_bounds(TOPIC, 0) == (0, 5)


def test_void_batches_leave_no_trace() -> None:
    """The digest moves only by the entry itself, the rows not at all."""
    driven = started()
    driven.register()
    driven.append(batch(sequence=0))
    before = driven.rows()
    void = (
        batch(sequence=0), batch(sequence=7), batch(sequence=0, producer=b"X" * 16),
        batch(sequence=1, epoch=2), batch(topic=OTHER_TOPIC), batch(queue=9),
    )  # fmt: skip
    driven.append(*void)
    after = driven.rows()
    assert {key for key in after if after[key] != before.get(key)} == {b"\0applied"}


def test_sequences_count_per_queue_and_epoch() -> None:
    driven = started()
    driven.register()
    driven.append(batch(5, sequence=0), batch(2, queue=1, sequence=0))
    assert offset_of(driven.append(batch(1, queue=1, sequence=2))[0]) == 2
    driven.register(fence=True)
    assert code_of(driven.append(batch(sequence=5))[0]) is Code.STALE_EPOCH
    assert code_of(driven.append(batch(sequence=5, epoch=3))[0]) is Code.SEQUENCE_GAP
    assert offset_of(driven.append(batch(sequence=0, epoch=3))[0]) == 5
    assert driven.append(batch(sequence=0, epoch=3))[0] == Appended(5, 1, duplicate=True)


def test_the_last_256_batches_are_remembered_exactly() -> None:
    driven = started()
    driven.register()
    total = 3 * WINDOW_BATCHES + 17
    for first in range(0, total, 10):
        count = min(10, total - first)
        driven.append(*(batch(2, sequence=2 * at) for at in range(first, first + count)))
        newest = first + count - 1
        oldest = max(newest - WINDOW_BATCHES + 1, 0)
        for at in (oldest, newest):
            assert driven.append(batch(2, sequence=2 * at))[0] == Appended(2 * at, 2, True)
        if oldest:
            assert code_of(driven.append(batch(2, sequence=2 * oldest - 2))[0]) is Code.DUPLICATE
    blocks = [key for key in driven.rows() if key[0] == Table.PRODUCER_WINDOW]
    assert len(blocks) == 3, "what is not remembered is not kept"


def test_a_repeat_is_found_before_the_topic_is_asked() -> None:
    """It was stored: 'not stored' would make the sender store it again elsewhere."""
    driven = started()
    driven.register()
    driven.append(batch(sequence=0), batch(queue=3, sequence=0))
    driven.one(UpdateTopic(TOPIC, permission=4))
    assert driven.append(batch(sequence=0))[0] == Appended(0, 1, duplicate=True)
    assert code_of(driven.append(batch(sequence=1))[0]) is Code.NO_PERMISSION
    driven.one(UpdateTopic(TOPIC, (LayoutPart("g1", 2),), permission=6))
    assert driven.append(batch(queue=3, sequence=0))[0] == Appended(0, 1, duplicate=True)
    assert offset_of(driven.append(batch(sequence=1))[0]) == 1, "a refusal uses no sequence"


def test_expiry() -> None:
    """By the leader's stamps, oldest first; a write keeps a producer."""
    driven = started()
    old, young = b"O" * 16, b"Y" * 16
    driven.run(RegisterProducer(old), RegisterProducer(young), time_ms=ACTIVITY_STEP_MS)
    driven.append(
        batch(producer=old, sequence=0), batch(producer=young, sequence=0),
        time_ms=ACTIVITY_STEP_MS + 1,
    )  # fmt: skip
    driven.append(batch(producer=young, sequence=1), time_ms=5 * ACTIVITY_STEP_MS + 7)
    assert driven.machine.producer(young) == ProducerInfo(1, 5 * ACTIVITY_STEP_MS)
    assert driven.one(ExpireProducers(2 * ACTIVITY_STEP_MS - 1)) == ProducersExpired(0, False)
    assert driven.one(ExpireProducers(2 * ACTIVITY_STEP_MS)) == ProducersExpired(1, False)
    assert driven.machine.producer(old) is None
    result = driven.append(batch(producer=old, sequence=0))[0]
    assert code_of(result) is Code.UNKNOWN_PRODUCER
    assert offset_of(driven.append(batch(producer=young, sequence=2))[0]) == 3
    assert not [key for key in driven.rows() if old in key and key[0] != Table.MESSAGE_IDS], (
        "nothing of it is left but the ids of its messages"
    )
    driven.register(old)
    assert offset_of(driven.append(batch(producer=old, sequence=0))[0]) == 4
    assert driven.one(ExpireProducers(-5)) == ProducersExpired(0, False)


def test_expiry_is_bounded() -> None:
    driven = started()
    count = 2 * EXPIRED_AT_ONCE_MAX + 3
    driven.run(*(RegisterProducer(b"%016d" % at) for at in range(1, count + 1)))
    late = ExpireProducers(10**12)
    assert driven.one(late) == ProducersExpired(EXPIRED_AT_ONCE_MAX, True)
    assert driven.one(late) == ProducersExpired(EXPIRED_AT_ONCE_MAX, True)
    assert driven.one(late) == ProducersExpired(3, False)
    assert driven.machine.producer(b"%016d" % 1) is None


def test_expiry_is_bounded_by_rows_and_forgets_a_producer_whole() -> None:
    queues = EXPIRED_ROWS_MAX // 4 + 1  # each of two rows: two producers are past the bound
    driven = started(create(layout=(LayoutPart(GROUP, queues),)))
    names = [b"%016d" % at for at in range(1, 6)]
    for name in names:
        driven.register(name)
        driven.append(*(batch(producer=name, queue=at, sequence=0) for at in range(queues)))
    late = ExpireProducers(10**12)
    found = [driven.one(late) for _ in range(3)]
    assert found == [
        ProducersExpired(2, True),
        ProducersExpired(2, True),
        ProducersExpired(1, False),
    ]
    assert not [key for key in driven.rows() if key[0] in (Table.PRODUCER_QUEUE, Table.PRODUCER)]


@dataclass
class Model:
    """What D11 says, in plain lists."""

    epoch: int = 0
    stored: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """queue -> (sequence, count, offset) of the current epoch."""
    ends: dict[int, int] = field(default_factory=dict)

    def register(self, fence: bool) -> None:
        if self.epoch == 0 or fence:
            self.epoch += 2 if self.epoch else 1
            self.stored.clear()

    def verdict(self, queue: int, epoch: int, sequence: int, count: int) -> Appended | Code:
        if self.epoch == 0 or epoch > self.epoch:
            return Code.UNKNOWN_PRODUCER
        if epoch < self.epoch:
            return Code.STALE_EPOCH
        rows = self.stored.setdefault(queue, [])
        expected = rows[-1][0] + rows[-1][1] if rows else 0
        if sequence == expected:
            offset = self.ends.get(queue, 0)
            rows.append((sequence, count, offset))
            self.ends[queue] = offset + count
            return Appended(offset, count)
        if sequence > expected:
            return Code.SEQUENCE_GAP
        window = rows[-WINDOW_BATCHES:]
        for row in window:
            if row[:2] == (sequence, count):
                return Appended(row[2], count, duplicate=True)
        return Code.DUPLICATE if sequence < window[0][0] else Code.SEQUENCE_GAP


actions = st.lists(
    st.one_of(
        st.booleans(),
        st.just("save"),
        st.just("restart"),
        st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(-4, 2), st.integers(1, 3)),
    ),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(actions=actions)
def test_histories_equal_the_model(actions: list[bool | str | tuple[int, int, int, int]]) -> None:
    """Registrations, batches around the expected sequence, old epochs, saves, restarts."""
    driven, model = started(), Model()
    for action in actions:
        if isinstance(action, bool):
            driven.register(fence=action)
            model.register(action)
        elif action == "save":
            driven.save()
        elif action == "restart":
            driven.save()
            driven = Driven(driven.store, driven.log)
        elif isinstance(action, tuple):
            queue, age, distance, count = action
            rows = model.stored.get(queue, [])
            sequence = max((rows[-1][0] + rows[-1][1] if rows else 0) + distance, 0)
            epoch = max(model.epoch - age, 0)
            result = driven.append(batch(count, queue=queue, sequence=sequence, epoch=epoch))[0]
            assert shape(result) == model.verdict(queue, epoch, sequence, count)
    for queue in (0, 1):
        assert driven.machine.queue_bounds(TOPIC, queue) == (0, model.ends.get(queue, 0))


def shape(result: Result) -> Appended | Code:
    assert isinstance(result, Appended | Refused)
    return result if isinstance(result, Appended) else result.code


@pytest.mark.parametrize("queue", [0, 3])
def test_one_way_batches_have_no_verdict(queue: int) -> None:
    """Without a stamp a repeat is stored twice, and nobody needs to register."""
    driven = Driven()
    driven.one(create())
    assert offset_of(driven.append(batch(queue=queue))[0]) == 0
    assert offset_of(driven.append(batch(queue=queue))[0]) == 1
