"""A name server with TLS serves the cluster that its certificate names."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc.aio
import pytest

from dledger_broker.security.authority import Authority, Wanted
from dledger_namesrv.__main__ import run
from dledger_namesrv.service import NameServer, NameServerSettings
from dledger_proto.errors import Code
from dledger_proto.exit_codes import Exit
from dledger_proto.network.tls import (
    TlsError,
    TlsFolder,
    client_name,
    member_name,
    name_server_name,
)
from dledger_proto.rpc import raw
from dledger_proto.rpc.aio import open_channel
from dledger_proto.rpc.status import from_rpc_error
from dledger_proto.v1.routes_pb2 import Registration
from tests.ports import free_port

HOSTS = ["127.0.0.1"]


def made(root: Path, names: Sequence[str], hosts: Sequence[str] = HOSTS) -> str:
    return str(Authority.make("c").issue(root, Wanted("namesrv", names, hosts)))


def settings(folder: str, cluster: str = "") -> NameServerSettings:
    return NameServerSettings(f"127.0.0.1:{free_port()}", cluster, tls_folder=folder)


def test_the_first_that_registers_does_not_choose_the_cluster() -> None:
    """A member of another cluster of the authority is refused; also when it comes first."""
    with TemporaryDirectory() as root:
        asyncio.run(the_first_does_not_choose(Path(root)))


async def the_first_does_not_choose(root: Path) -> None:
    authority = Authority.make("c")
    own = str(authority.issue(root, Wanted("namesrv", [name_server_name("c")], HOSTS)))
    server = NameServer(settings(own))
    await server.start()
    for cluster, refused in (("d", True), ("c", False)):
        wanted = Wanted(cluster, [member_name(cluster, "g", "a")], HOSTS)
        keys = TlsFolder(str(authority.issue(root, wanted))).current()
        channel = open_channel(f"127.0.0.1:{server.port}", (), keys)
        stream = raw.raw_stream(channel, "/dledger.v1.Registry/Register")()
        said = Registration(
            cluster=cluster, group="g", member="a", address="h:1", configured_members=["a"],
            sequence=1, full=True,
        )  # fmt: skip
        await stream.write(said.SerializeToString())
        if refused:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await raw.read_frame(stream)
            assert from_rpc_error(caught.value).code is Code.WRONG_CLUSTER
        else:
            assert await raw.read_frame(stream) is not None
        stream.cancel()
        await channel.close(None)
    await server.stop()


def test_the_cluster_is_that_of_the_certificate(tmp_path: Path) -> None:
    """Of two names the option says which; a name that the certificate lacks is refused."""
    one = made(tmp_path / "1", [name_server_name("c"), client_name("d", "x")])
    two = made(tmp_path / "2", [name_server_name("c"), name_server_name("d")])
    none = made(tmp_path / "3", [member_name("c", "g", "a")])
    client = made(tmp_path / "4", [name_server_name("c")], hosts=())
    assert NameServer(settings(one)).cluster == NameServer(settings(one, "c")).cluster == "c"
    assert NameServer(settings(two, "d")).cluster == "d"
    for folder, cluster, said in (
        (one, "d", "must be of dledger://d/name-server"), (two, "", "names 2 clusters"),
        (two, "e", "must be of dledger://e/name-server"), (none, "", "names no name server"),
        (client, "", "must have the DNS name"),
    ):  # fmt: skip
        with pytest.raises(TlsError, match=said):
            NameServer(settings(folder, cluster))
    assert NameServer(settings("")).cluster == ""


def test_the_program_says_what_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(tmp_path, [name_server_name("c")])
    assert run(settings(folder, "d")) == Exit.BAD_INPUT
    assert "dledger://d/name-server" in capsys.readouterr().err
