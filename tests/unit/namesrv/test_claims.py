"""What counts of what is told: nobody is believed because he can register."""

from collections.abc import Callable

import pytest

from dledger_namesrv.intake import LAYOUT_PARTS_MAX, NUMBER_MAX
from dledger_namesrv.registry import Registry
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import GROUP_NAME_LENGTH_MAX, MEMBERS_MAX, QUEUES_PER_TOPIC_MAX
from dledger_proto.v1.broker_pb2 import LayoutPart
from dledger_proto.v1.routes_pb2 import Registration
from tests.unit.namesrv.helpers import (
    LEASE,
    MEMBERS,
    FakeMember,
    FakeWatcher,
    group_line,
    topic,
    topic_names,
)


def of_term_8() -> tuple[Registry, list[FakeMember]]:
    """Three members, of which b leads in term 8."""
    registry = Registry(lease=LEASE)
    members = [FakeMember(registry, name=name, term=8, leader="b") for name in MEMBERS]
    for member in members:
        member.peers = [other for other in members if other is not member]
        member.join(0)
    assert group_line(registry) == "g 8 leader=b a+ b+ c+"
    return registry, members


# Terms


def test_a_failover_is_told_with_the_second_of_leader_and_voter() -> None:
    for first in (0, 2):
        registry, members = of_term_8()
        members[1].leave()
        assert group_line(registry) == "g 8 leader= a+ b- c+"
        watcher = FakeWatcher(registry)
        told = {0: "a", 2: ""}
        members[first].tell(1, 9, told[first])
        assert group_line(registry) == "g 8 leader= a+ b- c+"
        members[2 - first].tell(1, 9, told[2 - first])
        watcher.catch_up()
        assert (watcher.groups["g"].leader, watcher.groups["g"].term) == ("a", 9)


def test_a_failover_is_told_while_the_old_leader_still_claims() -> None:
    registry, (a, b, c) = of_term_8()
    a.win(1, 9)
    assert group_line(registry) == "g 9 leader=a a+ b+ c+"
    b.tell(2, 8, "b")
    c.tell(2, 9, "a")
    assert group_line(registry) == "g 9 leader=a a+ b+ c+"


def test_a_wild_term_of_one_member_does_not_displace_what_the_others_claim() -> None:
    registry, (a, b, c) = of_term_8()
    watcher = FakeWatcher(registry)
    a.tell(1, NUMBER_MAX, "a")
    for moment in (2, 3):
        b.tell(moment, 8, "b")
        c.tell(moment, 8, "b")
    assert group_line(registry) == "g 8 leader=b a+ b+ c+"
    c.leave()
    registry.expire(12)
    b.tell(12, 8, "b")
    a.tell(12, NUMBER_MAX, "a")
    watcher.catch_up()
    assert (watcher.groups["g"].leader, watcher.groups["g"].term) == ("b", 8), "nor one of two"


def test_a_term_is_forgotten_with_the_last_lease_of_who_told_it() -> None:
    registry = Registry(lease=LEASE)
    wild = FakeMember(registry, name="a", term=NUMBER_MAX, leader="a")
    wild.join(0)
    assert group_line(registry) == f"g {NUMBER_MAX} leader=a a+", "who else is there?"
    b = FakeMember(registry, name="b", term=8, leader="b")
    b.join(5)
    wild.leave()
    assert group_line(registry) == f"g {NUMBER_MAX} leader= a- b+"
    registry.expire(10)
    assert group_line(registry) == "g 8 leader=b b+", "what counted with it is gone, too"


def test_a_claim_counts_when_who_outvoted_it_is_heard_no_more() -> None:
    registry, (a, b, c) = of_term_8()
    a.tell(1, 9, "a")
    b.leave()
    assert group_line(registry) == "g 8 leader= a+ b- c+"
    c.leave()
    assert group_line(registry) == "g 9 leader=a a+ b- c-"


# Who belongs to the group


def test_a_stranger_is_no_member_and_counts_for_nothing() -> None:
    registry, members = of_term_8()
    stranger = FakeMember(
        registry, name="x", term=NUMBER_MAX, leader="x", configured=("x",), control_group=False,
        topics=[topic("evil", control_index=NUMBER_MAX)],
    )  # fmt: skip
    watcher = FakeWatcher(registry)
    assert not stranger.join(1).send_full, "it is not asked again and again for all topics"
    stranger.tell(2, NUMBER_MAX, "x")
    watcher.catch_up()
    route = watcher.groups["g"]
    assert group_line(registry) == "g 8 leader=b a+ b+ c+"
    assert (route.control_group, topic_names(registry)) == (True, [])
    members[1].leave()
    assert group_line(registry) == "g 8 leader= a+ b- c+"
    members[1].join(3)
    assert group_line(registry) == "g 8 leader=b a+ b+ c+"


