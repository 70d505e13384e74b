"""A client's connection to a cluster: routes that renew themselves, calls that find their member.

Owns: the watch of routes and its sources, refreshing on suspicion, tries of unary calls. Not: what
routes mean (`_core/routes.py`), streams of messages.

The client watches one source at a time: the addresses given by the user in turn (name servers or
members, both serve routes). When all of them fail, it watches the members that routes have named. A
source that hangs without closing its connection tells nothing new. So code that suspects a leader
calls `refresh`, which asks some *other* addresses once.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final

import grpc.aio
from google.protobuf.message import DecodeError

from dledger_client import _machine
from dledger_client._core.members import MemberChoice
from dledger_client._core.retry import backoff
from dledger_client._core.routes import RouteChange, RouteTable
from dledger_client._shell import calls, fork
from dledger_client._shell.wire import Channels, Method, Reply, Request
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientClosed, ClientError, DeadlineExpired, error_of
from dledger_proto.errors import Code
from dledger_proto.limits import RECONNECT_BACKOFF_MAX_MS, RECONNECT_BACKOFF_MIN_MS
from dledger_proto.rpc.raw import raw_read
from dledger_proto.v1 import broker_pb2, routes_pb2

REFRESH_SOURCES: Final = 3
REFRESH_TIMEOUT: Final = 1.0
REFRESH_INTERVAL: Final = 0.1
"""Seconds between refreshes, at least."""
FIRST_ANSWER_TIMEOUT: Final = 1.0
"""Seconds for a watched source to send its first answer."""
LEADERLESS_CODES: Final = frozenset((Code.NO_LEADER, Code.NOT_LEADER, Code.UNAVAILABLE))

_LOG = logging.getLogger("dledger_client")


class Cluster:
    """Routes and calls of one client object. All methods on the loop's thread."""

    def __init__(self, bootstrap: Sequence[str], config: ConnectionConfig) -> None:
        self.config = config
        self.routes = RouteTable(inside=config.inside)
        self.members = MemberChoice()
        # It spreads load and guards nothing.
        self.generator = random.Random(_machine.random_bytes(16))  # noqa: S311
        self._bootstrap = list(bootstrap)
        self.generator.shuffle(self._bootstrap)
        self.channels = Channels(config, self._member_ready)
        self._listeners: list[Callable[[RouteChange], None]] = []
        self._ready_listeners: list[Callable[[str, bool], None]] = []
        self._loaded = asyncio.Event()
        self._changed = asyncio.Event()
        self._watched = ""
        self._watcher: asyncio.Task[None] | None = None
        self._refresher: asyncio.Task[None] | None = None
        self._is_closed = False

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def listen(self, listener: Callable[[RouteChange], None]) -> None:
        """Call `listener` after every change of the routes."""
        self._listeners.append(listener)

    def listen_ready(self, listener: Callable[[str, bool], None]) -> None:
        """Call `listener(address, stands)` when a connection comes up or breaks."""
        self._ready_listeners.append(listener)

    def start(self) -> None:
        """Begin to watch the routes; ClientClosed after `close`, or in a child without a client."""
        if self._is_closed:
            raise ClientClosed(Code.CLOSED, "this client is closed")
        fork.opened(self)
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(
                self._watch(), name="dledger routes"
            )

    async def wait_loaded(self, timeout: float) -> None:
        """Wait for the first routes; DeadlineExpired after `timeout` seconds."""
        self._check_open()
        try:
            async with asyncio.timeout(timeout):
                await self._loaded.wait()
            self._check_open()
        except TimeoutError:
            raise DeadlineExpired(
                Code.NOT_PROPOSED,
                f"no routes came from {', '.join(self._bootstrap)} within {timeout:.1f} s",
            ) from None

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed(Code.CLOSED, "this client is closed")
        if self._watcher is None:
            raise ClientClosed(Code.CLOSED, "this client is not started")

    async def close(self) -> None:
        """End all tasks and close all channels; calls that wait end as ClientClosed."""
        self._is_closed = True
        self._loaded.set()
        self._changed.set()
        for task in (self._watcher, self._refresher):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        # The traceback of an ended task holds its stream, and that the channel.
        self._watcher = self._refresher = None
        await self.channels.close()
        fork.closed(self)

    # Routes.

    def apply(self, reply: routes_pb2.RoutesReply) -> None:
        """Take in an answer with routes, from any source."""
        if self.routes.cluster and reply.cluster and reply.cluster != self.routes.cluster:
            _LOG.warning(
                "ignored routes of cluster %s: this client belongs to %s",
                reply.cluster,
                self.routes.cluster,
            )
            return
        was_loaded = self.routes.is_loaded
        change = self.routes.apply(reply)
        if self.routes.is_loaded and self.routes.cluster:
            self._loaded.set()
        if change.members:
            self.channels.keep_warm(self.routes.addresses())
        if change or not was_loaded:
            self._tell(change)

    def apply_topic(self, topic: broker_pb2.Topic) -> None:
        """Take in a topic from an answer of administration."""
        change = RouteChange()
        self.routes.apply_topics([topic], change)
        if change:
            self._tell(change)

    def _tell(self, change: RouteChange) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for listener in self._listeners:
            listener(change)

    def _member_ready(self, address: str, is_ready: bool) -> None:
        self.members.set_ready(address, is_ready=is_ready)
        for listener in self._ready_listeners:
            listener(address, is_ready)

    async def _watch(self) -> None:
        """Watch one source after the other, without end."""
        failures = 0
        while True:
            sources = self._bootstrap
            if failures >= len(sources):
                sources = list(dict.fromkeys([*sources, *self.routes.addresses()]))
            self._watched = sources[failures % len(sources)]
            try:
                if await self._watch_source(self._watched):
                    failures = 0
            except (grpc.aio.AioRpcError, TimeoutError, DecodeError) as error:
                _LOG.debug("routes from %s: %s", self._watched, error)
            failures += 1
            if failures % max(1, len(self._bootstrap)) == 0:
                await asyncio.sleep(self._pause(failures))

    def _pause(self, failures: int) -> float:
        rounds = failures // max(1, len(self._bootstrap))
        pause_ms = min(RECONNECT_BACKOFF_MIN_MS << min(rounds - 1, 10), RECONNECT_BACKOFF_MAX_MS)
        return pause_ms / 1_000 * self.generator.uniform(0.5, 1.0)

    async def _watch_source(self, address: str) -> bool:
        """Follow one source until its stream ends; return whether it gave anything."""
        request = routes_pb2.RoutesRequest().SerializeToString()
        stream = raw_read(self.channels.to(address), calls.WATCH_ROUTES)(request)
        answered = False
        try:
            while True:
                timeout = None if answered else FIRST_ANSWER_TIMEOUT
                async with asyncio.timeout(timeout):
                    message = await stream.read()
                if not isinstance(message, bytes):
                    return answered
                answered = True
                self.apply(routes_pb2.RoutesReply.FromString(message))
        except grpc.aio.AioRpcError:
            if answered:
                return True
            raise
        finally:
            stream.cancel()

    def refresh(self) -> None:
        """Ask some addresses, other than the watched one, for routes; at most once at a time."""
        if self._is_closed or (self._refresher is not None and not self._refresher.done()):
            return
        self._refresher = asyncio.get_running_loop().create_task(
            self._refresh(), name="dledger refresh"
        )

    async def refreshed(self) -> None:
        """Wait until a refresh, this one or the one under way, has its answers or gave up."""
        self.refresh()
        if self._refresher is not None:
            await asyncio.wait([self._refresher])

    async def _refresh(self) -> None:
        addresses = list(dict.fromkeys([*self.routes.addresses(), *self._bootstrap]))
        others = [address for address in addresses if address != self._watched] or addresses
        chosen = self.generator.sample(others, min(REFRESH_SOURCES, len(others)))
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
            self.apply(reply)

    # Calls.

    async def call(
        self,
        method: Method[Request, Reply],
        request: Request,
        *,
        group: str,
        timeout_ms: float = 0,
    ) -> Reply:
        """Call a member of a group, trying others until the budget is over; ClientError."""
        reply, _ = await self.tried(method, request, group=group, timeout_ms=timeout_ms)
        return reply

    async def tried(
        self,
        method: Method[Request, Reply],
        request: Request,
        *,
        group: str,
        timeout_ms: float = 0,
    ) -> tuple[Reply, ClientError | None]:
        """As `call`; return the reply, and why an earlier try may have been carried out, too.

        After a definite, retriable refusal the call is tried elsewhere. After an unknown outcome it
        is tried again only if a second call changes nothing more; else the error is raised at once.
        Once one try is unknown, so is the whole call, until a try succeeds: a later try may be
        refused because of what an earlier one has done.
        """
        start = self._now()
        deadline = start + (timeout_ms or self.config.call_timeout_ms) / 1_000
        tries = 0
        last: ClientError | None = None
        unknown: ClientError | None = None
        while True:
            if unknown is None:
                self._check_open()
            elif self._is_closed:
                raise unknown
            now = self._now()
            if now >= deadline:
                late = _out_of_time(method, group, tries, now - start, last)
                raise late if unknown is None else still_unknown(unknown, late)
            address = self._address_in(group, now)
            if not address:
                last = last or error_of(Code.UNAVAILABLE, f"group {group} is not known")
                self.refresh()
                await self._wait_change(min(backoff(tries, self.generator), deadline - now))
                tries += 1
                continue
            tries += 1
            timeout = min(self.config.try_timeout_ms / 1_000, deadline - now)
            try:
                reply = await self.channels.call(
                    address, method, request, group=group, timeout=timeout
                )
            except ClientError as error:
                if unknown is not None and error.definite and not error.retriable:
                    raise still_unknown(unknown, error) from error
                if not error.retriable:
                    raise
                self.members.failed(address, self._now())
                last = error
                if not error.definite:
                    unknown = error
            else:
                self.members.worked(address)
                return reply, unknown
            if last.code in LEADERLESS_CODES or not last.definite:
                self.refresh()
            await self._wait_change(
                min(backoff(tries - 1, self.generator), max(0.0, deadline - self._now()))
            )

    def _address_in(self, group: str, now: float) -> str:
        route = self.routes.group(group)
        return "" if route is None else self.members.choose(route, now)

    async def _wait_change(self, timeout: float) -> None:
        """Wait for a change of routes, at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return

    async def leader_of(self, group: str, term: int, timeout: float) -> tuple[str, int] | None:
        """Return leader and term of a group, of `term` or a later one; None after `timeout` s."""
        deadline = self._now() + timeout
        while True:
            route = self.routes.group(group)
            if route is not None and route.has_leader and route.term >= term:
                return route.leader, route.term
            if self._is_closed:
                return None
            left = deadline - self._now()
            if left <= 0:
                return None
            self.refresh()
            await self._wait_change(min(left, REFRESH_INTERVAL))

    async def control_group(self, timeout_ms: float) -> str:
        """Return the group that decides about topics, waiting until it is known."""
        deadline = self._now() + timeout_ms / 1_000
        while True:
            route = self.routes.control_group()
            if route is not None:
                return route.name
            self._check_open()
            left = deadline - self._now()
            if left <= 0:
                raise DeadlineExpired(Code.NOT_PROPOSED, "the control group is not known yet")
            self.refresh()
            await self._wait_change(min(left, 0.2))


def still_unknown(unknown: ClientError, refusal: ClientError) -> ClientError:
    """Return the end of a call of which one try is unknown and a later one was refused."""
    if not refusal.definite:
        return refusal
    error = error_of(
        Code.UNKNOWN_OUTCOME,
        f"an earlier try may have been carried out ({unknown.detail or unknown.code.name}); then"
        f" {refusal.code.name}: {refusal.detail}",
        repeatable=unknown.repeatable and refusal.retriable,
    )
    error.__cause__ = refusal
    return error


def _out_of_time(
    method: Method[Request, Reply], group: str, tries: int, seconds: float, last: ClientError | None
) -> ClientError:
    text = f"{method.path} of group {group}: out of time after {tries} tries in {seconds:.1f} s"
    if last is None:
        return error_of(Code.NOT_PROPOSED, text)
    error = error_of(
        last.code,
        f"{text}; last: {last.code.name} {last.detail}",
        hint=last.hint,
        repeatable=last.repeatable,
    )
    error.__cause__ = last
    return error
