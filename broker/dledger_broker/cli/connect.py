"""How commands reach a cluster: routes from a name server, then calls to members, blocking.

Owns: the common options; which member a command asks, and when it asks the next; which of a
member's two addresses it uses: the published one, or with DLEDGER_INSIDE=1 the one for its peers.
Commands that stream (send, tail, bench) use `dledger_client`. The others make calls that any member
takes (D10).
"""

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from threading import Event
from typing import Annotated, Final, NoReturn, Self, TypeVar

import grpc
import typer

from dledger_broker.cli.output import CommandFailed, bad_input
from dledger_broker.config.load import INSIDE_VARIABLE
from dledger_proto.errors import Code, DledgerError
from dledger_proto.exit_codes import Exit
from dledger_proto.login.blocking import BlockingTokens
from dledger_proto.login.credentials import Credentials
from dledger_proto.names import NO_SUCH_TOPIC
from dledger_proto.network.addresses import check_address, split_address
from dledger_proto.network.tls import TlsError, TlsFolder
from dledger_proto.network.tls_files import FOLDER_VARIABLE
from dledger_proto.rpc.raw import CHANNEL_OPTIONS, Metadata, open_sync_channel, sync_unary
from dledger_proto.rpc.status import answer_of, from_rpc_error
from dledger_proto.v1.broker_pb2 import DescribeTopicRequest, StatusReply, StatusRequest, Topic
from dledger_proto.v1.broker_pb2_grpc import AdminStub
from dledger_proto.v1.routes_pb2 import (
    GroupRoute,
    MemberRoute,
    RoutesReply,
    RoutesRequest,
    SilentMember,
)

CONNECT_SECONDS_MAX: Final = 2.0
"""Time to connect to one address. A refused connection ends at once."""
AGAIN_SECONDS: Final = 0.1
"""Pause between two rounds over all members: an election may be in progress."""
USER_VARIABLE: Final = "DLEDGER_USER"
FILE_VARIABLE: Final = "DLEDGER_SECRET_FILE"
"""Names the file with the secret: no secret is an argument, which other users could see."""
DEFAULT_NAME_SERVERS: Final = "127.0.0.1:9876"

Request = TypeVar("Request")
Reply = TypeVar("Reply")
Method = Callable[[grpc.Channel], "grpc.UnaryUnaryMultiCallable[Request, Reply]"]
"""Returns a call of a channel, like `lambda channel: AdminStub(channel).Trim`."""

NameServers = Annotated[
    str,
    typer.Option(
        "--name-servers",
        "-n",
        envvar="DLEDGER_NAME_SERVERS",
        help="host:port, several by comma. With DLEDGER_INSIDE=1 in the environment members are "
        "reached where their peers reach them, not where they are published.",
    ),
]
Timeout = Annotated[
    float, typer.Option(min=0.1, max=3600, help="Seconds for all calls of the command together.")
]


def check_option_address(address: str, option: str = "") -> None:
    """End the command, naming the option, when it is given something that is no "host:port"."""
    try:
        check_address(address)
    except ValueError as error:
        bad_input(f"{option}{address}, {error}")


def parse_name_servers(text: str) -> list[str]:
    """Return the addresses of the option; end the command when one is malformed."""
    addresses = [part.strip() for part in text.split(",") if part.strip()]
    for address in addresses:
        check_option_address(address, "--name-servers: ")
    if not addresses:
        bad_input("--name-servers: empty, must be host:port")
    return addresses


def is_inside() -> bool:
    """Tell whether the command runs inside the members' network; end it when that is unclear."""
    text = os.environ.get(INSIDE_VARIABLE, "")
    if text.lower() not in {"", "0", "1", "false", "true"}:
        bad_input(f"{INSIDE_VARIABLE}: {text}, must be 1, true, 0 or false")
    return text.lower() in {"1", "true"}


def open_tls() -> TlsFolder | None:
    """Return the files for TLS, or None; end the command when they cannot be used."""
    folder = tls_folder()
    try:
        return TlsFolder(folder) if folder else None
    except TlsError as error:
        bad_input(f"{FOLDER_VARIABLE}: {error}")


