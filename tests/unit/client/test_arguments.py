"""Wrong arguments: refused by name before anything is sent, and harmless for all other messages."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from dledger_client import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConnectionConfig,
    ConsumerConfig,
    Message,
    Producer,
    ProducerConfig,
    StartAt,
)
from dledger_client.errors import ClientError, NotStored
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import run
from tests.unit.client.test_sync import ThreadedCluster

NAN = math.nan
# What callers without a type checker give; the signatures forbid most of it.
WRONG_SENDS: list[tuple[dict[str, Any], str]] = [
    ({"ordering_key": 5}, "ordering_key: 5, must be str or bytes"),
    ({"queue": "1"}, "queue: '1', must be an integer from 0"),
    ({"queue": 1.0}, "queue: 1.0, must be an integer"),
    ({"queue": True}, "queue: True, must be an integer"),
    ({"queue": -1}, "queue: -1, must be an integer"),
    (
        {"selector": lambda queues, message, argument: None},
        "selector: it returned None, must be a queue or its number",
    ),
    (
        {"selector": lambda queues, message, argument: "1"},
        "selector: it returned '1', must be a queue",
    ),
    ({"keys": 5}, "keys: int, must be a sequence of str"),
    ({"keys": [5]}, "keys: 5, must be str"),
    ({"tag": 5}, "tag: 5, must be str"),
    ({"properties": {"a": 1}}, "property 'a': 1, must be str"),
    ({"properties": {1: "a"}}, "name of a property: 1, must be str"),
    ({"properties": 5}, "properties: int, must be a mapping"),
    ({"timeout_ms": -1}, "timeout_ms: -1, must be a number from 0 to 86400000"),
    ({"timeout_ms": NAN}, "timeout_ms: nan, must be a number"),
    ({"timeout_ms": math.inf}, "timeout_ms: inf, must be a number"),
    ({"timeout_ms": "5"}, "timeout_ms: '5', must be a number"),
]
WRONG_MANY: list[tuple[Any, str]] = [
    (b"abc", "message: int, must be bytes or Message"),
    ("abc", "message: str, must be bytes or Message"),
    ([None], "message: NoneType, must be bytes or Message"),
    ([Message("text")], "body: str, must be bytes"),  # type: ignore[arg-type]
    ([Message(b"", time_ms="now")], "time_ms: 'now', must be milliseconds"),  # type: ignore[arg-type]
    ([Message(b"", time_ms=1.5)], "time_ms: 1.5, must be milliseconds"),  # type: ignore[arg-type]
]


@pytest.fixture
def threaded() -> Iterator[ThreadedCluster]:
    cluster = ThreadedCluster({"a": 2})
    yield cluster
    cluster.close()


def test_a_wrong_send_is_refused_and_the_producer_goes_on(threaded: ThreadedCluster) -> None:
    with Producer(threaded.cluster.bootstrap, ProducerConfig(timeout_ms=3_000)) as producer:
        producer.send("t", b"first", queue=0)  # now the route is known
        for arguments, sentence in WRONG_SENDS:
            with pytest.raises(NotStored) as refused:
                producer.send_async("t", b"wrong", **arguments).result(timeout=3.0)
            assert sentence in str(refused.value), arguments
        for messages, sentence in WRONG_MANY:
            with pytest.raises(NotStored) as refused:
                producer.send_many("t", messages)
            assert sentence in str(refused.value), messages
        producer.send("t", b"last", queue=0)
        assert threaded.cluster.log("t", 0) == [b"first", b"last"]


def test_what_the_caller_changes_later_is_not_sent() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap) as producer:
            properties: dict[str, Any] = {"step": "1"}
            kept = bytearray(b"body")
            future = producer.submit("t", kept, properties=properties, queue=0)  # type: ignore[arg-type]
            properties["step"] = 2
            kept[:] = b"BODY"
            await future
            many: dict[str, Any] = {"step": "1"}
            sending = producer.send_many("t", [Message(kept, properties=many)], queue=0)  # type: ignore[arg-type]
            many["step"] = 2
            with pytest.raises(NotStored, match="property 'step': 2"):
                await sending  # a coroutine has not begun before it is awaited
            await producer.send("t", b"last", queue=0)
            assert cluster.log("t", 0) == [b"body", b"last"]

    run(body())


@pytest.mark.parametrize(
    ("kind", "settings", "sentence"),
    [
        (ProducerConfig, {"timeout_ms": "5"}, "timeout_ms: '5', must be an integer from 1"),
        (ProducerConfig, {"batch_records": 1.5}, "batch_records: 1.5, must be an integer"),
        (ProducerConfig, {"linger_ms": NAN}, "linger_ms: nan, must be a number from 0"),
        (ProducerConfig, {"linger_ms": None}, "linger_ms: None, must be a number from 0"),
        (ProducerConfig, {"compression": "zstd"}, "compression: 'zstd', must be a Compression"),
        (ProducerConfig, {"connection": None}, "connection: None, must be a ConnectionConfig"),
        (ProducerConfig, {"name": 5}, "name: 5, must be a str"),
        (ConsumerConfig, {"start_at": "first"}, "start_at: 'first', must be a StartAt"),
        (ConsumerConfig, {"prefer": 5}, "prefer: 5, must be a str"),
        (ConsumerConfig, {"group": 5}, "group: 5, must be a str"),
        (ConnectionConfig, {"try_timeout_ms": NAN}, "try_timeout_ms: nan, must be an integer"),
    ],
)
def test_a_setting_of_the_wrong_type_is_refused(
    kind: type[Any], settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        kind(**settings)


def test_a_wrong_place_to_read_from_is_refused() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncConsumer(cluster.bootstrap) as consumer:
            wrong: Sequence[Any] = ("first", 1.5, True)
            for start in wrong:
                with pytest.raises(ClientError, match=r"t/0: offset: .*, must be an integer"):
                    await consumer.assign({("t", 0): start})
            await consumer.assign("t", StartAt.FIRST)
            for timeout in (-1, NAN):
                with pytest.raises(ClientError, match=r"timeout_ms: .*, must be a number"):
                    await consumer.poll(timeout_ms=timeout)
            with pytest.raises(ClientError, match="time_ms: -1, must be an integer from 0"):
                await consumer.seek_to_time("t", -1)

    run(body())


def test_wrong_numbers_of_administration_are_refused_by_name() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap) as admin:
            for call, sentence in (
                (admin.create_topic("n", queues_per_group=-3), "queues_per_group: -3, must be"),
                (admin.update_topic("t", layout=[("a", -1)]), "layout: queues of a: -1, must be"),
                (admin.hold("me", "t", 0, 0, -5), "ttl_ms: -5, must be"),
                (admin.trim("t", 0, -1), "offset: -1, must be"),
                (admin.lookup_key("t", "k", limit=-1), "limit: -1, must be"),
                (admin.lookup_message("zz"), "message_id: 'zz', must be 48 hex digits"),
                (admin.commit_offsets("g", {("t", 0): -1}), "t/0: offset: -1, must be"),
                (admin.log_entries("127.0.0.1:1", from_index=-1), "from_index: -1, must be"),
            ):
                with pytest.raises(NotStored) as refused:
                    await call
                assert sentence in str(refused.value)

    run(body())
