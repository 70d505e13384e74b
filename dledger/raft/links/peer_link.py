"""The dialling end of a peer link: one gRPC stream to one other member, first in first out.

Owns: dialling, the bounded queue, and saying at once when the connection closed. Does not own the
bytes of a frame (`wire/link_frame.py`), what messages mean (`raft/group.py`), nor the accepting end
(`peer_listener.py`). The dialler sends and the listener receives. Answers travel on the stream of
the other direction, so a pair of members has two streams, each in order.

A link has one queue. A heartbeat behind append data waits for at most the group's bytes in flight
to this peer (`GroupSettings.inflight_bytes_max`), and each data frame before it is itself a sign of
life of the leader.

The link is up when the listener's first frame arrived, and down when the call ended. After a link
went down it is redialled once, at once. If that is refused, or unanswered for `redial_timeout`,
`dial_failed` tells the group (D17). From then on the link backs off. Each dial has a channel and a
connection of its own. With shared ones gRPC's back-off would decide when this member hears of a
dead peer.
"""

import asyncio
from collections import deque
from concurrent.futures import Executor
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

import grpc
import grpc.aio

from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedFile
from dledger.raft.driver.tasks import end_task
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
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import open_channel

MESSAGE_SIZE_GUESS: Final = 256
"""Counted for a message besides the entries it carries."""
LINK_QUEUE_BYTES_SLACK: Final = 16 * MIB
"""A queue may hold so much above the group's bytes in flight; beyond it the link is reset."""
DIAL_TIMEOUT_SECONDS: Final = 1.0
KEEPALIVE_MS: Final = 10_000
KEEPALIVE_TIMEOUT_MS: Final = 1_000
"""A silent connection is pinged every `KEEPALIVE_MS`, and given up without an answer in this time.
A cut network leaves connections that only retransmission timers, of minutes, would end. With six
connections a ping each second is a seventh of what an idle group costs. While data waits for its
receipt, the kernel itself gives up after the timeout (gRPC sets TCP_USER_TIMEOUT)."""


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """Who this end of a link is."""

    cluster: str
    group: str
    member: MemberId
    incarnation: bytes

    def greeting(self, peer: MemberId) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a stream to a peer."""
        return (
            ("dledger-cluster", self.cluster),
            ("dledger-group", self.group),
            ("dledger-member", self.member),
            ("dledger-to", peer),
            ("dledger-incarnation", self.incarnation.hex()),
        )


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Times in seconds, sizes in bytes."""

    redial_timeout: float = 0.05
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
        """The redial after a broken link was refused or unanswered (D17)."""
        ...

    def received(self, peer: MemberId, message: Message) -> None:
        """A message of `peer` arrived, in the order it was sent."""
        ...

    def failed(self, error: BaseException) -> None:
        """The disk refused, or gave back damaged bytes, when entries were read for a peer."""
        ...


