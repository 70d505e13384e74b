"""Commands that are calls: what they ask, what they print, how they end."""

import json
from collections.abc import Generator
from typing import Any

import pytest

from dledger.raft.group import RISK_SENTENCE
from dledger_broker.cli import main
from dledger_namesrv import intake
from dledger_proto.errors import Code, DledgerError
from dledger_proto.exit_codes import Exit
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2 as dpb
from tests.ports import free_port
from tests.unit.cli.fakes import FakeCluster, Garbled, fake_cluster

TOPIC = pb.Topic(
    id=bytes(range(16)), name="t", layout_version=1, write_queues=2, read_queues=2, permission=6,
    control_index=7, layout=[pb.LayoutPart(group="g", queues=2)],
)  # fmt: skip


@pytest.fixture
def cluster() -> Generator[FakeCluster]:
    with fake_cluster() as made:
        for member in made.members.values():
            member.answers["DescribeTopic"] = lambda _: pb.TopicReply(topic=TOPIC)
            member.answers["QueueOffsets"] = _bounds
        yield made


def _bounds(request: bytes) -> pb.QueueOffsetsReply:
    queues = pb.QueueOffsetsRequest.FromString(request).queues
    rows = [pb.QueueOffsetsReply.Row(minimum=10, maximum=100 + queue.queue) for queue in queues]
    return pb.QueueOffsetsReply(rows=rows)


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    """What the command printed, as JSON."""
    return json.loads(capsys.readouterr().out)


def refuse(code: Code, detail: str = "because", hint: str = "") -> Any:
    """An answer that refuses."""

    def answer(_: bytes) -> None:
        raise DledgerError(code, detail, hint=hint)

    return answer


# Topics


