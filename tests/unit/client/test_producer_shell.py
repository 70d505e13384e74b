"""`AsyncProducer` against members in this process that do what a script tells them.

Goal: what the calls promise when nothing fails: places, queues, limits, buffers, the end.
"""

import asyncio
from collections import Counter

import pytest

from dledger_client import (
    Acknowledgement,
    AsyncProducer,
    AsyncSendFuture,
    BufferFull,
    ClientClosed,
    ConnectionConfig,
    DeadlineExpired,
    Message,
    MessageTooLarge,
    NotStored,
    ProducerConfig,
    QueueNotFound,
    TopicNotFound,
    UnknownOutcome,
    by_hash,
)
from dledger_client.errors import InvalidRequest, MessageIllegal, Unavailable
from dledger_proto.errors import Code, DledgerError
from dledger_proto.keyhash import queue_of_key
from dledger_proto.limits import KIB
from tests.unit.client.fake_member import Does, FakeCluster
from tests.unit.client.helpers import eventually, run

FAST = ConnectionConfig(try_timeout_ms=150, connect_timeout_ms=500)
SMALL = ProducerConfig(connection=FAST, batch_records=3, linger_ms=0)


def test_a_send_says_where_it_is_stored() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap) as producer:
            first = await producer.send("t", b"1", tag="x", key="k", properties={"p": "v"}, queue=1)
            second = await producer.send("t", b"2", queue=1)
            assert (first.topic, first.group, first.queue, first.offset) == ("t", "a", 1, 0)
            assert second.offset == 1
            assert first.index > 0
            assert first.term == 1
            assert first.acknowledgement is Acknowledgement.MAJORITY_SYNCED
            assert not first.duplicate
            assert first.offset_id == "a/t/1/0"
            assert len(first.message_id) == 24
            assert first.message_id[:16] == second.message_id[:16]
            assert second.message_id[16:] == (1).to_bytes(8, "big")
            assert cluster.log("t", 1) == [b"1", b"2"]

    run(body())


def test_messages_go_round_the_queues_from_different_starts() -> None:
    async def body() -> None:
        async with FakeCluster({"a": 1}, {"t": [("a", 8)]}) as cluster:
            starts: set[int] = set()
            for _ in range(12):
                async with AsyncProducer(cluster.bootstrap) as producer:
                    starts.add((await producer.send("t", b"x")).queue)
            assert len(starts) > 1
            async with AsyncProducer(cluster.bootstrap) as producer:
                results = await asyncio.gather(*(producer.send("t", b"x") for _ in range(1_000)))
                assert Counter(result.queue for result in results) == dict.fromkeys(range(8), 125)

    run(body())


def test_keys_numbers_and_selectors_bind_to_queues() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 1, "b": 1}, {"t": [("a", 3), ("b", 4)]}) as cluster,
            AsyncProducer(cluster.bootstrap) as producer,
        ):
            for key in ("customer-1", "customer-2", "ä"):
                result = await producer.send("t", b"x", ordering_key=key)
                assert result.queue == queue_of_key(key.encode(), 7)
                assert result.group == ("a" if result.queue < 3 else "b")
                chosen = await producer.send("t", b"x", selector=by_hash, argument=key)
                assert chosen.queue == result.queue
            last = await producer.send("t", b"x", selector=lambda queues, _m, _a: queues[-1])
            assert last.queue == 6
            with pytest.raises(QueueNotFound, match="queue: 7"):
                await producer.send("t", b"x", queue=7)
            with pytest.raises(QueueNotFound, match="selector"):
                await producer.send("t", b"x", selector=lambda _q, _m, _a: 99)
            with pytest.raises(InvalidRequest, match="selector: it raised"):
                await producer.send("t", b"x", selector=lambda _q, _m, _a: 1 // 0)
            with pytest.raises(MessageIllegal, match="at most one"):
                await producer.send("t", b"x", queue=1, ordering_key="k")
            with pytest.raises(MessageIllegal, match="queue: -1"):
                await producer.send("t", b"x", queue=-1)

    run(body())


def test_nothing_is_sent_of_an_illegal_message() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap) as producer:
            for topic, message in (("bad name", b""), ("t", bytes(4 * 1024 * KIB + 1))):
                with pytest.raises(MessageIllegal):
                    producer.submit(topic, message)
                with pytest.raises(MessageIllegal):
                    await producer.send(topic, message)
            with pytest.raises(MessageTooLarge, match="send_many"):
                await producer.send_many("t", [bytes(1024 * KIB)] * 5)
            assert cluster.leader().frames == 0

    run(body())


def test_send_many_gets_consecutive_offsets() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap) as producer:
            for i in range(20):
                producer.submit("t", b"before %d" % i, queue=0)
            messages = [b"%d" % i for i in range(99)]
            results = await producer.send_many("t", [*messages, Message(b"99", tag="x")], queue=0)
            offsets = [result.offset for result in results]
            assert offsets == list(range(offsets[0], offsets[0] + 100))
            assert len({result.message_id for result in results}) == 100
            assert cluster.log("t", 0)[offsets[0] : offsets[0] + 100] == [*messages, b"99"]
            assert await producer.send_many("t", []) == []

    run(body())


