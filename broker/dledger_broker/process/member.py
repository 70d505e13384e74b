"""The member process: opens its groups, serves calls and links, ends in order.

Owns the order of starting and stopping, and which error ends the process with which exit code
(`dledger_proto.exit_codes` says what each means). Not owned: the services (`rpc.table`), how a
group runs (`dledger.raft.driver.host`), the upkeep of a group (`upkeep`).
"""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog
import uvloop

from dledger.clock import SystemClock
from dledger.log.errors import DamagedFile, FolderInUse, LogFailed, NewerFormat, WrongFolder
from dledger.raft.links.peer_listener import PeerListener
from dledger.state.commands.registry import UnknownCommand
from dledger.state.users.values import User
from dledger.store.store import DamagedStore, NewerStore
from dledger_broker.cluster.channels import Channels
from dledger_broker.cluster.consumer_groups import ConsumerGroupAuthority
from dledger_broker.cluster.group_expiry import GroupExpiry
from dledger_broker.cluster.registration import Registrar
from dledger_broker.cluster.topic_authority import TopicAuthority
from dledger_broker.cluster.topic_follower import TopicFollower
from dledger_broker.cluster.view import ClusterView
from dledger_broker.config.model import MemberConfig
from dledger_broker.delivery.coordinator import Coordinator
from dledger_broker.delivery.grants import Grants
from dledger_broker.flight.dumping import FlightDump
from dledger_broker.flight.recorder import FlightRecorder
from dledger_broker.group.duty import EVERYTHING
from dledger_broker.metrics.watching import Watching
from dledger_broker.process.group_runtime import GroupRuntime
from dledger_broker.process.log_trace import LogTrace
from dledger_broker.process.logs import set_up_logs
from dledger_broker.process.openness import security_of, tls_of, warn_of_openness
from dledger_broker.process.platform import Platform, of_this_machine
from dledger_broker.read.batches import DamagedBatch
from dledger_broker.refill.giving import Giving
from dledger_broker.rpc.admission import AdmissionControl
from dledger_broker.rpc.calls import Calls, HostedGroup
from dledger_broker.rpc.routes import RouteWatch
from dledger_broker.rpc.streams import Streams
from dledger_broker.rpc.table import SERVICES, services
from dledger_broker.security.access import Access
from dledger_broker.security.gate import Gate
from dledger_broker.usecases.messaging import Messaging
from dledger_broker.users.authority import UserAuthority
from dledger_proto import __version__
from dledger_proto.errors import DledgerError
from dledger_proto.exit_codes import Exit
from dledger_proto.network.open_files import ask_for_open_files
from dledger_proto.network.tls import TlsError, TlsFolder
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import make_server, take_port

SWITCH_INTERVAL_SECONDS: Final = 0.0005
"""How long the loop's thread may keep the interpreter while a worker waits whose sync has ended."""
COLLECT_AFTER_OBJECTS: Final = 20_000
"""New objects before the collector looks for cycles; the default is a look every few calls."""
SERVER_GRACE_SECONDS: Final = 0.1
STREAMS_PER_CONNECTION_MAX: Final = 1_024
KEEPALIVE_MS: Final = 10_000
PING_INTERVAL_MIN_MS: Final = 500


PORT_TRIES: Final = 5
PORT_WAIT_SECONDS: Final = 0.2
STARTS_ANEW: Final = -1
"""What `serve` returns when the member is to start anew in the same process."""


class PortTaken(Exception):
    """The process cannot listen on its address."""


