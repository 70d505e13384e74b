"""The accepting end of peer links: who may send to this member, and what arrives.

Owns: the check of the greeting, one current link of each sender, decoding, and what strangers may
take: so many connections, so many bytes, so much time. Does not own the bytes on a connection
(`frame_stream.py`, `greeting.py`), what the messages mean (`raft/group.py`), nor the dialling end
(`peer_link.py`).

A listener that is someone else than the greeting says refuses it as WRONG_CLUSTER, with the reason.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from dledger.raft.links.frame_stream import FrameStream
from dledger.raft.links.greeting import (
    GREETING_SIZE_MAX,
    BadGreeting,
    encode_answer,
    parse_greeting,
)
from dledger.raft.links.handshake import SecureServer
from dledger.raft.links.line_budget import LineBudget
from dledger.raft.links.peer_link import LinkEvents, PeerLink
from dledger.raft.links.strangers import Stage, Strangers
from dledger.raft.wire import message_codec
from dledger.raft.wire.link_frame import parse_frame
from dledger.trace import Trace
from dledger.types import Buffer, MemberId
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import FRAME_SIZE_MAX
from dledger_proto.network.addresses import split_address
from dledger_proto.network.tls import TlsFolder, is_member_of, member_name
from dledger_proto.network.tls_words import explained, meaning

GREETING_SECONDS: Final = 5.0
"""A connection that has not been accepted after so long is closed."""
STRANGERS_MAX: Final = 64
"""With so many connections that have not been accepted and are equally far, above one for each peer
of each group, one is closed. All peers may dial at once."""


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

    def __init__(self, cluster: str, trace: Trace, tls: TlsFolder | None = None) -> None:
        """`tls`: whoever dials proves by its certificate who it is."""
        self._cluster = cluster
        self._tls = tls
        self._targets: dict[str, LinkTarget] = {}
        self._current: dict[tuple[str, MemberId], _Accepted] = {}
        """The newest link of each sender."""
        self._strangers: Strangers[_Accepted] = Strangers()
        """Connections that have not been accepted."""
        self._strangers_max = STRANGERS_MAX
        self._server: asyncio.Server | SecureServer | None = None
        self._is_closed = False
        self._lines = LineBudget()
        self._trace = trace

    def add_group(self, group: str, target: LinkTarget) -> None:
        """Accept links of a group from here on."""
        self._targets[group] = target
        peers = sum(len(each.peers) for each in self._targets.values())
        self._strangers_max = STRANGERS_MAX + peers

    async def listen(self, address: str) -> None:
        """Take the port; OSError when it is taken. Links are accepted once their group is added."""
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        # As gRPC on this host: every address of the machine, of both families.
        on = None if host == "[::]" else host.strip("[]")
        if self._tls is None:
            self._server = await loop.create_server(lambda: _Accepted(self).stream, on, port)
        else:
            secure = SecureServer(self._tls, lambda: _Accepted(self), GREETING_SECONDS)
            secure.listen(on, port)
            self._server = secure

    def close(self) -> None:
        """Take no more links, and end those that stand.

        The loop may still hand over connections that it had taken from the backlog.
        """
        self._is_closed = True
        self._targets.clear()
        if self._server is not None:
            self._server.close()
        for each in (*self._strangers, *self._current.values()):
            each.close("this member ends")

    def greet(
        self, said: Mapping[str, str], names: frozenset[str]
    ) -> tuple[str, MemberId, LinkTarget]:
        """Check who dials whom by the greeting; WRONG_CLUSTER naming what does not match.

        `names`: what the caller's certificate says. With TLS the sender must be among them.
        """
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
        name = member_name(self._cluster, group, sender)
        if self._tls is not None and name not in names:
            raise _wrong("certificate", ", ".join(sorted(names)), name)
        return group, sender, target

    # What connections tell.

    def stranger(self, accepted: "_Accepted", address: str, stage: Stage) -> None:
        """Bound how many connections have come so far and wait."""
        if self._is_closed:
            accepted.close("this member ends")
            return
        host = address.rpartition(":")[0]
        gone = self._strangers.put(accepted, host, stage, self._strangers_max)
        if gone is not None:
            gone.close("too many strangers")

    def is_stranger(self, stream: FrameStream) -> bool:
        """Tell whether a connection must be closed unread: no member of the cluster dialled it."""
        return self._tls is not None and not is_member_of(stream.peer_names, self._cluster)

    def greeted(self, accepted: "_Accepted", frame: Buffer) -> None:
        """Accept a link, or refuse it and say why."""
        stream = accepted.stream
        try:
            group, sender, target = self.greet(parse_greeting(frame), stream.peer_names)
        except (BadGreeting, DledgerError) as error:
            if self._targets:  # or this member is still opening its groups: peers dial again
                self.say_once("link_refused", str(error), stream.peer_address)
            stream.write([encode_answer(str(error))])
            stream.close("refused", at_once=False)
            return
        self._strangers.drop(accepted)
        older = self._current.get((group, sender))
        self._current[group, sender] = accepted
        accepted.source = group, sender
        accepted.target = target
        stream.frame_size_max = FRAME_SIZE_MAX
        if older is not None:
            older.stream.close("the peer dialled again")
        stream.write([encode_answer("")])
        link = target.heard.get(sender)
        if link is not None:
            link.peer_heard()

    def is_current(self, accepted: "_Accepted") -> bool:
        """Tell whether a link is the newest of its sender, of a group that is still served so."""
        group, _ = accepted.source
        return (
            self._current.get(accepted.source) is accepted
            and self._targets.get(group) is accepted.target
        )

    def ended(self, accepted: "_Accepted") -> None:
        """Forget a connection."""
        self._strangers.drop(accepted)
        if self._current.get(accepted.source) is accepted:
            del self._current[accepted.source]

    def say_once(self, event: str, reason: str, address: str, kind: str = "") -> None:
        """Log each kind of refusal once (the reason, if it has no other name), and not many."""
        what = f"{event} {kind or reason}"
        if self._lines.may_say(what, asyncio.get_running_loop().time()):
            self._trace.event(event, reason=reason, address=address)


class _Accepted:
    """A connection that somebody dialled to this process. Its stream tells it."""

    def __init__(self, listener: PeerListener) -> None:
        self._listener = listener
        self.source: tuple[str, MemberId] = ("", MemberId(""))
        """Group and sender of an accepted link."""
        self.target: LinkTarget | None = None
        """Where an accepted link delivers."""
        self._timer: asyncio.TimerHandle | None = None
        self._end_handshake: Callable[[], object] | None = None
        """Closes the bare connection, while TLS is being agreed on."""
        self.stream = FrameStream(self, GREETING_SIZE_MAX)

    def dialled(self, end: Callable[[], object], address: str, *, has_begun: bool) -> None:
        """See `handshake.Newcomer`."""
        self._end_handshake = end
        self._listener.stranger(self, address, Stage.BEGUN if has_begun else Stage.SILENT)

    def began(self, address: str) -> None:
        """See `handshake.Newcomer`."""
        self._listener.stranger(self, address, Stage.BEGUN)

    def refused(self, reason: str, address: str) -> None:
        """See `handshake.Newcomer`."""
        kind = f"TLS {meaning(reason)}"
        self._listener.say_once("link_refused", explained(reason), address, kind=kind)

    def opened(self, stream: FrameStream) -> None:
        self._end_handshake = None
        if self._listener.is_stranger(stream):
            reason = "its certificate is of no member of this cluster"
            self._listener.say_once("link_refused", reason, stream.peer_address)
            stream.close(reason)
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(GREETING_SECONDS, stream.close, "no greeting in time")
        self._listener.stranger(self, stream.peer_address, Stage.PROVEN)

    def close(self, reason: str) -> None:
        """End the connection at once."""
        if self._end_handshake is not None:
            self._end_handshake()
        self.stream.close(reason)

    def frame_came(self, frame: Buffer) -> None:
        try:
            self._take(frame)
        except Exception as error:
            if self.target is None:
                raise  # the loop closes the connection: a stranger's bytes never end a member
            self.target.events.failed(error)

    def _take(self, frame: Buffer) -> None:
        if self.target is None:
            if self._timer is not None:
                self._timer.cancel()
            self._listener.greeted(self, frame)
        elif self._listener.is_current(self):
            self._deliver(frame, self.target)
        else:  # the peer dialled again: nothing of the older connection may come behind
            self.stream.close("the peer dialled again")

    def too_large(self, reason: str) -> None:
        _, sender = self.source
        event = "link_garbled" if sender else "link_refused"
        kind = sender or "too large"  # not each size that somebody makes up
        self._listener.say_once(event, reason, self.stream.peer_address, kind)

    def _deliver(self, frame: Buffer, target: LinkTarget) -> None:
        _, sender = self.source
        try:
            decoded = deque(message_codec.decode(view) for view in parse_frame(frame))
        except ValueError as error:
            stream = self.stream
            self._listener.say_once("link_garbled", str(error), stream.peer_address, kind=sender)
            stream.close(f"garbled: {error}")
            return
        while decoded:
            target.events.received(sender, decoded.popleft())

    def writable(self) -> None:
        """Nothing waits: the only answer was written long ago."""

    def closed(self, reason: str) -> None:  # noqa: ARG002  # the dialler says it
        if self._timer is not None:
            self._timer.cancel()
        self._listener.ended(self)


def _wrong(field: str, said: object, expected: str) -> DledgerError:
    return DledgerError(
        Code.WRONG_CLUSTER, f"peer handshake: {field} is {said!r}, this member expects {expected}"
    )
