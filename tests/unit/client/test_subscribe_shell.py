"""`AsyncConsumer.subscribe` against a group in this process."""

import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import pytest

from dledger_client import (
    AsyncConsumer,
    ConnectionConfig,
    ConsumedRecord,
    ConsumeOrder,
    ConsumerConfig,
    ConsumerConflict,
    ConsumerFenced,
    ConsumerGroupNotFound,
    InvalidRequest,
    OffsetBehind,
    OffsetOutOfRange,
    OffsetWasReset,
    Place,
    StartAt,
)
from dledger_proto.errors import Code, DledgerError
from tests.unit.client.fake_group import FakeGroup
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import eventually, run
from tests.unit.client.model_cluster import topic_id

FAST = ConnectionConfig(try_timeout_ms=300, connect_timeout_ms=500, call_timeout_ms=3_000)


def consumer_config(
    *, commit_ms: int = 20, order: ConsumeOrder = ConsumeOrder.CONCURRENT, create: bool = True
) -> ConsumerConfig:
    return ConsumerConfig(
        group="g", start_at=StartAt.FIRST, wait_ms=50, connection=FAST,
        commit_interval_ms=commit_ms, order=order, create_group=create,
    )  # fmt: skip


@contextlib.asynccontextmanager
async def fake(
    *, order: int = 0, lease_ms: int = 0, queues: int = 2
) -> AsyncIterator[tuple[FakeCluster, FakeGroup]]:
    cluster = FakeCluster(topics={"t": [("a", queues)]})
    group = FakeGroup(cluster, order=order, lease_ms=lease_ms)
    async with cluster:
        yield cluster, group


async def fill(cluster: FakeCluster, queue: int, first: int, last: int) -> None:
    await cluster.store("t", queue, [b"%d" % i for i in range(first, last)])


async def read(consumer: AsyncConsumer, count: int) -> list[ConsumedRecord]:
    records: list[ConsumedRecord] = []
    while len(records) < count:
        records += await consumer.poll(count - len(records), 5_000)
    return records


def places(records: Sequence[ConsumedRecord]) -> list[tuple[int, int]]:
    return sorted((record.queue, record.offset) for record in records)


# Polling.


def test_a_subscriber_reads_all_and_commits_by_itself() -> None:
    async def body() -> None:
        async with fake() as (cluster, group):
            await fill(cluster, 0, 0, 10)
            await fill(cluster, 1, 0, 5)
            told: list[tuple[str, list[Place]]] = []
            async with AsyncConsumer(cluster.bootstrap, consumer_config()) as consumer:
                await consumer.subscribe(
                    "t", on_assigned=lambda places: told.append(("assigned", places))
                )
                assert len(await read(consumer, 15)) == 15
                assert [kind for kind, _ in told] == ["assigned"] * len(told)
                assert sorted(place for _, each in told for place in each) == [("t", 0), ("t", 1)]
                assert group.floor("t", 0) == 0, "what the user still has is not committed"
                assert await consumer.poll(1, 0) == []
                await eventually(lambda: group.floor("t", 0) == 10, "commit of queue 0")
                await fill(cluster, 1, 5, 7)
                await read(consumer, 2)
            assert group.floor("t", 1) == 7, "close commits"
            await eventually(lambda: not group.consumers, "left")
            assert group.events[-1].startswith("leave")

    run(body())


def test_a_revoked_queue_is_committed_before_it_is_given_back() -> None:
    async def body() -> None:
        async with fake() as (cluster, group):
            await fill(cluster, 0, 0, 10)
            await fill(cluster, 1, 0, 10)
            revoked: list[Place] = []
            config = consumer_config(commit_ms=3_600_000)
            async with (
                AsyncConsumer(cluster.bootstrap, config) as one,
                AsyncConsumer(cluster.bootstrap, config) as two,
            ):
                await one.subscribe("t", on_revoked=revoked.extend)
                await read(one, 20)
                await two.subscribe("t")
                await eventually(lambda: len(group.consumers) == 2, "two consumers")
                assert await two.poll(10, 100) == [], "records are in the hands of the first"
                assert not [event for event in group.events if event.startswith("back")]
                assert await one.poll(1, 200) == []
                await eventually(
                    lambda: any(event.startswith("back") for event in group.events), "given back"
                )
                assert revoked == [("t", 1)]
                assert [e for e in group.events if e.startswith(("release", "back"))] == [
                    "release t/1 floor=10", "back t/1 floor=10",
                ]  # fmt: skip
                await fill(cluster, 1, 10, 12)
                assert places(await read(two, 2)) == [(1, 10), (1, 11)]

    run(body())


