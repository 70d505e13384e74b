"""Peer links: one gRPC stream per ordered pair of members of a group, first in first out.

Owns dialling, framing, the bounded queue of each link, and saying at once when a connection closed.
Not owned: what the messages mean (`message`, `group`). The dialler sends, the listener receives;
answers travel on the stream the other way round. A pair is thus two streams, each in order.

A frame is one gRPC message and carries every message that waits, up to about a megabyte, because
gRPC's cost in Python is per message (little-endian):

     0  4  magic "DLK1"     4  2  version (1)     6  2  count
     8  ..  count times: size u32 ; then the messages (`message.encode`)

A heartbeat that stands behind append data waits for at most the group's bytes in flight to this
peer (`GroupSettings.inflight_bytes_max`), and each data frame in front of it is itself a sign of
life of the leader; so there is one queue, and order needs no second rule.

The greeting is metadata: cluster, group, sender, receiver, incarnation. A listener that is someone
else refuses WRONG_CLUSTER; the accepted answer is one empty frame. The link is up when that frame
arrived and down when the call ended. After a link went down it is redialled once, at once; if that
is refused, or unanswered for `redial_timeout`, `dial_failed` tells the group (D17); from then on
with back-off. Every dial has a channel and a connection of its own, or gRPC's shared back-off and
its shared sub-channels would decide when we hear of a dead peer.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol, cast

import grpc
import grpc.aio

from dledger.log.errors import DamagedFile
from dledger.raft.api import PeerMessage
from dledger.raft.driver.tasks import end_task
from dledger.raft.log_port import RaftLog
from dledger.raft.wire import loading, message_codec
from dledger.raft.wire.messages import AppendRequest, Message
from dledger.trace import Trace
from dledger.types import Buffer, MemberId
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import (
    FRAME_SIZE_MAX,
    FRAME_SIZE_TARGET,
    MIB,
    RECONNECT_BACKOFF_MAX_MS,
    RECONNECT_BACKOFF_MIN_MS,
)
from dledger_proto.rpc import raw, status
from dledger_proto.rpc.aio import open_channel

MAGIC: Final = b"DLK1"
VERSION: Final = 1
MESSAGES_PER_FRAME_MAX: Final = 1_024
MESSAGE_SIZE_GUESS: Final = 256
"""Counted for a message besides the entries it carries."""
LINK_QUEUE_BYTES_SLACK: Final = 16 * MIB
"""What a link's queue may hold above the group's bytes in flight; beyond it the link is reset."""
LINES_MAX: Final = 20
"""Of a process about links it refused, each reason once: a stranger has as many as it likes."""
DIAL_TIMEOUT_SECONDS: Final = 1.0
KEEPALIVE_MS: Final = 10_000
KEEPALIVE_TIMEOUT_MS: Final = 1_000
"""A connection is tried every so often, and given up when no answer comes in time: a cut network
leaves connections that only retransmission timers, of minutes, would end. With six connections a
ping every second is a seventh of what an idle group costs; while data waits for its receipt the
kernel gives up after the timeout by itself (gRPC sets TCP_USER_TIMEOUT)."""

_HEAD = struct.Struct("<4sHH")


class BadLinkFrame(ValueError):
    """Bytes on a peer link that are no frame of ours; the link is closed."""


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """Who this end of a link is."""

    cluster: str
    group: str
    member: MemberId
    incarnation: bytes


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

    def received(self, peer: MemberId, message: PeerMessage) -> None:
        """A message of `peer` arrived, in the order it was sent."""
        ...

    def failed(self, error: BaseException) -> None:
        """The disk refused, or gave back damaged bytes, when entries were read for a peer."""
        ...


def encode_frame(encoded: list[list[Buffer]]) -> bytes:
    """Return one frame that carries messages, each given as its list of buffers."""
    sizes = [sum(len(buffer) for buffer in buffers) for buffers in encoded]
    head = _HEAD.pack(MAGIC, VERSION, len(sizes)) + struct.pack(f"<{len(sizes)}I", *sizes)
    return b"".join([head, *(buffer for buffers in encoded for buffer in buffers)])


def parse_frame(frame: bytes) -> list[memoryview]:
    """Return the messages of a frame as views; BadLinkFrame when it is none of ours."""
    if len(frame) < _HEAD.size:
        raise BadLinkFrame(f"{len(frame)} bytes, a frame has at least {_HEAD.size}")
    magic, version, count = _HEAD.unpack_from(frame)
    if magic != MAGIC or version != VERSION or count > MESSAGES_PER_FRAME_MAX:
        raise BadLinkFrame(f"magic {magic!r} version {version} count {count}")
    start = _HEAD.size + 4 * count
    if len(frame) < start:
        raise BadLinkFrame(f"{len(frame)} bytes for {count} messages")
    sizes: tuple[int, ...] = struct.unpack_from(f"<{count}I", frame, _HEAD.size)
    if start + sum(sizes) != len(frame):
        raise BadLinkFrame(f"sizes add up to {start + sum(sizes)} of {len(frame)} bytes")
    view = memoryview(frame)
    found: list[memoryview] = []
    for size in sizes:
        found.append(view[start : start + size])
        start += size
    return found


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
        log: RaftLog,
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

    @property
    def is_up(self) -> bool:
        """True between `link_up` and `link_down`."""
        return self._up

    @property
    def queue_bytes(self) -> int:
        """Bytes queued and not handed to gRPC."""
        return self._queue_bytes

    def start(self) -> None:
        """Begin to dial."""
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"link {self._identity.group} to {self._peer}"
        )

    async def stop(self) -> None:
        """Close the link; no event comes after."""
        await end_task(self._task)
        self._task = None

    def send(self, message: PeerMessage) -> None:
        """Queue a message; dropped while the link is down. Over the bound the link is reset."""
        if not self._up:
            return
        assert isinstance(message, Message), type(message)
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
        identity = self._identity
        metadata = (
            ("dledger-cluster", identity.cluster),
            ("dledger-group", identity.group),
            ("dledger-member", identity.member),
            ("dledger-to", self._peer),
            ("dledger-incarnation", identity.incarnation.hex()),
        )
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


@dataclass(frozen=True, slots=True)
class LinkTarget:
    """Where a listener delivers what peers of one group send."""

    member: MemberId
    peers: frozenset[MemberId]
    events: LinkEvents
    heard: Mapping[MemberId, PeerLink]
    """Our own links by peer, told when the peer dials us."""


class PeerListener:
    """The accepting end of every link of a process, for all its groups."""

    def __init__(self, cluster: str, trace: Trace) -> None:
        self._cluster = cluster
        self._targets: dict[str, LinkTarget] = {}
        self._sessions: dict[tuple[str, str], int] = {}
        self._said: set[tuple[str, str]] = set()
        self._trace = trace

    def add_group(self, group: str, target: LinkTarget) -> None:
        """Accept links of a group from here on."""
        self._targets[group] = target

    def remove_group(self, group: str) -> None:
        """Refuse links of a group, and end those that are up at their next frame."""
        self._targets.pop(group, None)

    def handlers(self) -> raw.RawService:
        """Return what a gRPC server registers."""
        return raw.raw_handlers(raw.PEERS_SERVICE, {"Link": raw.StreamMethod(self._link)})

    async def _link(self, _requests: object, context: raw.RawContext) -> None:
        said = {key: str(value) for key, value in context.invocation_metadata() or ()}
        try:
            group, sender, target = self._greet(said)
        except DledgerError as error:
            self._say_once("link_refused", str(error), context.peer())
            await status.abort(context, error)
        session = self._sessions[group, sender] = self._sessions.get((group, sender), 0) + 1
        await context.write(encode_frame([]))
        link = target.heard.get(sender)
        if link is not None:
            link.peer_heard()
        receive = cast("Callable[[], Awaitable[object]]", context.read)  # bytes, or EOF
        while isinstance(frame := await receive(), bytes):
            if self._sessions[group, sender] != session or self._targets.get(group) is not target:
                return  # the peer dialled again: nothing of the older stream may come behind
            try:
                decoded = deque(message_codec.decode(view) for view in parse_frame(frame))
            except ValueError as error:
                self._say_once("link_garbled", str(error), context.peer(), kind=sender)
                return
            del frame  # or it stays in memory until the next one comes
            while decoded:
                target.events.received(sender, decoded.popleft())

    def _say_once(self, event: str, reason: str, address: str, kind: str = "") -> None:
        """Log each kind of refusal once (the reason, if it has no other name), and not many."""
        what = (event, kind or reason)
        if what not in self._said and len(self._said) < LINES_MAX:
            self._said.add(what)
            self._trace.event(event, reason=reason, address=address)

    def _greet(self, said: Mapping[str, str]) -> tuple[str, MemberId, LinkTarget]:
        """Check who dials whom; DledgerError WRONG_CLUSTER naming what does not match."""
        group = said.get("dledger-group", "")
        target = self._targets.get(group)
        if said.get("dledger-cluster") != self._cluster:
            raise _wrong("cluster", said.get("dledger-cluster"), self._cluster)
        if target is None:
            raise _wrong("group", group, ", ".join(self._targets) or "none yet")
        if said.get("dledger-to") != target.member:
            raise _wrong("receiver", said.get("dledger-to"), target.member)
        sender = MemberId(said.get("dledger-member", ""))
        if sender not in target.peers:
            raise _wrong("sender", sender, "one of " + ", ".join(sorted(target.peers)))
        return group, sender, target


def _wrong(field: str, said: object, expected: str) -> DledgerError:
    return DledgerError(
        Code.WRONG_CLUSTER, f"peer handshake: {field} is {said!r}, this member expects {expected}"
    )
