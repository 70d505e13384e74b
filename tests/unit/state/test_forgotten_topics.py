"""Deleted topics are forgotten in steps; what comes late about them changes nothing, for ever."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from dledger.state.consumers.groups import DeleteConsumerGroup
from dledger.state.counted_time import COUNTED_AT_ONCE_MAX_MS
from dledger.state.machine import StateMachine
from dledger.state.offsets import CommitOffset
from dledger.state.producers.registration import RegisterProducer
from dledger.state.progress.commits import CommitOffsets
from dledger.state.progress.row import Progress
from dledger.state.queues.holds import Hold
from dledger.state.queues.trim import Trim
from dledger.state.results import Refused, Result, TopicChanged, TopicsForgotten
from dledger.state.tables import Table
from dledger.state.topics import table as topics
from dledger.state.topics.commands import (
    CreateTopic,
    DeleteTopic,
    ForgetTopics,
    ImportTopic,
    UpdateTopic,
)
from dledger.state.values import Topic
from dledger_proto.errors import Code
from dledger_proto.limits import DELETED_TOPIC_KEPT_MS
from tests.unit.state.groups_kit import BILLING, SETTINGS, with_group
from tests.unit.state.kit import (
    GROUP,
    LIFE,
    OTHER_TOPIC,
    TOPIC,
    Driven,
    batch,
    code_of,
    create,
    offset_of,
    started,
)

EVERYTHING = 1 << 63
KEPT_MS = DELETED_TOPIC_KEPT_MS


def topic_of(result: Result) -> Topic:
    assert isinstance(result, TopicChanged), result
    return result.topic


def forget(driven: Driven, known_index: int = EVERYTHING, kept_ms: int = KEPT_MS) -> Result:
    """Let the time pass for which deleted topics are kept, and take a step of forgetting."""
    driven.count_time(kept_ms + COUNTED_AT_ONCE_MAX_MS + 1)
    return driven.one(ForgetTopics(kept_ms, known_index))


def test_a_deleted_topic_is_kept_for_its_time_and_then_forgotten() -> None:
    driven = started()
    driven.count_time(12_345)
    deletion = topic_of(driven.one(DeleteTopic(TOPIC)))
    late = ForgetTopics(KEPT_MS, EVERYTHING)
    driven.count_time(KEPT_MS)
    assert driven.one(late) == TopicsForgotten((), more=False), "it may have come a command later"
    assert not driven.machine.queries.is_forgetting_due(late)
    driven.count_time(COUNTED_AT_ONCE_MAX_MS)
    assert not driven.machine.queries.is_forgetting_due(late)
    driven.count_time(1)
    assert driven.machine.queries.topic_by_id(TOPIC) == deletion
    assert driven.machine.queries.is_forgetting_due(late)
    assert driven.one(late) == TopicsForgotten((TOPIC,), more=False)
    assert driven.machine.queries.topic_by_id(TOPIC) is None
    assert driven.machine.queries.topics(with_deleted=True) == []
    assert driven.machine.queries.forgotten_index == deletion.control_index
    assert not driven.machine.queries.is_forgetting_due(late)


def test_nothing_of_it_is_left() -> None:
    driven = started()
    driven.one(create(OTHER_TOPIC, "returns"))
    driven.register()
    for at in range(40):
        driven.append(
            *(batch(queue=q, sequence=at, number=4 * at + q, keys=["k"]) for q in range(4)),
            batch(topic=OTHER_TOPIC, sequence=at, number=1_000 + at, keys=["k"]),
        )
    driven.run(
        CommitOffsets("cg", (CommitOffset(TOPIC, 0, 3), CommitOffset(OTHER_TOPIC, 0, 3))),
        Hold("me", TOPIC, 0, 0, 1 << 60),
        Trim(TOPIC, 1, 2),
    )
    driven.one(DeleteTopic(TOPIC))
    forget(driven)
    driven.idle(20)
    left = [key for key in driven.rows() if TOPIC in key]
    assert left == []
    assert offset_of(driven.append(batch(topic=OTHER_TOPIC, sequence=40, number=1_040))[0]) == 40


def test_it_goes_in_bounded_steps_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "FORGOTTEN_AT_ONCE_MAX", 3)
    driven = Driven()
    names = [b"%016d" % at for at in range(1, 9)]
    driven.run(*(create(name, f"t{name.decode()}") for name in names))
    for name in reversed(names):
        driven.one(DeleteTopic(name))
        driven.count_time(1)
    steps = [forget(driven), *(driven.one(ForgetTopics(KEPT_MS, EVERYTHING)) for _ in range(2))]
    *_, third, second, first = [names[at : at + 3] for at in (0, 2, 5)]
    assert steps == [
        TopicsForgotten(tuple(reversed(names[5:])), more=True),
        TopicsForgotten(tuple(reversed(names[2:5])), more=True),
        TopicsForgotten(tuple(reversed(names[:2])), more=False),
    ], (first, second, third)


def test_a_late_creation_of_a_forgotten_topic_creates_nothing() -> None:
    """However late: its caller drew the id when the log was where `known_index` says."""
    driven = Driven()
    driven.idle(5)
    late = replace(create(), known_index=driven.machine.applied_index)
    topic_of(driven.one(late))
    driven.one(DeleteTopic(TOPIC))
    assert code_of(driven.one(late)) is Code.TOPIC_EXISTS, "its row says that it is deleted"
    forget(driven)
    for _ in range(2):
        assert code_of(driven.one(late)) is Code.STALE_CREATION
        forget(driven)
    assert driven.machine.queries.topics(with_deleted=True) == []
    now = replace(create(OTHER_TOPIC), known_index=driven.machine.applied_index)
    assert topic_of(driven.one(now)).topic_id == OTHER_TOPIC, "the name is free"
    assert topic_of(driven.one(late)).topic_id == OTHER_TOPIC, "it finds the one that is there"


def test_a_creation_within_its_time_is_not_called_stale() -> None:
    """What is forgotten while a call is under way was deleted long before it began."""
    driven = started()
    driven.one(DeleteTopic(TOPIC))
    driven.count_time(KEPT_MS)
    slow = replace(create(OTHER_TOPIC, "slow"), known_index=driven.machine.applied_index)
    driven.count_time(COUNTED_AT_ONCE_MAX_MS + 1)
    assert driven.one(ForgetTopics(KEPT_MS, EVERYTHING)) == TopicsForgotten((TOPIC,), more=False)
    topic_of(driven.one(slow))


def imported(topic_id: bytes, name: str, index: int, *, deleted: bool = False) -> ImportTopic:
    known = create(topic_id, name)
    return ImportTopic(Topic(topic_id, name, known.type, 1, known.layout, 4, 4, 6, index, deleted))


def test_a_late_import_of_a_forgotten_topic_is_refused() -> None:
    driven = Driven()
    late = imported(TOPIC, "orders", 7)
    driven.run(late, imported(OTHER_TOPIC, "returns", 9))
    driven.one(imported(TOPIC, "orders", 12, deleted=True))
    assert forget(driven, known_index=11) == TopicsForgotten((), more=False), "there may be a gap"
    assert forget(driven, known_index=12) == TopicsForgotten((TOPIC,), more=False)
    assert code_of(driven.one(late)) is Code.STALE_LAYOUT
    assert code_of(driven.one(imported(TOPIC, "orders", 12, deleted=True))) is Code.STALE_LAYOUT
    topic_of(driven.one(imported(OTHER_TOPIC, "returns", 10)))
    topic_of(driven.one(imported(b"N" * 16, "orders", 13)))


def test_all_else_about_a_forgotten_topic_is_about_none() -> None:
    driven = started()
    driven.register()
    driven.append(batch(sequence=0))
    driven.one(DeleteTopic(TOPIC))
    asked = (
        DeleteTopic(TOPIC), UpdateTopic(TOPIC, permission=4), Trim(TOPIC, 0, 1),
        Hold("me", TOPIC, 0, 0, 1 << 60),
    )  # fmt: skip
    for _ in range(2):
        assert {code_of(result) for result in driven.run(*asked)} == {Code.TOPIC_NOT_FOUND}
        assert code_of(driven.append(batch(sequence=0))[0]) is Code.TOPIC_NOT_FOUND
        forget(driven)
    assert driven.machine.queries.topic_by_id(TOPIC) is None


def test_the_limits_say_what_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TOPICS_MAX", 3)
    monkeypatch.setattr(topics, "TOPIC_ROWS_MAX", 5)
    driven = Driven()
    names = [b"%016d" % at for at in range(1, 9)]

    def another(at: int) -> CreateTopic:
        return replace(create(names[at], f"t{at}"), known_index=driven.machine.applied_index)

    driven.run(another(0), another(1), another(2))
    refused = driven.one(another(3))
    assert refused == Refused(Code.TOO_MANY_TOPICS, "3 topics exist, at most 3: delete some first")
    driven.one(DeleteTopic(names[0]))
    topic_of(driven.one(another(3)))
    driven.one(DeleteTopic(names[1]))
    topic_of(driven.one(another(4)))
    driven.one(DeleteTopic(names[2]))
    refused = driven.one(another(5))
    assert code_of(refused) is Code.TOO_MANY_TOPICS
    assert "3 deleted topics are remembered beside 2 others, at most 5" in str(refused)
    assert forget(driven) == TopicsForgotten(tuple(names[:3]), more=False)
    topic_of(driven.one(another(5)))
    topic_of(driven.one(DeleteTopic(names[3])))


def test_topics_come_and_go_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many more than there are rows."""
    monkeypatch.setattr(topics, "TOPICS_MAX", 2)
    monkeypatch.setattr(topics, "TOPIC_ROWS_MAX", 4)
    driven = Driven()
    for at in range(1, 200):
        name = b"%016d" % at
        topic_of(driven.one(replace(create(name, "t"), known_index=driven.machine.applied_index)))
        driven.append(batch(topic=name, keys=["k"]))
        driven.one(DeleteTopic(name))
        forget(driven)
    driven.idle(20)
    tables = Counter(Table(key[0]) for key in driven.rows())
    assert set(tables) <= {Table.META, Table.META_LOCAL}, tables


