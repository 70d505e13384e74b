"""What a message costs the client, without network and without cluster: run it, it prints a table.

    python -m tests.programs.client_cost [--messages 200000]

`core`: records, futures, batches, frames and answers through `ProducerCore` on a fake transport.
`engine`: the same through `AsyncProducer.submit` with an event loop whose streams are fakes.
`threads`: the same through `Producer.send_async` from 1 and 4 threads.
`flight`: one message in each frame, 256 on their way, a bare blocking stream against `Producer`.
`lone`: blocking sends of one message, `Producer` on the background loop against gRPC's blocking
stream, both to a member in another process that stores nothing.
"""

import argparse
import asyncio
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import grpc

from dledger_client import AsyncProducer, Producer, ProducerConfig
from dledger_client._core.message_checks import make_record
from dledger_client._shell.futures import AsyncSendFuture
from dledger_client._shell.producer import ProducerEngine
from dledger_proto.batch.codec import Record, encode_batch, parse_header
from dledger_proto.rpc.frames import AnswerRow, encode_answers, encode_append, parse_append
from dledger_proto.rpc.raw import APPEND, MESSAGE_SIZE_OPTIONS, SyncCall
from dledger_proto.v1 import routes_pb2
from tests.unit.client.model_cluster import ModelCluster, ModelGroup, topic_message

BODY = bytes(1_024)
MakePlain = Callable[[], tuple[Record, int]]


def plain() -> tuple[Record, int]:
    return make_record(BODY)


def described() -> tuple[Record, int]:
    return make_record(BODY, "tag", "key-17", (), {"colour": "green", "size": "17"})


def answers_to(frame: bytes) -> list[AnswerRow]:
    header, batches = parse_append(frame)
    return [
        AnswerRow(header.first_number + i, base_offset=i, index=1, term=1)
        for i in range(len(batches))
    ]


def measure_core(messages: int, make: MakePlain) -> float:
    """Return microseconds for each message."""
    cluster = ModelCluster(
        random.Random(1), ProducerConfig(), [ModelGroup("a", ["a0"])], {"t": [("a", 4)]}
    )
    cluster.faults = False
    cluster.push_routes()
    core = cluster.core
    cluster.send("t", b"first")
    cluster.turn()
    cluster.finish()
    link = next(iter(cluster.links))
    start = time.process_time()
    done = 0
    now = cluster.now
    while done < messages:
        futures: list[AsyncSendFuture] = []
        for _ in range(1_000):
            record, size = make()
            future = AsyncSendFuture()
            now += 1e-5
            core.place(future, "t", record, size, None, now + 10, now)
            futures.append(future)
        core.close_open()
        core.pump(now)
        while (frame := core.next_frame(link, now, 1)) is not None:
            core.answered(link, answers_to(frame), now)
        assert all(future.done() for future in futures)
        done += len(futures)
    return (time.process_time() - start) / done * 1e6


