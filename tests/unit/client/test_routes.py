"""Which answer about routes replaces what is known (D14)."""

from dledger_client._core.routes import RouteChange, RouteTable
from dledger_proto.v1 import broker_pb2, routes_pb2
from tests.unit.client.model_cluster import topic_id, topic_message


def group(
    name: str, leader: str, term: int, members: tuple[str, ...] = ("1", "2", "3")
) -> routes_pb2.GroupRoute:
    return routes_pb2.GroupRoute(
        group=name,
        leader=leader,
        term=term,
        members=[
            routes_pb2.MemberRoute(member=m, address=f"{name}{m}:1", alive=True) for m in members
        ],
    )


def full(
    *groups: routes_pb2.GroupRoute, topics: tuple[broker_pb2.Topic, ...] = ()
) -> routes_pb2.RoutesReply:
    return routes_pb2.RoutesReply(full=True, cluster="c", groups=groups, topics=topics)


def delta(
    *groups: routes_pb2.GroupRoute, topics: tuple[broker_pb2.Topic, ...] = ()
) -> routes_pb2.RoutesReply:
    return routes_pb2.RoutesReply(cluster="c", groups=groups, topics=topics)


def leader_of(table: RouteTable, name: str) -> tuple[str, int]:
    route = table.group(name)
    assert route is not None
    return route.leader_address, route.term


def test_a_lower_term_never_replaces_a_higher_one() -> None:
    table = RouteTable()
    assert table.apply(full(group("a", "1", 5))).new_leaders == {"a"}
    assert not table.apply(delta(group("a", "2", 4))).new_leaders
    assert leader_of(table, "a") == ("a1:1", 5)
    assert not table.apply(full(group("a", "", 3))).lost_leaders
    assert leader_of(table, "a") == ("a1:1", 5)
    assert table.apply(delta(group("a", "3", 6))).new_leaders == {"a"}
    assert leader_of(table, "a") == ("a3:1", 6)
    assert not table.apply(delta(group("a", "3", 6)))


def test_a_leader_may_be_lost_within_its_term() -> None:
    table = RouteTable()
    table.apply(full(group("a", "1", 5)))
    assert table.apply(delta(group("a", "", 5))).lost_leaders == {"a"}
    assert leader_of(table, "a") == ("", 5)
    assert table.apply(delta(group("a", "2", 7))).new_leaders == {"a"}


def test_word_of_a_member_counts_by_its_term() -> None:
    table = RouteTable()
    table.apply(full(group("a", "1", 5)))
    assert not table.heard_leader("a", "a2:1", 5)
    assert not table.heard_leader("a", "a2:1", 0)
    assert not table.heard_leader("unknown", "a2:1", 9)
    assert not table.heard_leader("a", "", 9)
    assert table.heard_leader("a", "a2:1", 6).new_leaders == {"a"}
    assert leader_of(table, "a") == ("a2:1", 6)
    route = table.group("a")
    assert route is not None
    assert route.leader == "2"


def test_inside_everybody_is_reached_as_its_peers_reach_it() -> None:
    told = group("a", "1", 5)
    for member in told.members[:2]:
        member.peer_address = f"n{member.member}:1"
    table = RouteTable(inside=True)
    table.apply(full(told))
    assert leader_of(table, "a") == ("n1:1", 5)
    assert list(table.addresses()) == ["n1:1", "n2:1", "a3:1"], "the third has told only one"
    assert not table.heard_leader("a", "elsewhere:1", 6), "no member's: it cannot be reached"
    assert table.heard_leader("a", "a2:1", 6).new_leaders == {"a"}
    assert leader_of(table, "a") == ("n2:1", 6)
    assert table.heard_leader("a", "a3:1", 7).new_leaders == {"a"}
    assert leader_of(table, "a") == ("a3:1", 7)
    outside = RouteTable()
    outside.apply(full(told))
    assert list(outside.addresses()) == ["a1:1", "a2:1", "a3:1"]


def test_a_source_that_knows_less_takes_nothing_away() -> None:
    table = RouteTable()
    both = (topic_message("t", [("a", 2), ("b", 1)]), topic_message("u", [("a", 1)]))
    table.apply(full(group("a", "1", 1), group("b", "1", 1), topics=both))
    table.apply(full())  # a name server that was just started
    assert table.topic("t") is not None
    assert table.topic("u") is not None
    # A member of group a knows a and its topics: u is gone, about t it cannot know.
    change = table.apply(full(group("a", "1", 1)))
    assert change.dropped_topics == {"u"}
    assert table.topic("t") is not None
    assert table.group("b") is not None


