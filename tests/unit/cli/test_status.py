"""`dledger status`: each configured member has a row, and a leader is one that says so itself."""

import json
import time
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

from dledger_broker.cli.cluster.status_rows import group_rows, is_led, members_of, others_of
from dledger_namesrv.registry import Names
from dledger_proto.errors import Code, DledgerError
from dledger_proto.exit_codes import Exit
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


# What a cluster of three says.


def refusal(code: Code, detail: str) -> Any:
    """An answer that refuses."""

    def answer(_: bytes) -> None:
        raise DledgerError(code, detail)

    return answer


def status_of(member: str, role: str, **fields: Any) -> Any:
    """A status answer."""
    reply = pb.StatusReply(
        cluster="c", group="g", member=member, role=role, term=1, leader="a", last_index=20,
        durable_index=20, commit_index=19, applied_index=19, flush_mode="sync", **fields,
    )  # fmt: skip
    return lambda _: reply


def test_status_shows_every_member(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = [
        pb.MemberProgress(member="b", address="b:1", connected=True, match_index=18),
        pb.MemberProgress(member="c", address="c:1", connected=False, match_index=3),
        pb.MemberProgress(member="d", address="d:1", connected=False, match_index=0),
    ]
    cluster.members["a"].answers["Status"] = status_of("a", "leader", members=progress)
    cluster.members["b"].answers["Status"] = status_of("b", "follower", digest=b"\x01")
    cluster.members["c"].answers["Status"] = refusal(Code.STORAGE_FAILED, "the disk is broken")
    assert cluster.run("status", "--json") == 1, "a member does not serve"
    rows = {row["member"]: row for row in json.loads(capsys.readouterr().out)}
    shown = {
        name: (row["role"], row["match_index"], row["lag"], row["reason"])
        for name, row in rows.items()
    }
    assert shown == {
        "a": ("leader", 20, 0, ""),
        "b": ("follower", 18, 2, ""),
        "c": ("no answer", 3, 17, "the disk is broken"),
        "d": ("no answer", 0, 20, "d:1 cannot be reached; not registered at the name server"),
    }
    assert rows["b"]["digest"] == "01"
    assert cluster.run("status") == 1
    table = capsys.readouterr().out
    assert table.splitlines()[0] == "g (control group)"
    assert "the disk is broken" in table


def test_status_of_a_healthy_group_is_zero(cluster: FakeCluster) -> None:
    cluster.members["a"].answers["Status"] = status_of("a", "leader")
    for name in "bc":
        cluster.members[name].answers["Status"] = status_of(name, "follower")
    assert cluster.run("status", "--group", "g") == 0


def test_status_says_what_keeps_the_head_of_the_log(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ["queue t/0 begins in it, at offset 0", "member c has entries up to 3 only"]
    cluster.members["a"].answers["Status"] = status_of("a", "leader", head_kept=kept)
    for name in "bc":
        cluster.members[name].answers["Status"] = status_of(name, "follower", head_kept=["x"])
    assert cluster.run("status") == 0, "that is no trouble by itself"
    told = f"the oldest segment of the log stays: {'; '.join(kept)}"
    assert capsys.readouterr().out.splitlines()[-1] == told
    assert cluster.run("status", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["head_kept"] == kept


def test_status_says_who_will_lose_messages_and_how_much_room_disks_have(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    soon = ["billing will lose what it has not read of t/0 below offset 9: retention deletes it"]
    answer = status_of(
        "a", "leader", endangered=soon, disk_free_bytes=3 << 29, first_position=1 << 30,
        last_position=3 << 30,
    )  # fmt: skip
    cluster.members["a"].answers["Status"] = answer
    cluster.members["b"].answers["Status"] = status_of("b", "follower", endangered=["x"])
    cluster.members["c"].answers["Status"] = status_of("c", "follower", disk_free_bytes=1 << 30)
    assert cluster.run("status") == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"consumer group {soon[0]}",
        "disk: a 1.5 GiB free, log 2.0 GiB, c 1.0 GiB free, log 0.0 GiB",
    ]
    assert cluster.run("status", "--json") == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert (row["endangered"], row["disk_free_bytes"]) == (soon, 3 << 29)


def test_status_says_whose_security_is_off(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """An older program says nothing, and nothing is said of it."""
    cluster.members["a"].answers["Status"] = status_of("a", "leader", security="off")
    cluster.members["b"].answers["Status"] = status_of("b", "follower", security="on")
    cluster.members["c"].answers["Status"] = status_of("c", "follower")
    assert cluster.run("status") == 0, "whoever wrote so wants it"
    assert capsys.readouterr().out.splitlines()[-1] == "security is off: a"
    assert cluster.run("status", "--json") == 0
    said = [row["security"] for row in json.loads(capsys.readouterr().out)]
    assert said == ["off", "on", None]


def test_status_says_whom_the_leader_refuses(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """A member that does not know yet that its data is an old copy has no reason of its own."""
    why = "an old copy of its data: it promised term 4, but its data knows only term 3"
    progress = [pb.MemberProgress(member="b", address="b:1", connected=True, refused=why)]
    cluster.members["a"].answers["Status"] = status_of("a", "leader", members=progress)
    for name in "bc":
        cluster.members[name].answers["Status"] = status_of(name, "follower")
    assert cluster.run("status", "--json") == 1
    reasons = {row["member"]: row["reason"] for row in json.loads(capsys.readouterr().out)}
    assert reasons == {"a": "", "b": f"a refused: {why}", "c": ""}


def test_status_tells_every_clock_and_which_is_off(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also that of a member that does not answer, as the leader heard it."""
    why = "this member's clock is 5000 ms off the majority's clock"
    progress = [pb.MemberProgress(member="c", address="c:1", clock_offset_ms=-3)]
    cluster.members["a"].answers["Status"] = status_of("a", "leader", members=progress)
    cluster.members["b"].answers["Status"] = status_of(
        "b", "follower", clock_offset_ms=5_000, clock_off=True, reason=why
    )
    cluster.members["c"].answers["Status"] = refusal(Code.UNAVAILABLE, "gone")
    assert cluster.run("status", "--json") == 1
    rows = {row["member"]: row for row in json.loads(capsys.readouterr().out)}
    assert {name: row["clock_offset_ms"] for name, row in rows.items()} == {
        "a": 0,
        "b": 5_000,
        "c": -3,
    }
    assert (rows["a"]["clock_off"], rows["b"]["clock_off"]) == (False, True)
    assert cluster.run("status") == 1
    assert "5000" in capsys.readouterr().out


def test_status_without_a_leader_is_one(cluster: FakeCluster) -> None:
    for name in "abc":
        cluster.members[name].answers["Status"] = status_of(name, "follower")
    assert cluster.run("status") == 1