def test_a_head_that_was_trimmed_stays_so_when_all_is_forgotten() -> None:
    """Else a member that starts again would say that it needs the log from its begin on."""
    driven = started()
    driven.append(batch())
    driven.one(DeleteTopic(TOPIC))
    forget(driven)
    driven.idle(4)
    driven.save()
    head = driven.machine.head_needed()
    assert head > 0
    again = StateMachine(driven.store, GROUP)
    assert again.head_needed() == head
    assert again.digest == driven.machine.digest


@pytest.mark.parametrize("seed", range(8))
def test_copies_of_creations_and_imports_at_any_time(seed: int) -> None:
    """No copy brings a topic back that was deleted, whatever was forgotten meanwhile."""
    random, driven = Random(seed), Driven()
    sent: list[CreateTopic] = []
    deleted: set[bytes] = set()
    made = stale = 0
    for at in range(1, 600):
        drawn = random.random()
        if drawn < 0.3:
            command = create(b"%016d" % at, random.choice("abc"))
            sent.append(replace(command, known_index=driven.machine.applied_index))
        if drawn < 0.6 and sent:
            copy = random.choice(sent)
            result = driven.one(copy)
            if isinstance(result, TopicChanged):
                assert not result.topic.deleted
                made += result.topic.topic_id == copy.topic_id
            else:
                stale += code_of(result) is Code.STALE_CREATION
        elif drawn < 0.8:
            live = driven.machine.queries.topics()
            if live:
                gone = random.choice(live)
                topic_of(driven.one(DeleteTopic(gone.topic_id)))
                deleted.add(gone.topic_id)
        else:
            driven.count_time(random.choice((1, KEPT_MS)))
            driven.one(ForgetTopics(random.choice((0, KEPT_MS)), EVERYTHING))
        assert not deleted & {topic.topic_id for topic in driven.machine.queries.topics()}
    assert made > 20
    assert stale > 20
    assert driven.machine.queries.forgotten_index


