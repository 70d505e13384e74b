"""A client's view of a cluster: routes that renew themselves, calls that find their member.

Owns: the routes and the choice of members of one client, tries of unary calls. Not: connections and
the watch of routes, which clients share (`sharing/connections.py`), what routes mean
(`_core/routes.py`), streams of messages.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Final

from dledger_client import _machine
from dledger_client._core.members import MemberChoice
from dledger_client._core.retry import backoff
from dledger_client._core.routes import RouteChange, RouteTable
from dledger_client._shell import fork
from dledger_client._shell.sharing.connections import (
    REFRESH_INTERVAL,
    SharedConnections,
    shared_connections,
)
from dledger_client._shell.sharing.own_calls import OwnCalls
from dledger_client._shell.wire import Method, Reply, Request
from dledger_client.config import ConnectionConfig
from dledger_client.errors import ClientClosed, ClientError, DeadlineExpired, error_of
from dledger_proto.errors import Code
from dledger_proto.v1 import broker_pb2, routes_pb2

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
        self._listeners: list[Callable[[RouteChange], None]] = []
        self._ready_listeners: list[Callable[[str, bool], None]] = []
        self._loaded = asyncio.Event()
        self._changed = asyncio.Event()
        self._shared: SharedConnections | None = None
        self._calls: OwnCalls | None = None
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
        if self._shared is None:
            self._shared = shared_connections(self._bootstrap, self.config)
            self._calls = OwnCalls(self._shared.channels)
            self._shared.join(self)

    @property
    def channels(self) -> OwnCalls:
        """What this client calls; ClientClosed before `start`."""
        if self._calls is None:
            raise ClientClosed(Code.CLOSED, "this client is not started")
        return self._calls

    async def wait_loaded(self, timeout: float) -> None:
        """Wait for the first routes; DeadlineExpired, or Unauthenticated, after so many seconds."""
        self._check_open()
        if self._loaded.is_set():  # a call for each of a thousand queues need not have a timer
            return
        try:
            async with asyncio.timeout(timeout):
                await self._loaded.wait()
            self._check_open()
        except TimeoutError:
            problem = None if self._shared is None else self._shared.problem
            if problem is not None and problem.code is Code.UNAUTHENTICATED:
                raise problem from None
            because = "" if problem is None else f": {problem}"
            raise DeadlineExpired(
                Code.NOT_PROPOSED,
                f"no routes came from {', '.join(self._bootstrap)} within {timeout:.1f} s{because}",
            ) from None

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed(Code.CLOSED, "this client is closed")
        if self._shared is None:
            raise ClientClosed(Code.CLOSED, "this client is not started")

    async def close(self) -> None:
        """End the calls of this client, and the connections when nobody else shares them.

        Calls that wait end as ClientClosed, writes on their way as UnknownOutcome.
        """
        self._is_closed = True
        self._loaded.set()
        self._changed.set()
        self._listeners.clear()
        self._ready_listeners.clear()
        if self._shared is not None and self._calls is not None:
            self._calls.end()
            await self._shared.leave(self)
        fork.closed(self)

    # Routes.

    def adopt(self, known: RouteTable) -> None:
        """Take in what the clients that share were told before this one came."""
        if not self._is_closed:
            change = self.routes.adopt(known)
            self._note_loaded()
            self._tell(change)

    def apply(self, reply: routes_pb2.RoutesReply) -> None:
        """Take in an answer with routes, from any source."""
        if self._is_closed:
            return
        if self.routes.cluster and reply.cluster and reply.cluster != self.routes.cluster:
            _LOG.warning(
                "ignored routes of cluster %s: this client belongs to %s",
                reply.cluster,
                self.routes.cluster,
            )
            return
        was_loaded = self.routes.is_loaded
        change = self.routes.apply(reply)
        self._note_loaded()
        if change or not was_loaded:
            self._tell(change)

    def _note_loaded(self) -> None:
        if self.routes.is_loaded and self.routes.cluster:
            self._loaded.set()

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

    def member_ready(self, address: str, is_ready: bool) -> None:
        """Take in that a connection came up or broke."""
        self.members.set_ready(address, is_ready=is_ready)
        for listener in self._ready_listeners:
            listener(address, is_ready)

    def refresh(self) -> None:
        """Ask some addresses, other than the watched one, for routes; at most once at a time."""
        if self._shared is not None and not self._is_closed:
            self._shared.refresh()

    async def refreshed(self) -> None:
        """Wait until a refresh, this one or the one under way, has its answers or gave up."""
        if self._shared is not None and not self._is_closed:
            await self._shared.refreshed()

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
