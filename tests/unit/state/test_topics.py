"""Topics: create, import, update, delete; stamps, names, layouts (D1, D14, S19, S22)."""

from dataclasses import replace

import pytest

from dledger.state.offsets import CommitOffset
from dledger.state.progress.commits import CommitOffsets
from dledger.state.queues.holds import Hold
from dledger.state.results import TopicChanged
from dledger.state.tables import Table
from dledger.state.topics.commands import CreateTopic, DeleteTopic, ImportTopic, UpdateTopic
from dledger.state.topics.table import decode_topic, encode_topic
from dledger.state.values import LayoutPart, Topic, TopicType
from dledger_proto.errors import Code, DledgerError
from tests.unit.state.kit import (
    OTHER_TOPIC,
    TOPIC,
    Driven,
    batch,
    code_of,
    create,
    offset_of,
    started,
)

TWO_GROUPS = (LayoutPart("g1", 2), LayoutPart("g2", 2))


def changed(
    driven: Driven, command: CreateTopic | ImportTopic | UpdateTopic | DeleteTopic
) -> Topic:
    result = driven.one(command)
    assert isinstance(result, TopicChanged), result
    return result.topic


def imported(index: int, **changes: object) -> Topic:
    topic = Topic(TOPIC, "orders", TopicType.NORMAL, 1, TWO_GROUPS, 4, 4, 6, index)
    return replace(topic, **changes)  # type: ignore[arg-type]


def test_create_is_stamped_with_its_entry_and_found() -> None:
    driven = Driven()
    driven.idle(4)
    topic = changed(driven, create())
    assert topic.control_index == 5
    assert topic.layout_version == 1
    assert driven.machine.queries.topic_by_name("orders") == topic
    assert driven.machine.queries.topic_by_id(TOPIC) == topic
    assert driven.machine.queries.topics() == [topic]
    assert driven.machine.queries.topics(5) == []


def test_create_twice_has_the_same_answer() -> None:
    """Also with another id, as a second proposer would draw."""
    driven = Driven()
    topic = changed(driven, create())
    assert changed(driven, create()) == topic
    assert changed(driven, create(OTHER_TOPIC)) == topic
    assert driven.machine.queries.topic_by_id(OTHER_TOPIC) is None


def test_create_with_another_configuration_is_refused() -> None:
    driven = started()
    refused = driven.one(create(OTHER_TOPIC, read_queues=5))
    assert code_of(refused) is Code.TOPIC_EXISTS
    assert "read queues 4, not 5" in str(refused), "the text names what differs"
    assert code_of(driven.one(create(TOPIC, "other"))) is Code.TOPIC_EXISTS


@pytest.mark.parametrize(
    "command",
    [
        create(name=""),
        create(name="x" * 128),
        create(name="a b"),
        create(name="ü"),
        create(layout=()),
        create(layout=(LayoutPart("g1", 0),)),
        create(layout=(LayoutPart("g 1", 1),)),
        create(layout=(LayoutPart("g1", 1000), LayoutPart("g2", 25))),
        create(read_queues=0),
        create(read_queues=1025),
        create(permission=0),
        create(permission=7),
        create(topic=bytes(16)),
    ],
)
def test_create_outside_a_limit_is_refused(command: CreateTopic) -> None:
    driven = Driven()
    before = driven.rows()
    assert code_of(driven.one(command)) is Code.INVALID_ARGUMENT
    assert {key for key in driven.rows() if key[0]} == {key for key in before if key[0]}


def test_create_at_the_limits() -> None:
    driven = Driven()
    layout = (LayoutPart("g" * 120, 1000), LayoutPart("g2", 24))
    topic = changed(driven, create(name="%|-_" + "x" * 123, layout=layout, read_queues=1024))
    assert decode_topic(TOPIC, encode_topic(topic)) == topic


