"""Connections and routes that the clients of one event loop share.

Owns: which clients share, the watch of routes and its sources, refreshing on suspicion, the end
with the last client. Not: what a client makes of routes (`cluster.py`), its calls (`own_calls.py`).

Clients share when they run on one loop, were given the same addresses, and reach the cluster by
equal settings. Each has a table of routes of its own, which is told the same answers: what one
client learns or drops by itself is nothing that another acts on. Each answer is handed to each
client in a callback of its own, so that an error in one client reaches no other.

One source is watched at a time: the addresses given by the user in turn (name servers or members,
both serve routes). When all of them fail, the members that routes have named are watched. A source
that hangs without closing its connection tells nothing new. So code that suspects a leader calls
`refresh`, which asks some *other* addresses once.
"""

import asyncio
import logging
import random
import weakref
from collections.abc import Sequence
from typing import Final, Protocol

import grpc.aio

from dledger_client import _machine
from dledger_client._core.routes import RouteTable
from dledger_client._shell import calls
from dledger_client._shell.wire import Channels, failure
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientError, error_of
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import RECONNECT_BACKOFF_MAX_MS, RECONNECT_BACKOFF_MIN_MS
from dledger_proto.rpc.raw import raw_read
from dledger_proto.rpc.status import answer_of
from dledger_proto.v1 import routes_pb2

REFRESH_SOURCES: Final = 3
REFRESH_TIMEOUT: Final = 1.0
REFRESH_INTERVAL: Final = 0.1
"""Seconds between refreshes, at least."""
FIRST_ANSWER_TIMEOUT: Final = 1.0
"""Seconds for a watched source to send its first answer."""
SHARERS_MAX: Final = 16
"""Clients on one set of connections. A member takes 1024 streams and calls on one connection, and
a process may serve 16 groups: each client has several streams for each of them."""

_LOG = logging.getLogger("dledger_client")
_Key = tuple[frozenset[str], ConnectionConfig]
_Shared = weakref.WeakValueDictionary[_Key, "SharedConnections"]


class Sharer(Protocol):
    """A client that shares connections."""

    def adopt(self, known: RouteTable) -> None:
        """Take in what the watch has told before this client came."""
        ...

    def apply(self, reply: routes_pb2.RoutesReply) -> None:
        """Take in an answer with routes."""
        ...

    def member_ready(self, address: str, is_ready: bool) -> None:
        """Take in that a connection came up or broke."""
        ...