def credentials() -> Credentials:
    """Return who the command logs in as; it ends the command when only half of it is given."""
    user, secret_file = (os.environ.get(name, "") for name in (USER_VARIABLE, FILE_VARIABLE))
    if bool(user) != bool(secret_file):
        bad_input(f"{USER_VARIABLE}, {FILE_VARIABLE}: give both or none")
    return Credentials(user, secret_file)


def tls_folder() -> str:
    """Return the folder with the files for TLS; empty without TLS."""
    return os.environ.get(FOLDER_VARIABLE, "")


class Cluster:
    """A cluster as one command sees it. Channels are closed at the end of the `with`."""

    def __init__(self, name_servers: str, timeout: float) -> None:
        self._name_servers = parse_name_servers(name_servers)
        self._inside = is_inside()
        self._tls = open_tls()
        self._tokens = BlockingTokens(credentials(), time.monotonic, os.urandom)
        self._own_addresses: dict[str, str] = {}
        """The address for peers, by the published address; filled only inside."""
        self._deadline = time.monotonic() + timeout
        self._timeout = timeout
        self._stack = ExitStack()
        self._channels: dict[str, grpc.Channel] = {}
        self._routes: RoutesReply | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def restart_clock(self) -> None:
        """Give the next call the whole timeout again (for commands that watch)."""
        self._deadline = time.monotonic() + self._timeout

    def is_late(self) -> bool:
        """Tell whether the timeout leaves no time for another round."""
        return time.monotonic() + AGAIN_SECONDS >= self._deadline

    def routes(self, *, refresh: bool = False) -> RoutesReply:
        """Return the members of all groups, from the first name server that answers."""
        if self._routes is not None and not refresh:
            return self._routes
        problem, refusal = "", None
        for address in self._name_servers:
            channel = self._connected(address)
            if channel is None:
                problem = f"name server {address} cannot be reached"
                continue
            get = sync_unary(channel, "/dledger.v1.Routes/Get")
            request = RoutesRequest(topics=[NO_SUCH_TOPIC]).SerializeToString()
            try:
                data = self._logged_in(address, channel, partial(get, request), write=False)
                self._routes = answer_of(RoutesReply, data, write=False)
            except DledgerError as error:
                problem, refusal = f"name server {address}: {error.detail}", error
                continue
            if self._inside:
                self._step_inside(self._routes)
            return self._routes
        if refusal is not None and refusal.code is Code.UNAUTHENTICATED:
            raise refusal
        raise CommandFailed(
            problem,
            "is it running (dledger up), and is --name-servers right?",
            code=Exit.UNREACHABLE,
        )

    def _step_inside(self, routes: RoutesReply) -> None:
        for group in (*routes.groups, *routes.silent_groups):
            members: list[MemberRoute | SilentMember] = [*group.members, *group.silent]
            for member in members:
                published, member.address = member.address, member.peer_address or member.address
                self._own_addresses[published] = member.address

    def group(self, name: str = "") -> GroupRoute:
        """Return the route of a group; without a name the control group's, or the only one."""
        groups = list(self.routes().groups)
        if not groups:
            no_group()
        if name:
            for group in groups:
                if group.group == name:
                    return group
            unknown_group(name, [group.group for group in groups])
        for group in groups:
            if group.control_group:
                return group
        return groups[0]

    def call(
        self, method: "Method[Request, Reply]", request: Request, *, group: str = "", write: bool
    ) -> Reply:
        """Ask the group's leader, then its other members, until the timeout.

        Raises the DledgerError of the last member asked. Does not repeat a write whose outcome is
        unknown.
        """
        last: DledgerError | None = None
        while True:
            route = self.group(group)
            asked: set[str] = set()
            waiting = list(_candidates(route))
            while waiting:
                address = waiting.pop(0)
                if address in asked:
                    continue
                asked.add(address)
                try:
                    return self.ask(address, route.group, method, request, write=write)
                except DledgerError as error:
                    if not (error.definite and error.retriable):
                        raise
                    last = error
                    if error.hint:
                        waiting.insert(0, self._own_addresses.get(error.hint, error.hint))
            if self.is_late():
                raise last or DledgerError(
                    Code.UNAVAILABLE, f"no member of group {route.group} can be reached"
                )
            Event().wait(AGAIN_SECONDS)
            self.routes(refresh=True)

    def status(self, address: str, group: str) -> StatusReply:
        """Ask exactly this member for its status."""
        return self.ask(
            address, group, lambda channel: AdminStub(channel).Status, StatusRequest(), write=False
        )

    def topic(self, name: str) -> Topic:
        """Return a topic, as the control group has it."""
        reply = self.call(
            lambda channel: AdminStub(channel).DescribeTopic,
            DescribeTopicRequest(name=name),
            write=False,
        )
        return reply.topic

    def ask(
        self,
        address: str,
        group: str,
        method: "Method[Request, Reply]",
        request: Request,
        *,
        write: bool,
    ) -> Reply:
        """Ask one address, once. DledgerError when it refuses or cannot be reached."""
        channel = self._connected(address)
        if channel is None:
            raise DledgerError(Code.UNAVAILABLE, f"{address} cannot be reached")

        def call(timeout: float, token: Metadata) -> Reply:
            metadata = (("dledger-group", group), *token)
            return method(channel)(request, timeout=timeout, metadata=metadata)

        return self._logged_in(address, channel, call, write=write)

    def _logged_in(
        self,
        address: str,
        channel: grpc.Channel,
        call: Callable[[float, Metadata], Reply],
        *,
        write: bool,
    ) -> Reply:
        """Make a call with a login, and once more when its login had ended; DledgerError."""
        for is_last in (False, True):
            try:
                token = self._tokens.of(address, channel, self._left())
            except grpc.RpcError as error:
                raise from_rpc_error(error, write=False) from error
            try:
                return call(self._left(), token)
            except grpc.RpcError as error:
                refusal = from_rpc_error(error, write=write)
                has_ended = refusal.code is Code.UNAUTHENTICATED and self._tokens.refused(address)
                if is_last or not has_ended:
                    raise refusal from error
        raise AssertionError("the second try returns or raises")

    def _connected(self, address: str) -> grpc.Channel | None:
        """Return a channel to an address; None when it cannot be reached, so that nothing was sent.

        It tries a bare connection first: the error of a gRPC call does not say whether the request
        was sent.
        """
        channel = self._channels.get(address)
        if channel is not None:
            return channel
        if not is_reachable(address, min(CONNECT_SECONDS_MAX, self._left())):
            return None
        channel = open_sync_channel(address, CHANNEL_OPTIONS, self._tls)
        self._stack.callback(channel.close)
        self._channels[address] = channel
        return channel

    def _left(self) -> float:
        return max(self._deadline - time.monotonic(), 0.05)


