"""A producer's engine: append streams around `ProducerCore`, messages from other threads.

Owns: carrying out the core's actions, one writer and one reader per link, room in the buffer,
messages handed over by other threads. Decides nothing about messages.

All methods run on the event loop's thread, but for `take_from_thread` and `is_full`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

import grpc.aio

from dledger_client import _machine
from dledger_client._core.delivery import Delivery, fail
from dledger_client._core.ids import ID_SIZE, first_number, named_producer_id
from dledger_client._core.producer import actions
from dledger_client._core.producer.core import ProducerCore
from dledger_client._core.producer.topics import Pin
from dledger_client._core.routes import RefreshRoutes, RouteChange
from dledger_client._shell import calls
from dledger_client._shell.cluster import Cluster
from dledger_client._shell.driver import Driver
from dledger_client._shell.fork import check_fork
from dledger_client._shell.futures import when_done
from dledger_client._shell.queries import Queries
from dledger_client._shell.unclosed import tell_lost
from dledger_client._shell.wire import failure
from dledger_client.config import ProducerConfig
from dledger_client.errors import (
    BufferFull,
    ClientClosed,
    ClientError,
    TopicExists,
    error_of,
)
from dledger_client.model import ProducerStatus
from dledger_proto.batch.codec import Record
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.frames import parse_answers
from dledger_proto.rpc.raw import APPEND, RawStreamCall, raw_stream, read_frame
from dledger_proto.v1 import broker_pb2 as pb

_LOG = logging.getLogger("dledger_client")
Future = TypeVar("Future", bound=Delivery)
ROOM_SHARE = 16
"""One part of so many of a full buffer must be free before waiters for room are woken."""


class Arrival(NamedTuple):
    """A message that another thread handed over."""

    future: Delivery
    topic: str
    records: Sequence[Record]
    size: int
    pin: Pin | None
    timeout: float
    is_one_way: bool = False
    is_batch: bool = False


class ProducerEngine:
    """One producer's streams and tasks."""

    def __init__(self, bootstrap: Sequence[str], config: ProducerConfig) -> None:
        self.config = config
        self.cluster = Cluster(bootstrap, config.connection)
        self.cluster.listen(self._identify)
        self._queries = Queries(self.cluster)
        self.core = ProducerCore(
            config,
            self.cluster.routes,
            self.cluster.generator,
            first_number=first_number(named=bool(config.name), wall_ms=_machine.wall_ms()),
        )
        self.core.members = self.cluster.members
        self.driver = Driver("producer", self.cluster, self.core, self._carry_out, self._settle)
        self._advance = self.driver.advance
        self._now = self.driver.now
        self._life_id = _machine.random_bytes(ID_SIZE)
        """Id of this life: by it the groups know the registrations of this producer (D11)."""
        self._writable: dict[int, asyncio.Event] = {}
        self._is_flush_scheduled = False
        self._room_waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._arrivals: deque[Arrival] = deque()
        self._arrival_bytes = 0
        self.is_closed = False

    async def start(self) -> None:
        """Begin to watch routes. Sends may be handed over at once; they wait for the routes.

        ClientClosed after `close`.
        """
        self.check_open()
        self.driver.start()
        self._now = self.driver.now

    # Handing messages over.

    def is_full(self, size: int = 0) -> bool:
        """Return whether the buffer has no room for `size` bytes. Any thread."""
        taken = self.core.buffered_bytes + self._arrival_bytes
        return taken + size > self.config.buffer_bytes

    def check_open(self) -> None:
        """Refuse new messages after `close`, and in a child after a fork."""
        check_fork()
        if self.is_closed:
            raise ClientClosed(Code.CLOSED, "this producer is closed")

    def take(
        self,
        future: Future,
        topic: str,
        record: Record,
        size: int,
        pin: Pin | None,
        timeout: float,
        *,
        one_way: bool = False,
    ) -> Future:
        """Take a message of at most `size` bytes; BufferFull. `timeout` in seconds."""
        self.check_open()
        if self.is_full(size):
            raise self.full(size)
        now = self._now()
        if self._arrivals:  # they were handed over before
            self._place_arrivals(now)
        self.core.place(future, topic, record, size, pin, now + timeout, now, one_way=one_way)
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self.driver.loop.call_soon(self._flush)
        return future

    def full(self, size: int) -> BufferFull:
        """Return the error of a message of `size` bytes that finds no room."""
        return BufferFull(
            Code.BUSY,
            f"buffer_bytes: {self.core.buffered_bytes + self._arrival_bytes} of"
            f" {self.config.buffer_bytes} bytes are in use, no room for {size} more",
        )

    def take_from_thread(
        self,
        future: Future,
        topic: str,
        record: Record,
        size: int,
        pin: Pin | None,
        timeout: float,
        *,
        one_way: bool = False,
    ) -> Future:
        """Take a message from any thread, in the order of each thread; see that there is room."""
        self._arrive(Arrival(future, topic, (record,), size, pin, timeout, one_way))
        return future

    def take_batch(
        self,
        future: Future,
        topic: str,
        records: Sequence[Record],
        size: int,
        pin: Pin | None,
        timeout: float,
    ) -> Future:
        """Take messages for one batch, of together at most `size` bytes. As `take_from_thread`."""
        self._arrive(Arrival(future, topic, records, size, pin, timeout, is_batch=True))
        return future

    def _arrive(self, arrival: Arrival) -> None:
        self.check_open()
        loop = self.driver.loop  # refuses before the start, when nothing is taken yet
        self._arrival_bytes += arrival.size
        self._arrivals.append(arrival)
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            try:
                loop.call_soon_threadsafe(self._flush)
            except RuntimeError:  # closed meanwhile, and its loop has ended
                raise ClientClosed(Code.CLOSED, "this producer is closed") from None

    def _flush(self) -> None:
        """End a turn: take messages from other threads, send everything that may go."""
        self._is_flush_scheduled = False
        now = self._now()
        self._place_arrivals(now)
        self.core.pump(now)
        self._advance()

    def _place_arrivals(self, now: float) -> None:
        arrivals = self._arrivals
        while arrivals:
            future, topic, records, size, pin, timeout, one_way, is_batch = arrivals.popleft()
            self._arrival_bytes -= size
            if self.driver.is_stopped:
                fail(future, topic, self._closed_error())
            elif is_batch:
                self.core.place_batch(future, topic, records, size, pin, now + timeout, now)
            else:
                self.core.place(
                    future, topic, records[0], size, pin, now + timeout, now, one_way=one_way
                )

    @staticmethod
    def _closed_error() -> ClientError:
        return ClientClosed(Code.CLOSED, "the producer was closed")

    async def wait_for_room(self, size: int = 0, timeout: float | None = None) -> None:
        """Wait until the buffer has room for `size` bytes; BufferFull after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while self.is_full(size):
                    self.check_open()
                    waiter: asyncio.Future[None] = self.driver.loop.create_future()
                    self._room_waiters.append((size, waiter))
                    await waiter
        except TimeoutError:
            raise self.full(size) from None
        self.check_open()

    # After every input of the core.

    def _settle(self) -> None:
        """Let writers look for new frames, and those who wait for room go on."""
        for event in self._writable.values():
            event.set()
        if self._room_waiters:
            self._wake_room()

    def _wake_room(self) -> None:
        """Wake as many waiters as there is room for, once it is worth the wake-up."""
        room = self.config.buffer_bytes - self.core.buffered_bytes - self._arrival_bytes
        if room < self.config.buffer_bytes // ROOM_SHARE and not self.driver.is_stopped:
            return
        while self._room_waiters and (room > 0 or self.driver.is_stopped):
            size, waiter = self._room_waiters.popleft()
            room -= size
            if not waiter.done():
                waiter.set_result(None)

    def _identify(self, _change: RouteChange) -> None:
        """Give the producer its id, as soon as the cluster's name is known."""
        if not self.core.producer_id and self.config.idempotent and self.cluster.routes.cluster:
            self.core.producer_id = (
                named_producer_id(self.cluster.routes.cluster, self.config.name)
                if self.config.name
                else _machine.random_bytes(ID_SIZE)
            )

    def _carry_out(self, action: actions.Action) -> None:
        match action:
            case actions.OpenLink(link, group, address):
                name = f"dledger append {group}@{address}"
                self.driver.open_stream(link, self._run_link(link, group, address), name)
            case actions.CloseLink(link, reason):
                _LOG.debug("link %d closed: %s", link, reason)
                self.driver.close_stream(link)
            case actions.Register(group, address, epoch, ask):
                self.driver.spawn(self._register(group, address, epoch, ask))
            case actions.ResolveTopic(topic, create):
                self.driver.spawn(self._resolve(topic, create=create))
            case RefreshRoutes():
                self.cluster.refresh()

    # Streams.

    async def _run_link(self, link: int, group: str, address: str) -> None:
        try:
            channel, metadata = await self.cluster.channels.ready(address, group)
            stream = raw_stream(channel, APPEND)(metadata=metadata)
            try:
                await self._use_link(link, stream)
            except (grpc.aio.AioRpcError, DledgerError) as broken:
                fail = self.cluster.channels.failure
                raise fail(channel, broken, metadata, write=True) from None
            finally:
                stream.cancel()
            error = error_of(Code.UNAVAILABLE, f"{address}: the member closed the stream")
        except TimeoutError:
            error = error_of(Code.UNAVAILABLE, f"{address}: no connection in time")
        except (grpc.aio.AioRpcError, DledgerError) as broken:
            error = failure(broken, write=True)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            error = error_of(Code.UNKNOWN_OUTCOME, f"{address}: the stream was cancelled")
        self.core.link_down(link, error, self._now())
        self._advance()

    async def _use_link(self, link: int, stream: RawStreamCall) -> None:
        self._writable[link] = asyncio.Event()
        self.core.link_up(link, self._now())
        self._advance()
        writer = self.driver.loop.create_task(self._write(link, stream))
        writer.add_done_callback(partial(_report_bug, stream))
        try:
            while (frame := await read_frame(stream)) is not None:
                answers = parse_answers(frame)
                self.core.answered(link, answers, self._now())
                self._advance()
                if any(row.code == Code.UNAUTHENTICATED for row in answers):
                    raise DledgerError(Code.UNAUTHENTICATED, "the login of the stream ended")
        finally:
            del self._writable[link]
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, link: int, stream: RawStreamCall) -> None:
        writable = self._writable[link]
        while True:
            writable.clear()
            frame = self.core.next_frame(link, self._now(), _machine.wall_ms())
            if frame is None:
                self.driver.arm()
                await writable.wait()
            else:
                await stream.write(frame)

    # Calls.

    async def _register(self, group: str, address: str, epoch: int, ask: int) -> None:
        request = pb.RegisterProducerRequest(
            producer_id=self.core.producer_id, life_id=self._life_id, epoch=epoch
        )
        try:
            reply = await self.cluster.channels.call(
                address, calls.REGISTER, request, group=group,
                timeout=self.config.connection.try_timeout_ms / 1_000,
            )  # fmt: skip
        except ClientError as error:
            self.core.register_failed(group, ask, error, self._now())
        else:
            if reply.taken:
                self.core.register_taken(group, ask, reply.epoch, self._now())
            else:
                last = {(row.topic_id, row.queue): row.last_sequence for row in reply.last}
                self.core.registered(group, ask, reply.epoch, last, self._now())
        self._advance()

    async def _resolve(self, topic: str, *, create: bool) -> None:
        try:
            try:
                if create:
                    await self._queries.create(
                        pb.CreateTopicRequest(
                            name=topic, automatic=True, topic_id=_machine.random_bytes(ID_SIZE)
                        )
                    )
            except TopicExists:
                create = False
            if not create:
                await self._queries.describe(topic)
        except ClientError as error:
            problem = error
        else:
            if self.cluster.routes.topic(topic) is not None:
                self.core.topic_found(topic, self._now())
                self._advance()
                return
            problem = error_of(
                Code.UNAVAILABLE, f"topic {topic}: the answer is older than its known route"
            )
        self.core.topic_failed(topic, problem, self._now())
        self._advance()

    def unsettled(self) -> int:
        """Return how many messages that were taken have no outcome yet. Any thread."""
        return self.core.unsettled() + sum(len(each.records) for each in list(self._arrivals))

    def status(self) -> ProducerStatus:
        """Return a picture of what waits and what is on its way. Any thread."""
        senders = list(self.core.senders.values())
        links = [sender.link for sender in senders]
        return ProducerStatus(
            buffered_bytes=self.core.buffered_bytes + self._arrival_bytes,
            batches=len(self.core.buffer.unsettled),
            outstanding=sum(len(link.tries) for link in links if link is not None),
            links=tuple(link.describe() for link in links if link is not None),
            epochs=tuple((sender.name, sender.epoch.number) for sender in senders),
            is_closed=self.is_closed,
        )

    # The end.

    async def flush(self, timeout: float | None) -> None:
        """Wait until everything handed over before is settled; TimeoutError after `timeout` s."""
        self._flush()
        self.core.close_open()
        self._advance()
        batches, parked = self.core.waiting()
        left = len(batches) + len(parked)
        if not left:
            return
        done = asyncio.Event()

        def settled() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done.set()

        for batch in batches:
            batch.observe(settled)
        for each in parked:
            when_done(each.future, settled)
        try:
            async with asyncio.timeout(timeout):
                await done.wait()
        except TimeoutError:
            raise TimeoutError(f"flush: {left} batches are not settled after {timeout} s") from None

    async def close(self, timeout: float) -> None:
        """Settle what was handed over for at most `timeout` seconds, give up the rest, end."""
        if self.is_closed:
            return
        self.is_closed = True
        if not self.driver.is_started:
            return
        self._flush()
        batches, parked = self.core.waiting()
        try:
            with suppress(TimeoutError):
                await self.flush(timeout)
        finally:
            self.driver.stop()
            self.core.fail_all(self._closed_error())
            self._wake_room()
            await self.driver.end()
            tell_lost(batches, parked)


def _report_bug(stream: RawStreamCall, writer: "asyncio.Task[None]") -> None:
    """End the stream of a writer that failed by itself; the reader sees every other end."""
    if writer.cancelled():
        return
    error = writer.exception()
    if error is not None and not isinstance(
        error, grpc.aio.AioRpcError | asyncio.InvalidStateError
    ):
        _LOG.error("the writer of an append stream failed", exc_info=error)
        stream.cancel()
