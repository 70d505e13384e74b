"""Links with TLS: who dials proves who he is, before a byte that he says is read."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import uvloop

from dledger.raft.links import peer_listener
from dledger.raft.links.greeting import LinkIdentity
from dledger.raft.links.handshake import NoTls, record_size
from dledger.raft.links.peer_link import LinkSettings
from dledger.types import MemberId
from dledger_broker.security.authority import Authority, Wanted
from dledger_proto.network.tls import TlsFolder, client_name, member_name
from tests.link_caller import Caller
from tests.ports import free_port
from tests.unit.raft_host.link_sides import A, B, Side, notice
from tests.waiting import until

HOSTS = ("127.0.0.1",)
GREETING = LinkIdentity("c", "g", A, bytes(16)).greeting(B)
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Certificates:
    """An authority, and folders made of it."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory()
        self._authority = Authority.make("c")

    def of(self, *names: str) -> TlsFolder:
        folder = Path(self._folder.name)
        made = Wanted(f"holder-{len(list(folder.glob('*')))}", names, HOSTS)
        return TlsFolder(str(self._authority.issue(folder, made)))

    def of_member(self, member: MemberId, group: str = "g", cluster: str = "c") -> TlsFolder:
        return self.of(member_name(cluster, group, member))


@asynccontextmanager
async def listening(tls: TlsFolder) -> AsyncIterator[Side]:
    side = Side(B, A, free_port(), tls=tls)
    await side.listen()
    try:
        yield side
    finally:
        side.stop()