def test_a_producer_goes_on_beside_forgotten_topics() -> None:
    driven = started()
    driven.run(RegisterProducer(b"Q" * 16, LIFE), create(OTHER_TOPIC, "returns"))
    driven.append(batch(producer=b"Q" * 16, sequence=0), batch(topic=OTHER_TOPIC))
    driven.one(DeleteTopic(OTHER_TOPIC))
    forget(driven)
    assert offset_of(driven.append(batch(producer=b"Q" * 16, sequence=1))[0]) == 1


@pytest.mark.parametrize("what", ["progress", "producers"])
def test_an_id_is_kept_until_all_rows_of_its_topic_are_swept(what: str) -> None:
    """Else the next topic of this id would go on with the progress and sequences of the old one."""
    driven = with_group(SETTINGS)
    state, many = driven.machine._state, 500
    for number in range(1, many + 1):
        if what == "progress":
            state.progress.write(BILLING, b"billing", (number.to_bytes(16), 0), Progress(1))
        else:
            driven.register(number.to_bytes(16))
            driven.append(batch(sequence=0, producer=number.to_bytes(16)))
    driven.one(DeleteConsumerGroup(BILLING) if what == "progress" else DeleteTopic(TOPIC))
    late = ForgetTopics(0, EVERYTHING)
    for _ in range(3):
        state.time.count(COUNTED_AT_ONCE_MAX_MS)
    while not state.garbage.is_empty:
        driven.idle()
    assert driven.one(late) == TopicsForgotten((), more=False)
    driven.idle(many // 32)
    forgotten = driven.one(late)
    assert isinstance(forgotten, TopicsForgotten)
    assert len(forgotten.topic_ids) == (2 if what == "progress" else 1)