def test_create_asks_the_leader_and_prints_the_topic(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = cluster.members["a"]
    leader.answers["CreateTopic"] = lambda _: pb.CreateTopicReply(topic=TOPIC, missing_groups=["h"])
    code = cluster.run(
        "topic", "create", "t", "--queues", "2", "--permission", "r", "--type", "fifo",
        "--group", "g", "--json",
    )  # fmt: skip
    assert code == 0
    request = pb.CreateTopicRequest.FromString(leader.calls[0][1])
    assert request == pb.CreateTopicRequest(
        name="t", write_queues_per_group=2, permission=4, type=pb.TOPIC_TYPE_FIFO, groups=["g"]
    )
    assert leader.groups == ["g"]
    row = printed(capsys)
    assert (row["topic"], row["layout"], row["permission"]) == (
        "t", [{"group": "g", "queues": 2}], "rw",
    )  # fmt: skip
    assert row["missing_groups"] == ["h"]


def test_create_prints_a_table_for_people(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.members["a"].answers["CreateTopic"] = lambda _: pb.CreateTopicReply(
        topic=TOPIC, missing_groups=["h"]
    )
    assert cluster.run("topic", "create", "t") == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "topic  type    layout  write queues  read queues  permission  retention time  "
        "retention size  cleanup",
        "t      normal  g:2                2            2  rw          default         default"
        "         delete",
        "these groups take the change later: h",
    ]


def test_list_describe_update_delete(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = cluster.members["a"]
    leader.answers["ListTopics"] = lambda _: pb.ListTopicsReply(topics=[TOPIC])
    assert cluster.run("topic", "list", "--json") == 0
    assert [row["topic"] for row in printed(capsys)] == ["t"]

    more = pb.Topic(name="u", id=b"u" * 16)
    leader.answers["ListTopics"] = lambda data: (
        pb.ListTopicsReply(topics=[more])
        if pb.ListTopicsRequest.FromString(data).cursor
        else pb.ListTopicsReply(topics=[TOPIC], cursor=b"on")
    )
    assert cluster.run("topic", "list", "--json") == 0
    assert [row["topic"] for row in printed(capsys)] == ["t", "u"], "all pages"

    assert cluster.run("topic", "describe", "t", "--json") == 0
    described = printed(capsys)
    assert [(row["queue"], row["maximum"]) for row in described["queues"]] == [(0, 100), (1, 101)]

    leader.answers["UpdateTopic"] = lambda _: pb.TopicReply(topic=TOPIC)
    assert cluster.run("topic", "update", "t", "--queues", "4", "--read-queues", "8") == 0
    update = pb.UpdateTopicRequest.FromString(leader.calls[-1][1])
    assert update == pb.UpdateTopicRequest(
        name="t", read_queues=8, layout=[pb.LayoutPart(group="g", queues=4)]
    )
    leader.answers["DeleteTopic"] = lambda _: pb.TopicReply(topic=TOPIC)
    assert cluster.run("topic", "delete", "t", "--yes") == 0
    assert leader.names()[-1] == "DeleteTopic"


def test_nothing_to_update_is_bad_input(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run("topic", "update", "t") == 2
    assert capsys.readouterr().err == (
        "error: nothing to change; give --queues, --read-queues, --permission, --retention-time, "
        "--retention-size or --cleanup\n"
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--permission", "x"], "error: --permission: x, must be rw, r or w"),
        (
            ["--type", "x"],
            "error: --type: x, must be one of normal, fifo, delay, transaction, priority",
        ),
    ],
)
def test_bad_values(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    assert cluster.run("topic", "create", "t", *arguments) == 2
    assert capsys.readouterr().err == f"{line}\n"
    assert all(not member.calls for member in cluster.members.values())


# Whom a command asks, and how errors end it


def test_follower_hint_is_followed(cluster: FakeCluster) -> None:
    a, b, c = (cluster.members[name] for name in "abc")
    a.answers["DeleteTopic"] = refuse(Code.NOT_LEADER, hint=c.address)
    c.answers["DeleteTopic"] = lambda _: pb.TopicReply(topic=TOPIC)
    assert cluster.run("topic", "delete", "t", "--yes") == 0
    assert (a.names(), b.names(), c.names()) == (["DeleteTopic"], [], ["DeleteTopic"])


def test_inside_members_are_asked_where_their_peers_reach_them(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.register(published="{name}.invalid:1")
    a, b, c = (cluster.members[name] for name in "abc")
    a.answers["DeleteTopic"] = refuse(Code.NOT_LEADER, hint="c.invalid:1")
    c.answers["DeleteTopic"] = lambda _: pb.TopicReply(topic=TOPIC)
    delete = "topic", "delete", "t", "--yes", "--timeout", "1"
    assert cluster.run(*delete) == Exit.UNREACHABLE
    monkeypatch.setenv("DLEDGER_INSIDE", "1")
    assert cluster.run(*delete) == 0
    assert (a.names(), b.names(), c.names()) == (["DeleteTopic"], [], ["DeleteTopic"])
    capsys.readouterr()
    monkeypatch.setenv("DLEDGER_INSIDE", "maybe")
    assert cluster.run(*delete) == Exit.BAD_INPUT
    assert capsys.readouterr().err == "error: DLEDGER_INSIDE: maybe, must be 1, true, 0 or false\n"


def test_dead_leader_is_passed_over(cluster: FakeCluster) -> None:
    routes = cluster.server.registry
    with fake_cluster("b") as other:  # its members' ports are closed after this block
        dead = other.members["b"].address
    session = routes.open_session()
    from dledger_proto.v1.routes_pb2 import Registration

    routes.register(
        session,
        Registration(
            cluster="c", group="g", member="a", address=dead, sequence=1, full=True, term=1,
            leader="a",
        ),
        0.0,
    )  # fmt: skip
    cluster.members["b"].answers["DeleteTopic"] = lambda _: pb.TopicReply(topic=TOPIC)
    assert cluster.run("topic", "delete", "t", "--yes") == 0
    assert cluster.members["b"].names() == ["DeleteTopic"]


@pytest.mark.parametrize(
    ("code", "exit_code", "line"),
    [
        (
            Code.TOPIC_NOT_FOUND,
            1,
            "error: TOPIC_NOT_FOUND: because; see: dledger topic list",
        ),
        (Code.INVALID_ARGUMENT, 2, "error: INVALID_ARGUMENT: because"),
        (
            Code.NO_LEADER,
            3,
            "error: NO_LEADER: because; look at: dledger status",
        ),
        (
            Code.UNKNOWN_OUTCOME,
            4,
            "error: UNKNOWN_OUTCOME: because; look whether it happened before repeating it",
        ),
        (
            Code.INTERNAL,
            4,
            "error: INTERNAL: because; report it with the members' logs, which say more",
        ),
    ],
)
def test_exit_code_says_what_is_known(
    cluster: FakeCluster,
    capsys: pytest.CaptureFixture[str],
    code: Code,
    exit_code: int,
    line: str,
) -> None:
    for member in cluster.members.values():
        member.answers["DeleteTopic"] = refuse(code)
    assert cluster.run("topic", "delete", "t", "--yes", "--timeout", "0.5") == exit_code
    assert capsys.readouterr().err == f"{line}\n"


def test_a_write_of_unknown_outcome_is_not_repeated(cluster: FakeCluster) -> None:
    for member in cluster.members.values():
        member.answers["DeleteTopic"] = refuse(Code.UNKNOWN_OUTCOME)
    assert cluster.run("topic", "delete", "t", "--yes") == 4
    assert sum(len(member.calls) for member in cluster.members.values()) == 1


def test_no_name_server(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    assert main(["topic", "list", "-n", address, "--timeout", "1"]) == 3
    assert capsys.readouterr().err == (
        f"error: name server {address} cannot be reached; is it running (dledger up), and is "
        "--name-servers right?\n"
    )


def test_a_name_server_whose_answer_is_none(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Something else may listen there. It is passed over like one that cannot be reached."""
    member = cluster.members["a"]
    member.answers["Get"] = lambda _: Garbled()
    assert main(["topic", "list", "-n", member.address]) == 3
    told = capsys.readouterr().err
    assert told.startswith(f"error: name server {member.address}: the answer is no RoutesReply")
    member.answers["ListTopics"] = lambda _: pb.ListTopicsReply()
    assert main(["topic", "list", "-n", f"{member.address},{cluster.name_server}"]) == 0


def test_second_name_server_is_asked(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.members["a"].answers["ListTopics"] = lambda _: pb.ListTopicsReply()
    servers = f"127.0.0.1:{free_port()},{cluster.name_server}"
    assert main(["topic", "list", "-n", servers]) == 0
    assert capsys.readouterr().out == "no topics\n"


@pytest.mark.parametrize("text", ["nonsense", "host:0", "a..b:1", ""])
def test_name_servers_must_be_addresses(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "-n", text]) == 2
    assert capsys.readouterr().err.startswith("error: --name-servers: ")


@pytest.mark.parametrize("address", ["nonsense", "a..b:1", "x:\u00b2"])
def test_who_cannot_be_asked_is_not_reached(
    cluster: FakeCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    address: str,
) -> None:
    """A name server of an earlier version takes any text as an address."""
    monkeypatch.setattr(intake, "check_address", str)
    cluster.register(published=address)
    capsys.readouterr()
    assert cluster.run("status", "--json") == 1
    assert {row["reason"] for row in printed(capsys)} == {f"{address} cannot be reached"}


# Groups


def test_unknown_group_names_the_known(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run("status", "--group", "x") == 2
    assert capsys.readouterr().err == "error: no group 'x' is registered; known groups: g\n"


# Offsets, trim, transfer


def test_offsets_of_a_time_and_of_a_group(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = cluster.members["a"]
    leader.answers["OffsetByTime"] = lambda _: pb.OffsetByTimeReply(offset=42)
    leader.answers["ReadOffsets"] = lambda request: pb.ReadOffsetsReply(
        offsets=[
            pb.GroupOffset(
                offset=50 if pb.ReadOffsetsRequest.FromString(request).queues[0].queue else -1
            )
        ]
    )
    code = cluster.run("offsets", "t", "-g", "readers", "--at", "2013-01-01T00:00:00Z", "--json")
    assert code == 0
    rows = printed(capsys)
    assert [(row["queue"], row["offset_at"], row["committed"], row["lag"]) for row in rows] == [
        (0, 42, None, None),
        (1, 42, 50, 51),
    ]
    (asked,) = {
        pb.OffsetByTimeRequest.FromString(data).time_ms
        for name, data in leader.calls
        if name == "OffsetByTime"
    }
    assert asked == 1_356_998_400_000


@pytest.mark.parametrize(
    ("to", "offset"),
    [
        ("beginning", 10), ("end", 101), ("77", 77), ("2013-01-01T00:00:00Z", 42),
        ("+7", 57), ("-7", 43), ("+9999", 101), ("-9999", 10),
    ],
)  # fmt: skip
def test_reset(cluster: FakeCluster, to: str, offset: int) -> None:
    leader = cluster.members["a"]
    leader.answers["OffsetByTime"] = lambda _: pb.OffsetByTimeReply(offset=42)
    leader.answers["ReadOffsets"] = lambda _: pb.ReadOffsetsReply(
        offsets=[pb.GroupOffset(offset=50)]
    )
    leader.answers["CommitOffsets"] = lambda _: pb.CommitOffsetsReply(codes=[0], stored_offsets=[0])
    assert cluster.run("offsets", "t", "-g", "readers", "-q", "1", "--reset", to) == 0
    (data,) = (data for name, data in leader.calls if name == "CommitOffsets")
    request = pb.CommitOffsetsRequest.FromString(data)
    assert (request.reset, request.offsets[0].queue.queue, request.offsets[0].offset) == (
        True,
        1,
        offset,
    )


def test_a_group_is_moved_to_where_another_is(cluster: FakeCluster) -> None:
    """Only in the queues in which the other has an offset; and its consumers are told."""
    leader = cluster.members["a"]
    leader.answers["ReadOffsets"] = lambda data: pb.ReadOffsetsReply(
        offsets=[
            pb.GroupOffset(
                offset=60 if pb.ReadOffsetsRequest.FromString(data).queues[0].queue else -1
            )
        ]
    )
    leader.answers["CommitOffsets"] = lambda _: pb.CommitOffsetsReply(codes=[0], stored_offsets=[0])
    assert cluster.run("offsets", "t", "-g", "readers", "--like", "others") == 0
    (data,) = (data for name, data in leader.calls if name == "CommitOffsets")
    request = pb.CommitOffsetsRequest.FromString(data)
    assert (request.offsets[0].queue.queue, request.offsets[0].offset) == (1, 60)
    assert "NudgeConsumers" in leader.names()
    assert cluster.run("offsets", "t", "-g", "readers", "--like", "others", "--reset", "end") == 2


def test_lag_of_a_group(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    leader = cluster.members["a"]
    leader.answers["ReadProgress"] = lambda data: dpb.ReadProgressReply(
        now_ms=10_000,
        paused="7 of 9 records failed",
        rows=[
            dpb.ReadProgressReply.Row(
                floor=20, minimum=10, maximum=101, lag_bytes=5_000, oldest_ms=4_000,
                expires_ms=12_500, waiting=76, lost=3,
                holder="c1", epoch=5, done=[pb.OffsetRange(first=30, end=35)],
            )
            if ref.queue
            else dpb.ReadProgressReply.Row(floor=-1, minimum=10, maximum=101)
            for ref in dpb.ReadProgressRequest.FromString(data).queues
        ],
    )  # fmt: skip
    assert cluster.run("group", "lag", "readers", "--topic", "t", "--json") == 0
    rows = printed(capsys)
    shown = [(row["queue"], row["lag"], row["lag_bytes"], row["lag_seconds"]) for row in rows]
    assert shown == [(0, None, None, None), (1, 76, 5_000, 6.0)]
    assert rows[1]["holder"] == "c1"
    assert [(row["expires_seconds"], row["lost"]) for row in rows] == [(None, None), (2.5, 3)]


def test_a_paused_group_is_resumed(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = cluster.members["a"]
    leader.answers["ResumeGroup"] = lambda _: dpb.ResumeGroupReply(why="7 of 9 records failed")
    leader.answers["NudgeConsumers"] = lambda _: dpb.NudgeConsumersReply(told=3)
    assert cluster.run("group", "resume", "readers", "--json") == 0
    assert [row["why"] for row in printed(capsys)] == ["7 of 9 records failed"]


def test_reset_needs_a_group_and_a_sound_time(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run("offsets", "t", "--reset", "end") == 2
    assert cluster.run("offsets", "t", "-g", "x", "--reset", "soon") == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: --reset needs a consumer group; give --group",
        "error: --reset: soon, must be a time like 2026-01-31T12:00:00",
    ]


def test_offsets_of_a_queue_that_does_not_exist(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run("offsets", "t", "-q", "9") == 2
    assert capsys.readouterr().err == "error: topic t has queues 0 to 1, not 9\n"


def test_trim(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    leader = cluster.members["a"]
    leader.answers["Trim"] = lambda _: pb.TrimReply(minimum=40)
    assert cluster.run("trim", "t", "--queue", "1", "--offset", "50", "--yes", "--json") == 0
    request = pb.TrimRequest.FromString(leader.calls[-1][1])
    assert (request.queue.topic, request.queue.queue, request.offset) == ("t", 1, 50)
    row = {"topic": "t", "queue": 1, "minimum": 40, "held_by": None, "held_until_ms": None}
    assert printed(capsys) == [row]
    leader.answers["Trim"] = lambda _: pb.TrimReply(minimum=40, held_by="o", held_until_ms=9)
    assert cluster.run("trim", "t", "--queue", "1", "--offset", "50", "--yes", "--json") == 0
    assert printed(capsys) == [row | {"held_by": "o", "held_until_ms": 9}]


def test_transfer(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    leader = cluster.members["a"]
    leader.answers["TransferLeadership"] = lambda _: pb.TransferLeadershipReply(leader="b", term=2)
    assert cluster.run("transfer", "b", "--json") == 0
    assert printed(capsys) == [{"group": "g", "leader": "b", "term": 2}]
    assert cluster.run("transfer", "x") == 2
    assert "group g has no member 'x'; known members: a, b, c" in capsys.readouterr().err


def test_transfer_waits_for_the_new_leader(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = cluster.members["a"]
    leader.answers["TransferLeadership"] = lambda _: pb.TransferLeadershipReply(term=2)
    assert cluster.run("transfer", "b", "--timeout", "0.5") == 4
    assert "given up before term 2, but no new leader was heard of" in capsys.readouterr().err
    leader.answers["TransferLeadership"] = lambda _: pb.TransferLeadershipReply(term=1)
    assert cluster.run("transfer", "b", "--json") == 0
    assert printed(capsys) == [{"group": "g", "leader": "a", "term": 1}]


def test_quarantine_is_lifted_only_with_the_sentence(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    member = cluster.members["b"]
    member.answers["LiftQuarantine"] = lambda _: pb.LiftQuarantineReply()
    assert cluster.run("lift-quarantine", "b", "--accept", "yes") == 2
    assert RISK_SENTENCE in capsys.readouterr().err
    assert member.calls == []
    assert cluster.run("lift-quarantine", "b", "--accept", RISK_SENTENCE) == 0
    assert member.names() == ["LiftQuarantine"], "only that member itself is told"
    assert cluster.run("lift-quarantine", "x", "--accept", RISK_SENTENCE) == 2
