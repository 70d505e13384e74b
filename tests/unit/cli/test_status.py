"""`dledger status`: each configured member has a row, and a leader is one that says so itself."""

import json
import time
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

from dledger_broker.cli.output import Exit
from dledger_broker.cli.status_rows import group_rows, is_led, members_of, others_of
from dledger_namesrv.registry import Names
from dledger_proto.errors import Code, DledgerError
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1.routes_pb2 import GroupRoute, MemberRoute, RoutesReply, SilentMember
from tests.unit.cli.fakes import FakeCluster, fake_cluster

NOW_MS = 1_700_000_000_000
GONE = DledgerError(Code.UNAVAILABLE, "h:1 cannot be reached")


@pytest.fixture
def cluster() -> Generator[FakeCluster]:
    with fake_cluster() as made:
        yield made


def reply(member: str, role: str, leader: str = "a", **silent_ms: int) -> pb.StatusReply:
    """What a member of a, b and c says; others are silent for so long."""
    progress = [
        pb.MemberProgress(
            member=name, address=f"{name}:1", connected=not silent_ms.get(name),
            match_index=5, silent_ms=silent_ms.get(name, 0),
        )
        for name in "abc"
    ]  # fmt: skip
    return pb.StatusReply(
        group="g", member=member, role=role, term=3, leader=leader, members=progress
    )


def _say(answer: pb.StatusReply, _request: bytes) -> pb.StatusReply:
    return answer


def rows_of(route: GroupRoute, answers: dict[str, Any]) -> dict[object, dict[str, object]]:
    """The rows, by member."""
    known = members_of(route)
    known |= others_of(known, answers)
    return {row["member"]: row for row in group_rows(route, known, answers, NOW_MS)}


def test_of_three_with_two_stopped_all_are_shown_and_no_dead_leader() -> None:
    """The name server has dropped both; the one left still believes in its leader."""
    route = GroupRoute(group="g", members=[MemberRoute(member="b", address="b:1", alive=True)])
    rows = rows_of(route, {"b": reply("b", "follower", a=60_000, c=7_000), "a": GONE, "c": GONE})
    assert list(rows) == ["a", "b", "c"]
    assert rows["b"]["leader"] is None
    assert rows["b"]["believed_leader"] == "a"
    assert rows["b"]["reason"] == "it believes that a leads, which does not say so itself"
    for name, silent_ms in (("a", 60_000), ("c", 7_000)):
        assert (rows[name]["role"], rows[name]["leader"]) == ("no answer", None)
        assert rows[name]["silent_since_ms"] == NOW_MS - silent_ms
        told = str(rows[name]["reason"])
        assert told.startswith("no answer since 2023-11-1")
        assert told.endswith("; h:1 cannot be reached; not registered at the name server")
    assert not is_led(list(rows.values()))


def test_who_leads_and_says_so_is_named() -> None:
    members = [MemberRoute(member=name, address=f"{name}:1", alive=True) for name in "abc"]
    answers = {"a": reply("a", "leader"), "b": reply("b", "follower"), "c": GONE}
    rows = rows_of(GroupRoute(group="g", members=members), answers)
    assert [rows[name]["leader"] for name in "abc"] == ["a", "a", None]
    assert [rows[name]["reason"] for name in "abc"] == ["", "", "h:1 cannot be reached"]
    assert is_led(list(rows.values()))


def test_a_leader_that_was_deposed_is_not_confirmed_to_others() -> None:
    members = [MemberRoute(member=name, address=f"{name}:1", alive=True) for name in "abc"]
    answers = {"a": reply("a", "follower", "b"), "b": reply("b", "follower"), "c": GONE}
    rows = rows_of(GroupRoute(group="g", members=members), answers)
    assert [rows[name]["leader"] for name in "abc"] == [None, None, None]


def test_a_group_of_which_nobody_is_left_is_shown() -> None:
    silent = [SilentMember(member="a", address="a:1", silent_ms=5_000), SilentMember(member="b")]
    rows = rows_of(GroupRoute(group="g", silent=silent), {"a": GONE})
    assert str(rows["a"]["reason"]).startswith("no answer since 2023-11-14")
    assert rows["b"]["reason"] == "never heard of; not registered at the name server"
    assert rows["b"]["address"] is None
    assert not is_led(list(rows.values()))


def test_a_link_that_seems_to_be_up_says_nothing_of_who_does_not_answer() -> None:
    """A process that stands still keeps its connections; the name server has missed it."""
    route = GroupRoute(
        group="g",
        members=[MemberRoute(member="b", address="b:1", alive=True)],
        silent=[SilentMember(member="a", address="a:1", silent_ms=8_000)],
    )
    rows = rows_of(route, {"b": reply("b", "follower", c=500), "a": GONE, "c": GONE})
    assert rows["a"]["silent_since_ms"] == NOW_MS - 8_000
    assert rows["c"]["silent_since_ms"] == NOW_MS - 500


def test_who_is_not_registered_is_asked_all_the_same(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = (cluster.members[name] for name in "abc")
    where = [
        pb.MemberProgress(member=member.name, address=member.address, silent_ms=0 if each else 9)
        for each, member in enumerate((a, b, c))
    ]
    for member, role in ((a, "leader"), (b, "follower"), (c, "follower")):
        answer = pb.StatusReply(
            group="g", member=member.name, role=role, term=1, leader="a", members=where
        )
        member.answers["Status"] = partial(_say, answer)
    cluster.server.registry.expire(time.monotonic() + 4_000)  # all leases of an hour are over
    capsys.readouterr()
    assert cluster.run("status", "--json") == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["member"] for row in rows] == ["a", "b", "c"]
    assert [row["role"] for row in rows] == ["leader", "follower", "follower"]
    assert {row["reason"] for row in rows} == {"not registered at the name server"}
    assert cluster.run("status", "--group", "g") == 1
    assert cluster.run("status", "--group", "h") == Exit.BAD_INPUT


def test_routes_of_groups_do_not_bring_all_topics(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many topics an answer would be too large, and a command needs none of them."""
    seen: list[object] = []
    registry = cluster.server.registry
    whole = registry.all_at_once

    def noted(names: Names, now: float) -> RoutesReply:
        seen.append(names)
        return whole(names, now)

    monkeypatch.setattr(registry, "all_at_once", noted)
    cluster.run("status")
    assert seen
    assert all(seen), "no names would be all topics"