def channel_options() -> list[tuple[str, int]]:
    """Return the options of a peer's channel: its own connection, tried when silent."""
    return [
        ("grpc.use_local_subchannel_pool", 1),
        *raw.CHANNEL_OPTIONS,
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", RECONNECT_BACKOFF_MIN_MS),
        ("grpc.min_reconnect_backoff_ms", RECONNECT_BACKOFF_MIN_MS),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_BACKOFF_MAX_MS),
    ]


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
        self._events = events
        self._log = log
        self._pool = pool
        self._random = random
        self._settings = settings
        self._queue: deque[Message] = deque()
        self._queue_bytes = 0
        self._wake = asyncio.Event()
        self._heard = asyncio.Event()
        self._up = False
        self._broken = ""
        self._task: asyncio.Task[None] | None = None
        self._last_reason = ""
        self._trace = trace

    def start(self) -> None:
        """Begin to dial."""
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"link {self._identity.group} to {self._peer}"
        )

    async def stop(self) -> None:
        """Close the link; no event comes after."""
        await end_task(self._task)
        self._task = None

    def send(self, message: Message) -> None:
        """Queue a message; dropped while the link is down. Over the bound the link is reset."""
        if not self._up:
            return
        self._queue.append(message)
        self._queue_bytes += _data_size(message)
        if self._queue_bytes > self._settings.queue_bytes_max:
            self._broken = f"{self._queue_bytes} bytes queued, at most " + str(
                self._settings.queue_bytes_max
            )
        self._wake.set()

    def peer_heard(self) -> None:
        """The peer dialled us, so it lives: end our back-off."""
        self._heard.set()

    async def _run(self) -> None:
        redial = False
        backoff_ms = RECONNECT_BACKOFF_MIN_MS
        while True:
            timeout = self._settings.redial_timeout if redial else DIAL_TIMEOUT_SECONDS
            self._heard.clear()
            channel = open_channel(self._address, options=channel_options())
            try:
                call = await self._dial(channel, timeout)
                if call is not None:
                    await self._serve(call)
                    redial = True
                    backoff_ms = RECONNECT_BACKOFF_MIN_MS
                    continue
            finally:
                await channel.close(None)
            if redial:
                self._events.dial_failed(self._peer)
            redial = False
            await self._back_off(backoff_ms)
            backoff_ms = min(2 * backoff_ms, RECONNECT_BACKOFF_MAX_MS)

    async def _back_off(self, backoff_ms: int) -> None:
        seconds = backoff_ms / 1000 * self._random.uniform(0.8, 1.0)
        try:
            async with asyncio.timeout(seconds):
                await self._heard.wait()
        except TimeoutError:
            return

    async def _dial(self, channel: grpc.aio.Channel, timeout: float) -> "raw.RawStreamCall | None":
        metadata = self._identity.greeting(self._peer)
        call: raw.RawStreamCall = raw.raw_stream(channel, raw.LINK)(metadata=metadata)
        try:
            async with asyncio.timeout(timeout):
                answer = await call.read()
        except TimeoutError:
            self._say_once(f"no answer for {timeout} s")
            return None
        except grpc.aio.AioRpcError as error:
            self._say_once(f"{error.code().name}: {error.details()}")
            return None
        if not isinstance(answer, bytes):
            self._say_once("closed before it was accepted")
            return None
        return call

    def _say_once(self, reason: str) -> None:
        """Log why a dial failed, once for each new reason."""
        if reason != self._last_reason:
            self._last_reason = reason
            self._trace.event(
                "peer_not_reached", peer=self._peer, address=self._address, reason=reason
            )

    async def _serve(self, call: raw.RawStreamCall) -> None:
        self._last_reason = self._broken = ""
        self._queue.clear()
        self._queue_bytes = 0
        self._up = True
        self._wake.clear()
        call.add_done_callback(lambda _: self._break("connection closed"))
        self._trace.event("link_up", peer=self._peer, address=self._address)
        self._events.link_up(self._peer)
        try:
            await self._send_all(call)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            self._broken = self._broken or f"{type(error).__name__}: {error}".split("\n")[0]
        finally:
            self._up = False
            self._queue.clear()
            self._queue_bytes = 0
            call.cancel()
        self._trace.event("link_down", peer=self._peer, reason=self._broken)
        self._events.link_down(self._peer)

    def _break(self, reason: str) -> None:
        if self._up:
            self._broken = self._broken or reason
            self._wake.set()

    async def _send_all(self, call: raw.RawStreamCall) -> None:
        while not self._broken:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            frame = await self._next_frame()
            if frame is not None and not self._broken:
                await call.write(frame)

    async def _next_frame(self) -> bytes | None:
        """Return a frame of the first waiting messages; None when the log lost what they carry."""
        encoded: list[list[Buffer]] = []
        size = 0
        while self._queue and size < FRAME_SIZE_TARGET and len(encoded) < MESSAGES_PER_FRAME_MAX:
            data_size = _data_size(self._queue[0])
            if encoded and size + data_size > FRAME_SIZE_MAX // 2:
                break
            message = self._queue.popleft()
            self._queue_bytes -= data_size
            buffers = await self._buffers_of(message)
            if buffers is not None:
                encoded.append(buffers)
                size += sum(len(buffer) for buffer in buffers)
        return encode_frame(encoded) if encoded else None

    async def _buffers_of(self, message: Message) -> list[Buffer] | None:
        """Return the message as bytes, its entries read in the pool when they lie on disk."""
        if (
            isinstance(message, AppendRequest)
            and message.payload is not None
            and message.payload.buffers is None
        ):
            loop = asyncio.get_running_loop()
            try:
                loaded = await loop.run_in_executor(self._pool, loading.load, message, self._log)
                if loaded is None:
                    loading.check_held(message, self._log)
            except (OSError, DamagedFile) as error:
                self._events.failed(error)
                return None
            if loaded is None:
                self._trace.event(
                    "append_request_dropped", peer=self._peer, what=message.describe()
                )
                return None
            message = loaded
        return message_codec.encode(message)


def _data_size(message: Message) -> int:
    """Return the bytes of log a message carries, plus something for the message itself."""
    if isinstance(message, AppendRequest) and message.payload is not None:
        return MESSAGE_SIZE_GUESS + message.payload.size
    return MESSAGE_SIZE_GUESS
