"""`dledger hold`: what is asked of which group, what is shown, how a release ends."""

import json
from collections.abc import Generator

import pytest

from dledger_proto.errors import Code
from dledger_proto.v1 import broker_pb2 as pb
from tests.unit.cli.fakes import FakeCluster, fake_cluster
from tests.unit.cli.test_cluster_commands import TOPIC

NOW_MS = 1_700_000_000_000


def hold(queue: int, owner: str, until_ms: int = NOW_MS + 90_000) -> pb.ListHoldsReply.Hold:
    """A hold on the topic."""
    return pb.ListHoldsReply.Hold(
        topic_id=TOPIC.id, topic="t", queue=queue, owner=owner, offset=5, until_ms=until_ms
    )


HOLDS = [hold(0, "a"), hold(0, "b"), hold(1, "a"), hold(1, "c", 1 << 62)]


def page(request: bytes) -> pb.ListHoldsReply:
    """Holds in pages of two."""
    asked = pb.ListHoldsRequest.FromString(request)
    rows = [row for row in HOLDS if not asked.HasField("queue") or row.queue == asked.queue]
    begin = int(asked.after or b"0")
    end = begin + min(asked.limit or 2, 2)
    more = str(end).encode() if end < len(rows) else b""
    return pb.ListHoldsReply(holds=rows[begin:end], next=more, now_ms=NOW_MS)


@pytest.fixture
def cluster() -> Generator[FakeCluster]:
    with fake_cluster() as made:
        made.members["a"].answers["DescribeTopic"] = lambda _: pb.TopicReply(topic=TOPIC)
        made.members["a"].answers["ListHolds"] = page
        yield made


def test_all_pages_are_listed(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["hold", "list"], ["hold", "list", "t"]):
        assert cluster.run(*arguments, "--json") == 0
        rows = json.loads(capsys.readouterr().out)
        assert [(row["queue"], row["owner"]) for row in rows] == [
            (0, "a"), (0, "b"), (1, "a"), (1, "c"),
        ]  # fmt: skip
        assert rows[0] == {
            "topic": "t", "queue": 0, "owner": "a", "offset": 5, "until": rows[0]["until"],
            "until_ms": NOW_MS + 90_000, "seconds_left": 90, "group": "g",
        }  # fmt: skip
        assert rows[3]["until"] == f"{1 << 62} ms"


def test_of_one_queue_and_up_to_a_limit(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.run("hold", "list", "t", "-q", "1", "--limit", "1", "--json") == 0
    shown = capsys.readouterr()
    assert [row["queue"] for row in json.loads(shown.out)] == [1]
    assert shown.err == "these are the first 1 holds; --limit shows more\n"
    assert cluster.run("hold", "list", "t", "--limit", "4") == 0
    assert capsys.readouterr().err == ""
    assert cluster.run("hold", "list", "-q", "1") == 2
    assert cluster.run("hold", "list", "t", "-q", "9") == 2


def test_a_release_ends_the_holds_of_an_owner(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    leader = cluster.members["a"]
    leader.answers["HoldAll"] = lambda request: pb.HoldAllReply(
        codes=[0] * len(pb.HoldAllRequest.FromString(request).queues),
        details=[""] * len(pb.HoldAllRequest.FromString(request).queues),
    )
    assert cluster.run("hold", "release", "t", "a", "c", "--yes", "--json") == 0
    asked = pb.HoldAllRequest.FromString(leader.calls[-1][1])
    assert asked.ttl_ms == 0
    assert [(each.queue.topic, each.queue.queue, each.owner) for each in asked.queues] == [
        ("t", 0, "a"), ("t", 1, "a"), ("t", 1, "c"),
    ]  # fmt: skip
    assert len(json.loads(capsys.readouterr().out)) == 3
    assert cluster.run("hold", "release", "t", "nobody", "--yes") == 1
    assert capsys.readouterr().err == (
        "error: topic t has no hold of nobody; see: dledger hold list\n"
    )
    assert cluster.run("hold", "release", "t", "a") == 2
    assert capsys.readouterr().err == (
        "error: no hold of topic t is released: there is no terminal to ask on; "
        "confirm with --yes\n"
    )


def test_a_release_that_is_refused_is_a_failure(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.members["a"].answers["HoldAll"] = lambda _: pb.HoldAllReply(
        codes=[int(Code.TOPIC_NOT_FOUND)], details=["gone"]
    )
    assert cluster.run("hold", "release", "t", "b", "--yes") == 1
    assert "TOPIC_NOT_FOUND: queue 0: gone" in capsys.readouterr().err