def is_reachable(address: str, timeout: float) -> bool:
    """Tell whether a process listens at "host:port"; waits up to `timeout` seconds."""
    try:
        host, port = split_address(address)
        with socket.create_connection((host.strip("[]"), port), timeout):
            return True
    except (OSError, ValueError):  # what a name server says may be no address at all
        return False


def no_group() -> NoReturn:
    """End the command: no group is registered."""
    raise CommandFailed("no broker group is registered", "start the members", code=Exit.UNREACHABLE)


def unknown_group(name: str, known: Iterable[str]) -> NoReturn:
    """End the command: there is no such broker group."""
    bad_input(f"no group {name!r} is registered", f"known groups: {', '.join(known)}")


def queue_owner(topic: Topic, queue: int) -> str:
    """Return the group that holds a queue of a topic; end the command when there is none."""
    owners = [part.group for part in topic.layout for _ in range(part.queues)]
    if queue >= len(owners):
        bad_input(f"topic {topic.name} has queues 0 to {len(owners) - 1}, not {queue}")
    return owners[queue]


def _candidates(route: GroupRoute) -> Iterator[str]:
    """Yield addresses: the leader's, those of living members, the others."""
    yield from (member.address for member in route.members if member.member == route.leader)
    yield from (member.address for member in route.members if member.alive)
    yield from (member.address for member in route.members)
