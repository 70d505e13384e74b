"""`dledger bench`: a quick load on a running cluster: throughput and latency in a table.

For a first look. `bench/` holds the measurements that are compared with floors and peers.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from dledger_broker.cli.client import connection
from dledger_broker.cli.connect import (
    DEFAULT_NAME_SERVERS,
    NameServers,
    Timeout,
    parse_name_servers,
)
from dledger_broker.cli.output import (
    Advance,
    JsonFlag,
    bad_input,
    failure_of,
    print_error,
    print_rows,
    progress_bar,
)
from dledger_client import (
    AsyncConsumer,
    AsyncProducer,
    AsyncSendFuture,
    BufferFull,
    ClientError,
    ConsumerConfig,
    ProducerConfig,
    StartAt,
)
from dledger_proto.limits import BODY_SIZE_MAX

SAMPLES_MAX: Final = 1_000_000
"""Latencies that one run keeps; it ignores later ones."""
BREATH_MESSAGES: Final = 256
POLL_RECORDS: Final = 10_000
POLL_WAIT_MS: Final = 200
IDLE_POLLS_MAX: Final = 25
"""Empty polls after which reading back gives up."""
MODES: Final = ("batched", "lone", "read")
_COLUMNS: Final = (
    "mode", "messages", "failed", "seconds", "per_second", "mb_per_second", "p50_ms", "p90_ms",
    "p99_ms", "max_ms", "gap_ms",
)  # fmt: skip


def bench(
    topic: Annotated[str, typer.Option(help="Topic to write to; created when missing.")] = "bench",
    seconds: Annotated[float, typer.Option(min=0.1, max=3600, help="For each mode.")] = 5.0,
    size: Annotated[
        int, typer.Option(min=1, max=BODY_SIZE_MAX, help="Size of one message in bytes.")
    ] = 1024,
    modes: Annotated[
        str,
        typer.Option(
            help="Separated by commas: batched (many messages in flight), lone (one after the "
            "other), read (what was written)."
        ),
    ] = ",".join(MODES),
    name_servers: NameServers = DEFAULT_NAME_SERVERS,
    timeout: Timeout = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Send and read as fast as one client can; print throughput and latencies.

    gap_ms is the longest time without an acknowledgement.
    """
    wanted = [mode.strip() for mode in modes.split(",") if mode.strip()]
    if not wanted:
        bad_input(f"--modes: empty, must be of {', '.join(MODES)}")
    for mode in wanted:
        if mode not in MODES:
            bad_input(f"--modes: {mode}, must be of {', '.join(MODES)}")
    load = Load(topic, seconds, bytes(size), parse_name_servers(name_servers), timeout)
    rows = asyncio.run(_run_all(load, wanted, show=not as_json))
    print_rows(rows, _COLUMNS, as_json=as_json)
    worst = max((load.error_code(row) for row in rows), default=0)
    raise typer.Exit(worst)


async def _run_all(load: "Load", modes: Sequence[str], *, show: bool) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for mode in modes:  # on one event loop: grpc.aio does not like to change it
        with progress_bar(mode, None, show=show) as advance:
            rows.append(await load.run(mode, advance))
    return rows


