"""A new authority takes over from the old one: no connection fails, whatever was copied so far."""

import asyncio
import shutil
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc.aio
import pytest

from dledger_broker.cli import main
from dledger_broker.security.authority import held
from dledger_monitoring.certificates import certificates_in
from dledger_proto.exit_codes import Exit
from dledger_proto.network.tls import LOOK_SECONDS, TlsFolder, member_name
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import make_server, open_channel, take_port

MEMBERS = ("n1", "n2")
INIT = (
    "--cluster", "c", "--group", "g", "--member", "n1=127.0.0.1", "--member", "n2=127.0.0.1",
    "--client", "app",
)  # fmt: skip


class Processes:
    """The deployed folders of two members and a client, and what they show of themselves."""

    def __init__(self, root: Path) -> None:
        self.made, self.deployed, self._now = root / "tls", root / "deployed", 0.0
        assert main(["tls", "init", str(self.made), *INIT]) == Exit.OK
        self.names = (*MEMBERS, "client-app")
        for name in self.names:
            shutil.copytree(self.made / name, self.deployed / name)
        self.tls = {
            name: TlsFolder(str(self.deployed / name), monotonic=lambda: self._now)
            for name in self.names
        }

    def step(self, name: str) -> None:
        assert main(["tls", "authority", name, str(self.made)]) == Exit.OK

    def copies(self) -> Iterator[None]:
        """Copy the folders one by one; yield after each."""
        for name in self.names:
            shutil.copytree(self.made / name, self.deployed / name, dirs_exist_ok=True)
            self._now += LOOK_SECONDS
            yield

    def connect_by_ssl(self) -> None:
        """Let each dial each member, as links do."""
        for dialler in self.names:
            for member in MEMBERS:
                handshake(self.tls[dialler], self.tls[member])


def handshake(dialler: TlsFolder, listener: TlsFolder) -> None:
    """Agree on TLS in memory; ssl.SSLError when one refuses the other."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = dialler.current().dialling.wrap_bio(back, there, server_hostname="127.0.0.1")
    server = listener.current().listening.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.getpeercert()
    assert server.getpeercert()


async def echo(data: bytes, _context: raw.RawContext) -> bytes:
    return data


async def call(dialler: TlsFolder, port: int, name: str) -> None:
    """Make a call on a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channel = open_channel(f"127.0.0.1:{port}", options, dialler.current(), name)
    assert await raw.raw_unary(channel, "/test.Echo/Say")(b"x", timeout=20) == b"x"
    await channel.close(None)


async def walk(processes: Processes) -> None:
    servers: list[tuple[grpc.aio.Server, str, int]] = []
    for name in MEMBERS:
        server = make_server()
        handlers = raw.raw_handlers("test.Echo", {"Say": raw.UnaryMethod(echo)})
        server.add_generic_rpc_handlers((handlers,))  # pyright: ignore[reportUnknownMemberType]
        port = take_port(server, "127.0.0.1:0", processes.tls[name])
        await server.start()
        servers.append((server, member_name("c", "g", name), port))
    for step in ("begin", "change", "end"):
        processes.step(step)
        for _ in processes.copies():
            processes.connect_by_ssl()
            for dialler in processes.names:
                for _server, name, port in servers:
                    await call(processes.tls[dialler], port, name)
    for server, _name, _port in servers:
        await server.stop(None)


def test_no_connection_fails_on_the_way() -> None:
    """All folders are copied one by one after each step; after each copy all connect to all."""
    with TemporaryDirectory() as root:
        processes = Processes(Path(root))
        before = processes.deployed / "client-app"
        kept = shutil.copytree(before, Path(root) / "kept")
        said = held(before)
        asyncio.run(walk(processes))
        assert (held(before).names, held(before).hosts) == (said.names, said.hosts)
        with pytest.raises(ssl.SSLError):
            handshake(TlsFolder(str(kept)), processes.tls["n1"])
        with pytest.raises(ssl.SSLError):
            handshake(processes.tls["n1"], TlsFolder(str(kept)))
        assert {each.name for each in processes.made.glob("authority*")} == {"authority"}


@contextmanager
def folder(capsys: pytest.CaptureFixture[str]) -> Iterator[Processes]:
    with TemporaryDirectory() as root:
        processes = Processes(Path(root))
        capsys.readouterr()
        yield processes


def test_steps_come_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    """One that is not due names the one that is, and changes nothing."""
    with folder(capsys) as processes:
        made = str(processes.made)
        for step, refused, due in (
            ("begin", ("change", "end"), "begin"), ("change", ("begin", "end"), "change"),
            ("end", ("begin",), "end"),
        ):  # fmt: skip
            for other in refused:
                assert main(["tls", "authority", other, made]) == Exit.FAILED
                assert f"dledger tls authority {due}" in capsys.readouterr().err
            processes.step(step)
        assert main(["tls", "show", made, "--json"]) == Exit.OK


def test_a_change_that_was_cut_short_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Between its two moves, and among the certificates."""
    with folder(capsys) as processes:
        processes.step("begin")
        (processes.made / "authority").rename(processes.made / "authority-old")
        processes.step("change")
        processes.step("change")
        bundle = certificates_in((processes.made / "n1" / "ca.crt").read_bytes())
        assert len(bundle) == 2
        capsys.readouterr()
        assert main(["tls", "show", str(processes.made), "--json"]) == Exit.OK
        assert capsys.readouterr().out.count("authorities_until") == 3
