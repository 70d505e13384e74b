"""Packets that a member's network namespace drops, limits or resets; by nftables and tc, as root.

One direction alone can be cut or lossy, as between real machines.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from jepsen_tests.backends.surface import CannotRun, Trouble, TroubleKind

TOOLS: Final = ("nft", "tc", "ss")
Inside = Callable[[str], Sequence[str]]
"""Returns the command that runs another one in a member's namespace; empty: there is none now."""


def why_not(*tools: str) -> str:
    """Return why packets can't be dropped here, or an empty string when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in (*TOOLS, *tools) if shutil.which(tool) is None]
    return f"network namespaces need {', '.join(missing)}" if missing else ""


async def run(*command: str, text: str = "") -> None:
    """Run a tool of the system; CannotRun with what it said when it fails."""
    done = await asyncio.to_thread(
        subprocess.run, command, input=text, text=True, capture_output=True, check=False
    )
    if done.returncode:
        raise CannotRun(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")


class PacketRules:
    """What each member's namespace drops and limits. Implements `surface.Network`."""

    kinds = frozenset({TroubleKind.CUT, TroubleKind.LOSS, TroubleKind.BANDWIDTH, TroubleKind.RESET})
    client_kinds = frozenset[TroubleKind]()

    def __init__(self, addresses: Mapping[str, str], inside: Inside) -> None:
        self._addresses = addresses
        self._inside = inside
        self._troubles: dict[tuple[str, str, TroubleKind], Trouble] = {}

    async def trouble(self, links: Sequence[tuple[str, str]], trouble: Trouble) -> None:
        if trouble.kind is TroubleKind.RESET:
            for source, target in links:
                if inside := self._inside(source):
                    await run(*inside, "ss", "-K", "dst", self._addresses[target])
            return
        for source, target in links:
            self._troubles[source, target, trouble.kind] = trouble
        await self.apply({node for link in links for node in link})

    async def heal(self, links: Sequence[tuple[str, str]], kind: TroubleKind) -> None:
        for source, target in links:
            self._troubles.pop((source, target, kind), None)
        await self.apply({node for link in links for node in link})

    async def apply(self, nodes: Iterable[str]) -> None:
        """Install the rules in these members' namespaces. A member without one gets them later."""
        for node in sorted(nodes):
            if inside := self._inside(node):
                await run(*inside, "nft", "-f", "-", text=self._rules(node))
                await self._shape(node, inside)

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
            if kind is TroubleKind.CUT:
                lines.append(f"{packets} drop")
            elif kind is TroubleKind.LOSS:
                lines.append(f"{packets} numgen random mod 100 < {trouble.loss_percent} drop")
        return "\n".join(lines) + "\n"

    async def _shape(self, node: str, inside: Sequence[str]) -> None:
        """Limit what the member sends to everybody, by the narrowest of its links."""
        rates = [
            trouble.bytes_per_second
            for (source, _, kind), trouble in self._troubles.items()
            if source == node and kind is TroubleKind.BANDWIDTH
        ]
        replace = (*inside, "tc", "qdisc", "replace", "dev", "eth0", "root")
        if rates:
            rate = f"{min(rates) * 8}bit"
            await run(*replace, "tbf", "rate", rate, "burst", "32k", "latency", "400ms")
        else:
            await run(*replace, "pfifo", "limit", "1000")
