"""Lists of topics in pages: whole, in order, each bounded, whatever changes between two pages."""

import struct
from dataclasses import replace
from random import Random

import pytest

from dledger.state.queries import Queries
from dledger.state.topics.table import TopicTable
from dledger.state.values import LayoutPart, Topic, TopicType
from dledger_broker.cluster.topic_pages import (
    CURSOR,
    BadPage,
    check_history,
    check_page,
    topics_page,
)
from dledger_broker.group.group_view import GroupView
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import FRAME_SIZE_MAX, QUEUES_PER_TOPIC_MAX, TOPICS_PAGE_SIZE
from dledger_proto.v1 import broker_pb2 as pb
from tests.unit.broker.fakes import NAMES
from tests.unit.broker.test_messaging import Host, messaging

CONTROL_ID = b"C" * 16


class Table(TopicTable):
    """Topics that a test stores as it likes."""

    def __init__(self) -> None:
        self._by_id: dict[bytes, Topic] = {}
        self._floor = 0

    def put(self, *topics: Topic) -> None:
        """Store."""
        self._by_id.update({topic.topic_id: topic for topic in topics})


class FakeQueries(Queries):
    """Answers from a table alone."""

    def __init__(self, table: Table) -> None:
        self.table = table

    @property
    def newest_control_index(self) -> int:
        return self.table.newest_change

    @property
    def forgotten_index(self) -> int:
        return self.table.floor

    def topics_after(
        self, place: tuple[int, bytes], count: int, *, with_deleted: bool
    ) -> list[Topic]:
        return self.table.after(place, count, with_deleted=with_deleted)


def topic(number: int, index: int, *, parts: int = 1, deleted: bool = False) -> Topic:
    layout = tuple(LayoutPart(f"{part:0120d}", 1) for part in range(parts))
    return Topic(
        struct.pack(">QQ", 1, number), f"t{number}", TopicType.NORMAL, 1, layout, parts, parts, 6,
        index, deleted,
    )  # fmt: skip


def view(table: Table) -> GroupView:
    return messaging(Host(), b"", 0, FakeQueries(table), applied_index=1 << 30).view


def pages(table: Table, request: pb.ListTopicsRequest) -> list[pb.ListTopicsReply]:
    """Follow the pages to the end, checking each."""
    found: list[pb.ListTopicsReply] = []
    group = view(table)
    while True:
        reply = topics_page(group, request)
        check_page(request, reply, NAMES.cluster, NAMES.group)
        found.append(reply)
        if not reply.cursor:
            return found
        request.cursor = reply.cursor


def test_the_list_is_whole_and_each_page_fits_a_message() -> None:
    """The rows of the largest topics, all decided by one entry, and many small ones."""
    table = Table()
    table.put(*(topic(n, 7, parts=QUEUES_PER_TOPIC_MAX) for n in range(40)))
    table.put(*(topic(n, 8 + n % 50, deleted=n % 9 == 0) for n in range(100, 12_100)))
    found = pages(table, pb.ListTopicsRequest(with_deleted=True))
    assert len(found) > 5
    assert max(reply.ByteSize() for reply in found) < TOPICS_PAGE_SIZE + 200 < FRAME_SIZE_MAX
    ids = [row.id for reply in found for row in reply.topics]
    assert len(ids) == len(set(ids)) == 12_040
    assert found[-1].control_index == 57
    assert all(reply.control_index < reply.topics[-1].control_index for reply in found[:-1])
    living = pages(table, pb.ListTopicsRequest(since_control_index=7))
    assert not any(row.deleted for reply in living for row in reply.topics)
    assert sum(len(reply.topics) for reply in living) == 12_000 - 1_333


