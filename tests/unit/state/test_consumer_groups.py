"""Consumer groups as objects of the cluster: create, change, widen, delete, import (D20)."""

from dataclasses import replace

import pytest

from dledger.state.commands.command import Command
from dledger.state.consumers.groups import (
    CreateConsumerGroup,
    DeleteConsumerGroup,
    UpdateConsumerGroup,
    WidenConsumerGroup,
)
from dledger.state.consumers.settings import ConsumeOrder, GroupSettings, StartFrom
from dledger.state.counted_time import COUNTED_AT_ONCE_MAX_MS
from dledger.state.results import ConsumerGroupChanged, TopicChanged
from dledger.state.tables import Table
from dledger.state.topics import table as topic_table
from dledger.state.topics.commands import (
    DeleteTopic,
    ForgetTopics,
    ImportTopic,
    UpdateTopic,
)
from dledger.state.topics.table import decode_topic, encode_topic
from dledger.state.values import LayoutPart, Topic
from dledger_proto.errors import Code
from tests.unit.state.kit import OTHER_TOPIC, TOPIC, Driven, batch, code_of, create, started

BILLING, DEAD = b"B" * 16, b"D" * 16
LAYOUT = (LayoutPart("g1", 1), LayoutPart("g2", 1))
SETTINGS = GroupSettings("g1", DEAD, start_time_ms=1_000)
"""Created at the stamp of the first entries."""
CREATE = CreateConsumerGroup(BILLING, "billing", LAYOUT, SETTINGS)


def changed(driven: Driven, command: Command[ConsumerGroupChanged]) -> ConsumerGroupChanged:
    result = driven.one(command)
    assert isinstance(result, ConsumerGroupChanged), result
    return result


def with_billing() -> Driven:
    driven = started()
    changed(driven, CREATE)
    return driven


def test_one_creation_makes_both_topics() -> None:
    driven = started()
    result = changed(driven, CREATE)
    queries = driven.machine.queries
    index = driven.log.entries[-1].ref.index
    assert queries.topic_by_name("%RETRY%billing") == result.retry
    assert queries.topic_by_name("%DLQ%billing") == result.dead_letters
    assert queries.group_by_name("billing") == (result.retry, SETTINGS)
    assert queries.group_by_id(BILLING) == (result.retry, SETTINGS)
    assert result.retry.consumer_group == SETTINGS
    assert result.dead_letters.consumer_group is None
    for topic in (result.retry, result.dead_letters):
        assert (topic.control_index, topic.layout, topic.permission) == (index, LAYOUT, 4)
        assert (topic.write_queues, topic.read_queues) == (2, 2)
        assert decode_topic(topic.topic_id, encode_topic(topic)) == topic


def test_nobody_writes_to_the_topics_of_a_group() -> None:
    driven = with_billing()
    for topic in (BILLING, DEAD):
        assert code_of(driven.append(batch(topic=topic))[0]) is Code.NO_PERMISSION
        assert driven.machine.queries.queue_bounds(topic, 0) == (0, 0)


def test_a_creation_twice_has_the_same_answer() -> None:
    """Also with other ids and another layout, as a second proposer of another time would say."""
    driven = with_billing()
    first = changed(driven, CREATE)
    late = replace(CREATE, group_id=b"X" * 16, layout=(*LAYOUT, LayoutPart("g3", 1)))
    other = replace(SETTINGS, coordinator="g3", dead_letter_topic_id=b"Y" * 16)
    assert changed(driven, replace(late, settings=other)) == first
    assert driven.machine.queries.group_by_id(b"X" * 16) is None


def test_a_group_that_exists_names_the_differences() -> None:
    driven = with_billing()
    other = replace(SETTINGS, order=ConsumeOrder.KEY, retries_max=2)
    refused = driven.one(replace(CREATE, settings=other))
    assert code_of(refused) is Code.CONSUMER_GROUP_EXISTS
    assert "order CONCURRENT, not KEY; retries_max 16, not 2" in str(refused)


def test_no_creation_takes_the_id_of_a_topic() -> None:
    driven = started()
    assert code_of(driven.one(replace(CREATE, group_id=TOPIC))) is Code.CONSUMER_GROUP_EXISTS
    dead = replace(SETTINGS, dead_letter_topic_id=TOPIC)
    assert code_of(driven.one(replace(CREATE, settings=dead))) is Code.TOPIC_EXISTS
    same = replace(SETTINGS, dead_letter_topic_id=BILLING)
    assert code_of(driven.one(replace(CREATE, settings=same))) is Code.INVALID_ARGUMENT
    assert driven.machine.queries.group_by_name("billing") is None


