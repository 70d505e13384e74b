"""The dialling end of a peer link: one connection to one other member, first in first out.

Owns: dialling, the bounded queue, and saying at once when the connection closed. Does not own the
bytes on the connection (`frame_stream.py`, `wire/link_frame.py`), what messages mean
(`raft/group.py`), nor the accepting end (`peer_listener.py`). The dialler sends and the listener
receives. Answers travel on the connection of the other direction, so a pair of members has two
connections, each in order.

A link has one queue. A heartbeat behind append data waits for at most the group's bytes in flight
to this peer (`GroupSettings.inflight_bytes_max`), and each data frame before it is itself a sign of
life of the leader.

The link is up when the listener has accepted it, and down when the connection ended. A link that
had lasted is redialled once, at once; one that went down sooner is redialled after a back-off. If
that first dial is refused, or unanswered for `redial_timeout`, `dial_failed` tells the group (D17).
An unanswered dial goes on: between zones, and with TLS, an answer may take longer than the group
waits. After a dial that failed the link backs off. The back-off grows until a link lasts: so a
peer that accepts and closes, or a second process of our name, is dialled about once a second.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from dledger.log.commit_log import CommitLog
from dledger.raft.driver.tasks import end_task
from dledger.raft.fail_stop import FailStop
from dledger.raft.links.frame_stream import FrameStream
from dledger.raft.links.greeting import (
    REASON_SIZE_MAX,
    LinkIdentity,
    encode_greeting,
    parse_answer,
)
from dledger.raft.links.peer_address import PeerAddress
from dledger.raft.wire import loading, message_codec
from dledger.raft.wire.link_frame import MESSAGES_PER_FRAME_MAX, encode_frame
from dledger.raft.wire.messages import AppendRequest, Message
from dledger.trace import Trace
from dledger.types import Buffer, MemberId
from dledger_proto.limits import (
    FRAME_SIZE_MAX,
    FRAME_SIZE_TARGET,
    MIB,
    RECONNECT_BACKOFF_MAX_MS,
    RECONNECT_BACKOFF_MIN_MS,
)
from dledger_proto.network.tls import TlsFolder, member_name
from dledger_proto.network.tls_words import explained

MESSAGE_SIZE_GUESS: Final = 256
"""Counted for a message besides the entries it carries."""
LINK_QUEUE_BYTES_SLACK: Final = 16 * MIB
"""A queue may hold so much above the group's bytes in flight; beyond it the link is reset."""
DIAL_TIMEOUT_SECONDS: Final = 1.0
LASTING_SECONDS: Final = RECONNECT_BACKOFF_MAX_MS / 1000
"""A link that stood for so long has lasted."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Times in seconds, sizes in bytes."""

    redial_timeout: float = 0.05
    tls: TlsFolder | None = None
    queue_bytes_max: int = 16 * MIB + LINK_QUEUE_BYTES_SLACK


class LinkEvents(Protocol):
    """Whom a link tells; all calls come on the loop's thread."""

    def link_up(self, peer: MemberId) -> None:
        """The peer accepted our link; its queue is empty."""
        ...

    def link_down(self, peer: MemberId) -> None:
        """The link broke; what was queued is dropped."""
        ...

    def dial_failed(self, peer: MemberId) -> None:
        """The first dial after a broken link was refused or unanswered (D17).

        Not told when the peer accepts and the link breaks again: `link_down` gives the group the
        same limit, and the other direction may stand.
        """
        ...

    def received(self, peer: MemberId, message: Message) -> None:
        """A message of `peer` arrived, in the order it was sent."""
        ...

    def failed(self, error: BaseException) -> None:
        """The disk refused, or gave back damaged bytes, when entries were read for a peer.

        Or a link met an error that nobody has thought of: the member must not go on without it.
        """
        ...


class _Connection:
    """A connection that this end has dialled, until it ends. Its stream tells it."""

    def __init__(self, greeting: bytes, peer_name: str, writable: Callable[[], None]) -> None:
        """`peer_name`: what the listener's certificate must say; empty without TLS."""
        self._greeting = greeting
        self._peer_name = peer_name
        self.writable = writable
        loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[str] = loop.create_future()
        """Why the listener refuses; "" accepts."""
        self.ended: asyncio.Future[str] = loop.create_future()
        """Why the connection has ended."""
        self.stream = FrameStream(self, REASON_SIZE_MAX)

    def opened(self, stream: FrameStream) -> None:
        if self._peer_name and self._peer_name not in stream.peer_names:
            held = ", ".join(sorted(stream.peer_names)) or "no name of dledger"
            stream.close(f"its certificate is of {held}, not of {self._peer_name}")
        else:
            stream.write([self._greeting])

    def frame_came(self, frame: Buffer) -> None:
        if self.answered.done():
            self.stream.close("the listener sent more than its answer")
        else:
            self.answered.set_result(parse_answer(frame))

    def too_large(self, reason: str) -> None:
        """`closed` says it."""

    def closed(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)
        if not self.answered.done():
            self.answered.set_result(f"closed before it was accepted: {reason}")


