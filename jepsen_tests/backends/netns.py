"""Members as processes, each in a network namespace of its own, joined by a bridge.

Needs root, iproute2 and nftables. Everything lives in namespaces that end with the harness: the
command line starts itself again inside `unshare --net --mount`. Packets are dropped by nftables,
so one direction alone can be cut or lossy, as between real machines.

    harness, name servers     10.77.0.254 (bridge)
    member i                  10.77.0.i
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from jepsen_tests.backends.process import NAME_SERVERS, ProcessBackend, Setting
from jepsen_tests.backends.surface import CannotRun, Kind, Trouble

INSIDE_VARIABLE: Final = "DLEDGER_CHAOS_NETNS"
"""Set in the process that runs inside: its network and mounts are its own."""
NETWORK: Final = "10.77.0"
BRIDGE_ADDRESS: Final = f"{NETWORK}.254"
PORT: Final = 10_911
NAME_SERVER_PORT: Final = 9_876
TOOLS: Final = ("ip", "nft", "tc", "ss", "unshare", "mount")
RETRANSMISSION_MS_MAX: Final = 1_000
"""Else a connection that was cut for long moves again only long after it healed."""


def why_not() -> str:
    """Return why namespaces can't be used here, or an empty string when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"network namespaces need {', '.join(missing)}" if missing else ""


async def _run(*command: str, text: str = "") -> None:
    done = await asyncio.to_thread(
        subprocess.run, command, input=text, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise CannotRun(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")


class PacketRules:
    """What each member's namespace drops and delays. Implements `surface.Network`."""

    kinds = frozenset({Kind.CUT, Kind.LOSS, Kind.BANDWIDTH, Kind.RESET})

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self._addresses = addresses
        self._troubles: dict[tuple[str, str, Kind], Trouble] = {}

    async def trouble(self, links: Sequence[tuple[str, str]], trouble: Trouble) -> None:
        """See `surface.Network`."""
        if trouble.kind is Kind.RESET:
            for source, target in links:
                await _run(
                    "ip", "netns", "exec", source, "ss", "-K", "dst", self._addresses[target]
                )
            return
        for source, target in links:
            self._troubles[source, target, trouble.kind] = trouble
        await self._apply({node for link in links for node in link})

    async def heal(self, links: Sequence[tuple[str, str]], kind: Kind) -> None:
        """See `surface.Network`."""
        for source, target in links:
            self._troubles.pop((source, target, kind), None)
        await self._apply({node for link in links for node in link})

    async def _apply(self, nodes: set[str]) -> None:
        for node in sorted(nodes):
            await _run("ip", "netns", "exec", node, "nft", "-f", "-", text=self._rules(node))
            await self._shape(node)

    def _rules(self, node: str) -> str:
        """Return the whole table of a member: what it does not take in."""
        lines = [
            "add table inet chaos", "delete table inet chaos", "add table inet chaos",
            "add chain inet chaos in { type filter hook input priority -200; }",
        ]  # fmt: skip
        for (source, target, kind), trouble in self._troubles.items():
            if target != node:
                continue
            packets = f"add rule inet chaos in ip saddr {self._addresses[source]}"
            if kind is Kind.CUT:
                lines.append(f"{packets} drop")
            elif kind is Kind.LOSS:
                lines.append(f"{packets} numgen random mod 100 < {trouble.loss_percent} drop")
        return "\n".join(lines) + "\n"

    async def _shape(self, node: str) -> None:
        """Limit what the member sends, to all: the narrowest of its links decides."""
        rates = [
            trouble.bytes_per_second
            for (source, _, kind), trouble in self._troubles.items()
            if source == node and kind is Kind.BANDWIDTH
        ]
        inside = ("ip", "netns", "exec", node, "tc", "qdisc", "replace", "dev", "eth0", "root")
        if rates:
            rate = f"{min(rates) * 8}bit"
            await _run(*inside, "tbf", "rate", rate, "burst", "32k", "latency", "400ms")
        else:
            await _run(*inside, "pfifo", "limit", "1000")


class NetnsBackend(ProcessBackend):
    """Processes in network namespaces: packets are dropped, one way or both. Needs root."""

    name = "netns"

    def __init__(
        self, folder: Path, nodes: Sequence[str], settings: Mapping[str, Setting], mutant: str
    ) -> None:
        reason = why_not()
        if reason:
            raise CannotRun(reason)
        super().__init__(folder, nodes, settings, mutant)

    def _lay_out_network(self) -> None:
        self._hosts = {node: f"{NETWORK}.{n}" for n, node in enumerate(self.nodes, 1)}
        self.network = PacketRules(self._hosts)

    def address(self, node: str) -> str:
        """See `surface.Backend`."""
        if node in NAME_SERVERS:
            return f"{BRIDGE_ADDRESS}:{NAME_SERVER_PORT + NAME_SERVERS.index(node)}"
        return f"{self._hosts[node]}:{PORT}"

    def _peer_address(self, node: str, peer: str) -> str:
        del node
        return self.address(peer)

    def _within(self, name: str) -> list[str]:
        return [] if name in NAME_SERVERS else ["ip", "netns", "exec", name]

    async def _start_network(self) -> None:
        if INSIDE_VARIABLE not in os.environ:
            raise CannotRun("the harness must run in namespaces of its own: use its command line")
        await _run("mount", "-t", "tmpfs", "none", "/run/netns")
        await _run("ip", "link", "set", "lo", "up")
        await _run("ip", "link", "add", "br0", "type", "bridge")
        await _run("ip", "address", "add", f"{BRIDGE_ADDRESS}/24", "dev", "br0")
        await _run("ip", "link", "set", "br0", "up")
        for node, host in self._hosts.items():
            inside = ("ip", "-n", node)
            await _run("ip", "netns", "add", node)
            await _run(
                "ip", "link", "add", f"to-{node}", "type", "veth", "peer", "eth0", "netns", node
            )
            await _run("ip", "link", "set", f"to-{node}", "master", "br0", "up")
            await _run(*inside, "address", "add", f"{host}/24", "dev", "eth0")
            await _run(*inside, "link", "set", "eth0", "up")
            await _run(*inside, "link", "set", "lo", "up")
            setting = f"net.ipv4.tcp_rto_max_ms={RETRANSMISSION_MS_MAX}"
            # Older kernels have no such limit: then old connections heal late, as they do there.
            await _run("ip", "netns", "exec", node, "sysctl", "-e", "-q", "-w", setting)

    async def _stop_network(self) -> None:
        """Nothing to do: the namespaces end with the harness."""


def run_inside(arguments: Sequence[str]) -> None:
    """Become the same command inside new namespaces; return only when this is inside already."""
    if INSIDE_VARIABLE in os.environ:
        return
    reason = why_not()
    if reason:
        raise CannotRun(reason)
    os.makedirs("/run/netns", exist_ok=True)
    command = ["unshare", "--net", "--mount", *arguments]
    os.execvpe(command[0], command, {**os.environ, INSIDE_VARIABLE: "1"})
