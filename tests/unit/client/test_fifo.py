"""A FIFO topic takes only messages that their ordering keys have placed, and says so in batches."""

from collections.abc import Awaitable, Callable

import pytest

from dledger_client import AsyncProducer, ProducerConfig, by_hash
from dledger_client.errors import MessageIllegal
from dledger_proto.batch.codec import FLAG_KEYED, parse_header
from dledger_proto.keyhash import queue_of_key
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import run
from tests.unit.client.model_cluster import topic_id

NO_KEY: dict[str, Callable[[AsyncProducer], Awaitable[object]]] = {
    "none": lambda producer: producer.send("fifo", b"x"),
    "queue": lambda producer: producer.send("fifo", b"x", queue=0),
    "selector": lambda producer: producer.send("fifo", b"x", selector=by_hash, argument="a"),
    "many": lambda producer: producer.send_many("fifo", [b"x"]),
    "submit": lambda producer: producer.submit("fifo", b"x").wait(),
}


def flags(cluster: FakeCluster, topic: str) -> set[int]:
    """The optional flags of all batches of a topic."""
    return {
        parse_header(batch).optional_flags
        for (found, _), rows in cluster.batches.items()
        for _, _, batch in rows
        if found == topic_id(topic)
    }


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("way", NO_KEY)
def test_a_message_without_an_ordering_key_is_refused(way: str, known: bool) -> None:
    """Also when its topic is not known yet."""

    async def body() -> None:
        async with (
            FakeCluster(topics={"fifo": [("a", 4)]}) as cluster,
            AsyncProducer(cluster.bootstrap) as producer,
        ):
            if known:
                await producer.send("fifo", b"first", ordering_key="k")
            with pytest.raises(MessageIllegal) as raised:
                await NO_KEY[way](producer)
            assert (raised.value.definite, raised.value.retriable) == (True, False)
            assert raised.value.detail == (
                "topic fifo is FIFO: each message needs an ordering_key "
                "(dledger send: --ordering-key)"
            )
            assert sum(len(cluster.log("fifo", queue)) for queue in range(4)) == known

    run(body())


@pytest.mark.parametrize("idempotent", [False, True])
def test_with_ordering_keys_all_is_well_and_the_batches_say_so(idempotent: bool) -> None:
    async def body() -> None:
        config = ProducerConfig(idempotent=idempotent)
        async with (
            FakeCluster(topics={"fifo": [("a", 4)], "t": [("a", 4)]}) as cluster,
            AsyncProducer(cluster.bootstrap, config) as producer,
        ):
            for number in range(8):
                key = f"k{number}"
                sent = await producer.send("fifo", key.encode(), ordering_key=key)
                assert sent.queue == queue_of_key(key.encode(), 4)
            await producer.send_many("fifo", [b"a", b"b"], ordering_key="k")
            await producer.send("t", b"x")
            assert flags(cluster, "fifo") == {FLAG_KEYED}
            assert flags(cluster, "t") == {0}

    run(body())


def test_a_one_way_message_needs_a_key_as_well() -> None:
    async def body() -> None:
        async with (
            FakeCluster(topics={"fifo": [("a", 1)]}) as cluster,
            AsyncProducer(cluster.bootstrap) as producer,
        ):
            await producer.send("fifo", b"first", ordering_key="k")
            producer.send_one_way("fifo", b"lost")
            producer.send_one_way("fifo", b"kept", ordering_key="k")
            await producer.flush()
            await producer.send("fifo", b"last", ordering_key="k")
            assert b"lost" not in cluster.log("fifo", 0)

    run(body())