class PeerLink:
    """The dialling end of one ordered pair."""

    def __init__(
        self,
        identity: LinkIdentity,
        peer: MemberId,
        address: str,
        events: LinkEvents,
        log: CommitLog,
        pool: Executor,
        random: Random,
        trace: Trace,
        settings: LinkSettings,
    ) -> None:
        self._identity = identity
        self._peer = peer
        self._address = address
        self._place = PeerAddress(address)
        self._events = events
        self._log = log
        self._pool = pool
        self._random = random
        self._settings = settings
        self._queue: deque[Message] = deque()
        self._queue_bytes = 0
        self._heard = asyncio.Event()
        self._connection: _Connection | None = None
        """The accepted connection, while the link is up."""
        self._will_flush = False
        self._is_reading = False
        """The entries of the first message in the queue are read from the disk."""
        self._task: asyncio.Task[None] | None = None
        self._last_reason = ""
        self._told_dial_failed = False
        """Of the newest dial."""
        self._trace = trace
        self._or_fail = FailStop(self._ends_here)

    def start(self) -> None:
        """Begin to dial."""
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"link {self._identity.group} to {self._peer}"
        )

    async def stop(self) -> None:
        """Close the link; no event comes after."""
        await end_task(self._task)
        self._task = None

    @property
    def is_up(self) -> bool:
        """Tell whether the peer has accepted this link, and it stands."""
        return self._connection is not None

    def send(self, message: Message) -> None:
        """Queue a message; dropped while the link is down. Over the bound the link is reset."""
        connection = self._connection
        if connection is None:
            return
        self._queue.append(message)
        self._queue_bytes += _data_size(message)
        if self._queue_bytes > self._settings.queue_bytes_max:
            connection.stream.close(
                f"{self._queue_bytes} bytes queued, at most {self._settings.queue_bytes_max}"
            )
        elif not self._will_flush:
            # With the other messages of this turn of the loop, in one frame.
            self._will_flush = True
            asyncio.get_running_loop().call_soon(self.flush)

    def peer_heard(self) -> None:
        """The peer dialled us, so it lives: end our back-off."""
        self._heard.set()

    # Dialling.

    async def _run(self) -> None:
        with self._or_fail:
            await self._dial_for_ever()

    def _ends_here(self, error: BaseException) -> bool:
        if not isinstance(error, Exception):
            return False  # the end of the task
        self._events.failed(error)
        return True

    async def _dial_for_ever(self) -> None:
        was_up = False
        backoff_ms = RECONNECT_BACKOFF_MIN_MS
        while True:
            self._heard.clear()
            stood = await self._connect(again=was_up)
            if stood is None and was_up:
                self._tell_dial_failed()
            was_up = stood is not None
            if stood is not None and stood >= LASTING_SECONDS:
                backoff_ms = RECONNECT_BACKOFF_MIN_MS
                continue
            # Two ends whose links break at once would wake each other for ever.
            await self._back_off(backoff_ms, until_heard=not was_up)
            backoff_ms = min(2 * backoff_ms, RECONNECT_BACKOFF_MAX_MS)

    async def _back_off(self, backoff_ms: int, *, until_heard: bool) -> None:
        seconds = backoff_ms / 1000 * self._random.uniform(0.8, 1.0)
        if not until_heard:
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._heard.wait()
        except TimeoutError:
            return

    async def _connect(self, *, again: bool) -> float | None:
        """Dial, and serve an accepted link to its end; return for how many seconds it stood.

        None: it was not accepted in time. `again`: it is the first dial after a link.
        """
        mine, tls = self._identity, self._settings.tls
        name = "" if tls is None else member_name(mine.cluster, mine.group, self._peer)
        connection = _Connection(encode_greeting(mine.greeting(self._peer)), name, self.flush)
        loop = asyncio.get_running_loop()
        self._told_dial_failed = False
        late: asyncio.TimerHandle | None = None
        if again:
            late = loop.call_later(self._settings.redial_timeout, self._tell_dial_failed)
        try:
            refusal = await self._dial(connection, again=again)
            if late is not None:
                late.cancel()
            if refusal:
                self._say_once(explained(refusal))
                return None
            since = loop.time()
            await self._serve(connection)
            return loop.time() - since
        finally:
            if late is not None:
                late.cancel()
            connection.stream.close("this end closes")

    def _tell_dial_failed(self) -> None:
        """Tell the group once that the first dial after a link has no answer in time."""
        if not self._told_dial_failed:
            self._told_dial_failed = True
            with self._or_fail:
                self._events.dial_failed(self._peer)

    async def _dial(self, connection: _Connection, *, again: bool) -> str:
        """Return why there is no accepted link; "" when there is one."""
        timeout = DIAL_TIMEOUT_SECONDS
        if again:
            timeout = max(timeout, self._settings.redial_timeout)
        place, reason = self._place, ""
        try:
            async with asyncio.timeout(timeout):
                for host in await place.hosts(again=again):
                    place.tries(host)
                    try:
                        await self._open(connection.stream, host)
                    except OSError as error:
                        reason = f"{type(error).__name__}: {error}"
                        continue
                    reason = await connection.answered
                    if not reason:
                        place.reached(host)
                    break
        except TimeoutError:
            return f"no answer for {timeout} s"
        except OSError as error:
            return f"{type(error).__name__}: {error}"
        return reason

    async def _open(self, stream: FrameStream, host: str) -> None:
        """Connect to a host of the peer, and prove who both ends are when there is TLS."""
        loop, place, tls = asyncio.get_running_loop(), self._place, self._settings.tls
        if tls is None:
            await loop.create_connection(lambda: stream, host, place.port)
        else:
            await loop.create_connection(
                lambda: stream, host, place.port,
                ssl=tls.current().dialling, server_hostname=place.name,
            )  # fmt: skip

    def _say_once(self, reason: str) -> None:
        """Log why a dial failed, once for each new reason."""
        if reason != self._last_reason:
            self._last_reason = reason
            self._trace.event(
                "peer_not_reached", peer=self._peer, address=self._address, reason=reason
            )

    async def _serve(self, connection: _Connection) -> None:
        self._last_reason = ""
        self._forget_queue()
        self._connection = connection
        self._trace.event("link_up", peer=self._peer, address=self._address)
        self._events.link_up(self._peer)
        try:
            reason = await connection.ended
        finally:
            self._connection = None
            self._forget_queue()
        self._trace.event("link_down", peer=self._peer, reason=reason)
        self._events.link_down(self._peer)

    def _forget_queue(self) -> None:
        self._queue.clear()
        self._queue_bytes = 0
        self._is_reading = False

    # Sending.

    def flush(self) -> None:
        """Write what waits, as far as the connection takes it and it is in memory."""
        self._will_flush = False
        with self._or_fail:
            self._write_out()

    def _write_out(self) -> None:
        connection = self._connection
        while connection is not None and self._queue and not self._is_reading:
            if connection.stream.is_full:
                return  # the stream calls `flush` when it has room
            encoded = self._take_encoded()
            if encoded:
                connection.stream.write(encode_frame(encoded))
            else:
                self._read_first(connection)

    def _take_encoded(self) -> list[list[Buffer]]:
        """Take messages off the queue, for one frame: those before one that lies on disk."""
        encoded: list[list[Buffer]] = []
        size = 0
        while self._queue and size < FRAME_SIZE_TARGET and len(encoded) < MESSAGES_PER_FRAME_MAX:
            message = self._queue[0]
            data_size = _data_size(message)
            if _is_on_disk(message) or (encoded and size + data_size > FRAME_SIZE_MAX // 2):
                break
            self._queue.popleft()
            self._queue_bytes -= data_size
            encoded.append(message_codec.encode(message))
            size += data_size
        return encoded

    def _read_first(self, connection: _Connection) -> None:
        """Read the entries of the first message in the pool; then go on."""
        message = self._queue[0]
        self._is_reading = True
        read = asyncio.get_running_loop().run_in_executor(
            self._pool, loading.load, message, self._log
        )
        read.add_done_callback(lambda done: self._was_read(connection, message, done))

    def _was_read(
        self, connection: _Connection, message: Message, read: "asyncio.Future[Message | None]"
    ) -> None:
        """Put the entries that were read into the first message, or drop the message."""
        if self._connection is not connection:  # the link has ended: nobody asks any more
            _ = read.cancelled() or read.exception()
            return
        self._is_reading = False
        loaded: Message | None = None
        with self._or_fail:
            if not read.cancelled():
                loaded = read.result()
                if loaded is None:
                    loading.check_held(message, self._log)
            if loaded is None:
                self._trace.event(
                    "append_request_dropped", peer=self._peer, what=message.describe()
                )
        if self._connection is not connection:
            return
        if loaded is None:
            self._queue_bytes -= _data_size(self._queue.popleft())
        else:
            self._queue[0] = loaded
        self.flush()


def _is_on_disk(message: Message) -> bool:
    payload = loading.payload_of(message)
    return payload is not None and payload.buffers is None


def _data_size(message: Message) -> int:
    """Return the bytes of log a message carries, plus something for the message itself."""
    if isinstance(message, AppendRequest) and message.payload is not None:
        return MESSAGE_SIZE_GUESS + message.payload.size
    return MESSAGE_SIZE_GUESS