def test_a_submit_stays_behind_a_send_many_that_was_called_before_it() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap) as producer:
            await producer.send("t", b"0", queue=0)  # it knows the topic
            many = asyncio.create_task(producer.send_many("t", [b"1", b"2"], queue=0))
            await asyncio.sleep(0)
            producer.submit("t", b"3", queue=0)
            await many
            await producer.flush()
            assert cluster.log("t", 0) == [b"0", b"1", b"2", b"3"]

    run(body())


def test_unbound_messages_move_to_another_group() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 1, "b": 1}, {"t": [("a", 1), ("b", 1)]}) as cluster,
            AsyncProducer(cluster.bootstrap, SMALL) as producer,
        ):
            await producer.send("t", b"0", queue=0)
            await producer.send("t", b"0", queue=1)
            cluster.leader("a").script.extend([Code.DISK_FULL] * 1_000)
            results = await asyncio.gather(*(producer.send("t", b"x") for _ in range(20)))
            assert {result.group for result in results} == {"b"}
            assert not cluster.log("t", 0)[1:]
            # A bound one stays, and says so in the end.
            with pytest.raises(NotStored):
                await producer.send("t", b"bound", queue=0, timeout_ms=300)

    run(body())


def test_unknown_topics_are_created_or_refused() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            async with AsyncProducer(cluster.bootstrap) as producer:
                futures = [producer.submit("new", b"%d" % i, queue=0) for i in range(10)]
                for future in futures:
                    await future
                assert cluster.created == 1
                assert cluster.log("new", 0) == [b"%d" % i for i in range(10)]
                cluster.auto_create = False
                with pytest.raises(TopicNotFound, match="auto_create"):
                    await producer.send("other", b"x")
            config = ProducerConfig(create_topics=False)
            async with AsyncProducer(cluster.bootstrap, config) as producer:
                with pytest.raises(TopicNotFound):
                    await producer.send("other", b"x")
                cluster.topics["other"] = [("a", 1)]
                assert (await producer.send("other", b"x")).offset == 0

    run(body())


def test_one_way_messages_arrive_without_answers_and_ids() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap) as producer:
            for i in range(50):
                producer.send_one_way("t", b"%d" % i, queue=0)
            await producer.flush()
            await eventually(lambda: len(cluster.log("t", 0)) == 50, "all one-way messages")
            assert cluster.log("t", 0) == [b"%d" % i for i in range(50)]
            assert (await producer.send("t", b"after", queue=0)).offset == 50

    run(body())


def test_a_full_buffer_refuses_and_then_makes_room() -> None:
    async def body() -> None:
        config = ProducerConfig(buffer_bytes=8 * 1024 * KIB)
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap, config) as producer:
            await producer.send("t", b"0")
            cluster.leader().hold_answers.clear()
            message = bytes(512 * KIB)
            futures = [producer.submit("t", message) for _ in range(15)]
            with pytest.raises(BufferFull, match="buffer_bytes") as raised:
                producer.submit("t", message)
            assert raised.value.retriable
            waiting = asyncio.create_task(producer.send("t", message))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            cluster.leader().hold_answers.set()
            await waiting
            for future in futures:
                await future
            assert producer.status().buffered_bytes == 0

    run(body())


def test_giving_up_a_wait_changes_nothing() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap) as producer:
            await producer.send("t", b"0", queue=0)
            cluster.leader().hold_answers.clear()
            future = producer.submit("t", b"1", queue=0)
            waits = [asyncio.create_task(producer.send("t", b"2", queue=0)) for _ in range(3)]
            await asyncio.sleep(0.02)
            waits[1].cancel()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await future
            cluster.leader().hold_answers.set()
            assert (await future).offset == 1
            assert (await future).offset == 1, "a future can be awaited again"
            await waits[0]
            await waits[2]
            with pytest.raises(asyncio.CancelledError):
                await waits[1]
            assert len(cluster.log("t", 0)) == 5

    run(body())


def test_flush_and_close_settle_what_was_handed_over() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            producer = await AsyncProducer(cluster.bootstrap).start()
            futures = [producer.submit("t", b"%d" % i, queue=0) for i in range(1_000)]
            await producer.flush()
            assert all(future.done() for future in futures)
            futures += [producer.submit("t", b"x", queue=0) for i in range(1_000)]
            await producer.close()
            await producer.close()
            assert len(cluster.log("t", 0)) == 2_000
            assert all(future.exception() is None for future in futures)
            with pytest.raises(ClientClosed):
                producer.submit("t", b"x")
            with pytest.raises(ClientClosed):
                await producer.send("t", b"x")

    run(body())


