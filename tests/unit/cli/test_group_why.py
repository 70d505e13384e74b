"""Why a queue makes no progress: one cause, one sentence."""

from typing import Any

import pytest

from dledger_broker.cli.cluster.group_why import queue_sentence, whole_group
from dledger_proto.v1 import delivery_pb2 as pb

NOW = 1_700_000_000_000


def described(**settings: Any) -> pb.DescribeConsumerGroupReply:
    """Return a group of two consumers: c1 is connected, c2 is away."""
    return pb.DescribeConsumerGroupReply(
        group=pb.ConsumerGroup(name="g", settings=pb.ConsumerGroupSettings(**settings)),
        members=[
            pb.DescribeConsumerGroupReply.Member(id="c1", connected=True, silent_ms=100),
            pb.DescribeConsumerGroupReply.Member(id="c2", silent_ms=3_200),
        ],
        now_ms=NOW,
    )


def queue(holder: str, target: str, epoch: int = 7) -> pb.DescribeConsumerGroupReply.Queue:
    return pb.DescribeConsumerGroupReply.Queue(
        topic="t", holder=holder, target=target, epoch=epoch, since_ms=NOW
    )


def row(**fields: Any) -> pb.ReadProgressReply.Row:
    return pb.ReadProgressReply.Row(**{"epoch": 7, **fields})


SUSPENDED = [
    pb.SuspendedRecord(offset=9, attempts=1, until_ms=NOW + 1),
    pb.SuspendedRecord(offset=5, attempts=3, until_ms=NOW + 60_000),
    pb.SuspendedRecord(offset=2, attempts=3, until_ms=NOW - 1),
]


@pytest.mark.parametrize(
    ("standing", "progress", "paused", "sentence"),
    [
        (queue("c1", "c1"), row(), "a wave", "the group is paused in this broker group: a wave"),
        (None, row(), "", "no consumer was dealt this queue"),
        (queue("c1", "c2"), row(), "", "waits for c1 to give it back since * goes to c2"),
        (queue("c1", ""), row(), "", "waits for c1 to give it back since * is nobody's"),
        (queue("c1", "c1", 8), row(), "", "c1 was granted it at *, and has not claimed it yet"),
        (queue("c2", "c2"), row(), "", "c2 has it, and is not connected since 3.2 s"),
        (
            queue("c1", "c1"),
            row(suspended=SUSPENDED),
            "",
            "offset 5 failed 3 times, and waits until *",
        ),
        (queue("c1", "c1"), row(), "", "c1 works on it: no commit yet"),
        (queue("c1", "c1"), row(committed_ms=NOW), "", "c1 works on it: last commit *"),
    ],
)
def test_a_sentence_for_each_cause(
    standing: Any, progress: Any, paused: str, sentence: str
) -> None:
    found = queue_sentence(described(), standing, progress, paused)
    begin, _, end = sentence.partition("*")
    assert found.startswith(begin)
    assert found.endswith(end)


def test_what_stops_the_whole_group() -> None:
    assert whole_group(described()) == []
    assert whole_group(described(paused=True)) == ["the settings of the group pause it"]
    empty = pb.DescribeConsumerGroupReply(problems=["2 queues are wanted by nobody: t/1, t/2"])
    assert whole_group(empty) == [
        "nobody consumes: the group has no consumers",
        "2 queues are wanted by nobody: t/1, t/2",
    ]
    away = described()
    away.members[0].connected = False
    assert whole_group(away) == ["no consumer is connected to the coordinator's leader"]