def on(loop: str, body: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(body)


@pytest.mark.parametrize("loop", LOOPS)
def test_members_exchange_messages(loop: str) -> None:
    """In order, large ones too, which come in many records of TLS."""
    made = Certificates()

    async def run() -> None:
        async with listening(made.of_member(B)) as side:
            dialler = Side(A, B, 0)
            link = dialler.link(f"127.0.0.1:{side.port}", LinkSettings(1.0, tls=made.of_member(A)))
            link.start()
            await until(lambda: link.is_up, "the link is up")
            for term in range(20_000):
                link.send(notice(term))
            got = side.events.received_messages
            await until(lambda: len(got) == 20_000, "all messages")
            assert [message for _, message in got] == [notice(term) for term in range(20_000)]
            await link.stop()

    on(loop, run())


@pytest.mark.parametrize("loop", LOOPS)
def test_nobody_else_is_accepted_as_a_member(loop: str) -> None:
    """Another member, group or cluster; a client, with the greeting of a member."""
    made = Certificates()

    async def run() -> None:
        async with listening(made.of_member(B)) as side:
            strangers = (
                (made.of_member(MemberId("x")), True),
                (made.of_member(A, "another"), True),
                (made.of_member(A, cluster="another"), False),
                (made.of(client_name("c", "a")), False),
            )
            for tls, is_told in strangers:
                caller = await Caller.dial(side.port, tls.current().dialling)
                caller.send_frame(b"DLG1")
                if is_told:  # a member of the cluster learns what does not match
                    assert await caller.answer()
                assert await caller.is_closed()
                caller.close()
                dialler = Side(A, B, 0)
                link = dialler.link(f"127.0.0.1:{side.port}", LinkSettings(1.0, tls=tls))
                link.start()
                told = dialler.trace
                await until(lambda told=told: bool(told.named("peer_not_reached")), "a refusal")  # type: ignore[misc]
                assert dialler.events.seen == []
                await link.stop()
            assert side.events.received_messages == []
            caller = await Caller.dial(side.port, made.of_member(A).current().dialling)
            assert await caller.greet(GREETING) == ""
            caller.close()

    on(loop, run())


def test_a_dialler_wants_the_certificate_of_its_peer() -> None:
    """Entries go only to the member that the configuration names."""
    made = Certificates()

    async def run() -> None:
        async with listening(made.of_member(MemberId("x"))) as side:
            dialler = Side(A, B, 0)
            link = dialler.link(f"127.0.0.1:{side.port}", LinkSettings(1.0, tls=made.of_member(A)))
            link.start()
            await until(lambda: bool(dialler.trace.named("peer_not_reached")), "it is refused")
            (said,) = dialler.trace.named("peer_not_reached")
            assert "dledger://c/member/g/x" in str(said["reason"])
            assert not any("greeting" in str(each) for each in side.trace.named("link_refused"))
            assert not side.listener._current
            await link.stop()

    asyncio.run(run())


@pytest.mark.parametrize("loop", LOOPS)
def test_what_is_no_tls_is_closed(loop: str) -> None:
    """A greeting in plain text gets no answer; a certificate of another authority neither."""
    made, others = Certificates(), Certificates()

    async def run() -> None:
        async with listening(made.of_member(B)) as side:
            caller = await Caller.dial(side.port)
            caller.send_frame(b"DLG1dledger-cluster=c")
            assert await caller.is_closed()
            caller.close()
            context = others.of_member(A).current().dialling
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            caller = await Caller.dial(side.port, context)
            assert await caller.is_closed()
            caller.close()
            await until(lambda: not side.listener._strangers, "both are forgotten")
            assert side.trace.named("link_refused")

    on(loop, run())


def test_handshakes_that_do_not_end_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count as strangers from the first moment; the oldest makes room."""
    monkeypatch.setattr(peer_listener, "STRANGERS_MAX", 3)
    made = Certificates()

    async def run() -> None:
        async with listening(made.of_member(B)) as side:
            silent = [await Caller.dial(side.port) for _ in range(8)]
            assert await silent[0].is_closed()
            caller = await Caller.dial(side.port, made.of_member(A).current().dialling)
            assert await caller.greet(GREETING) == ""
            assert len(side.listener._strangers) <= 4
            for each in (*silent, caller):
                each.close()

    asyncio.run(run())


HELLO_HEAD = bytes([22, 3, 1, 2, 0])
"""The head of a first record, and no more."""
HELLO = HELLO_HEAD + bytes(512)
"""As long as it says, and no greeting of TLS."""


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("said", [b"", HELLO_HEAD, HELLO[:-1]])
def test_a_flood_that_never_ends_its_handshakes_keeps_no_member_out(
    loop: str, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the member's own host, in bursts larger than the bound, between any two steps of it."""
    monkeypatch.setattr(peer_listener, "STRANGERS_MAX", 4)
    flood_keeps_no_member_out(loop, said)


def flood_keeps_no_member_out(loop: str, said: bytes) -> None:
    made = Certificates()

    async def run() -> None:
        dialled: list[Caller] = []
        async with listening(made.of_member(B)) as side:
            done = asyncio.Event()

            async def flood() -> None:
                while not done.is_set():
                    burst = await asyncio.gather(*(Caller.dial(side.port) for _ in range(10)))
                    for each in burst:
                        each.send(said)
                    dialled.extend(burst)

            flooding = asyncio.create_task(flood())
            keys = made.of_member(A).current().dialling
            for _ in range(10):
                caller = await Caller.dial(side.port, keys)
                assert await caller.greet(GREETING) == ""
                caller.close()
            assert len(side.listener._strangers) <= 3 * 5
            done.set()
            await flooding
            for each in dialled:
                each.close()
            await until(lambda: len(side.listener._strangers) == 0, "all are forgotten")

    on(loop, run())


def test_what_a_port_of_tls_hears_first() -> None:
    """A whole record is awaited; what can be none is refused at once."""
    assert [record_size(HELLO[:count]) for count in range(7)] == [0, 0, 0, 0, 0, 517, 517]
    for wrong in (b"DLG1", b"GET / HTTP/1.1", bytes([22, 2, 1, 2, 0]), bytes([22, 3, 1, 255, 0])):
        with pytest.raises(NoTls):
            record_size(wrong)
