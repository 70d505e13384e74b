"""Streams whose reader takes nothing: they end, and nobody else waits for them (I17)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import grpc
import pytest

from dledger.log.commit_log import CommitLog
from dledger_broker.append.router import AppendRouter
from dledger_broker.append.stream import Receive, Send
from dledger_broker.cluster.channels import Channels
from dledger_broker.rpc import streams
from dledger_broker.rpc.admission import AdmissionControl
from dledger_broker.rpc.calls import Calls, HostedGroup
from dledger_broker.rpc.routes import RouteWatch
from dledger_broker.rpc.streams import Streams
from dledger_broker.security.gate import open_gate
from dledger_broker.usecases.messaging import Messaging
from dledger_namesrv.registry import Registry
from dledger_namesrv.service import NameServerService
from dledger_proto import limits
from dledger_proto.rpc.raw import RawContext
from dledger_proto.v1 import routes_pb2
from tests.unit.broker.fakes import ManualClock, admission
from tests.unit.broker.test_log_entries import Log
from tests.unit.broker.test_messaging import Host, messaging
from tests.unit.broker.test_registration import Group
from tests.unit.namesrv.helpers import FakeMember


class Stalled:
    """The context of a call whose client has stopped reading: gRPC waits for it, also to abort."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()
        self.ended = asyncio.Event()
        self.detail = ""
        self.code: grpc.StatusCode | None = None

    async def write(self, _message: object) -> None:
        """Never return."""
        self.waits.set()
        await asyncio.get_running_loop().create_future()

    async def read(self) -> object:
        """The client sends nothing either."""
        return await asyncio.get_running_loop().create_future()

    async def send_initial_metadata(self, _metadata: object) -> None:
        """Nothing to do."""

    async def abort(self, code: grpc.StatusCode, details: str = "", _trailing: object = ()) -> None:
        """Note it; never return."""
        self.code, self.detail = code, details
        self.ended.set()
        await asyncio.get_running_loop().create_future()

    def invocation_metadata(self) -> object:
        """Nothing was said."""
        return ()

    def time_remaining(self) -> float | None:
        """There is no deadline."""
        return None

    def peer(self) -> str:
        """Return who calls."""
        return "ipv4:127.0.0.1:1"


Handler = Callable[[Stalled], Awaitable[None]]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAM_STALL_MS", 10)


async def stall(serve: Handler, used: Callable[[], int]) -> Stalled:
    """Serve a client that reads nothing until the call is ended; its place must be free then."""
    context = Stalled()
    serving = asyncio.ensure_future(serve(context))
    async with asyncio.timeout(20):
        await context.waits.wait()
        assert used() == 1
        await context.ended.wait()
    assert used() == 0, "who does not read the end of a call keeps no place"
    serving.cancel()
    await asyncio.wait([serving])
    assert context.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    return context


def calls_of(bounds: AdmissionControl, messagings: dict[str, Messaging]) -> Calls:
    groups = {name: HostedGroup(messaging) for name, messaging in messagings.items()}
    return Calls(groups, bounds, Channels(), ManualClock())


def test_a_reader_of_the_log_that_stalls_is_ended_and_blocks_no_administration() -> None:
    async def scenario() -> None:
        log = Log([(1, 10)])
        core = messaging(Host(), b"", 0, applied_index=1)
        core.view.log = cast("CommitLog", log)
        bounds = admission()
        serving = Streams(calls_of(bounds, {"g": core}), {})

        async def serve(context: Stalled) -> None:
            await serving.log_entries(b"", cast("RawContext", context))

        def used() -> int:
            assert bounds.admin_calls.used == 0, "topics, holds, transfers go on"
            return bounds.log_streams.used

        context = await stall(serve, used)
        assert "took nothing" in context.detail

    asyncio.run(scenario())


def test_a_watcher_of_a_member_that_stalls_is_ended() -> None:
    async def scenario() -> None:
        bounds = admission()
        routes = RouteWatch({"g": Group().view}, bounds.route_watchers, open_gate(ManualClock()))

        async def serve(context: Stalled) -> None:
            await routes.watch(b"", cast("RawContext", context))

        await stall(serve, lambda: bounds.route_watchers.used)

    asyncio.run(scenario())


def test_an_append_stream_that_reads_no_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Answering:
        def __init__(self, *_: object) -> None:
            pass

        async def run(self, _receive: Receive, send: Send) -> None:
            await send(b"answer")

    monkeypatch.setattr(streams, "AppendSession", Answering)

    async def scenario() -> None:
        bounds = admission()
        view = SimpleNamespace(names=SimpleNamespace(group="g"))
        core = cast("Messaging", SimpleNamespace(view=view, write_rule=None))
        serving = Streams(calls_of(bounds, {"g": core}), {"g": cast("AppendRouter", None)})

        async def serve(context: Stalled) -> None:
            await serving.append(None, cast("RawContext", context))

        await stall(serve, lambda: bounds.append_streams.used)

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["watch", "register"])
def test_who_stalls_a_name_server_is_ended(method: str) -> None:
    async def scenario() -> None:
        service = NameServerService(Registry("c"), asyncio.get_running_loop().time)

        async def registrations() -> AsyncIterator[bytes]:
            message = FakeMember(Registry("c")).message(full=True)
            yield message.SerializeToString()
            await asyncio.get_running_loop().create_future()

        async def serve(context: Stalled) -> None:
            raw = cast("RawContext", context)
            if method == "watch":
                await service.watch(routes_pb2.RoutesRequest().SerializeToString(), raw)
            else:
                await service.register(registrations(), raw)

        count = "watchers" if method == "watch" else "registrations"
        await stall(serve, lambda: cast("int", getattr(service, count)))

    asyncio.run(scenario())
