"""The name server's gRPC services: registration streams in, routes out, pushed on change.

Owns streams, tasks and the process's end. All rules are in `registry`. Replies are serialized once
and shared by all watchers that are at the same version.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

import grpc.aio
import structlog

from dledger_monitoring.certificates import (
    CertificateWatch,
    check_names,
    name_server_clusters,
)
from dledger_monitoring.exposition import Exposition, Source
from dledger_monitoring.health import Health
from dledger_monitoring.port import Port, watched_pages
from dledger_namesrv.metrics import Metrics
from dledger_namesrv.registry import LEASE_SECONDS, Names, Registry
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.names import printable
from dledger_proto.network.exposure import Security, exposed_because, numbers_of
from dledger_proto.network.tls import (
    TlsError,
    TlsFolder,
    member_name,
    name_server_name,
    names_of_caller,
)
from dledger_proto.rpc.aio import make_server, take_port
from dledger_proto.rpc.raw import (
    MESSAGE_SIZE_OPTIONS,
    RawContext,
    RawService,
    ReadMethod,
    StreamMethod,
    UnaryMethod,
    raw_handlers,
)
from dledger_proto.rpc.stall import within_stall_limit
from dledger_proto.rpc.status import abort, parsed
from dledger_proto.v1.routes_pb2 import Registration, RegistrationAnswer, RoutesRequest

WATCHERS_MAX: Final = 10_000
REGISTRATIONS_MAX: Final = 4_000
NAMES_PER_REQUEST_MAX: Final = 10_000
SHARED_DELTAS_MAX: Final = 64
STOP_GRACE_SECONDS: Final = 0.2
STANDSTILL_SECONDS: Final = 0.5
"""A wake-up this much later than planned means that the process was paused. It then lengthens all
leases by the pause."""
SNAPSHOT_AGE_KEYS_MAX: Final = 500
"""The service completes a shared snapshot by a delta until this many keys have changed since."""

Send = Callable[[bytes], Awaitable[None]]

_log: structlog.stdlib.BoundLogger = structlog.get_logger("namesrv")


@dataclass(frozen=True, slots=True)
class NameServerSettings:
    """The settings of a name server.

    Attributes:
        listen: The address to serve on.
        cluster: The one cluster to serve. Empty: that of its certificate; without TLS the cluster
            of the first member that registers.
        lease_seconds: The name server drops a member that is silent for longer. From 0.1 to 3600.
        tls_folder: The folder with `ca.crt`, `tls.crt` and `tls.key`. Empty: no TLS.
        security: `auto`: without TLS the name server starts only when no other machine can reach
            `--listen`. `off`: it starts without TLS, and says so. Not together with `--tls-folder`.
        metrics_listen: The address to serve HTTP on: metrics and health. Empty: none.
    """

    listen: str = "127.0.0.1:9876"
    cluster: str = ""
    lease_seconds: float = LEASE_SECONDS
    tls_folder: str = ""
    security: str = Security.AUTO.value
    metrics_listen: str = ""


def unprotected(
    settings: NameServerSettings, resolve: Callable[[str], Collection[str]] = numbers_of
) -> str:
    """Return which option keeps a name server from starting safely, and why; empty: none does."""
    if settings.security == Security.OFF:
        folder = settings.tls_folder
        return f"--security: off, contradicts --tls-folder {folder}" if folder else ""
    why = "" if settings.tls_folder else exposed_because(settings.listen, resolve)
    return f"--listen: {settings.listen}, {why}" if why else ""


class PortTaken(Exception):
    """The address to listen on cannot be had; the message says which."""


class NameServerService:
    """Turns streams into calls of the registry, and its changes into pushes."""

    def __init__(
        self, registry: Registry, clock: Callable[[], float], *, proves: bool = False
    ) -> None:
        """`proves`: a member registers only under the name that its certificate has."""
        self._registry = registry
        self._proves = proves
        self._clock = clock
        self._changed = asyncio.Event()
        self._told_version = registry.version
        self._telling = False
        self.watchers = 0
        self.registrations = 0
        self._snapshot: tuple[int, list[bytes]] | None = None
        self._deltas: dict[tuple[int, int], bytes | None] = {}

    async def register(self, stream: AsyncIterator[bytes], context: RawContext) -> None:
        """Serve /dledger.v1.Registry/Register until the stream ends."""
        try:
            names = names_of_caller(context.auth_context()) if self._proves else None
            write = within_stall_limit(context.write, "register again")
            await self._answer_all(stream, write, names)
        except DledgerError as error:
            _log.warning("registration refused", reason=str(error), peer=context.peer())
            await abort(context, error)  # may wait for a peer that reads nothing; no place is held

    async def _answer_all(
        self, stream: AsyncIterator[bytes], write: Send, names: frozenset[str] | None
    ) -> None:
        if self.registrations >= REGISTRATIONS_MAX:
            raise DledgerError(
                Code.BUSY, f"the limit of {REGISTRATIONS_MAX} registrations is reached"
            )
        self.registrations += 1
        session = self._registry.open_session()
        try:
            async for data in stream:
                registration = parsed(Registration, data)
                _check_proof(registration, names)
                answer = self._take(session, registration)
                await write(answer.SerializeToString())
        finally:
            self.registrations -= 1
            self._registry.close_session(session)
            self._tell_soon()

    def _take(self, session: int, registration: Registration) -> RegistrationAnswer:
        try:
            return self._registry.register(session, registration, self._clock())
        finally:
            self._tell_soon()

    async def get(self, data: bytes, context: RawContext) -> bytes:
        """Serve /dledger.v1.Routes/Get."""
        try:
            return self._registry.all_at_once(_names(data), self._clock()).SerializeToString()
        except DledgerError as error:
            await abort(context, error)

    async def watch(self, data: bytes, context: RawContext) -> None:
        """Serve /dledger.v1.Routes/Watch: a snapshot, then every change.

        A reader that is slow holds up only itself: it skips to the newest values of what changed.
        """
        try:
            await self._follow(_names(data), within_stall_limit(context.write, "watch again"))
        except DledgerError as error:
            await abort(context, error)

    async def _follow(self, names: Names, write: Send) -> None:
        if self.watchers >= WATCHERS_MAX:
            raise DledgerError(Code.BUSY, f"the limit of {WATCHERS_MAX} watchers is reached")
        self.watchers += 1
        try:
            seen, replies = self._snapshot_for(names)
            while True:
                for reply in replies:
                    await write(reply)
                while seen == self._registry.version:
                    await self._changed.wait()
                before, seen = seen, self._registry.version
                delta = self._delta_for(before, names)
                if delta is None:
                    seen, replies = self._snapshot_for(names)
                else:
                    replies = [delta] if delta else []
        finally:
            self.watchers -= 1

    def _snapshot_for(self, names: Names) -> tuple[int, list[bytes]]:
        """Return a snapshot and its version; an unfiltered one is shared while it is young."""
        registry = self._registry
        if names:
            return registry.version, [
                reply.SerializeToString() for reply in registry.snapshot(names)
            ]
        if self._snapshot is not None:
            age = registry.version - self._snapshot[0]
            if age == 0 or (age <= SNAPSHOT_AGE_KEYS_MAX and len(self._snapshot[1]) > 1):
                return self._snapshot
        replies = [reply.SerializeToString() for reply in registry.snapshot()]
        self._snapshot = registry.version, replies
        return self._snapshot

    def _delta_for(self, before: int, names: Names) -> bytes | None:
        """Return the delta from a version to now; None: take a snapshot; empty: nothing to send."""
        key = before, self._registry.version
        if not names and key in self._deltas:
            return self._deltas[key]
        reply = self._registry.changes_since(before, names)
        empty = reply is not None and not (reply.groups or reply.topics or reply.removed_groups)
        delta = None if reply is None else b"" if empty else reply.SerializeToString()
        if not names:
            if len(self._deltas) >= SHARED_DELTAS_MAX:
                self._deltas.clear()
            self._deltas[key] = delta
        return delta

    def _tell_soon(self) -> None:
        """Wake the watchers once for all that changes within this turn of the loop."""
        if self._registry.version != self._told_version and not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._telling = False
        self._told_version = self._registry.version
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def expire_leases(self) -> None:
        """End leases when they are over, until cancelled."""
        planned = self._clock()
        while True:
            now = self._clock()
            late = now - planned
            if late > STANDSTILL_SECONDS:
                # We were paused or starved: the members' heartbeats lie unread in the sockets.
                _log.warning("process stood still", seconds=round(late, 3))
                self._registry.forgive(late)
            self._registry.expire(now)
            self._tell_soon()
            deadline = self._registry.next_deadline()
            # Leases only move later; a member that is new meanwhile has a whole one before it.
            wait = self._registry.lease / 2 if deadline is None else deadline - now
            wait = min(max(wait, 0.01), self._registry.lease / 2)
            planned = now + wait
            await asyncio.sleep(wait)

    def handlers(self) -> tuple[RawService, ...]:
        """Return what a gRPC server serves."""
        return (
            raw_handlers("dledger.v1.Registry", {"Register": StreamMethod(self.register)}),
            raw_handlers(
                "dledger.v1.Routes",
                {"Get": UnaryMethod(self.get), "Watch": ReadMethod(self.watch)},
            ),
        )


def _check_proof(registration: Registration, names: frozenset[str] | None) -> None:
    """Raise WRONG_CLUSTER when the certificate's `names` are not those of the member."""
    said = member_name(registration.cluster, registration.group, registration.member)
    if names is not None and said not in names:
        held = ", ".join(sorted(names)) or "no name of dledger"
        raise DledgerError(
            Code.WRONG_CLUSTER, f"the certificate is of {printable(held)}, not of {printable(said)}"
        )