class FakeStream:
    """An append stream that answers everything at once."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()
        self.frames = 0

    async def write(self, frame: bytes) -> None:
        self.frames += 1
        self.answers.put_nowait(encode_answers(answers_to(frame)))
        await asyncio.sleep(0)

    async def read(self) -> bytes:
        return await self.answers.get()


def fake_engine(engine: ProducerEngine) -> FakeStream:
    """Give an engine a cluster of one group, and streams that answer at once."""
    stream = FakeStream()
    group = ModelGroup("a", ["a0"])

    async def run_link(link: int, _group: str, _address: str) -> None:
        await engine._use_link(link, cast("object", stream))  # type: ignore[arg-type]

    async def register(name: str, _address: str, _epoch: int, ask: int) -> None:
        engine.core.registered(name, ask, 1, {}, engine.driver.now())
        engine._advance()

    def start() -> None:
        engine.cluster.routes.cluster = "fake"
        message = routes_pb2.RoutesReply(
            full=True,
            cluster="fake",
            groups=[group.route()],
            topics=[topic_message("t", [("a", 4)])],
        )
        engine.cluster._tell(engine.cluster.routes.apply(message))

    vars(engine).update(_run_link=run_link, _register=register)
    engine.cluster.start = start  # type: ignore[method-assign]
    return stream


async def engine_main(messages: int, *, every: int) -> tuple[float, float]:
    """Submit in a plain loop that lets the event loop run now and then."""
    producer = AsyncProducer("127.0.0.1:1")
    stream = fake_engine(producer._engine)
    async with producer:
        await producer.send("t", BODY)
        stream.frames = 0
        start = time.process_time()
        for i in range(messages):
            if producer.is_full:
                await producer.wait_for_room()
            producer.submit("t", BODY)
            if i % every == 0:
                await asyncio.sleep(0)
        await producer.flush()
        spent = time.process_time() - start
    return spent / messages * 1e6, messages / stream.frames


def measure_threads(messages: int, threads: int) -> float:
    """Return microseconds of the whole process for each message."""
    producer = Producer("127.0.0.1:1")
    fake_engine(producer._engine)
    with producer:
        producer.send("t", BODY)
        start = time.process_time()

        def run() -> None:
            for _ in range(messages // threads):
                producer.send_async("t", BODY)

        workers = [threading.Thread(target=run) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        producer.flush()
        return (time.process_time() - start) / messages * 1e6


def measure_lone_producer(address: str, sends: int) -> list[float]:
    with Producer(address) as producer:
        producer.send("t", BODY)
        taken: list[float] = []
        for _ in range(sends):
            start = time.perf_counter()
            producer.send("t", BODY)
            taken.append(time.perf_counter() - start)
    return sorted(taken)


async def measure_lone_async(address: str, sends: int) -> list[float]:
    async with AsyncProducer(address) as producer:
        await producer.send("t", BODY)
        taken: list[float] = []
        for _ in range(sends):
            start = time.perf_counter()
            await producer.send("t", BODY)
            taken.append(time.perf_counter() - start)
    return sorted(taken)


def append_stream(channel: grpc.Channel, frames: Iterator[bytes]) -> SyncCall:
    """Open a blocking append stream; return its answers."""
    untyped: Any = channel
    return cast("SyncCall", untyped.stream_stream(APPEND)(frames))


def measure_lone_blocking(address: str, sends: int) -> list[float]:
    """A blocking stream, as a twin without event loop would use it: no retries, no registration."""
    import queue

    frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with grpc.insecure_channel(address, options=list(MESSAGE_SIZE_OPTIONS)) as channel:
        answers = append_stream(channel, iter(frames.get, None))
        taken: list[float] = []
        for number in range(sends + 1):
            start = time.perf_counter()
            batch = encode_batch(
                [Record(BODY)], topic_id=b"t" * 16, queue=0, stamp=None, base_number=number,
                base_time_ms=1,
            )  # fmt: skip
            frames.put(encode_append([batch], number, 1_000))
            next(answers)
            taken.append(time.perf_counter() - start)
        frames.put(None)
        answers.cancel()
    return sorted(taken[1:])


def measure_flight_blocking(address: str, messages: int) -> float:
    """Return microseconds of CPU for each message of a bare blocking stream."""
    import queue

    frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    window = threading.Semaphore(256)
    start = time.process_time()
    with grpc.insecure_channel(address, options=list(MESSAGE_SIZE_OPTIONS)) as channel:
        answers = append_stream(channel, iter(frames.get, None))

        def read() -> None:
            for _ in range(messages):
                next(answers)
                window.release()

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(messages):
            window.acquire()
            batch = encode_batch(
                [Record(BODY)], topic_id=b"t" * 16, queue=0, stamp=None, base_number=number,
                base_time_ms=1,
            )  # fmt: skip
            frames.put(encode_append([batch], number, 1_000))
        reader.join()
        frames.put(None)
        answers.cancel()
    return (time.process_time() - start) / messages * 1e6


def measure_flight_producer(address: str, messages: int, batch_records: int) -> float:
    """Return microseconds of CPU for each message of `Producer.send_async`."""
    with Producer(address, ProducerConfig(batch_records=batch_records)) as producer:
        producer.send("t", BODY)
        start = time.process_time()
        for _ in range(messages):
            producer.send_async("t", BODY)
        producer.flush()
        return (time.process_time() - start) / messages * 1e6


async def serve() -> None:
    """Be a member that stores nothing, until stdin closes."""
    from tests.unit.client.fake_member import FakeCluster

    async with FakeCluster() as cluster:
        group = cluster.groups["a"]

        def append(batch: bytes | memoryview, number: int) -> AnswerRow:
            parse_header(batch)
            return AnswerRow(number, base_offset=number, index=1, term=1)

        group.append = append  # type: ignore[method-assign]
        print(cluster.bootstrap[0], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    messages: int = options.messages
    print(f"core, plain 1 KiB:                 {measure_core(messages, plain):6.2f} us/message")
    print(f"core, tag, key, 2 properties:      {measure_core(messages, described):6.2f}")
    for every in (1, 100, 1_000):
        cost, size = asyncio.run(engine_main(messages, every=every))
        print(f"engine, a turn each {every:5} submits:  {cost:6.2f}   {size:.0f} messages/frame")
    for threads in (1, 4):
        print(
            f"send_async from {threads} threads:         {measure_threads(messages, threads):6.2f}"
        )
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.programs.client_cost", "--serve"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdin is not None
    address = child.stdout.readline().strip()
    for name, taken in (
        ("AsyncProducer.send", asyncio.run(measure_lone_async(address, 1_000))),
        ("Producer.send, background loop", measure_lone_producer(address, 1_000)),
        ("gRPC's blocking stream, bare", measure_lone_blocking(address, 1_000)),
    ):
        print(f"lone {name:32} median {taken[500] * 1e6:5.0f} us   p99 {taken[990] * 1e6:5.0f} us")
    print(f"flight, blocking stream:           {measure_flight_blocking(address, 10_000):6.2f}")
    print(f"flight, batches of one:            {measure_flight_producer(address, 10_000, 1):6.2f}")
    print(
        f"flight, default batching:          {measure_flight_producer(address, 50_000, 4_096):6.2f}"
    )
    child.stdin.close()
    child.wait()


if __name__ == "__main__":
    main()
