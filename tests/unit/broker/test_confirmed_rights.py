"""What a caller may not do is said on confirmed state, wherever rights are asked for (D10)."""

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from dledger_broker.rpc.calls import Calls
from dledger_broker.rpc.table import ROWS
from dledger_broker.security.gate import LOGIN_KEY
from dledger_proto.errors import Code, DledgerError
from tests.unit.broker.test_table import PEER, Refusal, Stranger, gated
from tests.unit.security.users import log_in, user_of

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
