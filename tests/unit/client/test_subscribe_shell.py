"""`AsyncConsumer.subscribe` and `AsyncPushConsumer` against a group in this process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from dledger_client import (
    AsyncConsumer,
    AsyncPushConsumer,
    ClientClosed,
    ConnectionConfig,
    ConsumedRecord,
    ConsumeOrder,
    ConsumerConfig,
    ConsumerConflict,
    ConsumerGroupNotFound,
    DeadLetter,
    Delivery,
    InvalidRequest,
    OffsetBehind,
    Place,
    PushConfig,
    PushConsumer,
    Retry,
    StartAt,
)
from dledger_proto.errors import Code, DledgerError
from tests.unit.client.fake_group import FakeGroup
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import eventually, run

FAST = ConnectionConfig(try_timeout_ms=300, connect_timeout_ms=500, call_timeout_ms=3_000)


def consumer_config(
    *, commit_ms: int = 20, order: ConsumeOrder = ConsumeOrder.CONCURRENT, create: bool = True
) -> ConsumerConfig:
    return ConsumerConfig(
        group="g", start_at=StartAt.FIRST, wait_ms=50, connection=FAST,
        commit_interval_ms=commit_ms, order=order, create_group=create,
    )  # fmt: skip


def push_config(
    *, order: ConsumeOrder = ConsumeOrder.CONCURRENT, batch_size: int = 1,
    listener_ms: int = 5_000, concurrency: int = 8,
) -> PushConfig:  # fmt: skip
    return PushConfig(
        consumer=consumer_config(order=order), batch_size=batch_size,
        listener_timeout_ms=listener_ms, concurrency=concurrency,
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
            assert not group.consumers
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
            assert not group.consumers

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
                await consumer.commit()
                assert group.floor("t", 0) == 10
                with pytest.raises(InvalidRequest, match="subscribed"):
                    await consumer.assign("t")

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


def test_a_consumer_that_its_group_refuses_says_why() -> None:
    async def body() -> None:
        async with fake() as (cluster, group):
            group.refuse = DledgerError(Code.SUBSCRIPTION_CONFLICT, "others read u")
            async with AsyncConsumer(cluster.bootstrap, consumer_config()) as consumer:
                await consumer.subscribe("t")
                with pytest.raises(ConsumerConflict, match="others read u"):
                    await consumer.poll(1, 5_000)
            group.exists = False
            async with AsyncConsumer(cluster.bootstrap, consumer_config(create=False)) as consumer:
                with pytest.raises(ConsumerGroupNotFound):
                    await consumer.subscribe("t")
                with pytest.raises(InvalidRequest, match="neither"):
                    await consumer.subscribe()

    run(body())


# Pushing.


def test_a_listener_gets_each_record_and_the_rest_is_done_by_itself() -> None:
    async def body() -> None:
        async with fake() as (cluster, group):
            await fill(cluster, 0, 0, 50)
            await fill(cluster, 1, 0, 50)
            seen: list[tuple[int, int]] = []

            async def listener(record: ConsumedRecord) -> None:
                await asyncio.sleep(0)
                seen.append((record.queue, record.offset))

            async with AsyncPushConsumer(
                cluster.bootstrap, "g", "t", listener, push_config()
            ) as consumer:
                await eventually(lambda: len(seen) == 100, "all records")
                await eventually(lambda: group.floor("t", 0) == 50, "commits")
                assert sorted(consumer.assignment()) == [("t", 0), ("t", 1)]
            assert sorted(seen) == [(queue, at) for queue in (0, 1) for at in range(50)]
            assert group.floor("t", 1) == 50

    run(body())


def test_a_failure_is_told_with_its_attempts_and_its_wish() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 6)

            async def listener(record: ConsumedRecord, delivery: Delivery) -> object:
                assert delivery.epoch > 0
                match record.offset:
                    case 2:
                        raise ValueError("no such customer")
                    case 3:
                        return Retry(delay_ms=500, error="later")
                    case 4:
                        return DeadLetter("never")
                    case _:
                        return None

            async with AsyncPushConsumer(cluster.bootstrap, "g", "t", listener, push_config()):
                await eventually(lambda: group.floor("t", 0) == 6, "all done")
            told = {row.offset: (row.attempts, row.delay_ms, row.error) for row in group.failures}
            assert told == {
                2: (0, -1, "ValueError: no such customer"), 3: (0, 500, "later"),
                4: (0, -2, "never"),
            }  # fmt: skip
            assert [each[2] for each in group.dead] == [4]

    run(body())


@pytest.mark.parametrize("order", [ConsumeOrder.QUEUE, ConsumeOrder.KEY])
def test_an_ordered_queue_waits_for_a_record_that_fails(order: ConsumeOrder) -> None:
    async def body() -> None:
        async with fake(order=order.value, lease_ms=2_000) as (cluster, group):
            await fill(cluster, 0, 0, 6)
            await fill(cluster, 1, 0, 6)
            seen: list[tuple[int, int, int]] = []
            inside: set[int] = set()

            async def listener(record: ConsumedRecord, delivery: Delivery) -> None:
                assert record.queue not in inside, "two callbacks of one queue at once"
                inside.add(record.queue)
                await asyncio.sleep(0)
                inside.remove(record.queue)
                seen.append((record.queue, record.offset, delivery.attempts))
                if (record.queue, record.offset) == (0, 2):
                    raise ValueError("poison")

            async with AsyncPushConsumer(
                cluster.bootstrap, "g", "t", listener, push_config(order=order)
            ):
                await eventually(lambda: group.floor("t", 0) == 6, "queue 0")
                await eventually(lambda: group.floor("t", 1) == 6, "queue 1")
            assert [each[1:] for each in seen if each[0] == 0] == [
                (0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3), (3, 0), (4, 0), (5, 0),
            ]  # fmt: skip
            assert [each[2] for each in group.dead] == [2]

    run(body())


def test_a_poison_record_fails_alone() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 10)
            calls: list[list[int]] = []

            def listener(records: list[ConsumedRecord]) -> None:
                calls.append([record.offset for record in records])
                if any(record.offset == 3 for record in records):
                    raise ValueError("poison")

            async with AsyncPushConsumer(
                cluster.bootstrap, "g", "t", listener, push_config(batch_size=5)
            ):
                await eventually(lambda: group.floor("t", 0) == 10, "all done")
            assert [row.offset for row in group.failures] == [3]
            assert [3] in calls

    run(body())


def test_a_listener_that_hangs_has_failed() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 4)
            cancelled: list[int] = []

            async def listener(record: ConsumedRecord) -> None:
                if record.offset == 1:
                    try:
                        await asyncio.Event().wait()
                    finally:
                        cancelled.append(record.offset)

            async with AsyncPushConsumer(
                cluster.bootstrap, "g", "t", listener, push_config(listener_ms=50, concurrency=1)
            ):
                await eventually(lambda: group.floor("t", 0) == 4, "the others")
            assert cancelled == [1]
            assert [(row.offset, row.attempts) for row in group.failures] == [(1, 0)]

    run(body())


def test_closing_finishes_what_is_in_hand() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 4)
            begun, may_end = asyncio.Event(), asyncio.Event()

            async def listener(_record: ConsumedRecord) -> None:
                begun.set()
                await may_end.wait()

            consumer = AsyncPushConsumer(
                cluster.bootstrap, "g", "t", listener, push_config(concurrency=2)
            )
            await consumer.start()
            await begun.wait()
            closing = asyncio.create_task(consumer.close())
            await eventually(lambda: not consumer.assignment(), "revoked")
            assert not closing.done()
            may_end.set()
            await closing
            assert group.floor("t", 0) == 2
            assert not group.consumers

    run(body())


def test_the_blocking_twin_calls_a_function_in_threads() -> None:
    async def body() -> None:
        async with fake() as (cluster, group):
            await fill(cluster, 0, 0, 20)
            seen: list[int] = []

            def work() -> None:
                with PushConsumer(
                    cluster.bootstrap, "g", "t", lambda record: seen.append(record.offset),
                    push_config(),
                ):  # fmt: skip
                    asyncio.run(eventually(lambda: len(seen) == 20, "all records"))

            await asyncio.to_thread(work)
            assert sorted(seen) == list(range(20))
            assert group.floor("t", 0) == 20

    run(body())


@pytest.mark.parametrize("error", [SystemExit, StopIteration, KeyboardInterrupt])
def test_nothing_that_a_function_raises_ends_the_loop(error: type[BaseException]) -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 2)

            def listener(_record: ConsumedRecord) -> None:
                raise error

            async with AsyncPushConsumer(cluster.bootstrap, "g", "t", listener, push_config()):
                await eventually(lambda: group.floor("t", 0) == 2, "all done")
            assert {row.error for row in group.failures} == {
                f"RuntimeError: the listener raised {error.__name__}"
            }

    run(body())


def test_a_consumer_that_cannot_begin_leaves_nothing_open() -> None:
    async def body() -> None:
        async with fake() as (cluster, group):
            group.exists = False
            config = PushConfig(consumer=consumer_config(create=False))
            consumer = AsyncPushConsumer(cluster.bootstrap, "g", "t", print, config)
            with pytest.raises(ConsumerGroupNotFound):
                await consumer.start()
            with pytest.raises(ClientClosed):
                await consumer.start()
            group.refuse = DledgerError(Code.ORDER_CONFLICT, "the group is ordered")
            async with AsyncPushConsumer(
                cluster.bootstrap, "g", "t", print, push_config()
            ) as refused:
                with pytest.raises(ConsumerConflict, match="ordered"):
                    await refused.run()

    run(body())


# Without a group.


def test_a_broadcast_gets_everything_and_goes_on_at_its_file(tmp_path: Path) -> None:
    async def body() -> None:
        async with fake() as (cluster, group):
            await fill(cluster, 0, 0, 5)
            file = tmp_path / "offsets.json"
            seen: list[list[tuple[int, int]]] = [[], [], []]

            def config(path: str) -> PushConfig:
                return PushConfig(consumer=consumer_config(), broadcast=True, offsets_file=path)

            async def listen(number: int, record: ConsumedRecord) -> None:
                seen[number].append((record.queue, record.offset))
                if record.offset == 2:
                    raise ValueError("never again")

            async with (
                AsyncPushConsumer(
                    cluster.bootstrap, "g", "t", partial(listen, 0), config(str(file))
                ),
                AsyncPushConsumer(cluster.bootstrap, "g", "t", partial(listen, 1), config("")),
            ):
                await eventually(lambda: len(seen[0]) == len(seen[1]) == 5, "both got all")
                cluster.topics["t"] = [("a", 3)]
                cluster.push_routes()
                await fill(cluster, 2, 0, 2)
                await eventually(lambda: len(seen[0]) == 7, "the queue that was added")
            assert not group.consumers
            assert not group.failures
            await fill(cluster, 0, 5, 6)
            async with AsyncPushConsumer(
                cluster.bootstrap, "g", "t", partial(listen, 2), config(str(file))
            ):
                await eventually(lambda: seen[2], "it goes on")
            assert seen[2] == [(0, 5)]
            file.write_text("[]")
            broken = AsyncPushConsumer(
                cluster.bootstrap, "g", "t", partial(listen, 2), config(str(file))
            )
            with pytest.raises(InvalidRequest, match="offsets_file"):
                await broken.start()
            await broken.close()

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
