"""Idempotent producers (D11): every row of the verdict table, and histories against a model."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.state.producers.expiry import EXPIRED_AT_ONCE_MAX, ExpireProducers
from dledger.state.producers.registration import EPOCH_MAX, FIRST_EPOCH_MAX, RegisterProducer
from dledger.state.producers.table import ACTIVITY_STEP_MS, PRODUCER_VALUE, WINDOW_BATCHES
from dledger.state.results import Appended, LastSequence, ProducersExpired, Refused, Result, Taken
from dledger.state.tables import PREFIX, Table
from dledger.state.topics.commands import UpdateTopic
from dledger.state.values import LayoutPart
from dledger_proto.errors import Code
from tests.unit.state.kit import (
    LIFE,
    NEXT_LIFE,
    OTHER_TOPIC,
    PRODUCER,
    THIRD_LIFE,
    TOPIC,
    Driven,
    batch,
    changed_rows,
    code_of,
    create,
    offset_of,
    producers_of,
    started,
)


def refusal(driven: Driven, life: bytes, epoch: int) -> Code:
    """Return why a registration is refused, which then has changed no row of the producer."""
    before = driven.rows()
    code = code_of(driven.one(RegisterProducer(PRODUCER, life, epoch)))
    assert changed_rows(before, driven.rows()) <= {b"\0applied"}
    return code


def test_a_new_id_begins_at_the_leader_time_in_seconds() -> None:
    """So one that was forgotten begins above what it held, whatever epoch is asked for."""
    driven = started()
    assert driven.register(b"Q" * 16).epoch == 1, "the log's first second"
    driven.idle()
    driven.log.time_ms = 1_800_000_000_999
    assert driven.register(b"R" * 16, epoch=7).epoch == 1_800_000_000
    driven.log.time_ms = 10**15
    assert driven.register(b"S" * 16).epoch == FIRST_EPOCH_MAX


def test_a_life_that_asks_again_gets_what_it_has() -> None:
    """However late a copy of a registration comes, it changes nothing."""
    driven = started()
    first = driven.register()
    assert driven.register() == first
    assert driven.register(epoch=first.epoch + 1).epoch == first.epoch + 1
    before = driven.rows()
    for wanted in (0, first.epoch, first.epoch + 1):
        assert driven.register(epoch=wanted).epoch == first.epoch + 1
    assert changed_rows(before, driven.rows()) == {b"\0applied"}


def test_a_life_whose_newest_epochs_were_lost_goes_on_above_them() -> None:
    """With `flush: async` a power cut may take a registration that was answered."""
    driven = started()
    first = driven.register()
    lost = first.epoch + 3
    driven.log.time_ms = (lost + 1) * 1_000
    assert driven.register(epoch=lost + 1).epoch == lost + 1
    assert driven.register(epoch=lost).epoch == lost + 1


def test_no_life_leaps_to_where_nobody_can_follow() -> None:
    """Epochs end; who took the last one would have the name for good."""
    driven = started()
    held = driven.register().epoch
    now = driven.log.time_ms // 1_000
    assert refusal(driven, LIFE, max(held + 1, now) + 1) is Code.INVALID_ARGUMENT
    assert refusal(driven, LIFE, EPOCH_MAX) is Code.INVALID_ARGUMENT
    assert driven.take_over(NEXT_LIFE).epoch == held + 1


def test_another_life_takes_over_from_the_one_it_was_told_of() -> None:
    driven = started()
    mine = driven.register().epoch
    before = driven.rows()
    assert driven.one(RegisterProducer(PRODUCER, NEXT_LIFE)) == Taken(mine)
    assert changed_rows(before, driven.rows()) == {b"\0applied"}, "who looks changes nothing"
    assert refusal(driven, NEXT_LIFE, mine + 2) is Code.STALE_EPOCH
    assert refusal(driven, NEXT_LIFE, mine) is Code.STALE_EPOCH
    assert driven.register(life=NEXT_LIFE, epoch=mine + 1).epoch == mine + 1
    assert driven.register(life=NEXT_LIFE, epoch=mine + 1).epoch == mine + 1


def test_a_fenced_life_never_comes_back() -> None:
    """Neither by a late copy of a registration, nor by asking again."""
    driven = started()
    mine = driven.register().epoch
    successor = driven.take_over(NEXT_LIFE).epoch
    for wanted in (0, mine, mine + 1, successor + 1):
        assert refusal(driven, LIFE, wanted) is Code.STALE_EPOCH
    assert driven.register(life=NEXT_LIFE).epoch == successor


def test_a_late_takeover_misses_whoever_came_in_between() -> None:
    """Of three lives, what the first asked for cannot fence the third."""
    driven = started()
    mine = driven.register().epoch
    second = driven.take_over(NEXT_LIFE).epoch
    third = driven.take_over(THIRD_LIFE).epoch
    assert driven.one(RegisterProducer(PRODUCER, LIFE)) == Taken(third), "it looks, no more"
    assert refusal(driven, LIFE, mine + 1) is Code.STALE_EPOCH, "its own next one"
    assert refusal(driven, NEXT_LIFE, second + 1) is Code.STALE_EPOCH
    assert refusal(driven, b"4" * 16, second + 1) is Code.STALE_EPOCH, "it was about to follow"
    assert driven.register(life=THIRD_LIFE).epoch == third


def test_a_takeover_is_void_when_the_life_before_has_moved_on() -> None:
    """It named an epoch that the other one has taken for its own: it looks again."""
    driven = started()
    mine = driven.register().epoch
    assert driven.one(RegisterProducer(PRODUCER, NEXT_LIFE)) == Taken(mine)
    assert driven.register(epoch=mine + 1).epoch == mine + 1
    assert refusal(driven, NEXT_LIFE, mine + 1) is Code.STALE_EPOCH
    assert driven.take_over(NEXT_LIFE).epoch == mine + 2


def test_what_can_be_no_registration() -> None:
    driven = started()
    for wanted in (RegisterProducer(bytes(16), LIFE), RegisterProducer(PRODUCER, bytes(16))):
        assert code_of(driven.one(wanted)) is Code.INVALID_ARGUMENT


def test_the_last_epoch_is_followed_by_none() -> None:
    driven = started()
    driven.register()
    row = PRODUCER_VALUE.pack(EPOCH_MAX, 0, LIFE, bytes(16))
    driven.store.put(PREFIX[Table.PRODUCER] + PRODUCER, row)
    driven = Driven(driven.store, driven.log)
    assert driven.register().epoch == EPOCH_MAX
    assert refusal(driven, LIFE, EPOCH_MAX + 1) is Code.INVALID_ARGUMENT
    assert refusal(driven, NEXT_LIFE, EPOCH_MAX + 1) is Code.INVALID_ARGUMENT


def test_registering_tells_the_last_sequences_of_the_epoch_before() -> None:
    """So a sender that fences its own past learns what of it was stored, and nobody else's."""
    driven = started()
    mine = driven.register()
    assert mine.last == ()
    driven.append(batch(3, sequence=0), batch(1, queue=2, sequence=0), batch(2, sequence=3))
    stored = (LastSequence(TOPIC, 0, 4), LastSequence(TOPIC, 2, 0))
    assert driven.register().last == (), "of its own epoch it knows itself"
    second = driven.register(epoch=mine.epoch + 1)
    assert second.last == stored
    assert driven.register(epoch=mine.epoch + 1) == second, "asked again it tells the same"
    driven.append(batch(2, queue=2, sequence=0, epoch=second.epoch))
    assert driven.take_over(NEXT_LIFE).last == (LastSequence(TOPIC, 2, 1),)
    assert driven.take_over(THIRD_LIFE).last == (), "nothing was stored in the epoch before"


