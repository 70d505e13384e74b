"""`AsyncPushConsumer` against a group in this process."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from dledger_client import (
    AsyncPushConsumer,
    ClientClosed,
    ConsumedRecord,
    ConsumeOrder,
    ConsumerConflict,
    ConsumerGroupNotFound,
    DeadLetter,
    Delivery,
    InvalidRequest,
    PushConfig,
    PushConsumer,
    Retry,
)
from dledger_client._shell.group.calling import Caller, results_of
from dledger_client.errors import error_of
from dledger_proto.errors import Code, DledgerError
from tests.scenarios.test_dispatch import run_of as batch_of
from tests.unit.client.helpers import eventually, run
from tests.unit.client.test_subscribe_shell import consumer_config, fake, fill


def push_config(
    *, order: ConsumeOrder = ConsumeOrder.CONCURRENT, batch_size: int = 1,
    listener_ms: int = 5_000, concurrency: int = 8,
) -> PushConfig:  # fmt: skip
    return PushConfig(
        consumer=consumer_config(order=order), batch_size=batch_size,
        listener_timeout_ms=listener_ms, concurrency=concurrency,
    )  # fmt: skip


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


def test_a_topic_that_is_deleted_ends_nothing_but_its_queues() -> None:
    async def body() -> None:
        async with fake() as (cluster, _group):
            seen: list[tuple[int, int]] = []

            async def listener(record: ConsumedRecord) -> None:
                seen.append((record.queue, record.offset))

            async with AsyncPushConsumer(
                cluster.bootstrap, "g", "t", listener, push_config()
            ) as consumer:
                await eventually(lambda: len(consumer.assignment()) == 2, "all queues")
                fetching = consumer._engine.fetching
                fetching.core.fail(("t", 1), error_of(Code.TOPIC_NOT_FOUND, "t was deleted"))
                fetching.wake()
                await fill(cluster, 0, 0, 5)
                await eventually(lambda: len(seen) == 5, "the other queue goes on")
                assert consumer._engine.error is None

    run(body())


def test_a_failure_with_a_strange_text_or_a_wrong_value_is_told_all_the_same() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 6)

            async def listener(record: ConsumedRecord) -> object:
                match record.offset:
                    case 0:
                        raise ValueError("file \udcff")
                    case 1:
                        return Retry(delay_ms=50 * 86_400_000)
                    case 2:
                        return Retry(delay_ms="5")  # type: ignore[arg-type]
                    case 3:
                        return DeadLetter(error=ValueError("x"))  # type: ignore[arg-type]
                    case 4:
                        raise Mute
                    case _:
                        return None

            config = push_config(concurrency=1)
            async with AsyncPushConsumer(cluster.bootstrap, "g", "t", listener, config):
                await eventually(lambda: group.floor("t", 0) == 6, "all done")
            told = {row.offset: row.error for row in group.failures}
            assert sorted(told) == [0, 1, 2, 3, 4]
            assert told[0] == "ValueError: file ?"
            assert "delay_ms: 4320000000, must be an integer from 0 to 3456000000" in told[1]
            assert "delay_ms: '5', must be an integer" in told[2]
            assert "must be text" in told[3]
            assert told[4] == "Mute: its text cannot be read"

    run(body())


def test_a_listener_that_cancels_its_own_task_stops_nothing() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 50)

            async def listener(record: ConsumedRecord) -> None:
                if record.offset == 5:
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()

            engine = "dledger_client._shell.group.push.TURN_SECONDS"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(engine, 0.0)
                async with AsyncPushConsumer(cluster.bootstrap, "g", "t", listener, push_config()):
                    await eventually(lambda: group.floor("t", 0) == 50, "all done")

    run(body())


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([Retry()], "1 results of 2 records"),
        (Retry, "the class Retry"),
        ([None, DeadLetter], "the class DeadLetter"),
    ],
)
def test_a_result_that_means_nothing_is_an_error(said: object, why: str) -> None:
    two = [ConsumedRecord(batch_of(0, 2), at) for at in range(2)]
    assert results_of(None, two) == [None, None]
    assert results_of([None, Retry()], two) == [None, Retry()]
    with pytest.raises(TypeError, match=why):
        results_of(said, two)


def test_a_coroutine_that_a_function_returns_is_an_error() -> None:
    async def work() -> None:
        pass

    with pytest.raises(TypeError, match="must be a coroutine function"):
        results_of(work(), [ConsumedRecord(batch_of(0, 1), 0)])


def test_a_second_parameter_with_a_default_is_left_alone() -> None:
    def with_default(_record: ConsumedRecord, table: str = "orders") -> None: ...

    def with_delivery(_record: ConsumedRecord, _delivery: Delivery) -> None: ...

    wants = [
        Caller(each, is_batch=False, threads=1)._wants_delivery
        for each in (with_default, with_delivery, lambda *_: None)
    ]
    assert wants == [False, True, True]


def test_a_coroutine_that_ends_the_program_does_not_end_the_shared_loop() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 3)

            async def listener(record: ConsumedRecord) -> None:
                if record.offset == 1:
                    raise SystemExit(3)

            consumer = PushConsumer(cluster.bootstrap, "g", "t", listener, push_config())
            await asyncio.to_thread(consumer.start)
            await eventually(lambda: group.floor("t", 0) == 3, "all done")
            await asyncio.to_thread(consumer.close)
            assert [row.error for row in group.failures] == ["SystemExit: 3"]

    run(body())


def test_a_coroutine_listener_may_close_its_consumer() -> None:
    async def body() -> None:
        async with fake(queues=1) as (cluster, group):
            await fill(cluster, 0, 0, 1)

            async def listener(_record: ConsumedRecord) -> None:
                await consumer.close()

            consumer = AsyncPushConsumer(cluster.bootstrap, "g", "t", listener, push_config())
            await consumer.start()
            async with asyncio.timeout(20):
                await consumer.run()
            assert group.floor("t", 0) == 1, "the record is done and committed"

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
            begun: list[int] = []
            may_end = asyncio.Event()

            async def listener(record: ConsumedRecord) -> None:
                begun.append(record.offset)
                await may_end.wait()

            consumer = AsyncPushConsumer(
                cluster.bootstrap, "g", "t", listener, push_config(concurrency=2)
            )
            await consumer.start()
            await eventually(lambda: begun == [0, 1], "two in hand")
            closing = asyncio.create_task(consumer.close())
            await eventually(lambda: not consumer.assignment(), "revoked")
            assert not closing.done()
            may_end.set()
            await closing
            assert group.floor("t", 0) == 2
            await eventually(lambda: not group.consumers, "left")

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
            await eventually(lambda: not group.consumers, "left")
            assert not group.failures
            await fill(cluster, 0, 5, 6)
            async with AsyncPushConsumer(
                cluster.bootstrap, "g", "t", partial(listen, 2), config(str(file))
            ):
                await eventually(lambda: seen[2], "it goes on")
            assert seen[2] == [(0, 5)]
            for text in ("[]", "[" * 100_000, '{"offsets": {"a": 1e999}}'):
                file.write_text(text)
                broken = AsyncPushConsumer(
                    cluster.bootstrap, "g", "t", partial(listen, 2), config(str(file))
                )
                with pytest.raises(InvalidRequest, match="offsets_file"):
                    await broken.start()
                await broken.close()

    run(body())