@pytest.mark.parametrize("deleted", [False, True])
def test_a_strange_group_decides_about_no_topic(deleted: bool) -> None:
    """Its index is above all that the control group will ever reach, and it says it is that."""
    registry = Registry()
    FakeMember(registry, topics=[topic("t", control_index=5)]).join(0)
    watcher = FakeWatcher(registry)
    watcher.catch_up()
    for number in (None, 7):  # the topic itself, and another one of its name
        told = topic("t", number=number, control_index=NUMBER_MAX, groups=("x",), deleted=deleted)
        FakeMember(registry, group="x", topics=[told]).join(1)
        assert list(registry.snapshot()[0].topics) == [topic("t", control_index=5)]
        watcher.catch_up()
        assert watcher.topics == {"t": topic("t", control_index=5)}
    assert [(each.group, each.control_group) for each in registry.snapshot()[0].groups] == [
        ("g", True),
        ("x", False),
    ]


@pytest.mark.parametrize("deleted", [False, True])
def test_what_a_group_told_of_a_topic_goes_with_it(deleted: bool) -> None:
    """Of a topic that the control group does not tell the newest row counts."""
    registry = Registry()
    FakeMember(registry).join(0)
    others = [topic("t", control_index=index) for index in (5, 6)]
    for number, each in enumerate(others):
        FakeMember(registry, group=f"h{number}", topics=[each]).join(5)
    strange = topic("t", control_index=NUMBER_MAX, groups=("x",), deleted=deleted)
    FakeMember(registry, group="x", configured=("a",), topics=[strange]).join(0)
    watcher = FakeWatcher(registry)
    watcher.catch_up()
    assert topic_names(registry) == ([] if deleted else ["t"])
    registry.expire(LEASE)
    assert [group.group for group in registry.snapshot()[0].groups] == ["h0", "h1"]
    assert list(registry.snapshot()[0].topics) == [topic("t", control_index=6)]
    watcher.catch_up()
    assert watcher.topics == {"t": topic("t", control_index=6)}
    assert watcher.fulls == 1, "it was told as a change"
    FakeMember(registry, topics=[others[0]]).join(LEASE)
    assert list(registry.snapshot()[0].topics) == [others[0]], "the control group is back"


def test_a_leader_that_nobody_configured_does_not_count() -> None:
    registry, members = of_term_8()
    for member in members:
        member.tell(1, 9, "x")
    assert group_line(registry) == "g 8 leader=b a+ b+ c+"


def test_who_was_there_first_is_outvoted_by_a_group_that_agrees() -> None:
    registry = Registry(lease=LEASE)
    stranger = FakeMember(
        registry, name="x", term=NUMBER_MAX, leader="x", configured=("x",), control_group=False,
        topics=[topic("evil")],
    )  # fmt: skip
    stranger.join(0)
    assert group_line(registry) == f"g {NUMBER_MAX} leader=x x+"
    assert topic_names(registry) == ["evil"]
    a, b, _ = (
        FakeMember(registry, name=name, term=8, leader="b", topics=[topic("t")]) for name in MEMBERS
    )
    assert not a.join(1).send_full
    assert group_line(registry) == f"g {NUMBER_MAX} leader=x x+", "one says this, one that"
    b.join(2)
    assert group_line(registry) == "g 8 leader=b a+ b+"
    assert topic_names(registry) == ["t"]
    assert a.send(3).send_full, "it belongs to the group now"
    assert registry.snapshot()[0].groups[0].control_group


def test_a_member_is_replaced_by_configuration_one_restart_after_the_other() -> None:
    registry, (a, b, c) = of_term_8()
    new = ("a", "b", "d")
    d = FakeMember(registry, name="d", term=8, leader="b", configured=new)
    d.join(1)
    c.leave()
    a.configured = new
    a.join(2)
    assert group_line(registry) == "g 8 leader=b a+ b+ c-", "two tell the new list, two the old"
    b.configured = new
    b.join(3)
    assert group_line(registry) == "g 8 leader=b a+ b+ d+"
    assert [claim.member for claim in registry.all_at_once((), 4).groups[0].claims] == list("abcd")


# What people see