def test_delete_frees_the_name_and_keeps_the_id_dead() -> None:
    driven = started()
    driven.append(batch())
    assert changed(driven, DeleteTopic(TOPIC)).deleted
    assert driven.machine.queries.topic_by_name("orders") is None
    assert driven.machine.queries.topics() == []
    assert [topic.topic_id for topic in driven.machine.queries.topics(with_deleted=True)] == [TOPIC]
    assert code_of(driven.append(batch())[0]) is Code.TOPIC_NOT_FOUND
    assert code_of(driven.one(DeleteTopic(TOPIC))) is Code.TOPIC_NOT_FOUND
    assert code_of(driven.one(UpdateTopic(TOPIC, permission=4))) is Code.TOPIC_NOT_FOUND
    assert code_of(driven.one(create(TOPIC))) is Code.TOPIC_EXISTS
    again = changed(driven, create(OTHER_TOPIC))
    assert driven.machine.queries.topic_by_name("orders") == again
    assert driven.machine.queries.queue_bounds(OTHER_TOPIC, 0) == (0, 0)


def test_delete_removes_all_rows_a_few_at_a_time() -> None:
    driven = started()
    for queue in range(4):
        for _ in range(120):
            driven.append(batch(queue=queue, keys=["k"]))
    driven.one(CommitOffsets("cg", (CommitOffset(TOPIC, 0, 1),)))
    driven.one(Hold("owner", TOPIC, 0, 0, 10**9))
    driven.one(create(OTHER_TOPIC, "kept"))
    driven.append(batch(topic=OTHER_TOPIC, keys=["k"]))
    kept = driven.log.entries[-1].ref.position
    driven.one(DeleteTopic(TOPIC))
    driven.idle(20)
    mine = [key for key in driven.rows() if TOPIC in key]
    assert [key[0] for key in mine] == [Table.TOPIC, Table.TOPIC_DELETED], "until it is forgotten"
    assert not [key for key in driven.rows() if key[0] == Table.GARBAGE]
    driven.save()
    assert kept < driven.machine.head_needed() < driven.log.position
    assert driven.machine.queries.queue_bounds(OTHER_TOPIC, 0) == (0, 1)


def test_update_changes_only_what_is_given() -> None:
    driven = started()
    topic = changed(driven, UpdateTopic(TOPIC, permission=4))
    assert (topic.permission, topic.read_queues, topic.layout_version) == (4, 4, 1)
    assert code_of(driven.append(batch())[0]) is Code.NO_PERMISSION
    topic = changed(driven, UpdateTopic(TOPIC, permission=6, read_queues=3))
    assert (topic.permission, topic.read_queues, topic.control_index) == (6, 3, 4)
    assert offset_of(driven.append(batch())[0]) == 0


def test_layouts_grow_and_end_sooner_but_move_no_queue() -> None:
    driven = started()
    grown = (LayoutPart("g1", 4), LayoutPart("g2", 4))
    topic = changed(driven, UpdateTopic(TOPIC, grown))
    assert (topic.layout_version, topic.write_queues, topic.read_queues) == (2, 8, 8)
    for queue, group in ((0, "g2"), (3, "g2")):
        moved = (
            (LayoutPart("g1", queue), LayoutPart(group, 8)) if queue else (LayoutPart(group, 8),)
        )
        result = driven.one(UpdateTopic(TOPIC, moved))
        assert code_of(result) is Code.INVALID_ARGUMENT, moved
        assert f"moves queue {queue} from group g1 to g2" in str(result)
        assert "numbered from 8 on" in str(result)
    assert code_of(driven.append(batch(queue=4))[0]) is Code.WRONG_GROUP
    assert offset_of(driven.append(batch(queue=3))[0]) == 0
    assert changed(driven, UpdateTopic(TOPIC, (LayoutPart("g1", 2),), 4)).layout_version == 3
    assert code_of(driven.append(batch(queue=3))[0]) is Code.QUEUE_NOT_FOUND
    assert driven.machine.queries.queue_bounds(TOPIC, 3) == (0, 1), "a closed queue stays readable"
    assert driven.machine.queries.queue_bounds(TOPIC, 2) == (0, 0)


