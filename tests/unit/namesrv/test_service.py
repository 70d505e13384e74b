"""The name server over real gRPC on loopback, and as a process."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine

import grpc.aio
import pytest

from dledger_namesrv.registry import Registry
from dledger_namesrv.service import (
    NameServer,
    NameServerService,
    NameServerSettings,
    PortTaken,
    unprotected,
)
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.raw import (
    MESSAGE_SIZE_OPTIONS,
    RawReadCall,
    RawStreamCall,
    raw_read,
    raw_stream,
    raw_unary,
)
from dledger_proto.rpc.status import from_rpc_error
from dledger_proto.v1.broker_pb2 import Topic
from dledger_proto.v1.routes_pb2 import (
    Registration,
    RegistrationAnswer,
    RoutesReply,
    RoutesRequest,
)
from tests.ports import free_port
from tests.unit.namesrv.helpers import FakeMember, group_line, topic

DEADLINE = 20.0


def run(main: Callable[[], Coroutine[object, object, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), DEADLINE * 2))


@contextlib.asynccontextmanager
async def serving(**settings: object) -> AsyncIterator[tuple[NameServer, grpc.aio.Channel]]:
    address = f"127.0.0.1:{free_port()}"
    server = NameServer(NameServerSettings(listen=address, **settings))  # type: ignore[arg-type]
    await server.start()
    channel = grpc.aio.insecure_channel(address, options=list(MESSAGE_SIZE_OPTIONS))
    try:
        yield server, channel
    finally:
        await channel.close(None)
        await server.stop()


class Member:
    """A registration stream."""

    def __init__(self, channel: grpc.aio.Channel, name: str = "a", cluster: str = "c") -> None:
        self.call: RawStreamCall = raw_stream(channel, "/dledger.v1.Registry/Register")()
        self.name, self.cluster, self.sequence = name, cluster, 0

    async def send(
        self, *topics: Topic, full: bool = False, term: int = 1, leader: str = ""
    ) -> RegistrationAnswer:
        self.sequence += 1
        message = Registration(
            cluster=self.cluster, group="g", member=self.name, address=f"{self.name}:1",
            sequence=self.sequence, full=full, term=term, leader=leader, topics=topics,
            configured_members=["a", "b", "c"],
        )  # fmt: skip
        await self.call.write(message.SerializeToString())
        answer = await asyncio.wait_for(self.call.read(), DEADLINE)
        assert isinstance(answer, bytes), "the stream ended"
        return RegistrationAnswer.FromString(answer)


class Watcher:
    """A watch stream."""

    def __init__(self, channel: grpc.aio.Channel, *names: str) -> None:
        request = RoutesRequest(topics=names)
        method = raw_read(channel, "/dledger.v1.Routes/Watch")
        self.call: RawReadCall = method(request.SerializeToString())

    async def next(self) -> RoutesReply:
        data = await asyncio.wait_for(self.call.read(), DEADLINE)
        assert isinstance(data, bytes), "the stream ended"
        return RoutesReply.FromString(data)

    async def until(self, met: Callable[[RoutesReply], bool]) -> RoutesReply:
        while not met(reply := await self.next()):
            pass
        return reply


def test_watchers_are_pushed_leaders_and_topics() -> None:
    async def main() -> None:
        async with serving() as (_, channel):
            watcher = Watcher(channel)
            first = await watcher.next()
            assert (first.full, len(first.groups)) == (True, 0)
            member = Member(channel)
            answer = await member.send(topic("t"), full=True, term=3, leader="a")
            assert (answer.sequence, answer.send_full, answer.lease_ms) == (1, False, 10_000)
            reply = await watcher.until(lambda reply: bool(reply.topics))
            assert not reply.full
            assert (reply.groups[0].leader, reply.topics[0].name) == ("a", "t")
            await member.send(term=4, leader="b")
            reply = await watcher.next()
            assert (reply.groups[0].leader, reply.groups[0].term) == ("b", 4)

    run(main)


def test_closed_stream_drops_the_member_at_once() -> None:
    async def main() -> None:
        async with serving() as (_, channel):
            member = Member(channel)
            await member.send(full=True, leader="a")
            watcher = Watcher(channel)
            assert (await watcher.next()).groups[0].members[0].alive
            member.call.cancel()
            (group,) = (await watcher.next()).groups
            assert (group.members[0].alive, group.leader) == (False, "")

    run(main)


def test_silent_member_leaves_with_its_lease() -> None:
    async def main() -> None:
        async with serving(lease_seconds=0.2) as (_, channel):
            member = Member(channel)
            await member.send(full=True)
            watcher = Watcher(channel)
            reply = await watcher.until(lambda reply: bool(reply.removed_groups))
            assert list(reply.removed_groups) == ["g"]
            assert (await member.send()).send_full

    run(main)


def test_a_name_server_that_stood_still_drops_nobody() -> None:
    async def main() -> None:
        registry = Registry(lease=0.1)
        clock = [100.0]
        member = FakeMember(registry)
        member.join(clock[0])
        looked = asyncio.Event()

        def now() -> float:
            looked.set()
            return clock[0]

        expiry = asyncio.create_task(NameServerService(registry, now).expire_leases())
        await asyncio.wait_for(looked.wait(), DEADLINE)
        clock[0] += 60.0  # paused; its next look is the first thing after it
        looked.clear()
        await asyncio.wait_for(looked.wait(), DEADLINE)
        await asyncio.sleep(0)
        assert group_line(registry) == "g 0 leader= a+"
        clock[0] += 0.4  # silent, while the name server runs
        while group_line(registry):
            looked.clear()
            await asyncio.wait_for(looked.wait(), DEADLINE)
            await asyncio.sleep(0)
        expiry.cancel()

    run(main)


def test_get_answers_all_or_the_topics_asked_for() -> None:
    async def main() -> None:
        async with serving() as (_, channel):
            member = Member(channel)
            await member.send(topic("x"), topic("y"), full=True)
            get = raw_unary(channel, "/dledger.v1.Routes/Get")
            reply = RoutesReply.FromString(await get(b""))
            assert (reply.full, reply.cluster) == (True, "c")
            assert sorted(found.name for found in reply.topics) == ["x", "y"]
            asked = RoutesRequest(topics=["y", "unknown"]).SerializeToString()
            reply = RoutesReply.FromString(await get(asked))
            assert [found.name for found in reply.topics] == ["y"]
            assert len(reply.groups) == 1

    run(main)


def test_get_of_too_much_gives_what_fits_and_says_so() -> None:
    async def main() -> None:
        async with serving(lease_seconds=3600) as (server, channel):
            member = Member(channel)
            await member.send(full=True)
            session = server.registry.open_session()
            rows = [topic("t" * 120, number=number) for number in range(130_000)]
            for number, row in enumerate(rows):
                row.name, row.id = f"{row.name}{number}", number.to_bytes(16, "big")
            server.registry.register(
                session,
                Registration(
                    cluster="c", group="g", member="b", address="b:1", sequence=1, full=True,
                    topics=rows,
                ),
                time.monotonic(),
            )  # fmt: skip
            got = RoutesReply.FromString(await raw_unary(channel, "/dledger.v1.Routes/Get")(b""))
            assert (got.full, got.more, [group.group for group in got.groups]) == (
                False, True, ["g"],
            )  # fmt: skip
            assert 0 < len(got.topics) < len(rows)
            # The watch carries it all, in pieces.
            watcher = Watcher(channel)
            names: set[str] = set()
            while len(names) < len(rows):
                names |= {found.name for found in (await watcher.next()).topics}

    run(main)


async def refusal(call: "RawStreamCall | RawReadCall") -> DledgerError:
    try:
        while isinstance(await call.read(), bytes):
            pass
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error)
    raise AssertionError("the stream ended well")


def test_second_cluster_and_garbage_are_refused_and_others_served() -> None:
    async def main() -> None:
        async with serving() as (server, channel):
            member = Member(channel)
            await member.send(full=True)
            other = Member(channel, cluster="d")
            message = Registration(
                cluster="d", group="g", member="b", address="b:1", sequence=1, full=True
            )
            await other.call.write(message.SerializeToString())
            error = await refusal(other.call)
            assert error.code is Code.WRONG_CLUSTER
            assert error.detail == "this name server serves cluster 'c', not 'd'"
            noise = raw_stream(channel, "/dledger.v1.Registry/Register")()
            await noise.write(b"\xff\xff\xff")
            assert (await refusal(noise)).code is Code.INVALID_ARGUMENT
            watch = raw_read(channel, "/dledger.v1.Routes/Watch")(b"\xff\xff\xff")
            assert (await refusal(watch)).code is Code.INVALID_ARGUMENT
            assert not (await member.send()).send_full
            (group,) = server.registry.snapshot()[0].groups
            assert len(group.members) == 1

    run(main)


def test_watcher_that_does_not_read_holds_up_nobody_and_ends_up_right() -> None:
    async def main() -> None:
        async with serving() as (_, channel):
            member = Member(channel)
            await member.send(full=True, leader="a")
            slow, quick = Watcher(channel), Watcher(channel)
            rows = [topic(f"topic-{number}" + "x" * 100) for number in range(200)]
            for term in range(2, 400):
                for row in rows:
                    row.control_index = term
                await member.send(*rows, term=term, leader="a")
            await quick.until(lambda reply: any(group.term == 399 for group in reply.groups))
            replies = 0
            while True:
                reply = await slow.next()
                replies += 1
                if any(group.term == 399 for group in reply.groups):
                    break
            assert replies < 398, "what it missed was folded together"

    run(main)


def test_taken_port_is_one_clear_error() -> None:
    async def main() -> None:
        async with serving() as (server, _):
            address = f"127.0.0.1:{server.port}"
            second = NameServer(NameServerSettings(listen=address))
            with pytest.raises(PortTaken, match=rf"{address} cannot be listened on"):
                await second.start()

    run(main)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_ends_at_once_though_streams_are_open(number: signal.Signals) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "dledger_namesrv", "--listen", address]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "serving" in process.stderr.readline()

        async def main() -> None:
            async with grpc.aio.insecure_channel(address) as channel:
                watcher = Watcher(channel)
                await watcher.next()
                await Member(channel).send(full=True)
                os.kill(process.pid, number)
                assert await asyncio.to_thread(process.wait, DEADLINE) == 0

        run(main)
    finally:
        process.kill()
        process.wait()


def test_process_on_a_taken_port_says_so_in_one_line() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        ended = subprocess.run(
            [sys.executable, "-m", "dledger_namesrv", "--listen", address],
            capture_output=True, text=True, timeout=DEADLINE, check=False,
        )  # fmt: skip
    assert ended.returncode == 69
    errors = [line for line in ended.stderr.splitlines() if line.startswith("error:")]
    assert errors == [
        f"error: {address} cannot be listened on: it is taken; "
        "stop the process that uses it or choose another "
        "--listen"
    ]


def ended(*options: str, **environment: str) -> tuple[int, str]:
    """How a name server that refuses to start ends, and what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "dledger_namesrv", *options],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    return done.returncode, done.stderr.strip()