def test_a_queue_that_comes_and_goes_between_two_polls_is_not_told_of() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            told: list[str] = []
            async with AsyncConsumer(cluster.bootstrap, consumer_config()) as consumer:
                await consumer.subscribe(
                    "t",
                    on_assigned=lambda _: told.append("assigned"),
                    on_revoked=lambda _: told.append("revoked"),
                )
                await eventually(lambda: consumer.assignment() == [("t", 0)], "it is given")
                row = group.queues[topic_id("t"), 0]
                row.target = "other"
                group.tell(next(iter(group.consumers)))
                await eventually(lambda: "back t/0 floor=0" in group.events, "it is given back")
                row.holder = row.target = "other"
                group.tell(next(iter(group.consumers)))
                await eventually(lambda: consumer.assignment() == [], "it is lost")
                assert await consumer.poll(1, 0) == []
                assert told == []

    run(body())


def test_a_queue_is_given_back_though_on_revoked_raises() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 4)

            def fail(_: list[Place]) -> None:
                raise ZeroDivisionError

            async with AsyncConsumer(cluster.bootstrap, consumer_config()) as consumer:
                await consumer.subscribe("t", on_revoked=fail)
                await read(consumer, 4)
                group.queues[topic_id("t"), 0].target = "other"
                group.tell(next(iter(group.consumers)))
                await eventually(lambda: consumer.assignment() == [], "it is asked back")
                with pytest.raises(ZeroDivisionError):
                    await consumer.poll(1, 0)
                await eventually(lambda: "back t/0 floor=4" in group.events, "it is given back")

    run(body())


def test_what_fails_in_the_users_hands_is_not_committed() -> None:
    async def body() -> None:
        async with fake() as (cluster, group):
            await fill(cluster, 0, 0, 4)

            async def fail() -> None:
                async with AsyncConsumer(cluster.bootstrap, consumer_config()) as consumer:
                    await consumer.subscribe("t")
                    await read(consumer, 4)
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail()
            assert group.floor("t", 0) == 0
            await eventually(lambda: not group.consumers, "left")

    run(body())


def test_a_poll_that_is_interrupted_hands_out_nothing() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 4)
            async with AsyncConsumer(cluster.bootstrap, consumer_config()) as consumer:
                await consumer.subscribe("t")
                run_it = consumer._runner.run

                async def interrupted(work: Coroutine[object, object, Any]) -> Any:
                    found = await run_it(work)
                    if found:
                        consumer._runner.run = run_it  # type: ignore[method-assign]
                        raise KeyboardInterrupt
                    return found

                consumer._runner.run = interrupted  # type: ignore[method-assign]
                with contextlib.suppress(KeyboardInterrupt):
                    await read(consumer, 4)
                assert consumer.position("t", 0) == 0
                assert [each.offset for each in await read(consumer, 2)] == [0, 1]
            assert group.floor("t", 0) == 2

    run(body())


def test_commits_by_hand_and_what_they_refuse() -> None:
    async def body() -> None:
        async with fake() as (cluster, group):
            await fill(cluster, 0, 0, 10)
            async with AsyncConsumer(cluster.bootstrap, consumer_config(commit_ms=0)) as consumer:
                await consumer.subscribe(["t"])
                await read(consumer, 10)
                await consumer.poll(1, 0)
                assert group.floor("t", 0) == 0
                await consumer.commit({("t", 0): 4})
                assert group.floor("t", 0) == 4
                with pytest.raises(OffsetBehind):
                    await consumer.commit({("t", 0): 3})
                with pytest.raises(OffsetOutOfRange, match="offset 11, the queue ends at 10"):
                    await consumer.commit({("t", 0): 11})
                assert ("t", 0) in consumer.assignment()
                await consumer.commit()
                assert group.floor("t", 0) == 10
                with pytest.raises(InvalidRequest, match="subscribed"):
                    await consumer.assign("t")

    run(body())


def test_a_commit_over_a_reset_is_refused_until_the_next_poll() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 10)
            async with AsyncConsumer(cluster.bootstrap, consumer_config(commit_ms=0)) as consumer:
                await consumer.subscribe("t")
                await read(consumer, 10)
                group.reset("t", 0, 2)
                await eventually(lambda: group.events.count("claim t/0") >= 2, "heard of it")
                for offsets in (None, {("t", 0): 10}):
                    with pytest.raises(OffsetWasReset):
                        await consumer.commit(offsets)
                assert group.floor("t", 0) == 2
                assert [each.offset for each in await read(consumer, 8)] == list(range(2, 10))
                await consumer.commit()
                assert group.floor("t", 0) == 10

    run(body())


