"""Who is missing: members that left, or never came, of groups that are listed or not."""

from dledger_namesrv.registry import Registry
from dledger_namesrv.silent import GROUPS_MAX, KEPT_SECONDS, Last, SilentMembers
from dledger_proto.v1.routes_pb2 import RoutesReply
from tests.unit.namesrv.helpers import LEASE, FakeMember


def missing(reply: RoutesReply) -> dict[str, dict[str, tuple[str, int]]]:
    """By group and member: where it was, and for how long it is silent."""
    return {
        route.group: {each.member: (each.address, each.silent_ms) for each in route.silent}
        for route in (*reply.groups, *reply.silent_groups)
    }


def look(registry: Registry, now: float) -> dict[str, dict[str, tuple[str, int]]]:
    """What the registry says is missing."""
    return missing(registry.all_at_once(("none",), now))


def test_configured_members_that_are_not_listed_are_told() -> None:
    registry = Registry(lease=LEASE)
    a, b = (FakeMember(registry, name=name) for name in "ab")
    a.join(0.0)
    b.join(0.0)
    assert look(registry, 1.0) == {"g": {"c": ("", 0)}}, "c never came"
    b.send(5.0)
    a.send(20.0)
    registry.expire(20.0)
    assert look(registry, 21.0) == {"g": {"b": ("b.example:1", 16_000), "c": ("", 0)}}
    b.join(22.0)
    assert look(registry, 22.0) == {"g": {"c": ("", 0)}}


def test_a_group_of_which_nobody_is_listed_is_told_and_routes_to_nobody() -> None:
    registry = Registry(lease=LEASE)
    FakeMember(registry, configured=("a",)).join(0.0)
    FakeMember(registry, group="h", configured=("a",), control_group=False).join(0.0)
    registry.expire(100.0)
    reply = registry.all_at_once(("none",), 100.0)
    assert (list(reply.groups), missing(reply)) == (
        [],
        {"g": {"a": ("a.example:1", 100_000)}, "h": {"a": ("a.example:1", 100_000)}},
    )
    assert [route.control_group for route in reply.silent_groups] == [True, False]
    FakeMember(registry, configured=("a",)).join(101.0)
    assert look(registry, 101.0) == {"g": {}, "h": {"a": ("a.example:1", 101_000)}}


def test_watchers_are_told_of_nobody_who_is_missing() -> None:
    registry = Registry(lease=LEASE)
    FakeMember(registry).join(0.0)
    for reply in registry.snapshot():
        assert all(not route.silent for route in reply.groups)
        assert not reply.silent_groups


def test_what_is_missing_for_long_is_forgotten() -> None:
    registry = Registry(lease=LEASE)
    FakeMember(registry, configured=("a",)).join(0.0)
    registry.expire(LEASE)
    assert look(registry, LEASE)
    registry.expire(KEPT_SECONDS)
    assert look(registry, KEPT_SECONDS) == {}


def test_another_cluster_has_no_silent_groups_of_the_one_before() -> None:
    registry = Registry(lease=LEASE)
    FakeMember(registry, configured=("a",)).join(0.0)
    registry.expire(LEASE)
    FakeMember(registry, cluster="other", group="h", configured=("a",)).join(LEASE)
    assert look(registry, LEASE) == {"h": {}}


def test_it_is_bounded() -> None:
    silent = SilentMembers()
    for number in range(GROUPS_MAX + 5):
        silent.left(f"g{number:05}", (), "a", Last("a:1", "", 0.0), control=False)
    names = [route.group for route in silent.groups((), 1.0)]
    assert (len(names), names[0]) == (GROUPS_MAX, "g00005")
    for number in range(40):
        silent.left("g00009", (), f"m{number:02}", Last("a:1", "", 0.0), control=False)
    assert len(list(silent.of("g00009", (), (), 1.0))) == 16
