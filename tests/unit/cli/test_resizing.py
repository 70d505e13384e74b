"""`dledger topic update --queues`: which queues take messages then."""

import pytest

from dledger_broker.cli.cluster.topics import resized
from dledger_broker.cli.output import CommandFailed
from dledger_proto.v1 import broker_pb2 as pb


def parts(*layout: tuple[str, int]) -> list[pb.LayoutPart]:
    return [pb.LayoutPart(group=group, queues=queues) for group, queues in layout]


@pytest.mark.parametrize(
    ("before", "queues", "after"),
    [
        (parts(("g", 4)), 2, parts(("g", 2))),
        (parts(("g", 4)), 6, parts(("g", 6))),
        (parts(("g", 2), ("h", 2)), 3, parts(("g", 2), ("h", 2), ("g", 1), ("h", 1))),
        (parts(("g", 2), ("h", 2), ("g", 1), ("h", 1)), 2, parts(("g", 2), ("h", 2))),
        (parts(("g", 2), ("h", 1)), 2, parts(("g", 2), ("h", 2))),
    ],
)
def test_a_topic_is_resized_without_moving_a_queue(
    before: list[pb.LayoutPart], queues: int, after: list[pb.LayoutPart]
) -> None:
    topic = pb.Topic(layout=before, write_queues=sum(part.queues for part in before))
    assert resized(topic, queues) == after


def test_a_group_whose_queues_are_all_closed_is_opened_only_for_new_ones() -> None:
    topic = pb.Topic(layout=parts(("g", 2), ("h", 2)), write_queues=2)
    assert resized(topic, 2) == parts(("g", 2))
    assert resized(topic, 1) == parts(("g", 1))
    assert resized(topic, 3) == parts(("g", 2), ("h", 2), ("g", 1), ("h", 1))


def test_queues_are_closed_from_the_last_on() -> None:
    topic = pb.Topic(layout=parts(("g", 2), ("h", 2)), write_queues=4)
    with pytest.raises(CommandFailed, match="--queues: 1, group g has had 2, and queues are"):
        resized(topic, 1)
