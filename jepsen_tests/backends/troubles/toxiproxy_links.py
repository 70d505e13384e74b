"""Members as processes behind toxiproxy, one proxy for each ordered pair.

Needs the server, which is built by go when it is not on the path:
`go install github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0`. A cut swallows what is sent; its
end closes the connections, so that a healed partition looks like a reconnect.
"""

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from toxiproxy import Proxy, Toxiproxy

from dledger_proto.network.ports import HOST, free_ports
from jepsen_tests.backends.process import ProcessBackend
from jepsen_tests.backends.surface import (
    PROXIED,
    PROXIED_CLIENTS,
    CannotRun,
    Trouble,
    TroubleKind,
    WantedCluster,
)
from jepsen_tests.processes.child import leashed
from jepsen_tests.processes.threads import Threads

SERVER: Final = "toxiproxy-server"
SOURCE: Final = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"
TOOLS: Final = Path(__file__).parents[3] / "out" / "tools"
"""Where a server that was built here is kept."""
BUILD_SECONDS_MAX: Final = 300.0
START_SECONDS_MAX: Final = 10.0
STREAMS: Final = ("upstream", "downstream")


def _toxics(trouble: Trouble) -> tuple[str, dict[str, int]]:
    """Return the toxic of a trouble, and its attributes."""
    match trouble.kind:
        case TroubleKind.CUT | TroubleKind.MUTE:
            return "timeout", {"timeout": 0}
        case TroubleKind.DELAY:
            return "latency", {"latency": int(trouble.delay_ms), "jitter": int(trouble.jitter_ms)}
        case TroubleKind.BANDWIDTH:
            return "bandwidth", {"rate": max(1, trouble.bytes_per_second // 1000)}
        case TroubleKind.SLICES:
            size = trouble.slice_bytes
            return "slicer", {"average_size": size, "size_variation": size // 2, "delay": 0}
        case _:
            return "reset_peer", {"timeout": 0}


class ToxicLinks:
    """A toxiproxy server and its proxies. Implements `surface.Network`."""

    kinds = PROXIED
    client_kinds = PROXIED_CLIENTS

    def __init__(self) -> None:
        self._api = Toxiproxy()
        self._server: subprocess.Popen[bytes] | None = None
        self._proxies: dict[tuple[str, str], list[str]] = {}
        """The names of a link's proxies: one for each port of its target."""

    def start(self, binary: str, port: int, links: Sequence[tuple[str, str, int, int]]) -> None:
        """Start the server, and a proxy for each row (from, to, port, target port). Blocks."""
        self._server = subprocess.Popen(
            leashed(binary, "-host", HOST, "-port", str(port)), stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0,
        )  # fmt: skip
        _wait_for(port, self._server)
        self._api.update_api_consumer(HOST, port)
        for source, target, listen, target_port in links:
            name = f"{source}-{target}-{listen}"
            self._proxies.setdefault((source, target), []).append(name)
            self._api.create(
                upstream=f"{HOST}:{target_port}", name=name, listen=f"{HOST}:{listen}",
                enabled=True,
            )  # fmt: skip

    def stop(self) -> None:
        """End the server. Blocks."""
        if self._server is not None:
            assert self._server.stdin is not None, "it is a pipe"
            self._server.stdin.close()
            self._server.wait()

    async def trouble(self, links: Sequence[tuple[str, str]], trouble: Trouble) -> None:
        await asyncio.to_thread(self._trouble, links, trouble)
        if trouble.kind is TroubleKind.RESET:
            await self.heal(links, TroubleKind.RESET)

    async def heal(self, links: Sequence[tuple[str, str]], kind: TroubleKind) -> None:
        await asyncio.to_thread(self._heal, links, kind)

    def _proxies_of(self, links: Sequence[tuple[str, str]]) -> Iterator[Proxy]:
        for link in links:
            for name in self._proxies[link]:
                proxy = self._api.get_proxy(name)
                assert proxy is not None, f"{name} was made at the start"
                yield proxy

    def _trouble(self, links: Sequence[tuple[str, str]], trouble: Trouble) -> None:
        self._heal(links, trouble.kind)
        toxic, attributes = _toxics(trouble)
        for proxy in self._proxies_of(links):
            for stream in STREAMS[1:] if trouble.kind is TroubleKind.MUTE else STREAMS:
                proxy.add_toxic(
                    type=toxic, name=f"{trouble.kind}-{stream}", stream=stream,
                    attributes=attributes,
                )  # fmt: skip

    def _heal(self, links: Sequence[tuple[str, str]], kind: TroubleKind) -> None:
        for proxy in self._proxies_of(links):
            present = {toxic.name for toxic in proxy.toxics().values()}
            for name in {f"{kind}-{stream}" for stream in STREAMS} & present:
                proxy.destroy_toxic(name)


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    for _ in range(int(START_SECONDS_MAX / 0.1)):
        try:
            socket.create_connection((HOST, port), 0.1).close()
        except OSError:
            try:
                code = server.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            raise CannotRun(f"{SERVER} ended with {code}") from None
        return
    raise CannotRun(f"{SERVER} does not answer on port {port}")


def server_binary() -> str:
    """Return the server's path; build it if it is not there. CannotRun without go. Blocks."""
    built = TOOLS / SERVER
    found = shutil.which(SERVER) or (str(built) if built.exists() else None)
    if found is not None:
        return found
    if shutil.which("go") is None:
        raise CannotRun(f"{SERVER} is not on the path, and there is no go to build it with")
    TOOLS.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["go", "install", SOURCE], env={**os.environ, "GOBIN": str(TOOLS)}, capture_output=True,
        text=True, timeout=BUILD_SECONDS_MAX, check=False,
    )  # fmt: skip
    if done.returncode:
        raise CannotRun(f"{SERVER} could not be built: {done.stderr.strip()[-300:]}")
    (TOOLS / "server").rename(built)
    return str(built)


class ToxiproxyBackend(ProcessBackend):
    """Processes of this machine behind toxiproxy. Needs its server, or go to build it."""

    name = "toxiproxy"

    def __init__(self, wanted: WantedCluster) -> None:
        self._binary = server_binary()
        super().__init__(wanted)

    def _lay_out_network(self) -> None:
        super()._lay_out_network()
        self._toxic = ToxicLinks()
        self._starting = Threads()
        self.network = self._toxic

    async def _start_network(self) -> None:
        rows = [(a, b, port, target) for a, b, port, _, target in self._proxied()]
        (port,) = free_ports(1)
        await self._starting.do(self._toxic.start, self._binary, port, rows)

    async def _stop_network(self) -> None:
        await self._starting.over()  # a thread may still be starting the server
        await asyncio.to_thread(self._toxic.stop)