def test_a_commit_names_a_queue_that_was_lost_and_stores_the_others() -> None:
    async def body() -> None:
        async with fake() as (cluster, group):
            await fill(cluster, 0, 0, 4)
            await fill(cluster, 1, 0, 4)
            async with AsyncConsumer(cluster.bootstrap, consumer_config(commit_ms=0)) as consumer:
                await consumer.subscribe("t")
                await read(consumer, 8)
                row = group.queues[topic_id("t"), 1]
                row.holder, row.target = "other", "other"
                group.tell(next(iter(group.consumers)))
                await eventually(lambda: consumer.assignment() == [("t", 0)], "it is lost")
                with pytest.raises(ConsumerFenced, match="t/1"):
                    await consumer.commit()
                assert (group.floor("t", 0), group.floor("t", 1)) == (4, 0)
                assert await consumer.poll(1, 0) == []
                await consumer.commit()

    run(body())


def test_done_ranges_are_not_delivered_again_and_resets_start_anew() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 10)
            async with AsyncConsumer(cluster.bootstrap, consumer_config()) as consumer:
                await consumer.subscribe("t")
                await read(consumer, 10)
                await consumer.poll(1, 0)
                await eventually(lambda: group.floor("t", 0) == 10, "commit")
                group.reset("t", 0, 2)
                row = next(iter(group.queues.values()))
                row.done = [(4, 6), (8, 10)]
                assert [each.offset for each in await read(consumer, 4)] == [2, 3, 6, 7]

    run(body())


def test_a_commit_of_all_positions_counts_what_was_done_before_by_others() -> None:
    """A consumer before did record 3 out of turn; a commit of record 2 then covers both."""

    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 4)
            async with AsyncConsumer(cluster.bootstrap, consumer_config(commit_ms=0)) as consumer:
                await consumer.subscribe("t")
                await read(consumer, 4)
                await consumer.commit()
                group.reset("t", 0, 2)
                row = next(iter(group.queues.values()))
                row.done = [(3, 4)]
                assert places(await read(consumer, 1)) == [(0, 2)]
                await consumer.commit()
                await eventually(lambda: group.floor("t", 0) == 4, "both are done")
                await consumer.commit()
                assert group.floor("t", 0) == 4

    run(body())


def test_a_session_that_breaks_keeps_what_the_consumer_holds() -> None:
    async def body() -> None:
        async with fake() as (cluster, group):
            await fill(cluster, 0, 0, 5)
            async with AsyncConsumer(cluster.bootstrap, consumer_config()) as consumer:
                await consumer.subscribe("t")
                await read(consumer, 5)
                claims = len([event for event in group.events if event.startswith("claim")])
                group.drop_streams()
                await eventually(
                    lambda: any(event.endswith("again") for event in group.events), "joined again"
                )
                await fill(cluster, 0, 5, 8)
                assert places(await read(consumer, 3)) == [(0, 5), (0, 6), (0, 7)]
                assert claims == len([e for e in group.events if e.startswith("claim")])

    run(body())


def test_a_consumer_that_its_group_refuses_says_why_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        async with fake() as (cluster, group):
            group.refuse = DledgerError(Code.SUBSCRIPTION_CONFLICT, "others read u")
            async with AsyncConsumer(cluster.bootstrap, consumer_config()) as consumer:
                await consumer.subscribe("t")
                with pytest.raises(ConsumerConflict, match="others read u"):
                    await consumer.poll(1, 5_000)
                assert "others read u" not in caplog.text, "poll has raised it"
            group.exists = False
            async with AsyncConsumer(cluster.bootstrap, consumer_config(create=False)) as consumer:
                with pytest.raises(ConsumerGroupNotFound):
                    await consumer.subscribe("t")
                with pytest.raises(InvalidRequest, match="neither"):
                    await consumer.subscribe()

    run(body())


def test_queues_that_are_added_are_read_too() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, _group):
            await fill(cluster, 0, 0, 3)
            async with AsyncConsumer(cluster.bootstrap, consumer_config()) as consumer:
                await consumer.assign("t", StartAt.FIRST)
                await read(consumer, 3)
                cluster.topics["t"] = [("a", 3)]
                cluster.push_routes()
                await fill(cluster, 2, 0, 2)
                assert places(await read(consumer, 2)) == [(2, 0), (2, 1)]
                await consumer.assign([("t", 0)], StartAt.FIRST)
                cluster.topics["t"] = [("a", 4)]
                cluster.push_routes()
                await read(consumer, 3)
                assert consumer.assignment() == [("t", 0)], "one queue was asked for"

    run(body())
