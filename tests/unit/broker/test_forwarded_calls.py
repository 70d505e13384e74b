"""Whose a call is that another member passes on: it counts for that user, and is believed."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from google.protobuf.message import Message

from dledger_broker.cluster.channels import FORWARDED_KEY, USER_KEY
from dledger_broker.rpc.calls import AnsweredBy, Call
from dledger_broker.rpc.table import ROWS
from dledger_broker.security.access import OPEN
from dledger_proto.network.tls import member_name
from tests.unit.broker.fakes import admission
from tests.unit.broker.test_table import REGISTER, Refusal, Stranger, gated
from tests.waiting import until

if TYPE_CHECKING:
    from dledger_proto.rpc.raw import RawContext

(ROW,) = (row for row in ROWS if row.name == "RegisterProducer")


def of_member(user: str) -> "RawContext":
    """Return the context of a user's call that another member passes on."""
    context = Stranger((FORWARDED_KEY, "1"), (USER_KEY, user))
    context.name = member_name("c", "g", "n2")
    return cast("RawContext", context)


def test_calls_that_members_pass_on_count_for_their_user() -> None:
    """Else one user, by two followers that each give it half, would take all of the leader."""

    async def run() -> None:
        calls = gated()
        calls.admission = admission(queries_max=2)
        inside: list[str] = []
        done = asyncio.Event()

        async def handler(call: Call, _request: object) -> Message:
            inside.append(call.user)
            await done.wait()
            return cast("Message", ROW.reply())

        row = replace(ROW, handler=handler, answered_by=AnsweredBy.ANY_MEMBER)

        def begin(user: str) -> "asyncio.Task[bytes]":
            answer = calls.answer(row, REGISTER.SerializeToString(), of_member(user))
            return asyncio.get_running_loop().create_task(answer)

        first, second = begin("bob"), begin("bob")
        await until(lambda: second.done() or len(inside) == 2, "the second call's fate")
        assert inside == ["bob"]
        other = begin("ann")
        await until(lambda: other.done() or len(inside) == 2, "the call of another user")
        assert inside == ["bob", "ann"]
        done.set()
        await asyncio.gather(first, other)
        with pytest.raises(Refusal, match=r"^BUSY$"):
            await second

    asyncio.run(run())


def test_without_tls_nobody_says_whose_call_it_is() -> None:
    """Nobody can prove to be a member there: the id would belong to whom a stranger likes."""

    async def run() -> None:
        calls = gated()
        calls.gate.access, calls.gate.is_on = OPEN, False
        seen: list[str] = []

        async def handler(call: Call, _request: object) -> Message:
            seen.append(call.user)
            return cast("Message", ROW.reply())

        row = replace(ROW, handler=handler, answered_by=AnsweredBy.ANY_MEMBER)
        await calls.answer(row, REGISTER.SerializeToString(), of_member("bob"))
        assert seen == [""]

    asyncio.run(run())