def test_a_process_that_others_may_reach_does_not_start_without_tls() -> None:
    remedies = "other machines may reach it; set --tls-folder, or --security off"
    for options, said in (
        (("--listen", "0.0.0.0:1"), f"error: --listen: 0.0.0.0:1, {remedies}"),
        (("--listen", "[::]:1"), f"error: --listen: [::]:1, {remedies}"),
        (
            ("--security", "off", "--tls-folder", "/tls"),
            "error: --security: off, contradicts --tls-folder /tls; leave one out",
        ),
    ):
        assert ended(*options) == (2, said)
    code, said = ended("--security", "on")
    assert (code, said.splitlines()[-1]) == (
        2,
        "python -m dledger_namesrv: error: --security: on, must be auto or off",
    )


def test_what_a_name_server_may_listen_on() -> None:
    def allowed(listen: str, security: str = "auto", folder: str = "") -> bool:
        settings = NameServerSettings(listen, tls_folder=folder, security=security)
        return not unprotected(settings, {"ns1": ["10.0.0.9"], "here": ["127.0.0.1"]}.__getitem__)

    assert allowed(NameServerSettings().listen)
    assert allowed("here:9876")
    assert not allowed("ns1:9876")
    assert not allowed("0.0.0.0:9876")
    assert allowed("ns1:9876", "off")
    assert allowed("0.0.0.0:9876", "off")
    assert allowed("ns1:9876", folder="/tls")


def test_a_name_server_without_security_says_so() -> None:
    command = [sys.executable, "-m", "dledger_namesrv", "--listen", f"127.0.0.1:{free_port()}"]
    environment = {**os.environ, "DLEDGER_SECURITY": "off"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        said = process.stderr.readline() + process.stderr.readline()
        process.terminate()
    assert "tls=False" in said
    assert "security is off" in said