class Load:
    """Runs one kind of load after the other on one topic."""

    def __init__(
        self, topic: str, seconds: float, body: bytes, name_servers: Sequence[str], timeout: float
    ) -> None:
        self._topic = topic
        self._seconds = seconds
        self._body = body
        self._name_servers = list(name_servers)
        self._connection = connection()
        self._config = ProducerConfig(timeout_ms=round(timeout * 1000), connection=self._connection)
        self._latencies: list[float] = []
        self._counted_at: float | None = None
        """When a message was acknowledged last."""
        self._gap: float | None = None
        self._done = 0
        self._failed = 0
        self._first_error: ClientError | None = None

    def error_code(self, row: dict[str, object]) -> int:
        """Return the exit code of the first error, 0 without any."""
        if self._first_error is None or not row["failed"]:
            return 0
        return failure_of(self._first_error).code

    async def run(self, mode: str, advance: Advance) -> dict[str, object]:
        """Run one mode and return its row."""
        self._latencies, self._done, self._failed = [], 0, 0
        self._counted_at = self._gap = None
        started = time.perf_counter()
        if mode == "read":
            await self._read(advance)
        else:
            async with AsyncProducer(self._name_servers, self._config) as producer:
                await self._send_one(producer)  # finds routes, makes the topic
                self._latencies, self._done = [], 0
                self._counted_at = self._gap = None
                started = time.perf_counter()
                if mode == "lone":
                    await self._lone(producer, started, advance)
                else:
                    await self._batched(producer, started, advance)
        return self.summary(mode, time.perf_counter() - started)

    async def _lone(self, producer: AsyncProducer, started: float, advance: Advance) -> None:
        while time.perf_counter() - started < self._seconds:
            await self._send_one(producer)
            advance(1)

    async def _send_one(self, producer: AsyncProducer) -> None:
        begun = time.perf_counter()
        try:
            await producer.send(self._topic, self._body)
        except ClientError as error:
            self._fail(error)
        else:
            self._count(begun)

    async def _batched(self, producer: AsyncProducer, started: float, advance: Advance) -> None:
        sent = 0
        while time.perf_counter() - started < self._seconds:
            begun = time.perf_counter()
            try:
                future = producer.submit(self._topic, self._body)
            except BufferFull:
                await producer.wait_for_room()
                continue

            # Bound now: the callback runs long after the next message began.
            def settled(future: AsyncSendFuture, begun: float = begun) -> None:
                error = future.exception()
                if error is None:
                    self._count(begun)
                else:
                    self._fail(error)

            future.add_done_callback(settled)
            sent += 1
            if sent % BREATH_MESSAGES == 0:
                advance(BREATH_MESSAGES)
                await asyncio.sleep(0)
        await producer.flush()

    async def _read(self, advance: Advance) -> None:
        config = ConsumerConfig(start_at=StartAt.FIRST, connection=self._connection)
        async with AsyncConsumer(self._name_servers, config) as consumer:
            await consumer.assign(self._topic, StartAt.FIRST)
            queues = (await consumer.offsets(self._topic)).values()
            left = sum(bounds.maximum - bounds.minimum for bounds in queues)
            started = time.perf_counter()
            idle = 0
            while left > 0 and idle < IDLE_POLLS_MAX:
                if time.perf_counter() - started > self._seconds:
                    return
                batches = await consumer.poll_batches(POLL_RECORDS, POLL_WAIT_MS)
                got = sum(len(batch) for batch in batches)
                idle = 0 if got else idle + 1
                left -= got
                self._done += got
                advance(got)

    def _count(self, begun: float) -> None:
        now = time.perf_counter()
        self._done += 1
        if len(self._latencies) < SAMPLES_MAX:
            self._latencies.append(now - begun)
        if self._counted_at is not None:
            self._gap = max(self._gap or 0.0, now - self._counted_at)
        self._counted_at = now

    def _fail(self, error: ClientError) -> None:
        self._failed += 1
        if self._first_error is None:
            self._first_error = error
            failure = failure_of(error)
            print_error(failure.what, failure.remedy)

    def summary(self, mode: str, seconds: float) -> dict[str, object]:
        """Return a mode's row; latencies in milliseconds, None where none was measured."""
        row: dict[str, object] = {
            "mode": mode,
            "messages": self._done,
            "failed": self._failed,
            "seconds": round(seconds, 2),
            "per_second": round(self._done / seconds),
            "mb_per_second": round(self._done * len(self._body) / seconds / 1e6, 2),
        }
        ordered = sorted(self._latencies)
        for name, share in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99), ("max_ms", 1.0)):
            place = min(int(share * len(ordered)), len(ordered) - 1)
            row[name] = round(ordered[place] * 1000, 3) if ordered else None
        row["gap_ms"] = None if self._gap is None else round(self._gap * 1000, 3)
        return row
