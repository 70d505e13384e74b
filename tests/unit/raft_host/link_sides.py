"""Two sides of a link over real connections on loopback, and what each was told."""

from collections.abc import AsyncIterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from random import Random
from typing import cast

from dledger.log.commit_log import CommitLog
from dledger.log.errors import DamagedLog, SpanGone
from dledger.raft.links.greeting import LinkIdentity
from dledger.raft.links.peer_link import LinkSettings, PeerLink
from dledger.raft.links.peer_listener import LinkTarget, PeerListener
from dledger.raft.wire.messages import Message, TermNotice
from dledger.types import LogIndex, MemberId, Span
from dledger_proto.network.tls import TlsFolder
from tests.list_trace import ListTrace
from tests.ports import free_port

A, B = MemberId("a"), MemberId("b")


class Events:
    """Keeps what a link told."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.received_messages: list[tuple[MemberId, Message]] = []
        self.failures: list[BaseException] = []
        self.error: Exception | None = None
        """Raised instead of taking what comes."""

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error

    def link_up(self, peer: MemberId) -> None:
        self._raise()
        self.seen.append(f"up {peer}")

    def link_down(self, peer: MemberId) -> None:
        self.seen.append(f"down {peer}")

    def dial_failed(self, peer: MemberId) -> None:
        self.seen.append(f"failed {peer}")

    def received(self, peer: MemberId, message: Message) -> None:
        self._raise()
        assert isinstance(message, Message)
        self.received_messages.append((peer, message))

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)


class SpanLog:
    """The part of a log that a link reads: spans of one byte string."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data
        self.error: BaseException | None = None
        self.damage: DamagedLog | None = None

    def entries(self, first: LogIndex, last: LogIndex, max_bytes: int, /) -> list[object]:
        """Another log by now, unless it is damaged."""
        raise self.damage or SpanGone(f"{first}..{last} of {max_bytes} bytes")

    def read_span(self, span: Span, /) -> bytes:
        if self.error is not None:
            raise self.error
        return self.data[span.position : span.position + span.size]


class Side:
    """One process: a server with a listener, and a link to the other."""

    def __init__(
        self,
        member: MemberId,
        peer: MemberId,
        port: int,
        cluster: str = "c",
        tls: TlsFolder | None = None,
    ) -> None:
        self.member, self.peer, self.port = member, peer, port
        self.events = Events()
        self.trace = ListTrace()
        self.log = SpanLog()
        self.pool: Executor = ThreadPoolExecutor(1)
        self.identity = LinkIdentity(cluster, "g", member, bytes(16))
        self.listener = PeerListener("c", self.trace, tls)

    def link(self, address: str, settings: LinkSettings | None = None) -> PeerLink:
        return PeerLink(
            self.identity,
            self.peer,
            address,
            self.events,
            cast("CommitLog", self.log),
            self.pool,
            Random(1),
            self.trace,
            settings or LinkSettings(redial_timeout=1.0),
        )

    async def listen(self) -> None:
        self.listener.add_group(
            "g", LinkTarget(self.member, frozenset({self.peer}), self.events, {})
        )
        await self.listener.listen(f"127.0.0.1:{self.port}")

    def stop(self) -> None:
        self.listener.close()


@asynccontextmanager
async def pair(
    cluster: str = "c", settings: LinkSettings | None = None
) -> AsyncIterator[tuple[Side, Side, PeerLink]]:
    """Yield a dialling side, a listening side and the link between them, started."""
    dialler = Side(A, B, free_port(), cluster)
    listener = Side(B, A, free_port())
    await listener.listen()
    link = dialler.link(f"127.0.0.1:{listener.port}", settings)
    link.start()
    try:
        yield dialler, listener, link
    finally:
        await link.stop()
        listener.stop()


def notice(term: int) -> TermNotice:
    return TermNotice(term, session=1, sequence=term)