def test_a_forgotten_id_shares_no_epoch_with_its_past() -> None:
    """Else another message at a sequence would be taken for a repeat: told stored, and lost."""
    driven = started()
    old = driven.register().epoch
    assert offset_of(driven.append(batch(sequence=0, epoch=old))[0]) == 0
    driven.idle()
    assert driven.count_time(3 * ACTIVITY_STEP_MS, ACTIVITY_STEP_MS) == ProducersExpired(1, False)
    new = driven.register(life=NEXT_LIFE).epoch
    assert offset_of(driven.append(batch(sequence=0, epoch=new))[0]) == 1
    late = driven.append(batch(sequence=0, epoch=old, body=b"another"))[0]
    assert code_of(late) is Code.STALE_EPOCH


def test_verdicts() -> None:
    driven = started()
    assert code_of(driven.append(batch(sequence=0))[0]) is Code.UNKNOWN_PRODUCER
    driven.log.time_ms = 5_000
    assert driven.register().epoch == 5
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
    assert driven.machine.queries.queue_bounds(TOPIC, 0) == (0, 5)


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
    driven.register(epoch=2)
    assert code_of(driven.append(batch(sequence=5))[0]) is Code.STALE_EPOCH
    assert code_of(driven.append(batch(sequence=5, epoch=2))[0]) is Code.SEQUENCE_GAP
    assert offset_of(driven.append(batch(sequence=0, epoch=2))[0]) == 5
    assert driven.append(batch(sequence=0, epoch=2))[0] == Appended(5, 1, duplicate=True)


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
    """By counted time, oldest first; a write keeps a producer."""
    driven = started()
    old, young = b"O" * 16, b"Y" * 16
    driven.run(RegisterProducer(old, LIFE), RegisterProducer(young, LIFE))
    driven.count_time(ACTIVITY_STEP_MS + 1)
    driven.append(batch(producer=old, sequence=0), batch(producer=young, sequence=0))
    driven.count_time(4 * ACTIVITY_STEP_MS + 6)
    driven.append(batch(producer=young, sequence=1))
    found = producers_of(driven).find(young)
    assert found is not None
    assert (found.epoch, found.active_step) == (1, 5)
    # The last write of `old` came when one to two steps were counted, or during the next command.
    assert driven.count_time(0, 2 * ACTIVITY_STEP_MS + 8) == ProducersExpired(0, False)
    assert driven.count_time(0, 2 * ACTIVITY_STEP_MS + 7) == ProducersExpired(1, False)
    assert producers_of(driven).find(old) is None
    result = driven.append(batch(producer=old, sequence=0))[0]
    assert code_of(result) is Code.UNKNOWN_PRODUCER
    assert offset_of(driven.append(batch(producer=young, sequence=2))[0]) == 3
    assert not [key for key in driven.rows() if old in key and key[0] != Table.MESSAGE_IDS], (
        "nothing of it is left but the ids of its messages"
    )
    again = driven.register(old).epoch
    assert offset_of(driven.append(batch(producer=old, sequence=0, epoch=again))[0]) == 4
    assert driven.one(ExpireProducers(-5, -5)) == ProducersExpired(0, False)


