"""Troubled links: TCP proxies in a process of their own. Needs no root."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from jepsen_tests.backends.surface import PROXIED, PROXIED_CLIENTS, Trouble, TroubleKind

STOP_SECONDS: Final = 5.0


class LinkProxies:
    """A process of proxies. Implements `surface.Network`."""

    kinds = PROXIED
    client_kinds = PROXIED_CLIENTS

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def start(self, links: Sequence[tuple[str, str, int, str, int]]) -> None:
        """Listen for links (from, to, port, target host, target port)."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "jepsen_tests.backends.troubles.link_server",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        rows = [[f"{a}>{b}", port, host, target] for a, b, port, host, target in links]
        await self._say(rows, "ready")

    async def stop(self) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    async def trouble(self, links: Sequence[tuple[str, str]], trouble: Trouble) -> None:
        for source, target in links:
            await self._say([f"{source}>{target}", trouble.kind, asdict(trouble)], "ok")

    async def heal(self, links: Sequence[tuple[str, str]], kind: TroubleKind) -> None:
        for source, target in links:
            await self._say([f"{source}>{target}", kind, None], "ok")

    async def _say(self, line: Any, answer: str) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        async with self._turn:
            process.stdin.write(json.dumps(line).encode() + b"\n")
            await process.stdin.drain()
            said = await process.stdout.readline()
        if said != answer.encode() + b"\n":
            raise ConnectionError(f"the proxies said {said!r} to {line}")
