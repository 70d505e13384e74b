"""`AsyncProducer` against members in this process that do what a script tells them.

Goal: under every script the log holds each message once and in order, and every future ends with
what is true.
"""

import asyncio
from collections import Counter

import pytest

from dledger_client import (
    AsyncProducer,
    AsyncSendFuture,
    ConnectionConfig,
    NoPermission,
    NotStored,
    Overloaded,
    ProducerConfig,
    ProducerFenced,
    UnknownOutcome,
)
from dledger_client._core.ids import named_producer_id
from dledger_proto.errors import Code, DledgerError
from tests.unit.client.fake_member import Directive, Does, FakeCluster
from tests.unit.client.helpers import eventually, run

FAST = ConnectionConfig(try_timeout_ms=150, connect_timeout_ms=500)
SMALL = ProducerConfig(connection=FAST, batch_records=3, linger_ms=0)


@pytest.mark.parametrize(
    "script",
    [
        [Code.NOT_LEADER],
        [Code.BUSY, Code.BUSY],
        [Code.NO_LEADER, Code.NOT_PROPOSED, Code.TOO_MANY_IN_FLIGHT],
        [Code.UNKNOWN_OUTCOME],
        [Does.STORE_THEN_BREAK],
        [Does.BREAK, Does.BREAK],
        [Does.STORE, Does.STORE_THEN_BREAK, Does.BREAK, Code.BUSY],
        [Does.HANG],
        [Does.STORE_THEN_HANG],
        [Does.STORE, Does.STORE_THEN_HANG, Code.UNKNOWN_OUTCOME, Does.BREAK],
        [Does.STORE_TWICE_ANSWERED, Code.BUSY, Does.STORE_TWICE_ANSWERED],
        [Does.ANSWER_ONE_BY_ONE, Code.SEQUENCE_GAP, Does.STORE],
        [Code.UNKNOWN_PRODUCER],
        [Code.STALE_LAYOUT, Code.WRONG_GROUP],
        [Code.SHUTTING_DOWN, Code.STORAGE_FAILED, Code.DISK_FULL, Code.NOT_FORMED],
    ],
    ids=str,
)
def test_order_and_once_under_every_script(script: list[Directive]) -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 2}) as cluster,
            AsyncProducer(cluster.bootstrap, SMALL) as producer,
        ):
            await producer.send("t", b"first", queue=0)
            for member in cluster.members.values():
                member.script.extend(script)
            done: Counter[int] = Counter()
            futures: list[AsyncSendFuture] = []
            for i in range(60):
                number = i

                def count(_future: AsyncSendFuture, number: int = number) -> None:
                    done[number] += 1

                futures.append(producer.submit("t", b"%d" % i, queue=0, on_done=count))
                if i % 7 == 0:
                    await asyncio.sleep(0)
            results = [await future for future in futures]
            assert cluster.log("t", 0) == [b"first", *(b"%d" % i for i in range(60))]
            for place, result in enumerate(results, 1):
                assert result.offset == place or (result.offset == -1 and result.duplicate)
            await eventually(lambda: len(done) == 60, "every callback")
            assert set(done.values()) == {1}

    run(body())


def test_a_leader_of_a_higher_term_takes_over_at_once() -> None:
    """The old leader stores and never answers; the try's deadline is far away (D10)."""

    async def body() -> None:
        patient = ProducerConfig(connection=ConnectionConfig(try_timeout_ms=20_000), linger_ms=0)
        async with (
            FakeCluster({"a": 3}) as cluster,
            AsyncProducer(cluster.bootstrap, patient) as producer,
        ):
            old = cluster.leader()
            await producer.send("t", b"0", queue=0)
            old.script.extend([Does.STORE_THEN_HANG])
            futures = [producer.submit("t", b"%d" % i, queue=0) for i in range(1, 20)]
            await eventually(lambda: not old.script, "the old leader took the frame")
            frames = old.frames
            cluster.elect("a2")
            results = [await future for future in futures]
            assert cluster.log("t", 0) == [b"%d" % i for i in range(20)]
            assert [result.offset for result in results] == list(range(1, 20))
            assert results[0].duplicate, "the old leader had stored it"
            assert old.frames == frames
            assert cluster.members["a2"].frames >= 1

    run(body())


