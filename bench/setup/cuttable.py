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
        # The others of each member, and its clients: one port each, all found at once.
        free = iter(free_ports(len(cluster.member_names) * len(cluster.names)))
        clients = {member: next(free) for member in cluster.member_names}
        rows: list[list[object]] = []
        ends: dict[str, tuple[str, str]] = {}
        for member in cluster.member_names:
            ports = {other: next(free) for other in cluster.names if other != member}
            links = [(member, other, port) for other, port in ports.items()]
            for near, far, port in [*links, (CLIENTS, member, clients[member])]:
                ends[f"{near}>{far}"] = (near, far)
                rows.append([f"{near}>{far}", port, link_server.HOST, cluster.ports[far]])
            _rewrite(cluster, member, ports, clients)
        say(process, rows, "ready")
        yield Network(process, ends)
    finally:
        process.kill()
        process.wait()


def _rewrite(
    cluster: LocalCluster, member: str, ports: dict[str, int], clients: dict[str, int]
) -> None:
    """Lead a member's configuration through the proxies."""
    path = cluster.folder / member / "config.toml"
    lines: list[str] = []
    for line in path.read_text().splitlines():
        key = line.partition(" ")[0]
        if key == "name_servers":
            lines.append(f'name_servers = ["127.0.0.1:{ports[NAME_SERVER]}"]')
        elif key in ports:
            lines.append(f'{key} = "127.0.0.1:{ports[key]}"')
        else:
            lines.append(line)
    lines += ["", "[clients]"]
    lines += [f'{name} = "127.0.0.1:{port}"' for name, port in clients.items()]
    path.write_text("\n".join(lines) + "\n")
