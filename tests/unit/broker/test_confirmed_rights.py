"""What a caller may not do is said on confirmed state, wherever rights are asked for (D10)."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from dledger.state.users.values import Action, ResourceKind
from dledger_broker.append.stream import AppendSession
from dledger_broker.cluster.channels import GROUP_KEY
from dledger_broker.rpc.calls import Calls
from dledger_broker.rpc.streams import (
    Streams,
    _joining,  # pyright: ignore[reportPrivateUsage]
    _while,  # pyright: ignore[reportPrivateUsage]
)
from dledger_broker.rpc.table import ROWS
from dledger_broker.security import deciding
from dledger_broker.security.access import Access
from dledger_broker.security.gate import LOGIN_KEY, Confirm, Gate, Need
from dledger_proto.errors import Code, DledgerError
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2
from tests.unit.broker import stream_stage
from tests.unit.broker.fakes import ManualClock, batch
from tests.unit.broker.stream_stage import END, Stage
from tests.unit.broker.test_table import PEER, Refusal, Stranger, gated
from tests.unit.security.users import allow, log_in, user_of

if TYPE_CHECKING:
    from dledger_proto.rpc.raw import RawContext


async def nobody_leads(_seconds: float) -> None:
    """Confirm nothing."""
    raise DledgerError(Code.NO_LEADER)


def context_of(calls: Calls, name: str) -> "RawContext":
    """Return a call of a user that has logged in."""
    login = log_in(calls.gate.logins, name, PEER)
    return cast("RawContext", Stranger((LOGIN_KEY, login)))


def test_a_new_administrator_that_a_member_has_not_heard_of() -> None:
    async def run() -> None:
        calls = gated(user_of("bob"), confirm=nobody_leads)
        (row,) = (row for row in ROWS if row.path == "/dledger.v1.Users/List")
        with pytest.raises(Refusal, match=r"^UNAVAILABLE$"):
            await calls.answer(row, b"", context_of(calls, "bob"))

    asyncio.run(run())


def test_a_reader_of_entries_whose_right_a_member_has_not_heard_of() -> None:
    async def run() -> None:
        calls = gated(user_of("bob"), confirm=nobody_leads)
        with pytest.raises(Refusal, match=r"^UNAVAILABLE$"):
            await Streams(calls, {}).log_entries(b"", context_of(calls, "bob"))

    asyncio.run(run())


NEED = Need(Action.SUBSCRIBE, deciding.topic("t"), "no t")
JOIN = delivery_pb2.SessionRequest(join=delivery_pb2.Join(consumer_group="g"))
ALIVE = delivery_pb2.SessionRequest(alive=delivery_pb2.Alive())


class Frames:
    """A session's stream: a join, and a sign of life."""

    def __init__(self) -> None:
        self._left = [JOIN.SerializeToString(), ALIVE.SerializeToString()]

    async def read(self) -> object:
        """Return the next message."""
        return self._left.pop(0)


@pytest.mark.parametrize(
    ("confirm", "expected"), [(nobody_leads, "UNAVAILABLE"), (None, "NOT_FOUND")]
)
def test_a_stream_whose_right_seems_to_have_ended(confirm: Confirm | None, expected: str) -> None:
    """The member may be at a denial that has been taken back since."""

    async def run() -> None:
        bob = user_of("bob", "secret", allow(ResourceKind.ANY, "*", Action.SUBSCRIBE))
        users = {"bob": bob}
        gate = Gate(Access("c", proves=True), users.get, ManualClock(), on=True, confirm=confirm)
        login = {LOGIN_KEY: log_in(gate.logins, "bob", PEER)}
        caller = gate.caller(Stranger(), login, "Session")
        view = gated().groups["g"].messaging.view
        sent: list[bytes] = []

        async def write(frame: bytes) -> None:
            sent.append(frame)

        send = _while(gate, caller, (NEED,), view, write)
        receive = _joining(gate, caller, view, cast("RawContext", Frames()))
        await send(b"1")
        await receive()
        users["bob"] = replace(bob, policies=())
        for go_on in (lambda: send(b"2"), receive):
            with pytest.raises(DledgerError, match=expected):
                await go_on()
        assert sent == [b"1"]

    asyncio.run(run())


def test_a_batch_whose_right_is_in_another_group_that_lags() -> None:
    """A process keeps users in its control group, and its other groups take batches, too."""

    async def scenario() -> None:
        bob = user_of("bob")
        users = {"bob": bob}
        is_led = False

        async def confirm(_seconds: float) -> None:
            if not is_led:
                raise DledgerError(Code.NO_LEADER, "nobody leads the control group")
            right = allow(ResourceKind.TOPIC, "*", Action.PUBLISH)
            users["bob"] = replace(bob, policies=(right,))

        gate = Gate(Access("c", proves=True), users.get, ManualClock(), on=True, confirm=confirm)
        login = {LOGIN_KEY: log_in(gate.logins, "bob", PEER)}
        stage = Stage()
        stage.rule.topic_by_id = lambda topic_id: None
        caller = gate.caller(Stranger(), login, "Append")
        stage.session = AppendSession(stage.intake, stage.admission, caller)
        serving = stage.start()
        stage.put(1, batch(b"a"))
        await stage.settled(lambda: bool(stage.rows() or stage.router.items))
        assert [row.code for row in stage.rows()] == [Code.NO_LEADER]
        is_led = True
        stage.put(2, batch(b"b"))
        await stage.settled(lambda: bool(stage.router.items))
        stage.router.items[0].refuse(Code.SHUTTING_DOWN, "enough")
        stage.inbox.put_nowait(END)
        await serving

    stream_stage.run(scenario)


def test_a_call_for_the_control_group_at_a_member_of_another() -> None:
    """Nothing of it can be confirmed here but users: a no is a no, and not UNAVAILABLE for ever."""

    async def run() -> None:
        calls = gated(user_of("bob"))
        request = pb.CreateTopicRequest(name="t").SerializeToString()
        (row,) = (row for row in ROWS if row.name == "CreateTopic")
        login = log_in(calls.gate.logins, "bob", PEER)
        context = Stranger((LOGIN_KEY, login), (GROUP_KEY, "control"))
        with pytest.raises(Refusal, match=r"^NO_PERMISSION$"):
            await calls.answer(row, request, cast("RawContext", context))

    asyncio.run(run())