@pytest.mark.parametrize(
    "command",
    [
        replace(CREATE, name=""),
        replace(CREATE, name="a b"),
        replace(CREATE, name="x" * 121),
        replace(CREATE, layout=()),
        replace(CREATE, layout=(LayoutPart("g1", 2),)),
        replace(CREATE, layout=(LayoutPart("g1", 1), LayoutPart("g1", 1))),
        replace(CREATE, settings=replace(SETTINGS, coordinator="g9")),
        replace(CREATE, settings=replace(SETTINGS, session_ms=1)),
        replace(CREATE, settings=replace(SETTINGS, strategy="best")),
        replace(CREATE, settings=replace(SETTINGS, dead_letter_topic_id=bytes(16))),
        UpdateConsumerGroup(BILLING, ("coordinator",), SETTINGS),
        UpdateConsumerGroup(BILLING, ("paused", "colour"), SETTINGS),
        UpdateConsumerGroup(BILLING, ("lease_ms",), replace(SETTINGS, lease_ms=1)),
        WidenConsumerGroup(BILLING, (LayoutPart("g1", 1), LayoutPart("g3", 2))),
        WidenConsumerGroup(BILLING, (LayoutPart("g2", 1), LayoutPart("g1", 1))),
    ],
)
def test_what_is_outside_a_limit_changes_nothing(command: Command[object]) -> None:
    driven = started()
    if not isinstance(command, CreateConsumerGroup):
        changed(driven, CREATE)
    before = driven.rows()
    assert code_of(driven.one(command)) is Code.INVALID_ARGUMENT
    assert {key for key in driven.rows() if key[0]} == {key for key in before if key[0]}


def test_the_longest_name_fits() -> None:
    driven = started()
    name = "%" + "x" * 119
    assert changed(driven, replace(CREATE, name=name)).retry.name == "%RETRY%" + name


def test_an_update_changes_what_it_names() -> None:
    driven = with_billing()
    wanted = replace(SETTINGS, coordinator="g9", retries_max=3, paused=True, session_ms=2_000)
    result = changed(driven, UpdateConsumerGroup(BILLING, ("retries_max", "paused"), wanted))
    assert result.retry.consumer_group == replace(SETTINGS, retries_max=3, paused=True)
    assert result.retry.control_index == driven.log.entries[-1].ref.index
    assert driven.machine.queries.group_by_name("billing") == (
        result.retry, result.retry.consumer_group,
    )  # fmt: skip


def test_a_group_that_is_to_begin_last_is_stamped_by_the_change() -> None:
    """What it calls younger than itself is younger than that change."""
    driven = with_billing()
    timed = replace(SETTINGS, start=StartFrom.TIME, start_time_ms=7)
    changed(driven, UpdateConsumerGroup(BILLING, ("start", "start_time_ms"), timed))
    result = changed(driven, UpdateConsumerGroup(BILLING, ("start",), SETTINGS))
    (settings,) = result.retry.settings
    assert settings.start_time_ms == driven.log.entries[-1].time_ms


def test_a_group_grows_into_new_broker_groups() -> None:
    driven = with_billing()
    layout = (*LAYOUT, LayoutPart("g3", 1))
    result = changed(driven, WidenConsumerGroup(BILLING, layout))
    for topic in (result.retry, result.dead_letters):
        assert (topic.layout, topic.write_queues, topic.read_queues) == (layout, 3, 3)
        assert (topic.layout_version, topic.owner_of(2)) == (2, "g3")
    again = changed(driven, WidenConsumerGroup(BILLING, LAYOUT))
    assert again == result, "an older proposal takes no queue away"


def test_deletion_takes_both_topics_and_frees_the_name() -> None:
    driven = with_billing()
    result = changed(driven, DeleteConsumerGroup(BILLING))
    assert result.retry.deleted
    assert result.dead_letters.deleted
    queries = driven.machine.queries
    assert queries.group_by_name("billing") is None
    assert queries.group_by_id(BILLING) is None
    assert [topic.name for topic in queries.topics()] == ["orders"]
    assert code_of(driven.one(DeleteConsumerGroup(BILLING))) is Code.CONSUMER_GROUP_NOT_FOUND
    update = UpdateConsumerGroup(BILLING, ("paused",), SETTINGS)
    assert code_of(driven.one(update)) is Code.CONSUMER_GROUP_NOT_FOUND
    assert code_of(driven.one(WidenConsumerGroup(BILLING, LAYOUT))) is Code.CONSUMER_GROUP_NOT_FOUND
    assert code_of(driven.one(CREATE)) is Code.CONSUMER_GROUP_EXISTS, "its id stays dead"
    dead = b"E" * 16
    again = replace(
        CREATE, group_id=b"C" * 16, settings=replace(SETTINGS, dead_letter_topic_id=dead)
    )
    assert changed(driven, again).dead_letters.topic_id == dead


