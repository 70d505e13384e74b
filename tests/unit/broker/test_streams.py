"""Streams of a member whose own code is wrong."""

import asyncio
from typing import NoReturn

import grpc
import pytest

from dledger_broker.cluster.channels import Channels
from dledger_broker.rpc.calls import Calls
from dledger_broker.rpc.streams import Streams
from tests.unit.broker.fakes import ManualClock, admission


class Ended(Exception):
    """What `abort` raises."""


class BrokenContext:
    """A call whose metadata nobody can read."""

    def __init__(self) -> None:
        self.status: tuple[grpc.StatusCode, str] | None = None

    def invocation_metadata(self) -> object:
        raise LookupError("no such thing")

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: tuple[tuple[str, str], ...] = (),
    ) -> NoReturn:
        self.status = code, details
        raise Ended


@pytest.mark.parametrize("method", ["append", "append_one", "fetch"])
def test_a_bug_of_ours_leaves_as_one_and_not_as_a_bare_status(method: str) -> None:
    async def scenario() -> None:
        calls = Calls({}, admission(), Channels(), ManualClock())
        service = Streams(calls, {})
        context = BrokenContext()
        run = getattr(service, method)
        with pytest.raises(Ended):
            await run(b"", context)
        assert context.status == (grpc.StatusCode.INTERNAL, "LookupError: no such thing")

    asyncio.run(scenario())
