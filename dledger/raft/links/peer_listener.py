"""The accepting end of peer links: who may send to this member, and what arrives.

Owns: the check of the greeting, one current link of each sender, decoding. Does not own what the
messages mean (`raft/group.py`), nor the dialling end (`peer_link.py`).

The greeting is metadata: cluster, group, sender, receiver, incarnation. A listener that is someone
else refuses it as WRONG_CLUSTER. The listener accepts it with one empty frame.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from dledger.raft.links.peer_link import LinkEvents, PeerLink
from dledger.raft.wire import message_codec
from dledger.raft.wire.link_frame import encode_frame, parse_frame
from dledger.trace import Trace
from dledger.types import MemberId
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc import raw, status

LINES_MAX: Final = 20
"""A process logs so many refusals of links, each reason once. Strangers may have many reasons."""


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

    def handlers(self) -> raw.RawService:
        """Return what a gRPC server registers."""
        return raw.raw_handlers(raw.PEERS_SERVICE, {"Link": raw.StreamMethod(self._link)})

    async def _link(self, _requests: object, context: raw.RawContext) -> None:
        said = {key: str(value) for key, value in context.invocation_metadata() or ()}
        try:
            group, sender, target = self.greet(said)
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

    def greet(self, said: Mapping[str, str]) -> tuple[str, MemberId, LinkTarget]:
        """Check who dials whom by the metadata; WRONG_CLUSTER naming what does not match."""
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