def test_no_clock_of_a_wall_lets_a_producer_expire() -> None:
    """Else all would when clocks jump by a month, and their repeats be stored twice."""
    driven = started()
    week = 7 * 24 * 3_600_000
    driven.register()
    driven.append(batch(sequence=0))
    driven.log.time_ms += 30 * 24 * 3_600_000
    assert driven.count_time(ACTIVITY_STEP_MS, week) == ProducersExpired(0, False)
    assert driven.append(batch(sequence=0))[0] == Appended(0, 1, duplicate=True)
    # Back again, the stamps stand still for a month: who is silent for a week is forgotten.
    assert driven.count_time(week, week) == ProducersExpired(0, False)
    assert driven.count_time(2 * ACTIVITY_STEP_MS, week) == ProducersExpired(1, False)


def test_a_command_counts_no_more_than_a_step() -> None:
    """Else a write just before it would look that old."""
    driven = started()
    driven.register()
    assert driven.one(ExpireProducers(1 << 40, ACTIVITY_STEP_MS)) == ProducersExpired(0, False)
    assert driven.one(ExpireProducers(-(1 << 40), ACTIVITY_STEP_MS)) == ProducersExpired(0, False)
    assert driven.count_time(ACTIVITY_STEP_MS, 0) == ProducersExpired(1, False)


def test_counted_time_is_read_back() -> None:
    driven = started()
    driven.count_time(3 * ACTIVITY_STEP_MS)
    driven.save()
    again = Driven(driven.store, driven.log)
    again.register()
    found = producers_of(again).find(PRODUCER)
    assert found is not None
    assert found.active_step == 3


def test_an_id_that_is_forgotten_while_stamps_stand_still_begins_above_its_past() -> None:
    """They do after clocks that were ahead came back; counted time goes on."""
    driven = started()
    driven.log.time_ms = 1_800_000_000_000
    old = driven.register().epoch
    assert driven.count_time(3 * ACTIVITY_STEP_MS, ACTIVITY_STEP_MS).count == 1
    assert driven.register(life=NEXT_LIFE).epoch > old


def test_a_repeated_registration_keeps_a_producer() -> None:
    """It says that the life is there, though it changes nothing else."""
    driven = started()
    first = driven.register()
    driven.count_time(3 * ACTIVITY_STEP_MS)
    assert driven.register() == first
    assert driven.count_time(0, ACTIVITY_STEP_MS) == ProducersExpired(0, False)
    assert driven.register().epoch == first.epoch


def test_expiry_is_bounded() -> None:
    driven = started()
    count = 2 * EXPIRED_AT_ONCE_MAX + 3
    driven.run(*(RegisterProducer(b"%016d" % at, LIFE) for at in range(1, count + 1)))
    driven.count_time(2 * ACTIVITY_STEP_MS)
    late = ExpireProducers(0, 0)
    assert driven.one(late) == ProducersExpired(EXPIRED_AT_ONCE_MAX, True)
    assert driven.one(late) == ProducersExpired(EXPIRED_AT_ONCE_MAX, True)
    assert driven.one(late) == ProducersExpired(3, False)
    assert producers_of(driven).find(b"%016d" % 1) is None


@dataclass
class Model:
    """What D11 says, in plain lists."""

    epoch: int = 0
    life: int = 0
    stored: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """queue -> (sequence, count, offset) of the current epoch."""
    ends: dict[int, int] = field(default_factory=dict)

    def register(self, life: int) -> None:
        if self.life != life:
            self.life = life
            self.epoch += 1
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
            life = model.life + 1 if action or not model.life else model.life
            if action and model.life:
                driven.take_over(b"%016d" % life)
            else:
                driven.register(life=b"%016d" % life)
            model.register(life)
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
        assert driven.machine.queries.queue_bounds(TOPIC, queue) == (0, model.ends.get(queue, 0))


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
