"""What a producer's core must not do, found by review: whole cores against the model cluster."""

from dledger_client._core.producer.epoch import EpochState
from dledger_client.config import ProducerConfig
from dledger_client.errors import error_of
from dledger_proto.errors import Code
from dledger_proto.v1 import routes_pb2
from tests.unit.client.model_cluster import PRODUCER_ID, topic_message
from tests.unit.client.test_epochs import asked, group_a, life
from tests.unit.client.test_producer_model import check, two_groups


def test_an_answer_to_an_earlier_registration_is_ignored() -> None:
    """Its epoch is not the newest any more: batches under it would be fenced by our own next."""
    group = group_a()
    cluster = life(group)
    sent = cluster.send("t", b"1", 0)
    _, first = asked(cluster)
    cluster.core.register_failed("a", first, error_of(Code.UNKNOWN_OUTCOME, "lost"), cluster.now)
    _, second = asked(cluster)
    assert second != first
    cluster.core.registered("a", first, 1, {}, cluster.now)
    cluster.core.register_taken("a", first, 7, cluster.now)
    cluster.core.register_failed("a", first, error_of(Code.STALE_EPOCH, "late"), cluster.now)
    assert cluster.core.senders["a"].epoch.state is EpochState.ASKED
    assert not sent.future.done()
    granted = group.register(PRODUCER_ID, 0)
    assert isinstance(granted, tuple)
    cluster.core.registered("a", second, *granted, cluster.now)
    cluster.finish()
    assert sent.future.result().offset == 0


def test_a_queue_that_comes_back_to_a_group_goes_on_with_its_sequence() -> None:
    """Else its next message has a sequence that is stored, and is told stored for another's."""
    cluster = two_groups(ProducerConfig())
    for turn, group in enumerate(("a", "b", "a")):
        parts = [(group, 1)]
        reply = routes_pb2.RoutesReply(topics=[topic_message("t", parts, 2 + turn)])
        reply.topics[0].layout_version = 2 + turn
        cluster.topics["t"] = parts
        cluster.core.routes_changed(cluster.core.routes.apply(reply), cluster.now)
        sent = cluster.send("t", b"%d" % turn, 0)
        cluster.turn()
        cluster.finish()
        assert sent.future.result().group == group
        assert not sent.future.result().duplicate, f"{sent.body!r} is not stored"
    check(cluster, in_order=False)
