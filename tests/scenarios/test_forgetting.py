"""What is forgotten in steps: it counts for nothing from the first step on, and leaves nothing."""

from dataclasses import replace

import pytest

from dledger.state.machine import StateMachine
from dledger.state.offsets import CommitOffset
from dledger.state.producers import expiry
from dledger.state.producers.expiry import ExpireProducers
from dledger.state.producers.table import ACTIVITY_STEP_MS
from dledger.state.progress.commits import CommitOffsets
from dledger.state.results import ProducersExpired, Result, TopicsForgotten
from dledger.state.tables import Table
from dledger.state.topics.commands import DeleteTopic, ForgetTopics, ImportTopic
from dledger.state.values import Topic
from dledger_proto.errors import Code
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

FORGET = ExpireProducers(0, 0)


def forget(driven: Driven) -> Result:
    """Count so much time that all have expired, and take a step of forgetting."""
    driven.count_time(2 * ACTIVITY_STEP_MS)
    return driven.one(FORGET)


def test_a_half_forgotten_producer_stores_nothing() -> None:
    """It sends again what it has stored, to a queue whose last sequences are forgotten already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expiry, "EXPIRED_ROWS_MAX", 7)
        driven = started()
        epoch = driven.register().epoch
        driven.append(*(batch(queue=queue, sequence=0, epoch=epoch) for queue in range(4)))
        assert forget(driven) == ProducersExpired(0, more=True)
        copies = driven.append(*(batch(queue=at, sequence=0, epoch=epoch) for at in range(4)))
    stored = [driven.machine.queries.queue_bounds(TOPIC, queue) for queue in range(4)]
    assert stored == [(0, 1)] * 4, f"a copy was stored a second time: {copies}"


def test_a_half_forgotten_producer_that_registers_begins_above_its_past() -> None:
    """Else an old message would pass for a repeat of a new one, or for the next of its queue."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expiry, "EXPIRED_ROWS_MAX", 7)
        driven = started()
        old = driven.register().epoch
        driven.append(*(batch(queue=queue, sequence=0, epoch=old) for queue in range(4)))
        forget(driven)
    new = driven.register()
    assert new.last == (), f"half of what was stored is told as all of it: {new.last}"
    stored = driven.append(*(batch(queue=at, sequence=0, epoch=new.epoch) for at in range(4)))
    assert [offset_of(result) for result in stored] == [1] * 4
    late = driven.append(*(batch(queue=at, sequence=1, epoch=old) for at in range(4)))
    assert {code_of(result) for result in late} == {Code.STALE_EPOCH}


def test_a_producer_is_forgotten_whole_however_often_it_came_back() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expiry, "EXPIRED_ROWS_MAX", 7)
        driven = started()
        driven.register()
        driven.append(*(batch(queue=queue, sequence=0) for queue in range(1, 4)))
        forget(driven)
        epoch = driven.register().epoch
        driven.append(batch(sequence=0, epoch=epoch))
        for _ in range(6):
            forget(driven)
    left = [key for key in driven.rows() if Table.PRODUCER <= key[0] <= Table.PRODUCER_WINDOW]
    assert not left, f"rows that nobody will look for: {left}"


def test_nothing_of_a_deleted_topic_stays_with_a_producer() -> None:
    driven = started()
    driven.register()
    driven.append(*(batch(queue=queue, sequence=0) for queue in range(4)))
    driven.one(DeleteTopic(TOPIC))
    driven.idle(3)
    left = [key for key in driven.rows() if TOPIC in key and key[0] >= Table.PRODUCER_QUEUE]
    assert not left, f"rows that nobody will look for: {left}"


def forget_topics(driven: Driven, known_index: int = 1 << 63) -> Result:
    """Count so much time that every deletion is old, and take a step of forgetting."""
    driven.count_time(2 * ACTIVITY_STEP_MS)
    return driven.one(ForgetTopics(0, known_index))


def imported(topic_id: bytes, name: str, index: int, *, deleted: bool = False) -> ImportTopic:
    """Return a decision of the control group."""
    made = create(topic_id, name)
    topic = Topic(topic_id, name, made.type, 1, made.layout, 4, 4, 6, index, deleted)
    return ImportTopic(topic)