def _names(data: bytes) -> Names:
    request = parsed(RoutesRequest, data)
    if len(request.topics) > NAMES_PER_REQUEST_MAX:
        raise invalid(f"topics: {len(request.topics)} names, at most {NAMES_PER_REQUEST_MAX}")
    return frozenset(request.topics)


def cluster_of(settings: NameServerSettings, tls: TlsFolder | None) -> str:
    """Return the cluster to serve, with TLS that of the own certificate; TlsError when it differs.

    Else the first member that registers would decide, of any cluster of the authority.
    """
    if tls is None:
        return settings.cluster
    clusters = name_server_clusters(tls)
    cluster = settings.cluster or (clusters[0] if len(clusters) == 1 else "")
    if not cluster:
        found = f"names {len(clusters)} clusters" if clusters else "names no name server"
        raise TlsError(f"{tls.path}: the certificate {found}, must name one, or give --cluster")
    check_names(tls, [name_server_name(cluster)])
    return cluster


def _tls_problem(reason: str) -> None:
    _log.warning("changed TLS files are not used", reason=reason)


class NameServer:
    """A name server that listens."""

    def __init__(
        self,
        settings: NameServerSettings,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._server: grpc.aio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._tls = TlsFolder(settings.tls_folder, _tls_problem) if settings.tls_folder else None
        self.cluster = cluster_of(settings, self._tls)
        self.registry = Registry(
            self.cluster,
            lease=settings.lease_seconds,
            note=lambda event, fields: _log.info(event, **fields),
        )
        self._certificates = CertificateWatch(self._tls, _log, wall) if self._tls else None
        self.port = 0
        self._watched: tuple[Exposition, Port] | None = None

    async def start(self) -> None:
        """Listen; PortTaken when the address cannot be had."""
        service = NameServerService(self.registry, self._clock, proves=self._tls is not None)
        server = make_server(
            options=[
                ("grpc.so_reuseport", 0),  # or a second process would take half of the calls
                *MESSAGE_SIZE_OPTIONS,
                ("grpc.keepalive_time_ms", 10_000),
                ("grpc.keepalive_timeout_ms", 5_000),
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
                ("grpc.http2.max_ping_strikes", 0),
            ]
        )
        health = Health(["dledger.v1.Registry", "dledger.v1.Routes"], str)
        server.add_generic_rpc_handlers(  # pyright: ignore[reportUnknownMemberType]
            (*service.handlers(), health.handlers())
        )
        try:
            self.port = take_port(server, self._settings.listen, self._tls)
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise PortTaken(f"{self._settings.listen} cannot be listened on: it is taken")
        await self._show(service)
        await server.start()
        self._server = server
        self._tasks.append(asyncio.create_task(service.expire_leases(), name="expire leases"))
        if self._certificates is not None:
            self._tasks.append(asyncio.create_task(self._certificates.run(), name="certificates"))

    async def _show(self, service: NameServerService) -> None:
        """Serve metrics, if an address was given; PortTaken when it cannot be had."""
        address = self._settings.metrics_listen
        if not address:
            return
        metrics = Metrics(self.registry, lambda: (service.watchers, service.registrations))
        sources: list[Source] = [metrics.collect]
        if self._certificates is not None:
            sources.append(self._certificates.collect)
        common = {"node_type": "nameserver", "node_id": self._settings.listen}
        exposition = Exposition(common, sources, self._clock)
        port = Port(watched_pages(exposition, str))
        try:
            await port.listen(address)
        except OSError as error:
            raise PortTaken(f"{address} cannot be listened on: {error.strerror}") from error
        self._watched = exposition, port

    async def stop(self) -> None:
        """End all streams and the listener. Nothing is lost: members register anew."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._server is not None:
            await self._server.stop(STOP_GRACE_SECONDS)
        for each in self._watched or ():
            each.close()


async def serve(settings: NameServerSettings) -> None:
    """Run until SIGTERM or SIGINT; PortTaken when the address cannot be had."""
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.set)
    server = NameServer(settings)
    await server.start()
    cluster, tls = server.cluster or "(the first)", bool(settings.tls_folder)
    _log.info("serving", listen=settings.listen, cluster=cluster, tls=tls)
    if settings.security == Security.OFF:
        _log.warning("security is off", remedy="set --tls-folder")
    await end.wait()
    await server.stop()
    _log.info("ended")