def test_a_closed_queue_is_read_until_fewer_are_asked_for() -> None:
    driven = started()
    topic = changed(driven, UpdateTopic(TOPIC, (LayoutPart("g1", 2),)))
    assert (topic.write_queues, topic.read_queues) == (2, 4)
    topic = changed(driven, UpdateTopic(TOPIC, read_queues=2))
    assert (topic.write_queues, topic.read_queues, topic.layout_version) == (2, 2, 2)
    topic = changed(driven, UpdateTopic(TOPIC, (LayoutPart("g1", 3),)))
    assert (topic.write_queues, topic.read_queues) == (3, 3), "what takes messages is read"
    changed(driven, UpdateTopic(TOPIC, read_queues=1))
    topic = changed(driven, UpdateTopic(TOPIC, (LayoutPart("g1", 2),)))
    assert topic.read_queues == 3, "it was read as long as it took messages"


def test_a_closed_queue_stays_with_its_group_and_goes_on_where_it_was() -> None:
    """Its messages lie there, and readers know offsets of it."""
    driven = started()
    mine, others = LayoutPart("g1", 4), LayoutPart("g2", 2)
    changed(driven, UpdateTopic(TOPIC, (mine, others)))
    assert offset_of(driven.append(batch(queue=3))[0]) == 0
    closed = changed(driven, UpdateTopic(TOPIC, (LayoutPart("g1", 2),), 2))
    assert [closed.owner_of(queue) for queue in range(7)] == [*["g1"] * 4, "g2", "g2", ""]
    assert code_of(driven.one(UpdateTopic(TOPIC, (LayoutPart("g1", 5),)))) is Code.INVALID_ARGUMENT
    result = driven.one(UpdateTopic(TOPIC, (LayoutPart("g1", 2), LayoutPart("g2", 2))))
    assert "moves queue 2 from group g1 to g2" in str(result)
    opened = changed(driven, UpdateTopic(TOPIC, (LayoutPart("g1", 3), LayoutPart("g1", 1))))
    assert opened.layout == (mine, others)
    assert offset_of(driven.append(batch(queue=3))[0]) == 1


def test_more_queues_to_read_than_to_write_are_made_with_the_topic_of_one_group() -> None:
    """Later they would be a slip that nobody can take back: a number stays with its group."""
    driven = started(create(read_queues=6))
    topic = driven.machine.queries.topic_by_id(TOPIC)
    assert topic is not None
    assert (topic.layout, topic.write_queues) == ((LayoutPart("g1", 6),), 4)
    assert changed(driven, create(read_queues=6)) == topic
    assert driven.machine.queries.queue_bounds(TOPIC, 5) == (0, 0)
    assert changed(driven, UpdateTopic(TOPIC, (LayoutPart("g1", 6),))).write_queues == 6
    for refused in (
        driven.one(UpdateTopic(TOPIC, read_queues=7)),
        driven.one(UpdateTopic(TOPIC, (LayoutPart("g1", 5),), 7)),
    ):
        assert code_of(refused) is Code.INVALID_ARGUMENT
        assert "read_queues 7, 1 to 6" in str(refused)
    several = driven.one(create(OTHER_TOPIC, "other", layout=TWO_GROUPS, read_queues=5))
    assert code_of(several) is Code.INVALID_ARGUMENT
    assert "read_queues 5, at most 4: more than take messages" in str(several)


def test_queues_of_another_group() -> None:
    """Queues are numbered through the parts: 2 and 3 are g2's."""
    driven = Driven()
    driven.one(create(layout=TWO_GROUPS))
    assert offset_of(driven.append(batch(queue=1))[0]) == 0
    assert code_of(driven.append(batch(queue=2))[0]) is Code.WRONG_GROUP
    assert code_of(driven.append(batch(queue=4))[0]) is Code.QUEUE_NOT_FOUND
    for queue, code in ((2, Code.WRONG_GROUP), (4, Code.QUEUE_NOT_FOUND)):
        with pytest.raises(DledgerError) as caught:
            driven.machine.queries.queue_bounds(TOPIC, queue)
        assert caught.value.code is code
    other = Driven(group="g2")
    other.one(ImportTopic(imported(1)))
    assert code_of(other.append(batch(queue=1))[0]) is Code.WRONG_GROUP
    assert offset_of(other.append(batch(queue=3))[0]) == 0