def test_a_late_copy_of_a_creation_brings_no_topic_back() -> None:
    """It was created, deleted and forgotten before the copy came."""
    driven = Driven()
    driven.idle()
    creation = replace(create(), known_index=driven.machine.applied_index)
    driven.one(creation)
    driven.one(DeleteTopic(TOPIC))
    assert forget_topics(driven) == TopicsForgotten((TOPIC,), more=False)
    result = driven.one(creation)
    assert driven.machine.queries.topic_by_name("orders") is None, f"it is there again: {result}"


def test_a_late_copy_of_an_import_brings_no_topic_back() -> None:
    """A group that forgot a topic is told of the time before its deletion."""
    driven = Driven()
    late = imported(TOPIC, "orders", 7)
    driven.run(late, imported(TOPIC, "orders", 12, deleted=True))
    assert forget_topics(driven) == TopicsForgotten((TOPIC,), more=False)
    result = driven.one(late)
    assert driven.machine.queries.topic_by_name("orders") is None, f"it is there again: {result}"


def forgotten(groups: int = 0) -> Driven:
    """Return a machine that forgot a topic, which a producer and consumer groups had used."""
    driven = started()
    driven.register()
    for number in range(4):
        driven.append(batch(sequence=number))
    for number in range(groups):
        driven.one(commit(f"group{number}", 4))
    driven.one(DeleteTopic(TOPIC))
    for _ in range(groups + 2):
        forget_topics(driven)
        if driven.machine.queries.topic_by_id(TOPIC) is None:
            return driven
    raise AssertionError("it is never forgotten")


def commit(group: str, offset: int) -> CommitOffsets:
    """Return a commit of the topic's first queue."""
    return CommitOffsets(group, (CommitOffset(TOPIC, 0, offset),))


def create_again(driven: Driven) -> None:
    """Create a topic of the same id: ids are drawn by callers, and one may do what it likes."""
    driven.one(replace(create(), known_index=driven.machine.applied_index))
    driven.append(batch(sequence=0), batch(sequence=1))


def test_members_agree_about_a_topic_whose_id_was_given_before() -> None:
    """One was up all the time, the other has started again since it was forgotten."""
    steady, other = forgotten(), forgotten()
    other = Driven(other.store, other.log)
    create_again(steady)
    create_again(other)
    bounds = [each.machine.queries.queue_bounds(TOPIC, 0) for each in (steady, other)]
    assert bounds == [(0, 2)] * 2, f"what one stores the other refuses: {bounds}"
    assert steady.machine.digest == other.machine.digest


def test_what_waits_to_be_deleted_takes_nothing_of_a_topic_of_the_same_id() -> None:
    driven = forgotten(groups=400)
    create_again(driven)
    driven.one(commit("group99", 1))
    driven.idle(20)
    found = driven.machine.queries.read_group_offset("group99", TOPIC, 0)
    assert found is not None, "an acknowledged offset is gone"
    assert found.offset == 1


def test_decisions_of_another_control_group_change_nothing() -> None:
    """It was formed anew under the same name, and its log has grown longer than the old one's."""
    driven = Driven()
    driven.one(imported(TOPIC, "orders", 7))
    before = driven.machine.queries.topics()
    others = (imported(TOPIC, "orders", 9, deleted=True), imported(OTHER_TOPIC, "orders", 9))
    for _ in range(2):
        for other in others:
            result = driven.one(replace(other, control_id=b"2" * 16))
            assert driven.machine.queries.topics() == before, f"a live topic is deleted: {result}"
            assert code_of(result) is Code.WRONG_GROUP
        driven = Driven(driven.store, driven.log)


def test_a_group_forgets_no_deletion_above_what_it_knows_without_a_gap() -> None:
    """A topic that was created before that deletion, and not told yet, is taken over later."""
    driven = Driven()
    driven.run(imported(TOPIC, "orders", 7), imported(TOPIC, "orders", 12, deleted=True))
    forget_topics(driven, known_index=10)
    result = driven.one(imported(OTHER_TOPIC, "returns", 11))
    assert driven.machine.queries.topic_by_name("returns") is not None, (
        f"it is never taken over: {result}"
    )


def test_a_member_that_starts_again_knows_that_its_head_was_trimmed() -> None:
    driven = started()
    driven.append(batch())
    driven.one(DeleteTopic(TOPIC))
    forget_topics(driven)
    driven.idle(4)
    driven.save()
    head = driven.machine.head_needed()
    again = StateMachine(driven.store, GROUP)
    assert again.head_needed() == head > 0, "it would keep the log from its begin on for good"
