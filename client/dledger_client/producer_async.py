"""The producer. `producer.py` is generated from this file by `client/generate_sync.py`.

Owns: what a user calls, and the checks before anything is sent. Everything else is behind
`ProducerEngine`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from dledger_client import _machine
from dledger_client._core.arguments import checked_timeout
from dledger_client._core.delays import delivery_time
from dledger_client._core.delivery import outcomes
from dledger_client._core.message_checks import check_topic, make_record, taken_over
from dledger_client._core.producer.topics import Pin
from dledger_client._shell.futures import AsyncSendFuture
from dledger_client._shell.producer import ProducerEngine
from dledger_client._shell.runner import AsyncRunner
from dledger_client._shell.wire import parse_addresses
from dledger_client.config import ProducerConfig
from dledger_client.errors import MessageTooLarge, illegal
from dledger_client.model import Message, ProducerStatus, SendResult
from dledger_client.selectors import QueueSelector
from dledger_proto.errors import Code
from dledger_proto.limits import BATCH_RECORDS_MAX, BODY_SIZE_MAX, KIB

TOPICS_CHECKED_MAX = 10_000
"""Names that are remembered as well-formed."""
LARGEST_MESSAGE = BODY_SIZE_MAX + 64 * KIB
"""Bytes that one message takes in the buffer, at most: body, properties, columns, keys."""


class AsyncProducer:
    """Sends messages: batched, in order per queue, each stored once.

    ```
    async with AsyncProducer("127.0.0.1:9876") as producer:
        result = await producer.send("orders", b"...", key="order-17", ordering_key="customer-4")
    ```

    `bootstrap` names name servers or members, "host:port", several with commas or as a list.
    A message goes to the queue of its `ordering_key`, to `queue`, to the one a `selector` chooses,
    or else round the queues. Messages for one queue are stored in the order of the calls, whatever
    fails in between. A FIFO topic takes only messages with an `ordering_key`: others are refused
    with MessageIllegal. A send is repeated until its budget (`ProducerConfig.timeout_ms`) is over;
    the exception says whether the message is certainly not stored (`NotStored`) or may be
    (`UnknownOutcome`).

    Close a producer, or use `async with`. A producer that nobody closed raises a ResourceWarning
    when it is let go of: it says how many of its messages are not acknowledged. At the end of the
    process a synchronous producer is flushed, for at most the budget of a send. `os._exit` and
    signals prevent that.
    """

    def __init__(
        self, bootstrap: str | Iterable[str], config: ProducerConfig | None = None
    ) -> None:
        self._config = config or ProducerConfig()
        self._engine = ProducerEngine(parse_addresses(bootstrap), self._config)
        self._runner = AsyncRunner()
        self._checked: set[str] = set()
        self._is_watched = False

    async def start(self) -> Self:
        """Connect, in the background; `async with` does it. Returns itself."""
        await self._runner.run(self._engine.start())
        if not self._is_watched:
            self._is_watched = True
            self._runner.begin(self, self._engine)
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str = "",
        key: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | bytes | None = None,
        queue: int | None = None,
        selector: QueueSelector | None = None,
        argument: object = None,
        priority: int | None = None,
        delay_ms: float | None = None,
        deliver_at_ms: int | None = None,
        delay_level: int | None = None,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """Send one message and wait until it is stored on a majority.

        `tag` and `keys` are for filters and lookups; `ordering_key`, `queue` and `selector` (which
        gets `argument`) bind the message to a queue, `priority` (from 0, the lowest) to the queues
        of a priority of a PRIORITY topic; at most one of the four. The ordering key is stored with
        the message: consumers that keep order per key go by it. Waits while the buffer is full.
        Cancelling the wait does not take the message back. Raises MessageIllegal before anything
        is sent, NotStored or UnknownOutcome after.

        `delay_ms`, `deliver_at_ms` (since 1970) or `delay_level` (RocketMQ's, 1 to 18) delay the
        delivery, by this machine's clock and at most 40 days. The result then has offset -1;
        `Admin.recall` takes its message id.
        """
        self._runner.check_may_wait()
        if topic not in self._checked:
            self._check_topic(topic)
        record, size = make_record(body, tag, key, keys, properties, ordering_key)
        due_ms = _due(delay_ms, deliver_at_ms, delay_level)
        pin = _pin(queue, ordering_key, selector, argument, priority, due_ms)
        timeout = self._timeout(timeout_ms)
        if self._engine.is_full(size):
            await self._runner.make_room(self._engine, size, timeout)
        future = self._engine.take(AsyncSendFuture(), topic, record, size, pin, timeout)
        return await future.wait()

    async def send_many(
        self,
        topic: str,
        messages: Iterable[bytes | Message],
        *,
        ordering_key: str | bytes | None = None,
        queue: int | None = None,
        selector: QueueSelector | None = None,
        argument: object = None,
        priority: int | None = None,
        delay_ms: float | None = None,
        deliver_at_ms: int | None = None,
        delay_level: int | None = None,
        timeout_ms: float | None = None,
    ) -> list[SendResult]:
        """Send messages together: all are stored or none, in one queue, at consecutive offsets.

        At most 65,535 messages and 4 MiB of bodies and properties; a selector sees the first one.
        """
        self._runner.check_may_wait()
        self._check_topic(topic)
        records: list[Message] = []
        size = 0
        for message in messages:
            record, record_size = taken_over(message, ordering_key)
            records.append(record)
            size += record_size
        if not records:
            return []
        if len(records) > BATCH_RECORDS_MAX or size > BODY_SIZE_MAX:
            raise MessageTooLarge(
                Code.MESSAGE_TOO_LARGE,
                f"send_many: {len(records)} messages of together {size} bytes,"
                f" at most {BATCH_RECORDS_MAX} and {BODY_SIZE_MAX}",
            )
        due_ms = _due(delay_ms, deliver_at_ms, delay_level)
        pin = _pin(queue, ordering_key, selector, argument, priority, due_ms)
        timeout = self._timeout(timeout_ms)
        await self._runner.make_room(self._engine, size, timeout)
        future = self._engine.take_batch(AsyncSendFuture(), topic, records, size, pin, timeout)
        await future.wait()
        return outcomes(future)

    def submit(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str = "",
        key: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | bytes | None = None,
        queue: int | None = None,
        selector: QueueSelector | None = None,
        argument: object = None,
        priority: int | None = None,
        delay_ms: float | None = None,
        deliver_at_ms: int | None = None,
        delay_level: int | None = None,
        timeout_ms: float | None = None,
        on_done: Callable[[AsyncSendFuture], object] | None = None,
    ) -> AsyncSendFuture:
        """Hand one message over without waiting; return a future of its outcome.

        The arguments are those of `send`. `on_done(future)` is called once, on the event loop's
        thread. While the buffer is full: raises BufferFull; see `wait_for_room`.
        """
        if topic not in self._checked:
            self._check_topic(topic)
        record, size = make_record(body, tag, key, keys, properties, ordering_key)
        due_ms = _due(delay_ms, deliver_at_ms, delay_level)
        pin = _pin(queue, ordering_key, selector, argument, priority, due_ms)
        timeout = self._timeout(timeout_ms)
        self._runner.insist_on_room(self._engine, size, timeout)
        return self._engine.take(AsyncSendFuture(on_done), topic, record, size, pin, timeout)

    def send_one_way(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str = "",
        key: str | None = None,
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str | bytes | None = None,
        queue: int | None = None,
        priority: int | None = None,
        delay_ms: float | None = None,
        deliver_at_ms: int | None = None,
        delay_level: int | None = None,
    ) -> None:
        """Hand one message over without an outcome: no answer, no repeat, no message id."""
        self._check_topic(topic)
        record, size = make_record(body, tag, key, keys, properties, ordering_key)
        due_ms = _due(delay_ms, deliver_at_ms, delay_level)
        pin = _pin(queue, ordering_key, None, None, priority, due_ms)
        timeout = self._timeout(None)
        self._runner.insist_on_room(self._engine, size, timeout)
        self._engine.take(AsyncSendFuture(), topic, record, size, pin, timeout, one_way=True)

    @property
    def is_full(self) -> bool:
        """True: `submit` would raise BufferFull for all but the smallest messages."""
        return self._engine.is_full(1)

    async def wait_for_room(self) -> None:
        """Wait until the buffer has room for any message: the next `submit` is taken."""
        await self._runner.run(self._engine.wait_for_room(LARGEST_MESSAGE))

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until every message handed over before has an outcome, good or bad.

        Raises TimeoutError after `timeout_ms`; the sends go on.
        """
        await self._runner.run(
            self._engine.flush(None if timeout_ms is None else checked_timeout(timeout_ms))
        )

    async def close(self, timeout_ms: float | None = None) -> None:
        """Flush for at most `timeout_ms` (default: the budget of a send), give up the rest, end.

        A message that was not sent ends as ClientClosed, one that may be stored as UnknownOutcome.
        """
        await self._runner.run(self._engine.close(self._timeout(timeout_ms)))

    def status(self) -> ProducerStatus:
        """Return how much waits and how much is on its way."""
        return self._engine.status()

    def _timeout(self, timeout_ms: float | None) -> float:
        """Return a budget in seconds."""
        if timeout_ms is None:
            return self._config.timeout_ms / 1_000
        return checked_timeout(timeout_ms)

    def _check_topic(self, topic: str) -> None:
        if topic not in self._checked:
            check_topic(topic)
            if len(self._checked) < TOPICS_CHECKED_MAX:
                self._checked.add(topic)


def _due(delay_ms: float | None, deliver_at_ms: int | None, delay_level: int | None) -> int:
    if delay_ms is None and deliver_at_ms is None and delay_level is None:
        return 0
    return delivery_time(delay_ms, deliver_at_ms, delay_level, _machine.wall_ms())


def _pin(
    queue: int | None,
    ordering_key: str | bytes | None,
    selector: QueueSelector | None,
    argument: object,
    priority: int | None,
    delivery_time_ms: int,
) -> Pin | None:
    given = (queue is not None) + (ordering_key is not None) + (selector is not None)
    given += priority is not None
    if given == 0:
        return Pin(delivery_time_ms=delivery_time_ms) if delivery_time_ms else None
    if given > 1:
        names = "queue, ordering_key, selector, priority"
        raise illegal(f"{names}: {given} are given, at most one may be")
    if priority is not None and (type(priority) is not int or priority < 0):
        raise illegal(f"priority: {priority!r}, must be an integer from 0")
    if queue is not None and (type(queue) is not int or queue < 0):
        raise illegal(f"queue: {queue!r}, must be an integer from 0")
    if isinstance(ordering_key, str):
        ordering_key = ordering_key.encode()
    return Pin(queue, ordering_key, selector, argument, delivery_time_ms, priority)