def test_topics_follow_the_control_log() -> None:
    table = RouteTable()
    table.apply(full(group("a", "1", 1), topics=(topic_message("t", [("a", 2)], index=7),)))
    table.apply(delta(topics=(topic_message("t", [("a", 9)], index=6),)))
    route = table.topic("t")
    assert route is not None
    assert route.write_queues == 2
    gone = topic_message("t", [("a", 2)], index=8)
    gone.deleted = True
    assert table.apply(delta(topics=(gone,))).dropped_topics == {"t"}
    # A late word of before the deletion does not bring it back; a new topic of this name does.
    assert not table.apply(delta(topics=(topic_message("t", [("a", 2)], index=7),)))
    new = topic_message("t", [("a", 3)], index=9)
    new.id = b"another topic id"
    assert table.apply(delta(topics=(new,))).topics == {"t"}
    assert table.topic_by_id(b"another topic id") is not None
    assert table.topic_by_id(topic_id("t")) is None


def test_layouts_number_queues_through_their_parts() -> None:
    table = RouteTable()
    table.apply(full(group("a", "1", 1), topics=(topic_message("t", [("a", 2), ("b", 3)]),)))
    route = table.topic("t")
    assert route is not None
    assert [route.group_of(queue) for queue in range(-1, 6)] == [
        None, "a", "a", "b", "b", "b", None,
    ]  # fmt: skip
    assert route.write_queues == 5


def test_a_topic_names_groups_without_a_route() -> None:
    """Whoever looks for a message that may be in any group asks them all."""
    table = RouteTable()
    table.apply(full(group("a", "1", 1), topics=(topic_message("t", [("b", 3), ("a", 2)]),)))
    assert [route.name for route in table.groups()] == ["a"]
    assert table.group_names() == ["a", "b"]


def test_control_group() -> None:
    table = RouteTable()
    assert table.control_group() is None
    table.apply(full(group("a", "1", 1)))
    control = table.control_group()
    assert control is not None
    assert control.name == "a"
    marked = group("b", "1", 1)
    marked.control_group = True
    table.apply(delta(marked))
    control = table.control_group()
    assert control is not None
    assert control.name == "b"


def test_removed_groups_and_addresses() -> None:
    table = RouteTable()
    dead = group("a", "1", 1)
    dead.members[0].alive = False
    table.apply(full(dead))
    assert list(table.addresses()) == ["a2:1", "a3:1", "a1:1"]
    reply = routes_pb2.RoutesReply(removed_groups=["a", "never seen"])
    assert table.apply(reply).lost_leaders == {"a"}
    assert table.groups() == []
    assert not table.apply(reply)


def test_a_full_answer_in_parts_drops_nothing_before_its_end() -> None:
    table = RouteTable()
    both = (topic_message("t", [("a", 2)]), topic_message("u", [("a", 2)]))
    table.apply(full(group("a", "1", 1), topics=both))
    first = full(group("a", "1", 1), topics=both[:1])
    first.more = True
    assert not table.apply(first).dropped_topics
    call = routes_pb2.RoutesReply(cluster="c", groups=[group("a", "1", 1)], more=True)
    assert not table.apply(call).dropped_topics, "an answer of a call tells what fits"
    assert not table.apply(routes_pb2.RoutesReply(cluster="c", topics=both[1:])).dropped_topics
    table.apply(first)
    assert table.apply(routes_pb2.RoutesReply(cluster="c")).dropped_topics == {"u"}


def test_a_table_that_adopts_another_goes_on_as_it_does_and_alone() -> None:
    """Also in the middle of a full answer that comes in parts."""
    source, later = RouteTable(), RouteTable()
    both = (topic_message("t", [("a", 1)], index=7), topic_message("u", [("a", 1)], index=8))
    source.apply(full(group("a", "1", 5), group("b", "", 2), topics=both))
    part = full(group("a", "1", 5))
    part.more = True
    source.apply(part)
    change = later.adopt(source)
    assert (change.new_leaders, change.members, change.topics) == ({"a"}, {"a", "b"}, {"t", "u"})
    assert (later.cluster, later.is_loaded) == ("c", True)
    assert later.topic("t") is source.topic("t"), "kept once"
    rest = delta(topics=both[:1])
    assert source.apply(rest).dropped_topics == later.apply(rest).dropped_topics == {"u"}
    assert not later.apply(delta(topics=(topic_message("t", [("a", 2)], index=6),))).topics
    later.drop_topic("t", RouteChange())
    assert source.topic("t") is not None
    assert later.topic_by_id(topic_id("t")) is None
    assert later.apply(rest).topics == {"t"}
    assert later.topic("t") is source.topic("t")
    assert later.heard_leader("a", "a2:1", 6)
    assert leader_of(source, "a") == ("a1:1", 5)
