"""How a member proposes a command to its group, and what the caller hears of it.

Not owned: which commands share an entry of the log (`dledger.raft.commit.proposals`), what a
command does (`dledger.state`).
"""

import asyncio
from typing import TypeVar, cast

from dledger.raft.driver.host import GroupHost
from dledger.state.commands.command import Command
from dledger.state.commands.registry import encode
from dledger.state.machine import Refused
from dledger.types import EntryKind, Settled
from dledger_proto.errors import Code, DledgerError, Outcome

R = TypeVar("R")


class Commands:
    """Proposes commands to one group."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()

    async def propose(self, command: Command[R]) -> R:
        """Return the state machine's result; DledgerError for a refusal or an unknown outcome."""
        future: asyncio.Future[Settled] = self._loop.create_future()

        def settle(outcome: Settled) -> None:
            if not future.done():
                future.set_result(outcome)

        self._host.propose_nowait(
            EntryKind.COMMANDS,
            [encode(command)],
            settle,
            frees_space=command.frees_space,
            rows=command.rows_read_max,
        )
        settled = await future
        if settled.outcome is Outcome.UNKNOWN:
            raise DledgerError(Code.UNKNOWN_OUTCOME, settled.detail)
        if settled.outcome is Outcome.NOT_STORED:
            raise DledgerError(settled.code, settled.detail)
        (result,) = settled.results
        if isinstance(result, Refused):
            raise DledgerError(result.code, result.detail)
        return cast("R", result)