def test_import_older_is_refused_and_repeated_is_the_same() -> None:
    driven = Driven(group="g2")
    topic = changed(driven, ImportTopic(imported(10)))
    assert changed(driven, ImportTopic(imported(10))) == topic
    assert code_of(driven.one(ImportTopic(imported(9, permission=4)))) is Code.STALE_LAYOUT
    assert driven.machine.queries.topic_by_id(TOPIC) == topic
    assert changed(driven, ImportTopic(imported(11, permission=4))).permission == 4
    assert changed(driven, ImportTopic(imported(12, deleted=True))).deleted
    assert code_of(driven.one(ImportTopic(imported(11)))) is Code.STALE_LAYOUT


def test_import_cannot_bring_a_deleted_topic_back() -> None:
    """Its rows are being deleted: what was written there again would be deleted with them."""
    driven = Driven(group="g2")
    driven.one(ImportTopic(imported(10)))
    driven.append(batch(queue=2))
    gone = changed(driven, ImportTopic(imported(12, deleted=True)))
    assert code_of(driven.one(ImportTopic(imported(13)))) is Code.TOPIC_NOT_FOUND
    assert driven.machine.queries.topic_by_id(TOPIC) == gone
    assert driven.machine.queries.topic_by_name("orders") is None
    assert code_of(driven.append(batch(queue=2))[0]) is Code.TOPIC_NOT_FOUND
    assert changed(driven, ImportTopic(imported(14, deleted=True))).control_index == 14


def test_import_cannot_rename_a_topic() -> None:
    """The old name led to it until the next restart, and members differed by it."""
    digests: list[bytes] = []
    for restarts in (False, True):
        driven = Driven(group="g2")
        first = changed(driven, ImportTopic(imported(10)))
        for deleted in (False, True):
            other = replace(imported(11, deleted=deleted), name="renamed")
            assert code_of(driven.one(ImportTopic(other))) is Code.INVALID_ARGUMENT
        assert driven.machine.queries.topic_by_name("orders") == first
        assert driven.machine.queries.topic_by_name("renamed") is None
        if restarts:
            driven.save()
            driven = Driven(driven.store, driven.log, group="g2")
        changed(driven, ImportTopic(imported(12, topic_id=OTHER_TOPIC)))
        digests.append(driven.machine.digest)
    assert digests[0] == digests[1]


def test_import_of_a_name_given_away() -> None:
    """Deletions may arrive after the re-creation, or never: the newer id takes the name."""
    driven = Driven(group="g2")
    driven.one(ImportTopic(imported(10)))
    driven.append(batch(queue=2))
    changed(driven, ImportTopic(imported(20, topic_id=OTHER_TOPIC)))
    old = driven.machine.queries.topic_by_id(TOPIC)
    assert old is not None
    assert old.deleted
    assert code_of(driven.append(batch(queue=2))[0]) is Code.TOPIC_NOT_FOUND
    assert code_of(driven.one(ImportTopic(imported(15, permission=4)))) is Code.STALE_LAYOUT
    named = driven.machine.queries.topic_by_name("orders")
    assert named is not None
    assert named.topic_id == OTHER_TOPIC
    assert code_of(driven.one(ImportTopic(imported(12, topic_id=b"V" * 16)))) is Code.STALE_LAYOUT


def test_import_of_a_tombstone_of_an_unknown_topic() -> None:
    driven = Driven(group="g2")
    assert changed(driven, ImportTopic(imported(10, deleted=True))).deleted
    assert driven.machine.queries.topic_by_name("orders") is None
    assert code_of(driven.one(ImportTopic(imported(9)))) is Code.STALE_LAYOUT


def test_topics_since() -> None:
    driven = Driven()
    driven.one(create())
    driven.one(create(OTHER_TOPIC, "second"))
    driven.one(UpdateTopic(TOPIC, permission=4))
    names = [topic.name for topic in driven.machine.queries.topics()]
    assert names == ["second", "orders"]
    assert [topic.name for topic in driven.machine.queries.topics(2)] == ["orders"]


def test_topics_survive_a_restart() -> None:
    driven = started()
    driven.one(create(OTHER_TOPIC, "second"))
    driven.one(DeleteTopic(OTHER_TOPIC))
    again = Driven(driven.store, driven.log)
    for with_deleted in (False, True):
        assert again.machine.queries.topics(
            with_deleted=with_deleted
        ) == driven.machine.queries.topics(with_deleted=with_deleted)
    assert again.machine.queries.topic_by_name("second") is None
