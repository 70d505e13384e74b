"""What a call knows of its caller's time."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from dledger.raft.api import Role
from dledger.raft.group import RaftGroup
from dledger.types import LogIndex
from dledger_broker.cluster.channels import Channels
from dledger_broker.group.group_view import CALL_SECONDS_MAX
from dledger_broker.rpc.calls import AnsweredBy, Call, Calls, HostedGroup, Row
from dledger_broker.security import rules
from dledger_broker.security.gate import open_gate
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.raw import RawContext
from dledger_proto.v1 import broker_pb2 as pb
from tests.unit.broker.fakes import ManualClock, admission
from tests.unit.broker.test_messaging import Host, messaging


class Context:
    """A caller that waits for some seconds."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds

    def invocation_metadata(self) -> object:
        """None was sent."""
        return None

    def peer(self) -> str:
        """Return where it came from."""
        return "ipv4:127.0.0.1:1"

    def time_remaining(self) -> float | None:
        """Return what the caller said."""
        return self.seconds


def test_a_refusal_is_given_before_the_caller_stops_waiting() -> None:
    """Else it would be an unknown outcome, of a call that has done nothing."""
    clock = ManualClock()
    call = Call(Context(1.5), clock, {}, open_gate(clock))
    assert 1.2 < call.seconds_left() < 1.5
    clock.now += 1.4
    assert call.seconds_left() == 0


def test_no_caller_holds_a_call_for_ever() -> None:
    clock = ManualClock()
    assert Call(Context(None), clock, {}, open_gate(clock)).seconds_left() <= CALL_SECONDS_MAX
    assert Call(Context(1e9), clock, {}, open_gate(clock)).seconds_left() <= CALL_SECONDS_MAX


class Electing(Host):
    """Has no leader, as long as it is asked; every question takes a while."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        status = SimpleNamespace(role=Role.FOLLOWER, reason="", term=3)
        self.group = cast("RaftGroup", SimpleNamespace(status=lambda: status))

    async def read_barrier(self) -> LogIndex:
        self.clock.now += 0.1
        raise DledgerError(Code.NO_LEADER)


def test_confirmed_state_is_waited_for_no_longer_than_the_caller_waits() -> None:
    """Also in the midst of a call that passes no deadline on."""

    async def run() -> None:
        clock = ManualClock()
        core = messaging(Electing(clock), b"", 0)
        core.view.clock = clock
        calls = Calls({"g": HostedGroup(core)}, admission(), cast("Channels", None), clock)
        begun = clock.now

        async def read(_call: Call, _request: pb.StatusRequest) -> pb.TopicReply:
            with pytest.raises(DledgerError, match="NO_LEADER"):
                await core.view.confirm(5.0)
            return pb.TopicReply()

        row = Row(
            "Test",
            "Read",
            pb.StatusRequest,
            pb.TopicReply,
            None,
            AnsweredBy.ANY_MEMBER,
            read,
            rules.ANYONE,
        )
        await calls.answer(row, b"", cast("RawContext", Context(0.5)))
        assert clock.now - begun < 0.5

    asyncio.run(run())
