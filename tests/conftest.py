"""For every test: property tests have no time limit, and gRPC stays for the whole run.

When the last object of grpc.aio is freed, its poller is shut down, and that waits for every
operation that is still pending. Where the garbage collector frees both at once, the one waits for
the other for good. Tests leave calls behind by design, so one reference is held by the run itself.
"""

import asyncio

import pytest
from hypothesis import settings

import dledger_proto  # noqa: F401  # before gRPC, whose fork handlers it turns off

settings.register_profile("dledger", deadline=None, print_blob=True)
settings.load_profile("dledger")


@pytest.fixture(scope="session", autouse=True)
def grpc_stays() -> None:
    """Hold grpc.aio from the first test to the last."""
    import grpc.aio

    async def hold() -> None:
        grpc.aio.init_grpc_aio()  # type: ignore[attr-defined]  # counted like a channel; it wants a running loop

    asyncio.run(hold())