def test_deletion_frees_the_rows_of_both_topics() -> None:
    driven = with_billing()
    driven.one(DeleteConsumerGroup(BILLING))
    driven.idle(20)
    left = [key for key in driven.rows() if BILLING in key or DEAD in key]
    assert sorted(key[0] for key in left) == sorted(2 * [Table.TOPIC, Table.TOPIC_DELETED]), (
        "until both are forgotten"
    )
    driven.count_time(COUNTED_AT_ONCE_MAX_MS + 1)
    driven.one(ForgetTopics(0, 1 << 60))
    assert not [key for key in driven.rows() if BILLING in key or DEAD in key]


def test_a_late_copy_of_a_creation_creates_nothing() -> None:
    driven = with_billing()
    driven.one(DeleteConsumerGroup(BILLING))
    driven.idle(20)
    driven.count_time(COUNTED_AT_ONCE_MAX_MS + 1)
    driven.one(ForgetTopics(0, 1 << 60))
    assert driven.machine.queries.forgotten_index
    assert code_of(driven.one(replace(CREATE, known_index=1))) is Code.STALE_CREATION
    assert driven.machine.queries.group_by_name("billing") is None


def test_a_creation_needs_room_for_two_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = started()
    monkeypatch.setattr(topic_table, "TOPICS_MAX", 2)
    assert code_of(driven.one(CREATE)) is Code.TOO_MANY_TOPICS
    assert driven.machine.queries.topic_by_name("%DLQ%billing") is None
    monkeypatch.setattr(topic_table, "TOPICS_MAX", 3)
    changed(driven, CREATE)


@pytest.mark.parametrize("name", ["%RETRY%billing", "%DLQ%billing"])
def test_topics_of_groups_are_no_business_of_topic_commands(name: str) -> None:
    driven = started()
    assert code_of(driven.one(create(OTHER_TOPIC, name))) is Code.INVALID_ARGUMENT
    changed(driven, CREATE)
    topic = driven.machine.queries.topic_by_name(name)
    assert topic is not None
    commands: list[Command[object]] = [
        create(OTHER_TOPIC, name),
        UpdateTopic(topic.topic_id, permission=6),
        DeleteTopic(topic.topic_id),
    ]
    for command in commands:
        refused = driven.one(command)
        assert code_of(refused) is Code.INVALID_ARGUMENT
        assert name in str(refused)
    assert driven.machine.queries.topic_by_name(name) == topic


def test_the_topics_of_a_group_are_not_deleted_alone() -> None:
    driven = with_billing()
    for topic_id in (BILLING, DEAD):
        assert code_of(driven.one(DeleteTopic(topic_id))) is Code.INVALID_ARGUMENT
    assert driven.machine.queries.group_by_name("billing") is not None


def imported(driven: Driven, topic: Topic) -> Code | None:
    result = driven.one(ImportTopic(topic))
    return None if isinstance(result, TopicChanged) else code_of(result)


def both(control: Driven) -> tuple[Topic, Topic]:
    queries = control.machine.queries
    retry, dead = queries.topic_by_id(BILLING), queries.topic_by_id(DEAD)
    assert retry is not None
    assert dead is not None
    return retry, dead


def test_other_broker_groups_take_a_group_over() -> None:
    """In any order, again and late: what the control group decided last holds."""
    control, other = with_billing(), Driven(group="g2")
    before = both(control)
    for topic in (*before, *before):
        assert imported(other, topic) is None
    assert other.machine.queries.group_by_name("billing") == (before[0], SETTINGS)
    control.one(UpdateConsumerGroup(BILLING, ("paused",), replace(SETTINGS, paused=True)))
    after = both(control)
    assert imported(other, after[0]) is None
    assert imported(other, before[0]) is Code.STALE_LAYOUT
    found = other.machine.queries.group_by_name("billing")
    assert found is not None
    assert found[1].paused
    control.one(DeleteConsumerGroup(BILLING))
    for topic in both(control):
        assert imported(other, topic) is None
    for topic in (*before, *after):
        assert imported(other, topic) is not None
    assert other.machine.queries.group_by_name("billing") is None
    assert other.machine.queries.topics() == []


def test_settings_outside_a_limit_are_not_taken_over() -> None:
    control, other = with_billing(), Driven(group="g2")
    retry, _ = both(control)
    bad = replace(SETTINGS, pause_share=101)
    assert imported(other, replace(retry, settings=(bad,))) is Code.INVALID_ARGUMENT
    assert imported(other, replace(retry, settings=(SETTINGS, SETTINGS))) is Code.INVALID_ARGUMENT


def test_a_plain_topic_of_such_a_name_can_still_be_deleted() -> None:
    """It came before consumer groups did: its creation was an ordinary one."""
    driven = started()
    topic = driven.machine.queries.topic_by_id(TOPIC)
    assert topic is not None
    stray = replace(topic, topic_id=OTHER_TOPIC, name="%DLQ%billing", control_index=99)
    other = Driven()
    assert imported(other, stray) is None
    assert isinstance(other.one(DeleteTopic(OTHER_TOPIC)), TopicChanged)
