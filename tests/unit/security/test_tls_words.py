"""What goes wrong with TLS is told in words, at the end that sees it, of links and of gRPC."""

import asyncio
import datetime as dt
import shutil
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest

from dledger.raft.links.peer_link import LinkSettings
from dledger_broker.security.authority import Authority, Wanted
from dledger_proto.network.tls import Keys, TlsFolder, member_name
from dledger_proto.network.tls_words import explained, meaning
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import make_server, open_channel, take_port
from dledger_proto.rpc.status import from_rpc_error
from tests.link_caller import Caller
from tests.ports import free_port
from tests.unit.raft_host.link_sides import A, B, Side
from tests.waiting import until

NOW = dt.datetime.now(dt.UTC)
ENDED, EARLY = "its certificate has ended", "its certificate is not valid yet"
OTHER, NONE = "its certificate is of another authority", "it has no certificate"
HOST, PLAIN = "its certificate is of another host", "it speaks plain text, and this side TLS"
TLS = "it speaks TLS, and this side plain text"
UNTOLD = "the other side ended the connection: it may refuse our certificate"


class Made:
    """Folders of two members, good and bad."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ours, self._others = Authority.make("c"), Authority.make("c")
        self.good_a, self.good_b = self.of("a"), self.of("b")

    def of(
        self, member: str, begins_in: int = 0, days: int = 9, host: str = "127.0.0.1"
    ) -> TlsFolder:
        wanted = Wanted(member, [member_name("c", "g", member)], [host])
        begins = NOW + dt.timedelta(days=begins_in)
        root = self._root / f"{begins_in} {days} {host}"
        return TlsFolder(str(self._ours.issue(root, wanted, days, begins)))

    def of_other_authority(self, member: str) -> TlsFolder:
        """Return one that trusts ours."""
        wanted = Wanted(member, [member_name("c", "g", member)], ["127.0.0.1"])
        folder = self._others.issue(self._root / "others", wanted)
        shutil.copy(Path(self.good_a.path) / "ca.crt", folder / "ca.crt")
        return TlsFolder(str(folder))

    def bad(self, what: str, member: str) -> TlsFolder | None:
        make: dict[str, Callable[[], TlsFolder | None]] = {
            ENDED: lambda: self.of(member, -20),
            EARLY: lambda: self.of(member, 3),
            OTHER: lambda: self.of_other_authority(member),
            HOST: lambda: self.of(member, host="elsewhere"),
            PLAIN: lambda: None,
        }
        return make[what]()


@dataclass(frozen=True, slots=True)
class Told:
    """What the two ends of a link said."""

    dialler: str
    listener: str


async def link(dials: TlsFolder | None, listens: TlsFolder | None, *, both: bool) -> Told:
    """Return what is told; `both`: wait for the listener too."""
    side = Side(B, A, free_port(), tls=listens)
    await side.listen()
    dialler = Side(A, B, 0)
    made = dialler.link(f"127.0.0.1:{side.port}", LinkSettings(1.0, tls=dials))
    made.start()
    await until(lambda: bool(dialler.trace.named("peer_not_reached")), "the dialler tells")
    if both:
        await until(lambda: bool(side.trace.named("link_refused")), "the listener tells")
    await made.stop()
    side.stop()
    refused = side.trace.named("link_refused") or [{"reason": ""}]
    return Told(
        str(dialler.trace.named("peer_not_reached")[0]["reason"]), str(refused[0]["reason"])
    )


@pytest.mark.parametrize("what", [ENDED, EARLY, OTHER, HOST])
def test_a_dialler_says_what_is_wrong_with_the_listener(tmp_path: Path, what: str) -> None:
    made = Made(tmp_path)
    told = asyncio.run(link(made.good_a, made.bad(what, "b"), both=False))
    assert what in told.dialler


@pytest.mark.parametrize("what", [ENDED, EARLY, OTHER, PLAIN])
def test_a_listener_says_what_is_wrong_with_the_dialler(tmp_path: Path, what: str) -> None:
    made = Made(tmp_path)
    told = asyncio.run(link(made.bad(what, "a"), made.good_b, both=True))
    expected = "it speaks plain text, and this port TLS" if what == PLAIN else what
    assert expected in told.listener
    assert UNTOLD in told.dialler


def test_a_listener_without_tls_says_that_tls_came(tmp_path: Path) -> None:
    made = Made(tmp_path)
    told = asyncio.run(link(made.good_a, None, both=True))
    assert told.listener == TLS
    assert UNTOLD in told.dialler


def test_a_listener_says_that_there_is_no_certificate(tmp_path: Path) -> None:
    made = Made(tmp_path)

    async def run() -> None:
        side = Side(B, A, free_port(), tls=made.good_b)
        await side.listen()
        context = ssl.create_default_context(cafile=str(Path(made.good_a.path) / "ca.crt"))
        caller = await Caller.dial(side.port, context)
        assert await caller.is_closed()
        caller.close()
        await until(lambda: bool(side.trace.named("link_refused")), "it tells")
        assert NONE in str(side.trace.named("link_refused")[0]["reason"])
        side.stop()

    asyncio.run(run())


async def call(keys: Keys | None, listens: TlsFolder | None, name: str) -> str:
    """Return why a call by gRPC fails."""
    server = make_server()
    port = take_port(server, "127.0.0.1:0", listens)
    await server.start()
    channel = open_channel(f"127.0.0.1:{port}", (), keys, name)
    try:
        await raw.raw_unary(channel, "/x/Y")(b"", timeout=20)
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error, write=False).detail
    finally:
        await channel.close(None)
        await server.stop(None)
    return ""


@pytest.mark.parametrize("what", [ENDED, EARLY, OTHER, HOST, PLAIN])
def test_a_caller_by_grpc_says_what_is_wrong_with_the_server(tmp_path: Path, what: str) -> None:
    made = Made(tmp_path)
    assert what in asyncio.run(call(made.good_a.current(), made.bad(what, "b"), ""))


def test_a_caller_by_grpc_that_is_refused_learns_that_it_may_be(tmp_path: Path) -> None:
    made = Made(tmp_path)
    ended = made.of("a", -20).current()
    assert UNTOLD in asyncio.run(call(ended, made.good_b, member_name("c", "g", "b")))
    assert UNTOLD in asyncio.run(call(None, made.good_b, ""))
    wrong = asyncio.run(call(made.good_a.current(), made.good_b, member_name("c", "g", "x")))
    assert HOST in wrong


def test_other_errors_stay_as_they_are() -> None:
    text = "ConnectionRefusedError: [Errno 111] Connect call failed"
    assert (meaning(text), explained(text)) == ("", text)