def test_a_dead_leader_is_left_for_another_member() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 3}) as cluster,
            AsyncProducer(cluster.bootstrap, SMALL) as producer,
        ):
            await producer.send("t", b"0", queue=0)
            dead = cluster.leader()
            await dead.stop()
            futures = [producer.submit("t", b"%d" % i, queue=0) for i in range(1, 10)]
            cluster.elect("a1")
            for future in futures:
                await future
            assert cluster.log("t", 0) == [b"%d" % i for i in range(10)]

    run(body())


def test_hints_lead_to_the_leader_without_routes() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 3}) as cluster,
            AsyncProducer(cluster.bootstrap, SMALL) as producer,
        ):
            await producer.send("t", b"0", queue=0)
            old = cluster.leader()
            cluster.elect("a1", push=False)
            old.script.extend([Code.NOT_LEADER] * 50)
            await producer.send("t", b"1", queue=0)
            assert cluster.members["a1"].frames >= 1
            assert cluster.log("t", 0) == [b"0", b"1"]

    run(body())


def test_sends_wait_while_there_is_no_leader() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 2}) as cluster,
            AsyncProducer(cluster.bootstrap, SMALL) as producer,
        ):
            await producer.send("t", b"0", queue=0)
            for member in cluster.members.values():
                await member.stop()
            futures = [producer.submit("t", b"%d" % i, queue=0) for i in range(1, 30)]
            await asyncio.sleep(0.3)
            assert not any(future.done() for future in futures)
            for member in cluster.members.values():
                await member.start()
            for future in futures:
                await future
            assert cluster.log("t", 0) == [b"%d" % i for i in range(30)]

    run(body())


def test_out_of_time_is_definite_if_nothing_was_sent() -> None:
    async def body() -> None:
        config = ProducerConfig(connection=FAST, timeout_ms=200)
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap, config) as producer:
            await producer.send("t", b"0", timeout_ms=10_000)
            await cluster.leader().stop()
            await eventually(lambda: not producer.status().links, "the link is gone")
            with pytest.raises(NotStored) as raised:
                await producer.send("t", b"1")
            assert raised.value.definite
            assert raised.value.retriable

    run(body())


def test_out_of_time_is_unknown_if_a_try_was_not_answered() -> None:
    async def body() -> None:
        config = ProducerConfig(connection=FAST, timeout_ms=600)
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap, config) as producer:
            await producer.send("t", b"0", queue=0)
            cluster.leader().script.extend([Does.STORE_THEN_HANG, *[Does.HANG] * 20])
            with pytest.raises(UnknownOutcome, match=cluster.leader().address) as raised:
                await producer.send("t", b"1", queue=0)
            assert not raised.value.definite
            assert not raised.value.retriable, "another send is another message"
            cluster.leader().script.clear()
            # The queue goes on in a new epoch; what was given up is not sent again.
            assert (await producer.send("t", b"2", queue=0)).offset == 2
            assert cluster.log("t", 0) == [b"0", b"1", b"2"]
            assert producer.status().epochs == (("a", 2),)

    run(body())


def test_refusals_that_no_repeat_changes_are_raised_at_once() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap) as producer:
            await producer.send("t", b"0", queue=0)
            cluster.leader().script.append(Code.NO_PERMISSION)
            with pytest.raises(NoPermission) as raised:
                await producer.send("t", b"1", queue=0)
            assert raised.value.definite
            assert (await producer.send("t", b"2", queue=0)).offset == 1

    run(body())


def test_tries_are_counted() -> None:
    async def body() -> None:
        config = ProducerConfig(tries_max=3)
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap, config) as producer:
            leader = cluster.leader()
            leader.script.extend([Code.BUSY, Code.BUSY])
            await producer.send("t", b"third try", queue=0)
            leader.script.extend([Code.BUSY] * 3)
            with pytest.raises(NotStored, match=f"given up after 3 tries at {leader.address}"):
                await producer.send("t", b"x", queue=0)

    run(body())