def test_routes_say_who_claims_what_and_why_it_does_not_count() -> None:
    registry, (a, b, c) = of_term_8()
    FakeMember(registry, name="x", term=3, leader="x", configured=("x",)).join(1)
    a.tell(1, 77, "a")
    c.leave()
    (route,) = registry.all_at_once((), 1.0).groups
    assert [(claim.member, claim.term, claim.leader, claim.ignored) for claim in route.claims] == [
        ("a", 77, "a", "most members that are heard tell of earlier terms"),
        ("b", 8, "b", ""),
        ("c", 8, "b", "its stream is closed"),
        ("x", 3, "x", "most members do not name it in their configuration"),
    ]
    assert not registry.snapshot()[0].groups[0].claims, "clients do not need it"
    b.tell(2, 9, "y")
    assert registry.all_at_once((), 2.0).groups[0].claims[1].ignored == (
        "most members do not name that leader in their configuration"
    )


# Shapes


def parts(count: int, queues: int) -> list[LayoutPart]:
    return [LayoutPart(group=f"g{number}", queues=queues) for number in range(count)]


def with_topic(message: Registration, **fields: object) -> None:
    row = topic("t")
    for name, value in fields.items():
        if name == "layout":
            del row.layout[:]
            row.layout.extend(value)  # type: ignore[arg-type]
        else:
            setattr(row, name, value)
    message.topics.append(row)


WRONG: dict[str, tuple[Callable[[Registration], object], str]] = {
    "leader": (
        lambda message: setattr(message, "leader", "x" * 5_000_000),
        f"leader: length 5000000, must be 1 to {GROUP_NAME_LENGTH_MAX}",
    ),
    "leader text": (lambda message: setattr(message, "leader", "a\n"), "leader: .*printable"),
    "term": (lambda message: setattr(message, "term", 2**64 - 1), f"term: .*{NUMBER_MAX}"),
    "applied index": (lambda message: setattr(message, "applied_index", 2**63), "applied_index"),
    "members": (
        lambda message: message.configured_members.extend(f"m{i}" for i in range(MEMBERS_MAX)),
        f"configured_members: {MEMBERS_MAX + 3}, must be at most {MEMBERS_MAX}",
    ),
    "member": (lambda message: message.configured_members.append("x" * 200), "length 200"),
    "members twice": (lambda message: message.configured_members.append("a"), "different names"),
    "control index": (
        lambda message: with_topic(message, control_index=2**63), "topic.control_index",
    ),
    "permission": (lambda message: with_topic(message, permission=7), "topic.permission: 7"),
    "parts": (
        lambda message: with_topic(message, layout=parts(LAYOUT_PARTS_MAX + 1, 0)), "topic.layout:",
    ),
    "queues": (
        lambda message: with_topic(message, layout=parts(3, QUEUES_PER_TOPIC_MAX // 2)),
        f"topic.layout.queues: 1536, must be at most {QUEUES_PER_TOPIC_MAX}",
    ),
    "layout group": (
        lambda message: with_topic(message, layout=[LayoutPart(group="", queues=4)]),
        "topic.layout.group: length 0",
    ),
    "read": (lambda message: with_topic(message, read_queues=5), "read_queues: 5.*at most 4"),
    "write": (lambda message: with_topic(message, write_queues=5), "write_queues: 5"),
}  # fmt: skip


@pytest.mark.parametrize("field", WRONG)
def test_every_field_has_a_limit_and_what_is_beyond_changes_nothing(field: str) -> None:
    registry, (a, *_) = of_term_8()
    spoil, said = WRONG[field]
    version = registry.version
    message = a.message()
    spoil(message)
    with pytest.raises(DledgerError, match=said) as caught:
        registry.register(a.session, message, 1)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert len(caught.value.detail) < 500
    assert registry.version == version


@pytest.mark.parametrize("name", ["cluster", "group", "member"])
@pytest.mark.parametrize("size", [0, 301])
def test_names_have_limits(name: str, size: int) -> None:
    registry = Registry(lease=LEASE)
    member = FakeMember(registry).connect()
    message = member.message(full=True)
    setattr(message, name, "x" * size)
    with pytest.raises(DledgerError, match=f"{name}: length {size}, must be 1 to"):
        registry.register(member.session, message, 0)
    assert not registry.snapshot()[0].groups


def test_topic_fields_have_limits() -> None:
    registry = Registry(lease=LEASE)
    wrong = topic("t")
    wrong.id = b"short"
    with pytest.raises(DledgerError, match=r"topic\.id: 5 bytes, must be 16 bytes"):
        FakeMember(registry, topics=[wrong]).join(0)
    wrong = topic("t")
    wrong.name = "x" * 128
    with pytest.raises(DledgerError, match=r"topic\.name: length 128"):
        FakeMember(registry, topics=[wrong]).join(0)