class SharedConnections:
    """One connection per address and one watch of routes. All methods on the loop's thread."""

    def __init__(self, key: _Key, bootstrap: Sequence[str], all_shared: _Shared) -> None:
        self._key = key
        self._all_shared = all_shared
        self._config = key[1]
        self.channels = Channels(self._config, self._member_ready)
        # It spreads load and guards nothing.
        self._generator = random.Random(_machine.random_bytes(16))  # noqa: S311
        self._bootstrap = list(bootstrap)
        self._generator.shuffle(self._bootstrap)
        self._sharers: dict[Sharer, bool] = {}
        """All who share, and whether each of them is told by now."""
        self._routes = RouteTable(inside=self._config.inside)
        self._ready: dict[str, bool] = {}
        self._loop = asyncio.get_running_loop()
        self._hurry = asyncio.Event()
        self._watched = ""
        self.problem: ClientError | None = None
        """Why the last source gave no routes; None: it did."""
        self._is_followed = False
        """The watched source has answered, and its stream stands."""
        self._watcher: asyncio.Task[None] | None = None
        self._refresher: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """True: another client needs other connections."""
        return len(self._sharers) >= SHARERS_MAX

    # Who shares.

    def join(self, sharer: Sharer) -> None:
        """Let a client share; it is told what is known as soon as it has started."""
        self._sharers[sharer] = False
        self._loop.call_soon(self._admit, sharer)
        if self._watcher is None:
            self._watcher = self._loop.create_task(self._watch(), name="dledger routes")

    def _admit(self, sharer: Sharer) -> None:
        if sharer not in self._sharers:
            return
        self._sharers[sharer] = True
        if self._is_followed:
            sharer.adopt(self._routes)
        else:
            self._hurry.set()
        for address, is_ready in self._ready.items():
            sharer.member_ready(address, is_ready)

    async def leave(self, sharer: Sharer) -> None:
        """Tell a client nothing more; with the last one end all tasks and close all channels."""
        self._sharers.pop(sharer, None)
        if self._sharers:
            return
        # Whoever starts from now on gets others.
        if self._all_shared.get(self._key) is self:
            del self._all_shared[self._key]
        for task in (self._watcher, self._refresher):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        # The traceback of an ended task holds its stream, and that the channel.
        self._watcher = self._refresher = None
        await self.channels.close()

    def _told(self) -> list[Sharer]:
        return [sharer for sharer, is_told in self._sharers.items() if is_told]

    def _member_ready(self, address: str, is_ready: bool) -> None:
        self._ready[address] = is_ready
        for sharer in self._told():
            self._loop.call_soon(sharer.member_ready, address, is_ready)

    # Routes.

    def _apply(self, reply: routes_pb2.RoutesReply, *, is_followed: bool = False) -> None:
        """Take in an answer from any source, and hand it to every client."""
        is_other = self._routes.cluster and reply.cluster and reply.cluster != self._routes.cluster
        if is_other and is_followed:
            # Clients that come from now on belong to the cluster that is there now.
            self._routes = RouteTable(inside=self._config.inside)
        if not is_other or is_followed:
            change = self._routes.apply(reply)
            if change.members:
                self.channels.keep_warm(self._routes.addresses())
        for sharer in self._told():
            self._loop.call_soon(sharer.apply, reply)

    async def _watch(self) -> None:
        """Watch one source after the other, without end."""
        failures = 0
        while True:
            sources = self._bootstrap
            if failures >= len(sources):
                sources = list(dict.fromkeys([*sources, *self._routes.addresses()]))
            self._watched = sources[failures % len(sources)]
            try:
                if await self._watch_source(self._watched):
                    failures = 0
            except (grpc.aio.AioRpcError, DledgerError) as error:
                self.problem = failure(error, write=False)
                _LOG.debug("routes from %s: %s", self._watched, self.problem)
            except TimeoutError as error:
                self.problem = error_of(Code.UNAVAILABLE, str(error))
                _LOG.debug("routes from %s: %s", self._watched, error)
            failures += 1
            if failures % max(1, len(self._bootstrap)) == 0:
                await self._rest(self._pause(failures))

    async def _rest(self, seconds: float) -> None:
        """Wait before the next source; not while a client waits for its first routes."""
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            pass
        self._hurry.clear()

    def _pause(self, failures: int) -> float:
        rounds = failures // max(1, len(self._bootstrap))
        pause_ms = min(RECONNECT_BACKOFF_MIN_MS << min(rounds - 1, 10), RECONNECT_BACKOFF_MAX_MS)
        return pause_ms / 1_000 * self._generator.uniform(0.5, 1.0)

    async def _watch_source(self, address: str) -> bool:
        """Follow one source until its stream ends; return whether it gave anything."""
        request = routes_pb2.RoutesRequest().SerializeToString()
        channel = self.channels.to(address)
        metadata = await self.channels.metadata(channel, group="")
        stream = raw_read(channel, calls.WATCH_ROUTES)(request, metadata=metadata)
        answered = False
        try:
            while True:
                timeout = None if answered else FIRST_ANSWER_TIMEOUT
                async with asyncio.timeout(timeout):
                    message = await stream.read()
                if not isinstance(message, bytes):
                    return answered
                reply = answer_of(routes_pb2.RoutesReply, message, write=False)
                self._apply(reply, is_followed=True)
                answered = self._is_followed = True
                self.problem = None
        except grpc.aio.AioRpcError as error:
            self.channels.failure(channel, error, metadata, write=False)
            if answered:
                return True
            raise
        finally:
            self._is_followed = False
            stream.cancel()

    def refresh(self) -> None:
        """Ask some addresses, other than the watched one, for routes; at most once at a time."""
        if self._refresher is None or self._refresher.done():
            self._refresher = self._loop.create_task(self._refresh(), name="dledger refresh")

    async def refreshed(self) -> None:
        """Wait until a refresh, this one or the one under way, has its answers or gave up."""
        self.refresh()
        if self._refresher is not None:
            await asyncio.wait([self._refresher])

    async def _refresh(self) -> None:
        addresses = list(dict.fromkeys([*self._routes.addresses(), *self._bootstrap]))
        others = [address for address in addresses if address != self._watched] or addresses
        chosen = self._generator.sample(others, min(REFRESH_SOURCES, len(others)))
        await asyncio.gather(asyncio.sleep(REFRESH_INTERVAL), *map(self._refresh_from, chosen))

    async def _refresh_from(self, address: str) -> None:
        try:
            reply = await self.channels.call(
                address, calls.GET_ROUTES, routes_pb2.RoutesRequest(), group="",
                timeout=REFRESH_TIMEOUT,
            )  # fmt: skip
        except ClientError as error:
            _LOG.debug("routes from %s: %s", address, error)
        else:
            self._apply(reply)


_of_loops: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared]" = (
    weakref.WeakKeyDictionary()
)
"""Weak on both sides: connections refer to their loop, so a strong entry would keep both for ever,
where a loop ends before its clients are closed."""


def shared_connections(bootstrap: Sequence[str], config: ConnectionConfig) -> SharedConnections:
    """Return the connections of the running loop to these addresses, in any order."""
    all_shared = _of_loops.setdefault(asyncio.get_running_loop(), weakref.WeakValueDictionary())
    key = (frozenset(bootstrap), config)
    found = all_shared.get(key)
    if found is None or found.is_full:
        found = all_shared[key] = SharedConnections(key, bootstrap, all_shared)
    return found