def test_without_idempotence_unknown_is_not_repeated() -> None:
    async def body() -> None:
        config = ProducerConfig(idempotent=False, connection=FAST, linger_ms=0, batch_records=2)
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap, config) as producer:
            result = await producer.send("t", b"0", queue=0)
            assert result.message_id == b""
            cluster.leader().script.append(Code.BUSY)
            await producer.send("t", b"1", queue=0)
            cluster.leader().script.append(Does.STORE_THEN_BREAK)
            with pytest.raises(UnknownOutcome):
                await producer.send("t", b"2", queue=0)
            futures = [producer.submit("t", b"%d" % i, queue=0) for i in range(3, 30)]
            for future in futures:
                await future
            assert cluster.log("t", 0) == [b"%d" % i for i in range(30)]
            assert "RegisterProducer" not in cluster.leader().calls

    run(body())


def test_forgotten_with_an_unknown_try_stays_unknown() -> None:
    """D11: UNKNOWN_PRODUCER says that this try stored nothing, and nothing about earlier ones."""

    async def body() -> None:
        async with FakeCluster() as cluster, AsyncProducer(cluster.bootstrap, SMALL) as producer:
            await producer.send("t", b"0", queue=0)
            cluster.leader().script.extend([Does.STORE_THEN_BREAK, Code.UNKNOWN_PRODUCER])
            with pytest.raises(UnknownOutcome, match="does not remember this producer"):
                await producer.send("t", b"1", queue=0)
            assert (await producer.send("t", b"2", queue=0)).offset == 2
            assert cluster.log("t", 0) == [b"0", b"1", b"2"]

    run(body())


def test_a_named_producer_is_fenced_by_its_next_life() -> None:
    async def body() -> None:
        config = ProducerConfig(name="billing")
        async with (
            FakeCluster() as cluster,
            AsyncProducer(cluster.bootstrap, config) as old,
        ):
            first = await old.send("t", b"0", queue=0)
            assert first.message_id[:16] == named_producer_id("fake", "billing")
            async with AsyncProducer(cluster.bootstrap, config) as new:
                second = await new.send("t", b"1", queue=0)
                assert second.message_id[:16] == first.message_id[:16]
                assert second.message_id != first.message_id
                with pytest.raises(ProducerFenced):
                    await old.send("t", b"2", queue=0)
                with pytest.raises(ProducerFenced):
                    await old.send("t", b"3", queue=0)
                await new.send("t", b"4", queue=0)
            assert cluster.log("t", 0) == [b"0", b"1", b"4"]

    run(body())


def test_a_fenced_producer_that_begins_a_new_epoch_does_not_fence_its_next_life() -> None:
    """It gave up a message of unknown outcome, so it asks for the epoch above its own."""

    async def body() -> None:
        config = ProducerConfig(name="billing", connection=FAST)
        async with (
            FakeCluster() as cluster,
            AsyncProducer(cluster.bootstrap, config) as old,
            AsyncProducer(cluster.bootstrap, config) as new,
        ):
            await old.send("t", b"0", queue=0)
            for member in cluster.members.values():
                member.script.extend([Does.STORE_THEN_BREAK] * 100)
            with pytest.raises(UnknownOutcome):
                await old.send("t", b"1", queue=0, timeout_ms=200)
            for member in cluster.members.values():
                member.script.clear()
            await new.send("t", b"2", queue=0)
            with pytest.raises(ProducerFenced):
                await old.send("t", b"3", queue=0)
            await new.send("t", b"4", queue=0)
            assert cluster.log("t", 0) == [b"0", b"1", b"2", b"4"]

    run(body())


def test_registration_is_repeated() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 2}) as cluster,
            AsyncProducer(cluster.bootstrap, SMALL) as producer,
        ):
            for member in cluster.members.values():
                member.call_errors.extend(
                    [DledgerError(Code.NO_LEADER), DledgerError(Code.UNKNOWN_OUTCOME)]
                )
            await producer.send("t", b"0", queue=0)

    run(body())


def test_out_of_time_says_why_the_registration_waited() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 2}) as cluster,
            AsyncProducer(cluster.bootstrap, SMALL) as producer,
        ):
            for member in cluster.members.values():
                member.call_errors.extend([DledgerError(Code.DISK_FULL, "no room")] * 100)
            with pytest.raises(
                Overloaded, match=r"before the first try; last: DISK_FULL .*no room"
            ):
                await producer.send("t", b"0", queue=0, timeout_ms=300)

    run(body())
