"""Whose a call is that another member passes on: it counts for that user, and is believed."""

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from google.protobuf.message import Message

from dledger.raft.api import Role
from dledger.state.users.values import Action, ResourceKind
from dledger_broker.cluster.channels import FIRST_HOP, FORWARDED_KEY, LAST_HOP, USER_KEY
from dledger_broker.rpc.calls import AnsweredBy, Call
from dledger_broker.rpc.table import ROWS
from dledger_broker.security.access import OPEN
from dledger_broker.security.gate import LOGIN_KEY
from dledger_proto.network.tls import Callee, member_name
from dledger_proto.v1.broker_pb2 import CreateTopicRequest
from tests.unit.broker.fakes import OTHER, FakeHost, admission
from tests.unit.broker.test_table import PEER, REGISTER, Leader, Refusal, Stranger, gated
from tests.unit.security.users import allow, log_in, user_of
from tests.waiting import until

if TYPE_CHECKING:
    from dledger_broker.cluster.channels import Channels
    from dledger_proto.rpc.raw import RawContext

(ROW,) = (row for row in ROWS if row.name == "RegisterProducer")


def of_member(user: str, hop: str = LAST_HOP) -> "RawContext":
    """Return the context of a user's call that another member passes on."""
    context = Stranger((FORWARDED_KEY, hop), (USER_KEY, user))
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


def test_a_call_for_the_control_group_says_whose_it_is_on_both_hops() -> None:
    """From a member of another group to a follower of the control group, and to its leader."""
    (create,) = (row for row in ROWS if row.name == "CreateTopic")
    request = CreateTopicRequest(name="t").SerializeToString()
    may = user_of("bob", "secret", allow(ResourceKind.TOPIC, "t", Action.CREATE))

    async def run() -> None:
        other, next_member = gated(may), Leader()
        other._channels, other._control_group = cast("Channels", next_member), "control"
        other._control_members = lambda: [Callee("n2:1", "n2")]
        context = Stranger((LOGIN_KEY, log_in(other.gate.logins, "bob", PEER)))
        await other.answer(create, request, cast("RawContext", context))
        hop = next_member.carried
        assert (hop[FORWARDED_KEY], hop[USER_KEY]) == (FIRST_HOP, "bob")

        follower, leader = gated(), Leader()
        follower._channels, follower._control_group = cast("Channels", leader), "g"
        core = follower.groups["g"].messaging
        assert isinstance(core.view.host, FakeHost)
        core.view.host.become(Role.FOLLOWER, OTHER)
        await follower.answer(create, request, of_member("bob", FIRST_HOP))
        hop = leader.carried
        assert (hop[FORWARDED_KEY], hop[USER_KEY]) == (LAST_HOP, "bob")
        with pytest.raises(Refusal, match=r"^NOT_LEADER$"):
            await follower.answer(create, request, of_member("bob", LAST_HOP))

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