def test_close_with_a_hanging_member_tells_unsent_from_unknown() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            config = ProducerConfig(batches_in_flight=1, batch_records=1)
            producer = await AsyncProducer(cluster.bootstrap, config).start()
            await producer.send("t", b"0", queue=0)
            cluster.leader().script.append(Does.STORE_THEN_HANG)
            futures = [producer.submit("t", b"%d" % i, queue=0) for i in range(1, 5)]
            parked = producer.submit("new", b"x")
            cluster.leader().call_errors.extend([DledgerError(Code.NO_LEADER)] * 1_000)
            with pytest.raises(TimeoutError):
                await producer.flush(timeout_ms=50)
            await producer.close(timeout_ms=50)
            errors = [future.exception() for future in [*futures, parked]]
            assert [type(error) for error in errors] == [UnknownOutcome] + [ClientClosed] * 4
            assert cluster.log("t", 0) == [b"0", b"1"]

    run(body())


def test_without_a_cluster_sends_end_in_time() -> None:
    async def body() -> None:
        config = ProducerConfig(timeout_ms=150)
        async with AsyncProducer("127.0.0.1:1", config) as producer:
            with pytest.raises(DeadlineExpired) as raised:
                await producer.send("t", b"x")
            assert raised.value.definite

    run(body())


def test_bad_arguments_of_a_producer() -> None:
    for addresses in ("", "host", "host:x", "host:0", ":1", "host:99999", ","):
        with pytest.raises(ValueError, match="address"):
            AsyncProducer(addresses)
    with pytest.raises(ValueError, match="linger_ms: -1"):
        ProducerConfig(linger_ms=-1)
    with pytest.raises(ValueError, match=r"batches_in_flight: 257, must be .* 1 to 256"):
        ProducerConfig(batches_in_flight=257)
    with pytest.raises(ValueError, match="idempotent"):
        ProducerConfig(name="x", idempotent=False)
    with pytest.raises(ValueError, match="try_timeout_ms"):
        ConnectionConfig(try_timeout_ms=0)
    assert issubclass(DeadlineExpired, Unavailable)


def test_ten_thousand_callbacks() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap) as producer:
            done: list[int] = []
            for _ in range(10_000):
                producer.submit(
                    "t", b"x", on_done=lambda future: done.append(future.result().offset)
                )

            def broken(_future: AsyncSendFuture) -> None:
                raise ValueError("a user's mistake")

            producer.submit("t", b"x", on_done=broken)
            await producer.flush()
            assert len(done) == 10_000
            assert len(cluster.log("t", 0)) + len(cluster.log("t", 1)) == 10_001

    run(body())


def test_after_waiting_for_room_the_next_message_is_taken() -> None:
    """The wait ends only when a message of any size fits: submit and wait in a loop never spin."""

    async def body() -> None:
        config = ProducerConfig(buffer_bytes=8 * 1_024 * KIB)
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap, config) as producer:
            waits = 0
            for number in range(40):
                message = bytes(1_024 * KIB) if number % 2 else b"small"
                try:
                    producer.submit("t", message)
                except BufferFull:
                    waits += 1
                    await producer.wait_for_room()
                    producer.submit("t", message)
            await producer.flush()
            assert waits > 0

    run(body())


@pytest.mark.parametrize("code", [Code.QUEUE_NOT_FOUND, Code.TOPIC_NOT_FOUND])
def test_a_group_that_has_not_heard_of_a_queue_yet_is_asked_again(code: Code) -> None:
    """The control group has decided it, says our own route."""

    async def body() -> None:
        async with FakeCluster() as cluster:
            cluster.leader().script.extend([code] * 3)
            async with AsyncProducer(cluster.bootstrap) as producer:
                assert (await producer.send("t", b"x", queue=1)).offset == 0
            assert cluster.log("t", 1) == [b"x"]

    run(body())


def test_a_queue_that_is_newer_than_our_own_route_is_found() -> None:
    async def body() -> None:
        async with (
            FakeCluster(topics={"t": [("a", 2)]}) as cluster,
            AsyncProducer(cluster.bootstrap) as producer,
        ):
            await producer.send("t", b"x", queue=1)
            cluster.topics["t"] = [("a", 4)]
            cluster.created += 1
            assert (await producer.send("t", b"new", queue=3)).offset == 0
            assert (await producer.send_many("t", [b"a", b"b"], queue=2))[1].offset == 1
            assert cluster.log("t", 3) == [b"new"]
            with pytest.raises(QueueNotFound, match="queue: 4, topic t has write queues 0 to 3"):
                await producer.send("t", b"x", queue=4)
            with pytest.raises(QueueNotFound, match="queue: 5"):
                await producer.send_many("t", [b"x"], queue=5)
            assert producer.status().buffered_bytes == 0

    run(body())


def test_a_queue_that_our_own_route_has_no_more_is_final() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            leader = cluster.leader()
            leader.script.extend([Code.QUEUE_NOT_FOUND] * 1_000)
            async with AsyncProducer(cluster.bootstrap) as producer:
                future = producer.submit("t", b"x", queue=1)
                await eventually(lambda: leader.frames > 1, "it is tried again")
                cluster.topics["t"] = [("a", 1)]
                cluster.push_routes()
                with pytest.raises(QueueNotFound):
                    await future
            assert len(leader.script) > 900

    run(body())
