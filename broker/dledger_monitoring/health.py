"""gRPC's own health service: Check and Watch (grpc.health.v1.Health).

Owns: which services are known, how a watch goes on. Not: when a process serves, which it is told as
a function. Load balancers, service meshes and `grpc_health_probe` ask it.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import grpc

from dledger_proto.errors import DledgerError
from dledger_proto.rpc.raw import RawContext, RawService, ReadMethod, UnaryMethod, raw_handlers
from dledger_proto.rpc.stall import within_stall_limit
from dledger_proto.rpc.status import abort, parsed
from dledger_proto.v1.health_pb2 import HealthAnswer, HealthQuestion

SERVICE: Final = "grpc.health.v1.Health"
WATCHES_MAX: Final = 256
LOOK_SECONDS: Final = 0.5
"""How often a watch looks whether its answer is another."""


class Health:
    """The health of the services of one process."""

    def __init__(self, services: Collection[str], not_ready: Callable[[], str]) -> None:
        """`not_ready` says why the process does not serve, or ""."""
        self._services = frozenset({*services, ""})
        self._not_ready = not_ready
        self._watches = 0

    def handlers(self) -> RawService:
        """Return what a gRPC server serves."""
        return raw_handlers(
            SERVICE, {"Check": UnaryMethod(self.check), "Watch": ReadMethod(self.watch)}
        )

    def _status(self, service: str) -> HealthAnswer.Status.ValueType:
        if service not in self._services:
            return HealthAnswer.SERVICE_UNKNOWN
        return HealthAnswer.NOT_SERVING if self._not_ready() else HealthAnswer.SERVING

    async def check(self, data: bytes, context: RawContext) -> bytes:
        """Say how a service is now."""
        try:
            service = parsed(HealthQuestion, data).service
        except DledgerError as error:
            await abort(context, error)
        status = self._status(service)
        if status == HealthAnswer.SERVICE_UNKNOWN:
            known = ", ".join(sorted(filter(None, self._services)))
            await context.abort(grpc.StatusCode.NOT_FOUND, f"unknown service; there are {known}")
        return HealthAnswer(status=status).SerializeToString()

    async def watch(self, data: bytes, context: RawContext) -> None:
        """Say how a service is now, and again at each change."""
        if self._watches >= WATCHES_MAX:
            said = f"the limit of {WATCHES_MAX} watches is reached"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, said)
        self._watches += 1
        try:
            service = parsed(HealthQuestion, data).service
            write, told = within_stall_limit(context.write, "watch again"), None
            while True:
                status = self._status(service)
                if status != told:
                    told = status
                    await write(HealthAnswer(status=status).SerializeToString())
                await asyncio.sleep(LOOK_SECONDS)
        except DledgerError as error:
            await abort(context, error)
        finally:
            self._watches -= 1
