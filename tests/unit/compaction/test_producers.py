"""A producer sends all messages of a key of a compacted topic to one queue."""

import pytest

from dledger_client._core.producer.topics import Pin, QueueChoice, TopicState
from dledger_client._core.routes import RouteTable, TopicRoute
from dledger_client.errors import MessageIllegal
from dledger_proto.batch.codec import Record
from dledger_proto.keyhash import queue_of_key
from dledger_proto.limits import RETENTION_BY_KEY, RETENTION_DEFAULT
from tests.unit.client.model_cluster import topic_id


def bound(*records: Record, pin: Pin | None = None, kept: int = RETENTION_BY_KEY) -> Pin | None:
    """Return what binds messages of a topic of four queues."""
    route = TopicRoute("t", topic_id("t"), 1, (("a", 4),), 4, 4, 6, 1, retention_ms=kept)
    choice = QueueChoice(RouteTable(), None)
    return choice.bound_by_key(TopicState("t", route), records, pin)


def test_the_key_chooses_the_queue() -> None:
    keys = [f"k{number}" for number in range(20)]
    pins = [bound(Record(b"", keys=(key,))) for key in keys]
    assert pins == [Pin(queue=queue_of_key(key.encode(), 4)) for key in keys]
    assert len(set(pins)) == 4


def test_a_queue_that_is_given_counts_more() -> None:
    for pin in (Pin(queue=3), Pin(ordering_key=b"x")):
        assert bound(Record(b"", keys=("k",)), pin=pin) is pin


def test_other_topics_choose_as_before() -> None:
    assert bound(Record(b""), kept=RETENTION_DEFAULT) is None


@pytest.mark.parametrize("keys", [(), ("a", "b")])
def test_exactly_one_key_is_needed(keys: tuple[str, ...]) -> None:
    with pytest.raises(MessageIllegal, match="exactly one key"):
        bound(Record(b"", keys=keys))
    with pytest.raises(MessageIllegal, match="exactly one key"):
        bound(Record(b"", keys=keys), pin=Pin(queue=1))


def test_messages_of_one_batch_must_belong_to_one_queue() -> None:
    records = [Record(b"", keys=(f"k{number}",)) for number in range(20)]
    with pytest.raises(MessageIllegal, match=r"queues \[0, 1, 2, 3\]"):
        bound(*records)
    assert bound(records[0], records[0]) == bound(records[0])
