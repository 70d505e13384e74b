"""Members as processes, each in a network namespace of its own, joined by a bridge.

Needs root, iproute2 and nftables. Everything lives in namespaces that end with the harness: the
command line moves itself into them (`troubles/namespaces.py`). Packets are dropped by the rules of
`troubles/packet_rules.py`.

    harness, name servers     10.77.0.254 (bridge)
    member i                  10.77.0.i
"""

import os
from collections.abc import Sequence
from typing import Final

from jepsen_tests.backends.process import NAME_SERVERS, ProcessBackend
from jepsen_tests.backends.surface import CannotRun, WantedCluster
from jepsen_tests.backends.troubles import namespaces
from jepsen_tests.backends.troubles.packet_rules import PacketRules, run, why_not

NETWORK: Final = "10.77.0"
BRIDGE_ADDRESS: Final = f"{NETWORK}.254"
PORT: Final = 10_911
RAFT_PORT: Final = 10_912
NAME_SERVER_PORT: Final = 9_876
TOOLS: Final = ("ip", "unshare", "nsenter", "mount")
OWN_NAMESPACES: Final = ("net", "mount")
BY_NAME: Final = "/run/netns"
"""The folder in which iproute2 keeps namespaces. We mount our own there."""
RETRANSMISSION_MS_MAX: Final = 1_000
"""Without it a connection that was cut for long goes on only long after the heal."""


class NetnsBackend(ProcessBackend):
    """Processes in network namespaces: packets are dropped, one way or both. Needs root."""

    name = "netns"

    def __init__(self, wanted: WantedCluster) -> None:
        reason = why_not(*TOOLS)
        if reason:
            raise CannotRun(reason)
        super().__init__(wanted)

    @classmethod
    def own_namespaces(cls) -> Sequence[str]:
        reason = why_not(*TOOLS) or namespaces.why_not(*OWN_NAMESPACES)
        if reason:
            raise CannotRun(reason)
        return OWN_NAMESPACES

    def _lay_out_network(self) -> None:
        self._hosts = {node: f"{NETWORK}.{n}" for n, node in enumerate(self.nodes, 1)}
        self.network = PacketRules(self._hosts, self._within)

    def address(self, node: str) -> str:
        return self.inner_address(node)

    def inner_address(self, node: str) -> str:
        if node in NAME_SERVERS:
            return f"{BRIDGE_ADDRESS}:{NAME_SERVER_PORT + NAME_SERVERS.index(node)}"
        return f"{self._hosts[node]}:{PORT}"

    def _peer_address(self, node: str, peer: str) -> str:
        del node
        return self.address(peer)

    def _raft_address(self, node: str, peer: str) -> str:
        del node
        return f"{self._hosts[peer]}:{RAFT_PORT}"

    def _within(self, name: str) -> list[str]:
        # Not `ip netns exec`: that copies our mounts into a namespace of each member's own.
        return [] if name in NAME_SERVERS else ["nsenter", f"--net={BY_NAME}/{name}"]

    async def _start_network(self) -> None:
        if not namespaces.is_inside(*OWN_NAMESPACES):
            raise CannotRun("the harness must run in namespaces of its own: use its command line")
        os.makedirs(BY_NAME, exist_ok=True)
        await run("mount", "-t", "tmpfs", "none", BY_NAME)
        await run("ip", "link", "set", "lo", "up")
        await run("ip", "link", "add", "br0", "type", "bridge")
        await run("ip", "address", "add", f"{BRIDGE_ADDRESS}/24", "dev", "br0")
        await run("ip", "link", "set", "br0", "up")
        for node, host in self._hosts.items():
            inside = ("ip", "-n", node)
            await run("ip", "netns", "add", node)
            await run(
                "ip", "link", "add", f"to-{node}", "type", "veth", "peer", "eth0", "netns", node
            )
            await run("ip", "link", "set", f"to-{node}", "master", "br0", "up")
            await run(*inside, "address", "add", f"{host}/24", "dev", "eth0")
            await run(*inside, "link", "set", "eth0", "up")
            await run(*inside, "link", "set", "lo", "up")
            setting = f"net.ipv4.tcp_rto_max_ms={RETRANSMISSION_MS_MAX}"
            # Older kernels have no such limit: there, old connections heal late.
            await run(*self._within(node), "sysctl", "-e", "-q", "-w", setting)

    async def _stop_network(self) -> None:
        """Nothing to do: the namespaces end with the harness."""
