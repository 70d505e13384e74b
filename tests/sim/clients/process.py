"""The process of a simulated client: its event loop, its clock, its channels, its end.

Owns: the way of an error that a client's task raises to the world, and where real clients begin to
look for the cluster. A client that is down does nothing, and hears nothing of what it asked before.
Each process has a loop of its own; so clients of the product share connections within a process,
and never across two.
"""

from collections.abc import Coroutine, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

import grpc.aio

from dledger_broker.cluster.channels import client_options
from dledger_client._shell import fork
from dledger_client._shell.cluster import Cluster
from tests.sim.member.config import NAME_SERVER_PORT, address_of
from tests.sim.process.loop import ProcessLoop, new_loop
from tests.sim.world.clock import MemberClock, true_ms

if TYPE_CHECKING:
    from tests.sim.world.world import World

BY_MEMBERS_SHARE: Final = 0.3
"""Of the real clients of a world with name servers: so many are told members' addresses."""


class ClientProcess:
    """One life of a client on a host."""

    def __init__(self, world: "World", host: str, life: int) -> None:
        self.world = world
        self.name = host
        random = Random(f"{world.plan.seed}/{host}/{life}")
        self.clock = MemberClock(world.scheduler, random.uniform(0.0, 1_000.0), _nobody)
        self.loop: ProcessLoop = new_loop(
            world.scheduler, random, host, self.clock.monotonic, self._uncaught
        )
        self.loop.wall_ms = lambda: true_ms(world.scheduler)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._clusters: list[Cluster] = []
        world.trace(f"start {host} life {life}")
        world.network.process_started(host, self.loop)

    def _uncaught(self, error: BaseException, where: str) -> None:
        self.world.found_error(error, f"{self.name}: {where}")

    def spawn(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Run a task on the loop; what it raises ends the world."""
        if self.loop.is_ended:
            work.close()
            return
        self.loop.run_now(lambda: self.loop.create_task(self._watched(work, what), name=what))

    async def _watched(self, work: Coroutine[Any, Any, None], what: str) -> None:
        try:
            await work
        except Exception as error:  # nobody else would hear of it in time
            self.world.found_error(error, f"{self.name}: {what}")

    def channel(self, member: str) -> grpc.aio.Channel:
        """Return the channel of hand-made calls to a member."""
        channel = self._channels.get(member)
        if channel is None:
            channel = grpc.aio.insecure_channel(address_of(member), options=client_options())
            self._channels[member] = channel
        return channel

    def owns(self, cluster: Cluster) -> None:
        """Note a client of the product; at a fork of the simulation's own process it is gone."""
        self._clusters.append(cluster)

    def end(self) -> None:
        """End the process at once."""
        if self.loop.is_ended:
            return
        self.world.network.process_ended(self.name, silent=False)
        self.loop.end()
        for cluster in self._clusters:
            fork.closed(cluster)
        self.world.dead.append(self)


def bootstrap(world: "World", random: Random) -> Sequence[str]:
    """Return the addresses that a real client is given: of name servers, or of members."""
    servers = [f"{name}:{NAME_SERVER_PORT}" for name in world.plan.name_servers]
    if servers and random.random() >= BY_MEMBERS_SHARE:
        return servers
    return [address_of(name) for names in world.plan.groups.values() for name in names]


def _nobody() -> None:
    pass
