"""What clients of one event loop share, and what one of them never does to another (S153)."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import NoReturn
from unittest.mock import patch

import pytest

from dledger_client import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ClientClosed,
    ConnectionConfig,
    Consumer,
    ConsumerConfig,
    Producer,
    ProducerConfig,
    StartAt,
)
from dledger_client._core.routes import RouteChange
from dledger_client._shell.sharing import connections
from dledger_proto.errors import Code, DledgerError
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import eventually, run
from tests.unit.client.test_sync import ThreadedCluster

FAST = ConnectionConfig(try_timeout_ms=300, connect_timeout_ms=500, call_timeout_ms=3_000)
READING = ConsumerConfig(start_at=StartAt.FIRST, wait_ms=50, connection=FAST)
SENDING = ProducerConfig(connection=FAST)


@pytest.fixture
def threaded() -> Iterator[ThreadedCluster]:
    cluster = ThreadedCluster({"a": 2})
    yield cluster
    cluster.close()


def connections_of(cluster: FakeCluster) -> list[int]:
    """Return how many connections each member was asked on."""
    return [len(member.peers) for member in cluster.members.values()]


async def read(consumer: AsyncConsumer, *bodies: bytes) -> None:
    found: list[bytes] = []
    while len(found) < len(bodies):
        found += [record.body for record in await consumer.poll(10, 5_000)]
    assert found == list(bodies)


async def in_use(stack: AsyncExitStack, cluster: FakeCluster) -> tuple[AsyncProducer, ...]:
    """Return a producer that has sent, of the default configuration."""
    producer = await stack.enter_async_context(AsyncProducer(cluster.bootstrap, SENDING))
    await producer.send("t", b"0", queue=0)
    return (producer,)


def test_clients_share_one_connection_per_member_and_one_watch() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 3}) as cluster,
            AsyncProducer(cluster.bootstrap, SENDING) as producer,
            AsyncConsumer(cluster.bootstrap[::-1], READING) as first,
            AsyncConsumer([*cluster.bootstrap, cluster.bootstrap[0]], READING) as second,
            AsyncAdmin(cluster.bootstrap, FAST) as admin,
        ):
            for consumer in (first, second):
                await consumer.assign({("t", 0): None})
            await producer.send("t", b"0", queue=0)
            for consumer in (first, second):
                await read(consumer, b"0")
            assert len(await admin.statuses()) == 3
            assert connections_of(cluster) == [1, 1, 1]
            assert len(cluster.watchers) == 1

    run(body())


def test_a_client_that_comes_later_knows_the_routes_without_asking() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 3}) as cluster,
            AsyncAdmin(cluster.bootstrap, FAST) as first,
        ):
            [before] = await first.groups()
            with patch.object(cluster, "routes", side_effect=AssertionError("asked")):
                async with AsyncAdmin(cluster.bootstrap, FAST) as second:
                    assert await second.groups() == [before]
            assert len(cluster.watchers) == 1

    run(body())


def test_the_end_of_one_client_leaves_the_others() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 3}) as cluster,
            AsyncProducer(cluster.bootstrap, SENDING) as producer,
            AsyncConsumer(cluster.bootstrap, READING) as stays,
        ):
            goes = await AsyncConsumer(cluster.bootstrap, READING).start()
            for consumer in (goes, stays):
                await consumer.assign({("t", 0): None})
            await producer.send("t", b"0", queue=0)
            for consumer in (goes, stays):
                await read(consumer, b"0")
            await goes.close()
            with pytest.raises(ClientClosed, match="is closed"):
                await goes.poll(1, 0)
            with pytest.raises(ClientClosed, match="is closed"):
                await goes.assign("t")
            cluster.elect("a2")  # and those who stay hear of it
            await producer.send("t", b"1", queue=0)
            await read(stays, b"1")
            engine = weakref.ref(goes._engine)
            del goes, consumer
            gc.collect()
            assert engine() is None, "nothing that is shared knows it any more"
            assert max(connections_of(cluster)) == 1

    run(body())


@pytest.mark.parametrize(
    "other",
    [ConnectionConfig(), ConnectionConfig(try_timeout_ms=301), ConnectionConfig(inside=True)],
)
def test_other_settings_have_other_connections(other: ConnectionConfig) -> None:
    async def body() -> None:
        async with (
            FakeCluster() as cluster,
            AsyncAdmin(cluster.bootstrap, FAST) as first,
            AsyncAdmin(cluster.bootstrap, other) as second,
        ):
            for admin in (first, second):
                await admin.statuses()
            assert connections_of(cluster) == [2]
            assert len(cluster.watchers) == 2

    run(body())


def test_other_addresses_have_other_connections() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 2}) as cluster,
            AsyncAdmin(cluster.bootstrap, FAST) as first,
            AsyncAdmin(cluster.bootstrap[0], FAST) as second,
        ):
            for admin in (first, second):
                await admin.statuses()
            assert connections_of(cluster) == [2, 2]

    run(body())


def test_loops_have_connections_of_their_own(threaded: ThreadedCluster) -> None:
    """The blocking clients have one loop together, whatever thread uses them."""
    cluster = threaded.cluster

    async def look() -> None:
        async with AsyncAdmin(cluster.bootstrap) as admin:
            await admin.statuses()

    with (
        Producer(cluster.bootstrap) as producer,
        Consumer(cluster.bootstrap, ConsumerConfig(start_at=StartAt.FIRST)) as consumer,
    ):
        with Admin(cluster.bootstrap) as admin:
            admin.statuses()
        consumer.assign("t")
        producer.send("t", b"0")
        assert [record.body for record in consumer.poll(10, 5_000)] == [b"0"]
        assert connections_of(cluster) == [1, 1]
        for _ in range(2):
            asyncio.run(look())
        assert connections_of(cluster) == [3, 3]
        producer.send("t", b"1")


def test_the_last_end_closes_and_the_next_start_connects_anew() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            for times in (1, 2, 3):
                async with (
                    AsyncAdmin(cluster.bootstrap, FAST) as first,
                    AsyncAdmin(cluster.bootstrap, FAST) as second,
                ):
                    for admin in (first, second):
                        await admin.statuses()
                    assert connections_of(cluster) == [times]
                await eventually(lambda: not cluster.watchers, "the watch ended")

    run(body())


def test_a_client_that_starts_while_the_last_one_ends_connects_anew() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster:
            last = await AsyncAdmin(cluster.bootstrap, FAST).start()
            await last.statuses()
            ending = asyncio.create_task(last.close())
            await asyncio.sleep(0)
            async with AsyncAdmin(cluster.bootstrap, FAST) as new:
                await new.statuses()
                assert not ending.done() or ending.exception() is None
                await ending
                await new.statuses()
            assert connections_of(cluster) == [2]

    run(body())


def test_clients_that_start_and_end_at_once_disturb_nobody() -> None:
    async def body() -> None:
        async with FakeCluster({"a": 2}) as cluster:

            async def live(turns: int) -> None:
                for turn in range(20):
                    async with AsyncAdmin(cluster.bootstrap, FAST) as admin:
                        for _ in range((turn + turns) % 4):
                            await asyncio.sleep(0)
                        if turn % 3 == turns % 3:
                            assert len(await admin.statuses()) == 2

            await asyncio.gather(*map(live, range(6)))
            await eventually(lambda: not cluster.watchers, "the watch ended")

    run(body())


def test_a_client_closed_before_it_was_told_anything_leaves_nothing() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap, FAST) as stays:
            await stays.statuses()
            short = await AsyncAdmin(cluster.bootstrap, FAST).start()
            await short.close()
            await short.close()
            with pytest.raises(ClientClosed):
                await short.statuses()
            assert len(await stays.statuses()) == 1

    run(body())


def test_a_client_whose_code_fails_hides_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: RouteChange) -> NoReturn:
        raise ZeroDivisionError

    async def body() -> None:
        async with (
            FakeCluster({"a": 2}) as cluster,
            AsyncAdmin(cluster.bootstrap, FAST) as broken,
            AsyncAdmin(cluster.bootstrap, FAST) as sound,
        ):
            for admin in (broken, sound):
                await admin.groups()
            broken._cluster.listen(fail)
            for member in ("a1", "a0"):
                cluster.elect(member)
                await eventually(lambda: _leader(sound) == member, f"{member} leads")  # noqa: B023
            assert caplog.text.count("raise ZeroDivisionError") == 2

    run(body())


def _leader(admin: AsyncAdmin) -> str:
    route = admin._cluster.routes.group("a")
    return "" if route is None else route.leader


def _term(admin: AsyncAdmin) -> int:
    route = admin._cluster.routes.group("a")
    return 0 if route is None else route.term


def test_what_one_client_drops_or_avoids_the_others_keep() -> None:
    async def body() -> None:
        async with (
            FakeCluster() as cluster,
            AsyncAdmin(cluster.bootstrap, FAST) as first,
            AsyncAdmin(cluster.bootstrap, FAST) as second,
        ):
            for admin in (first, second):
                await admin.groups()
            one, other = first._cluster, second._cluster
            one.routes.drop_topic("t", RouteChange())
            one.members.failed(cluster.bootstrap[0], one._now())
            assert other.routes.topic("t") is not None
            assert not other.members.is_avoided(cluster.bootstrap[0], one._now())
            one.refresh()
            await eventually(lambda: one.routes.topic("t"), "a refresh brings it back")

    run(body())


def test_a_refresh_of_one_client_tells_all() -> None:
    async def body() -> None:
        async with (
            FakeCluster({"a": 2}) as cluster,
            AsyncAdmin(cluster.bootstrap, FAST) as first,
            AsyncAdmin(cluster.bootstrap, FAST) as second,
        ):
            for admin in (first, second):
                await admin.groups()
            cluster.elect("a1", push=False)
            await first._cluster.refreshed()
            assert _leader(first) == _leader(second) == "a1"

    run(body())


def test_a_client_that_comes_while_nobody_answers_waits_for_routes() -> None:
    """It does not begin with what was true before."""

    async def body() -> None:
        async with (
            FakeCluster() as cluster,
            AsyncAdmin(cluster.bootstrap, FAST) as first,
        ):
            await first.groups()
            await cluster.leader().stop()
            await eventually(lambda: not _is_followed(first), "the watch broke")
            async with AsyncAdmin(cluster.bootstrap, FAST) as second:
                waiting = asyncio.create_task(second.groups())
                await eventually(lambda: len(_shared(first)._told()) == 2, "it shares")
                assert not waiting.done()
                await cluster.leader().start()
                assert [group.name for group in await waiting] == ["a"]

    run(body())


def _shared(admin: AsyncAdmin) -> connections.SharedConnections:
    shared = admin._cluster._shared
    assert shared is not None
    return shared


def _is_followed(admin: AsyncAdmin) -> bool:
    return _shared(admin)._is_followed


def test_a_new_client_belongs_to_the_cluster_that_is_there_now(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap, FAST) as old:
            cluster.elect("a0")
            await eventually(lambda: _term(old) == 2, "the term of the old cluster")
            await cluster.leader().stop()
            cluster.name, cluster.groups["a"].term = "new", 1
            await cluster.leader().start()
            await eventually(lambda: "ignored routes of cluster new" in caplog.text, "it is told")
            async with AsyncAdmin(cluster.bootstrap, FAST) as new:
                await new.groups()
                assert new._cluster.routes.cluster == "new"
                assert _term(new) == 1, "nothing of the old cluster counts"
            assert old._cluster.routes.cluster == "fake"

    run(body())


def test_a_call_of_a_closed_client_ends_and_that_of_another_goes_on() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap, FAST) as stays:
            goes = await AsyncAdmin(cluster.bootstrap, FAST).start()
            for admin in (stays, goes):
                await admin.groups()
            member = cluster.leader()
            member.held["Status"] = asyncio.Event()
            calls = [asyncio.create_task(admin.status(member.address)) for admin in (stays, goes)]
            await eventually(lambda: member.calls.count("Status") == 2, "both are on their way")
            await goes.close()
            with pytest.raises(ClientClosed, match="closed during the call"):
                await calls[1]
            member.held["Status"].set()
            assert (await calls[0]).member == "a0"

    run(body())


def test_the_task_of_a_call_can_still_be_cancelled() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap, FAST) as admin:
            member = cluster.leader()
            member.held["Status"] = asyncio.Event()
            call = asyncio.create_task(admin.status(member.address))
            await eventually(lambda: member.calls, "it is on its way")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    run(body())


def test_a_refusal_of_one_client_is_nothing_to_another() -> None:
    async def body() -> None:
        async with (
            FakeCluster() as cluster,
            AsyncAdmin(cluster.bootstrap, FAST) as first,
            AsyncAdmin(cluster.bootstrap, FAST) as second,
        ):
            cluster.leader().call_errors.append(DledgerError(Code.NOT_FORMED, "scripted"))
            with pytest.raises(DledgerError, match="scripted"):
                await first.status(cluster.bootstrap[0])
            await second.status(cluster.bootstrap[0])

    run(body())


def test_many_clients_have_several_connections() -> None:
    """A member takes so many streams on one connection and no more."""

    async def body() -> None:
        async with FakeCluster() as cluster, AsyncExitStack() as stack:
            for _ in range(5):
                admin = await stack.enter_async_context(AsyncAdmin(cluster.bootstrap, FAST))
                await admin.statuses()
            assert connections_of(cluster) == [3]

    with patch.object(connections, "SHARERS_MAX", 2):
        run(body())


def test_nothing_remains_of_loops_that_ended() -> None:
    """Also where nobody has closed the clients."""
    shared: list[weakref.ref[connections.SharedConnections]] = []

    async def body(*, close: bool) -> None:
        async with FakeCluster() as cluster:
            admin = await AsyncAdmin(cluster.bootstrap, FAST).start()
            await admin.statuses()
            shared.append(weakref.ref(_shared(admin)))
            if close:
                await admin.close()

    for close in (True, False, True):
        run(body(close=close))
    gc.collect()
    assert [each() for each in shared] == [None] * 3
    assert not any(len(all_shared) for all_shared in connections._of_loops.values())


def test_a_reader_that_stands_still_holds_nobody_up() -> None:
    """More lies on the connection for it than any window of the connection has room for."""

    async def body() -> None:
        size, count = 1 << 20, 48
        slow = ConsumerConfig(
            start_at=StartAt.FIRST, wait_ms=50, connection=FAST, buffer_bytes=1 << 20
        )
        async with (
            FakeCluster() as cluster,
            AsyncConsumer(cluster.bootstrap, slow) as still,
            AsyncConsumer(cluster.bootstrap, READING) as reads,
            AsyncProducer(cluster.bootstrap, SENDING) as producer,
        ):
            for _ in range(count):
                await cluster.store("t", 0, [b"x" * size])
            await still.assign({("t", 0): None})
            buffer = still._engine.core.buffer
            await eventually(lambda: buffer.has_news, "it has records, and takes no more")
            await reads.assign({("t", 0): None})
            found = 0
            while found < count:
                found += len(await reads.poll(10, 5_000))
            assert (await producer.send("t", b"1", queue=0)).offset == count
            assert connections_of(cluster) == [1]

    run(body())