def server_options() -> list[tuple[str, int]]:
    """Return the options of a member's gRPC server: bounded, keepalive allowed and enforced."""
    return [
        *raw.MESSAGE_SIZE_OPTIONS,
        ("grpc.so_reuseport", 0),  # or a second process could share the port unnoticed
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
        # Compressed calls are refused: gRPC unpacks them before a member can count their bytes, and
        # 15 KiB may become 16 MiB. Producers compress bodies, within the batch.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_INTERVAL_MIN_MS),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def exit_code_of(error: BaseException) -> Exit:
    """Return the exit code for what ended the process."""
    if isinstance(error, DamagedFile | DamagedBatch | DamagedStore):
        return Exit.DAMAGED
    if isinstance(error, FolderInUse | WrongFolder):
        return Exit.FOLDER
    if isinstance(error, UnknownCommand | NewerFormat | NewerStore):
        return Exit.NEWER_FORMAT
    if isinstance(error, PortTaken):
        return Exit.PORT_TAKEN
    if isinstance(error, OSError | LogFailed):
        return Exit.STORAGE
    return Exit.BUG


class Member:
    """A running member. Made on the loop that serves it."""

    def __init__(
        self, config: MemberConfig, platform: Platform, tls: TlsFolder | None = None
    ) -> None:
        self._config = config
        self._platform = platform
        self._admission = AdmissionControl(config.admission)
        self._tls = tls
        self._channels = Channels(self._tls)
        self._groups: dict[str, GroupRuntime] = {}
        self._followers: dict[str, TopicFollower] = {}
        self._coordinators: dict[str, Coordinator] = {}
        self._registrars: list[Registrar] = []
        self._group_expiry: GroupExpiry | None = None
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None
        self._starts_anew = self._wants_anew = False
        self._server = make_server(options=server_options())
        trace = LogTrace("", config.member, lambda: 0, platform.note)
        self._listener = PeerListener(config.cluster, trace, self._tls)
        self._giving = Giving(self._listener.greet, platform.random)
        access = Access(config.cluster, proves=self._tls is not None)
        self._gate = Gate(
            access, self._find_user, platform.clock, on=config.users, confirm=self._confirm_users
        )
        self._cluster_view = ClusterView(
            config.cluster, {group.name: dict(group.members) for group in config.groups}
        )
        self._watching = Watching(config, self._admission, platform, tls)
        self._log = structlog.get_logger().bind(member=config.member)

    async def start(self) -> None:
        """Open the groups and serve; returns when the port answers."""
        await self._listen()
        for group in self._config.groups:
            runtime = GroupRuntime(self._config, group, self._platform, self._channels, self._tls)
            runtime.open(self._failed)
            self._groups[group.name] = runtime
            self._watching.add_group(runtime.view, runtime.snapshots)
        self._add_services()
        await self._server.start()
        for runtime in self._groups.values():
            runtime.start(self._listener, self._giving, self._request_new_start)
        for coordinator in self._coordinators.values():
            coordinator.start()
        self._watching.start()
        self._cluster_view.start(self._config.name_servers, self._channels)
        for follower in self._followers.values():
            follower.start()
        for registrar in self._registrars:
            registrar.start()
        if self._group_expiry is not None:
            self._group_expiry.start()
        self._log.info(
            "serving",
            listen=self._config.listen,
            link_listen=self._config.link_listen,
            groups=list(self._groups),
            tls=self._tls is not None,
            version=__version__,
        )

    async def _listen(self) -> None:
        """Take the ports. After a new start in this process it may be a moment until they are free.

        PortTaken when one is not.
        """
        config = self._config
        await _take_port(config.listen, self._take_own_port)
        await _take_port(config.link_listen, lambda: self._listener.listen(config.link_listen))
        await _take_port(config.metrics.listen, self._watching.listen)

    async def _take_own_port(self) -> None:
        if not take_port(self._server, self._config.listen, self._tls):
            raise OSError("gRPC cannot take the port")

    def request_stop(self) -> None:
        """Begin to end; `run` returns when it is done. It does not start anew any more."""
        self._starts_anew = False
        self._ended.set()

    def _request_new_start(self) -> None:
        """End in order and start anew: only a start puts a refill in place of the data."""
        self._starts_anew = self._wants_anew = not self._ended.is_set()
        self._ended.set()

    async def run(self) -> int:
        """Serve until asked to stop or until the storage fails.

        Returns the exit code, or STARTS_ANEW.
        """
        await self._ended.wait()
        if self._failure is not None:
            return exit_code_of(self._failure)
        has_closed = await self._drain()
        if self._failure is not None:
            return exit_code_of(self._failure)
        if self._wants_anew and not has_closed:
            return Exit.STORAGE  # a thread still holds the folder: a new process must start
        return STARTS_ANEW if self._starts_anew else Exit.OK

    def _failed(self, error: BaseException) -> None:
        """End the process at once: a group cannot go on, and others must notice at once (I16)."""
        if self._failure is None:
            self._failure = error
            is_bug = exit_code_of(error) == Exit.BUG  # where in the code matters then alone
            self._log.critical(
                "stopping after a failure",
                reason=f"{type(error).__name__}: {error}",
                exc_info=error if is_bug else None,
            )
        self._ended.set()

    def _add_services(self) -> None:
        config = self._config
        messagings = {name: runtime.messaging for name, runtime in self._groups.items()}
        for name, runtime in self._groups.items():
            if name != config.control_group:
                self._followers[name] = TopicFollower(
                    runtime.messaging, config.control_group, self._cluster_view, self._channels
                )
            self._coordinators[name] = Coordinator(runtime.view)
        authorities = self._authorities(messagings)
        groups = {
            name: HostedGroup(
                messaging,
                config.storage.flush.value,
                *(authorities if name == config.control_group else (None, None, None)),
                self._followers.get(name),
                self._coordinators[name],
                Grants(messaging.view, self._cluster_view, self._channels),
                self._groups[name].snapshots,
                security=security_of(config),
            )
            for name, messaging in messagings.items()
        }
        calls = Calls(
            groups,
            self._admission,
            self._channels,
            self._platform.clock,
            gate=self._gate,
            control_group=config.control_group,
            control_members=partial(self._cluster_view.members, config.control_group),
        )
        streams = Streams(calls, {name: runtime.router for name, runtime in self._groups.items()})
        routes = RouteWatch(
            {name: runtime.view for name, runtime in self._groups.items()},
            self._admission.route_watchers,
            self._gate,
        )
        broker, *others = services(calls, streams, routes)
        # gRPC asks the services in this order at each call.
        self._server.add_generic_rpc_handlers(  # pyright: ignore[reportUnknownMemberType]
            (broker, self._giving.handlers(), *others, self._watching.health(SERVICES))
        )
        for name, runtime in self._groups.items():
            runtime.on_topics_changed.append(routes.changed)
            if name == config.control_group:
                runtime.known_index = lambda: EVERYTHING
                runtime.broker_groups = self._cluster_view.groups
            else:
                runtime.known_index = self._followers[name].complete_up_to
            for name_server in config.name_servers:
                registrar = Registrar(
                    name_server,
                    runtime.view,
                    self._channels,
                    heartbeat_seconds=config.registration.heartbeat_ms / 1000,
                )
                self._registrars.append(registrar)
                runtime.on_topics_changed.append(registrar.changed)

    def _authorities(
        self, messagings: dict[str, Messaging]
    ) -> tuple[TopicAuthority | None, ConsumerGroupAuthority | None, UserAuthority | None]:
        """Return who decides in the control group; nobody, when this process does not host it."""
        config, random = self._config, self._platform.random
        control = messagings.get(config.control_group)
        if control is None:
            return None, None, None
        topics = TopicAuthority(
            control,
            self._cluster_view,
            self._channels,
            messagings,
            random,
            auto_create=config.topics.auto_create,
            default_queues_per_group=config.topics.default_queues_per_group,
        )
        groups = ConsumerGroupAuthority(
            control,
            self._cluster_view,
            topics,
            random,
            auto_create=config.consumer_groups.auto_create,
        )
        if config.consumer_groups.expiry_ms:
            self._group_expiry = GroupExpiry(
                control.view,
                self._cluster_view,
                self._channels,
                groups,
                config.consumer_groups.expiry_ms,
            )
        return topics, groups, UserAuthority(control.view, self._cluster_view, self._channels)

    def _find_user(self, name: str) -> User | None:
        """Return a user as it is applied in the control group, or in a group that follows it."""
        groups = self._groups
        of = groups.get(self._config.control_group) or next(iter(groups.values()), None)
        return None if of is None else of.view.machine.queries.user(name)

    async def _confirm_users(self, seconds: float) -> None:
        """Apply what is decided about users; DledgerError when that is not possible now."""
        control = self._groups.get(self._config.control_group)
        await (control or next(iter(self._groups.values()))).view.confirm(seconds)

    async def _drain(self) -> bool:
        """Stop taking work, answer what waits, hand over, save, close (bounded by drain_ms).

        Returns False when a disk hangs and its group could not be closed.
        """
        self._admission.drain(f"member {self._config.member} is ending")
        self._log.info("draining")
        limit = self._config.shutdown.drain_ms / 1000
        try:
            async with asyncio.timeout(limit):
                await self._hand_over(limit / 2)
        except TimeoutError:
            self._log.warning(
                "stopped before all calls had ended", limit_ms=self._config.shutdown.drain_ms
            )
        if self._group_expiry is not None:
            self._group_expiry.stop()
        for coordinator in self._coordinators.values():
            await coordinator.stop()
        for registrar in self._registrars:
            await registrar.stop()
        for follower in self._followers.values():
            await follower.stop()
        await self._cluster_view.stop()
        await self._server.stop(SERVER_GRACE_SECONDS)
        self._listener.close()
        self._watching.close()
        has_closed = True
        for runtime in self._groups.values():
            try:
                has_closed = await runtime.stop(limit) and has_closed
            except (OSError, LogFailed) as error:  # the disk refuses at the end: the others go on
                self._failed(error)
        await self._channels.close()
        self._platform.pool.shutdown(wait=False, cancel_futures=True)
        self._log.info("ended")
        return has_closed

    async def _hand_over(self, limit: float) -> None:
        """Wait for appends in flight, then give leadership away."""
        try:
            async with asyncio.timeout(limit):
                while self._admission.append_batches.used:
                    done = asyncio.Event()
                    self._admission.append_bytes.when_free(done.set)
                    await done.wait()
        except TimeoutError:
            self._log.warning(
                "stopped with unanswered appends", count=self._admission.append_batches.used
            )
        await asyncio.gather(*(runtime.hand_over() for runtime in self._groups.values()))


async def _take_port(address: str, take: Callable[[], Awaitable[None]]) -> None:
    tries_left = PORT_TRIES
    while True:
        try:
            return await take()
        except (OSError, RuntimeError) as error:
            tries_left -= 1
            if not tries_left:
                raise PortTaken(f"cannot listen on {address}: {error}") from error
        await asyncio.sleep(PORT_WAIT_SECONDS)


def run_member(config: MemberConfig) -> int:
    """Run a member until SIGTERM, SIGINT or a failure; returns the exit code.

    After a storage failure the process ends here, without waiting for threads that may hang.
    """
    recorder = FlightRecorder(SystemClock())
    about = {"cluster": config.cluster, "member": config.member, "version": __version__}
    flight = FlightDump(recorder, SystemClock(), config.folder, about)
    set_up_logs(config.log, note=recorder.note, cluster=config.cluster, member=config.member)
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    ask_for_open_files()
    warn_of_openness(config)

    def serving() -> None:
        flight.is_serving = True
        _spare_the_collector()

    code: int = Exit.BUG
    try:
        tls = tls_of(config)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.get_loop().add_signal_handler(signal.SIGUSR2, flight.begin, "asked for")
            code = STARTS_ANEW
            while code == STARTS_ANEW:
                machine = of_this_machine(recorder.note)
                work = serve(config, machine, on_serving=serving, tls=tls)
                code = runner.run(work)
            flight.at_end(f"exit code {code}")
            if code != Exit.OK:
                _end_now(code)
    except TlsError as error:
        structlog.get_logger().critical("member cannot start", reason=f"tls.folder: {error}")
        code = Exit.BAD_INPUT
    except (DledgerError, DamagedBatch, OSError, PortTaken) as error:
        structlog.get_logger().critical("member cannot start", reason=str(error))
        code = exit_code_of(error)
        flight.at_end(f"{type(error).__name__}: {error}")
    except BaseException as error:
        flight.at_end(f"{type(error).__name__}: {error}")
        raise
    return code


async def serve(
    config: MemberConfig,
    platform: Platform,
    on_serving: Callable[[], None],
    tls: TlsFolder | None = None,
) -> int:
    """Serve until SIGTERM, SIGINT or a failure; returns the exit code, or STARTS_ANEW.

    Raises what start raises.
    """
    loop = asyncio.get_running_loop()
    member = Member(config, platform, tls)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, member.request_stop)
    await member.start()
    on_serving()
    return await member.run()


def _spare_the_collector() -> None:
    """The objects of now live as long as the process: the collector need not look at them again."""
    gc.unfreeze()  # what an earlier life of this process left
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS)


def _end_now(code: int) -> None:
    """End without waiting for anything: a thread may hang in a sync that never returns."""
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)
