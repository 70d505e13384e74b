"""The functions that stand in for those of `grpc.aio`, on the loops of simulated processes."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc.aio

from tests.sim.network.calls.channel import SimChannel
from tests.sim.network.calls.server import SimServer
from tests.sim.network.network import Network
from tests.sim.process.loop import ProcessLoop


@contextmanager
def simulated_grpc() -> Iterator[None]:
    """Give simulated processes channels and servers in memory, and all others the real ones."""
    module: Any = grpc.aio
    make_channel, make_server = module.insecure_channel, module.server

    def insecure_channel(
        target: str, options: Sequence[tuple[str, int]] | None = None, *rest: Any, **more: Any
    ) -> Any:
        loop = asyncio.get_running_loop()
        if isinstance(loop, ProcessLoop):
            return SimChannel(_network_of(loop), loop, target, options or ())
        return make_channel(target, options, *rest, **more)

    def server(*given: Any, options: Sequence[tuple[str, int]] | None = None, **more: Any) -> Any:
        loop = asyncio.get_running_loop()
        if isinstance(loop, ProcessLoop):
            return SimServer(_network_of(loop), loop, options or ())
        return make_server(*given, options=options, **more)

    module.insecure_channel, module.server = insecure_channel, server
    try:
        yield
    finally:
        module.insecure_channel, module.server = make_channel, make_server


def _network_of(loop: ProcessLoop) -> Network:
    assert isinstance(loop.network, Network), f"{loop.host} has no network"
    return loop.network
