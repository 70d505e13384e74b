"""A name server and members that answer from a script, for commands that are one call each."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Generator
from concurrent import futures
from dataclasses import dataclass, field
from typing import Any

import grpc

from dledger_broker.cli import main
from dledger_namesrv.service import NameServer, NameServerSettings
from dledger_proto.errors import DledgerError
from dledger_proto.rpc.status import STATUS, trailing_metadata
from dledger_proto.v1.routes_pb2 import Registration
from tests.ports import free_port

SERVICES = {
    "dledger.v1.Admin": [
        "CreateTopic", "UpdateTopic", "DeleteTopic", "DescribeTopic", "ListTopics", "Trim",
        "ListHolds", "HoldAll",
        "Status", "TransferLeadership", "LiftQuarantine",
    ],
    "dledger.v1.Broker": ["QueueOffsets", "OffsetByTime", "CommitOffsets", "ReadOffsets"],
    "dledger.v1.Routes": ["Get"],
    "dledger.v1.Users": ["Put", "Delete", "Describe", "List"],
    "dledger.v1.Delivery": ["ReadProgress", "ResumeGroup", "NudgeConsumers"],
}  # fmt: skip

Answer = Callable[[bytes], Any]
"""Request bytes to a reply message; raises DledgerError to refuse."""


class Garbled:
    """An answer that is no message."""

    def SerializeToString(self) -> bytes:
        """Return what no message looks like."""
        return b"\xff"


@dataclass
class FakeMember:
    """Answers calls by name; what is not scripted is UNIMPLEMENTED."""

    name: str
    answers: dict[str, Answer] = field(default_factory=dict)
    calls: list[tuple[str, bytes]] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    """The dledger-group of each call."""
    port: int = 0

    @property
    def address(self) -> str:
        """host:port"""
        return f"127.0.0.1:{self.port}"

    def names(self) -> list[str]:
        """The methods that were called, in order."""
        return [name for name, _ in self.calls]

    def _handler(self, name: str) -> "grpc.RpcMethodHandler[bytes, bytes]":
        def behave(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.calls.append((name, request))
            metadata = dict(context.invocation_metadata())
            self.groups.append(str(metadata.get("dledger-group", "")))
            if name not in self.answers:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, f"no script for {name}")
            try:
                data: bytes = self.answers[name](request).SerializeToString()
            except DledgerError as error:
                context.set_trailing_metadata(trailing_metadata(error))
                context.abort(STATUS[error.code], error.detail)
            return data

        return grpc.unary_unary_rpc_method_handler(behave)

    @contextlib.contextmanager
    def serving(self) -> Generator[None]:
        """Listen while the block runs."""
        server = grpc.server(futures.ThreadPoolExecutor(4))
        for service, names in SERVICES.items():
            handlers = {name: self._handler(name) for name in names}
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, handlers),)
            )
        self.port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield
        finally:
            server.stop(None).wait()


@dataclass
class FakeCluster:
    """Three scripted members of one group, registered at a real name server."""

    members: dict[str, FakeMember]
    server: NameServer
    leader: str = "a"

    @property
    def name_server(self) -> str:
        """host:port"""
        return f"127.0.0.1:{self.server.port}"

    def register(self, published: str = "") -> None:
        """Register the members; `published` with {name} in it: clients are told it instead."""
        registry = self.server.registry
        for member in self.members.values():
            registration = Registration(
                cluster="c", group="g", member=member.name, sequence=1, full=True, term=1,
                address=published.format(name=member.name) or member.address,
                peer_address=member.address, leader=self.leader,
                configured_members=list(self.members), control_group=True,
            )  # fmt: skip
            registry.register(registry.open_session(), registration, time.monotonic())

    def run(self, *arguments: str) -> int:
        """Run a command against this cluster; return its exit code."""
        return main([*arguments, "--name-servers", self.name_server])


@contextlib.contextmanager
def fake_cluster(leader: str = "a") -> Generator[FakeCluster]:
    """Start everything; stop it at the end."""
    members = {name: FakeMember(name) for name in "abc"}
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with contextlib.ExitStack() as stack:
        stack.callback(thread.join)
        stack.callback(loop.call_soon_threadsafe, loop.stop)
        for member in members.values():
            stack.enter_context(member.serving())
        listen = f"127.0.0.1:{free_port()}"

        async def start() -> NameServer:
            server = NameServer(NameServerSettings(listen, lease_seconds=3600))
            await server.start()
            return server

        server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
        stack.callback(lambda: asyncio.run_coroutine_threadsafe(server.stop(), loop).result(10))
        cluster = FakeCluster(members, server, leader)
        cluster.register()
        yield cluster
