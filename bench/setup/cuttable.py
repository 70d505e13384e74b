"""A cluster whose members talk through proxies, so that one of them can be cut off.

Owns: the ports between, the members' configuration that leads through them. Every ordered pair of
members has a link, each member one to the name server, and clients one to each member.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from pathlib import Path

from bench.setup.cluster import Running, started
from dledger_broker.local.cluster import NAME_SERVER, LocalCluster
from dledger_proto.network.ports import free_ports
from jepsen_tests.backends.surface import Trouble, TroubleKind
from jepsen_tests.backends.troubles import link_server

CLIENTS = "clients"


class Network:
    """The proxies' process, and its links by name with both ends."""

    def __init__(self, process: subprocess.Popen[str], links: dict[str, tuple[str, str]]) -> None:
        self._process = process
        self._links = links

    def cut(self, member: str) -> None:
        """Let nothing through to or from a member."""
        self._tell(member, asdict(Trouble(TroubleKind.CUT)))

    def heal(self, member: str) -> None:
        """Let everything through again."""
        self._tell(member, None)

    def _tell(self, member: str, trouble: dict[str, object] | None) -> None:
        for name, ends in self._links.items():
            if member in ends:
                say(self._process, [name, TroubleKind.CUT, trouble], "ok")


def say(process: subprocess.Popen[str], line: object, expected: str) -> None:
    """Tell the proxies' process one line of its protocol, and hear its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(line) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    assert answer == f"{expected}\n", f"{line}: {answer!r}"


@asynccontextmanager
async def cuttable(folder: Path) -> AsyncGenerator[tuple[Running, Network]]:
    """Start a cluster of three behind proxies."""
    cluster = LocalCluster(
        Path(tempfile.mkdtemp(prefix="cluster-", dir=folder)), cluster="bench", die_with_owner=True
    )
    cluster.prepare()
    with _proxies(cluster) as network:
        async with started(cluster) as here:
            await here.leader()
            yield here, network


@contextmanager
def _proxies(cluster: LocalCluster) -> Generator[Network]:
    process = subprocess.Popen(
        [sys.executable, "-m", link_server.__name__],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip
    try:
        # Each member has an own way to the name server, to the calls and the links of each other
        # member, and one that its clients take.
        free = iter(free_ports(len(cluster.member_names) * (2 * len(cluster.member_names))))
        clients = {member: next(free) for member in cluster.member_names}
        rows: list[list[object]] = []
        ends: dict[str, tuple[str, str]] = {}

        def way(near: str, far: str, kind: str, port: int, target: int) -> int:
            name = f"{near}>{far} {kind}"
            ends[name] = (near, far)
            rows.append([name, port, link_server.HOST, target])
            return port

        for member in cluster.member_names:
            calls = {
                other: way(member, other, "calls", next(free), cluster.ports[other])
                for other in cluster.names
                if other != member
            }
            links = {
                other: way(member, other, "links", next(free), port)
                for other, port in cluster.link_ports.items()
                if other != member
            }
            way(CLIENTS, member, "calls", clients[member], cluster.ports[member])
            _rewrite(cluster, member, {"members": calls, "links": links}, clients)
        say(process, rows, "ready")
        yield Network(process, ends)
    finally:
        process.kill()
        process.wait()


def _rewrite(
    cluster: LocalCluster,
    member: str,
    ways: dict[str, dict[str, int]],
    clients: dict[str, int],
) -> None:
    """Lead a member's configuration through the proxies; `ways`: ports by table and name."""
    path = cluster.folder / member / "config.toml"
    lines: list[str] = []
    ports: dict[str, int] = {}
    for line in path.read_text().splitlines():
        key = line.partition(" ")[0]
        if line.startswith("["):
            ports = ways.get(line.strip("[]"), {})
        if key == "name_servers":
            lines.append(f'name_servers = ["127.0.0.1:{ways["members"][NAME_SERVER]}"]')
        elif key in ports:
            lines.append(f'{key} = "127.0.0.1:{ports[key]}"')
        else:
            lines.append(line)
    lines += ["", "[clients]"]
    lines += [f'{name} = "127.0.0.1:{port}"' for name, port in clients.items()]
    path.write_text("\n".join(lines) + "\n")