def test_what_changes_between_two_pages_is_not_missed() -> None:
    for seed in range(200):
        random = Random(seed)
        table = Table()
        index = 0
        for number in range(20):
            index += random.randrange(2)
            table.put(topic(number, index + 1))
        index += 1
        known: dict[bytes, int] = {}
        complete = 0
        request = pb.ListTopicsRequest(with_deleted=True)
        while True:
            reply = topics_page(view(table), request, count=3)
            check_page(request, reply, NAMES.cluster, NAMES.group)
            known.update((row.id, row.control_index) for row in reply.topics)
            complete = reply.control_index
            for row in table.after((0, b""), 99, with_deleted=True):
                assert row.control_index > complete or known[row.topic_id] == row.control_index
            if not reply.cursor:
                break
            request.cursor = reply.cursor
            index += 1
            changed = topic(random.randrange(25), index)
            table.put(replace(changed, deleted=random.random() < 0.3))
        assert complete == index


@pytest.mark.parametrize("cursor", [b"x", bytes(23), bytes(25)])
def test_a_cursor_that_no_answer_gave_is_refused(cursor: bytes) -> None:
    with pytest.raises(DledgerError) as raised:
        topics_page(view(Table()), pb.ListTopicsRequest(cursor=cursor))
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert raised.value.detail.startswith(f"cursor of {len(cursor)} bytes")


def page(
    topics: list[pb.Topic],
    control_index: int,
    *,
    confirmed: int = 9,
    cursor: bytes = b"",
    cluster: str = "c",
    group: str = "control",
) -> bytes:
    """Return an answer of the control group, which has decided up to 9."""
    return pb.ListTopicsReply(
        topics=topics, control_index=control_index, cursor=cursor, cluster=cluster, group=group,
        confirmed_index=confirmed, group_id=CONTROL_ID,
    ).SerializeToString()  # fmt: skip


def decided(index: int) -> pb.Topic:
    """Return a topic that the control group decided at an index."""
    return pb.Topic(
        id=index.to_bytes(16, "big"), name=f"t{index}", layout_version=1, write_queues=1,
        read_queues=1, permission=6, control_index=index,
        layout=[pb.LayoutPart(group="g", queues=1)],
    )  # fmt: skip


IMPOSSIBLE: list[tuple[bytes, str]] = [
    (page([decided(3), decided(1 << 40)], 5), "above what the control group has confirmed, 9"),
    (page([decided(3)], 1 << 40), "complete up to 1099511627776, confirmed is 9"),
    (page([decided(5), decided(3)], 5), "'t3': index 3 is out of order"),
    (page([decided(3)], 5, group="g"), "group 'g' answers, not the control group control of c"),
    (page([decided(3)], 5, cluster="d"), "cluster 'd'"),
    (page([decided(3)], 2, cursor=CURSOR.pack(1, bytes(16))), "the cursor does not continue"),
    (page([], 2, cursor=CURSOR.pack(1, bytes(16))), "the cursor does not continue"),
]


@pytest.mark.parametrize("place", range(len(IMPOSSIBLE)))
def test_what_the_control_group_cannot_have_answered_is_seen(place: int) -> None:
    answer, why = IMPOSSIBLE[place]
    with pytest.raises(BadPage, match=why):
        check_page(pb.ListTopicsRequest(), pb.ListTopicsReply.FromString(answer), "c", "control")
    good = pb.ListTopicsReply.FromString(page([decided(3), decided(9)], 9))
    check_page(pb.ListTopicsRequest(), good, "c", "control")


def test_another_group_of_the_same_name_is_not_followed() -> None:
    reply = pb.ListTopicsReply.FromString(page([], 9))
    check_history(reply, b"", 9)
    check_history(reply, CONTROL_ID, 9)
    reply.group_id = b"D" * 16
    with pytest.raises(BadPage, match=f"another control group answers, its id is {'44' * 16}"):
        check_history(reply, CONTROL_ID, 9)
    reply.group_id = b""
    with pytest.raises(BadPage, match="group id of 0 bytes, must be 16"):
        check_history(reply, b"", 9)


def test_a_control_group_restored_from_an_old_copy_is_not_followed() -> None:
    reply = pb.ListTopicsReply.FromString(page([], 8, confirmed=8))
    check_history(reply, CONTROL_ID, 8)
    with pytest.raises(BadPage, match="ends at 8, this group knows its decisions up to 9: the"):
        check_history(reply, CONTROL_ID, 9)
