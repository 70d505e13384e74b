"""How a member proposes commands to its group, and what the caller hears of each.

Not owned: which commands share an entry of the log (`dledger.raft.commit.proposals`), what a
command does (`dledger.state`).
"""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeVar

from dledger.raft.commit.proposals import portions
from dledger.raft.driver.host import GroupHost
from dledger.state.commands.command import Command
from dledger.state.commands.registry import encode
from dledger.state.results import Refused
from dledger.types import EntryKind, OnSettled, Settled
from dledger_proto.errors import Code, DledgerError, Outcome

R = TypeVar("R")


class Commands:
    """Proposes commands to one group."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()

    async def propose(self, command: Command[R]) -> R:
        """Return the state machine's result; DledgerError for a refusal or an unknown outcome."""
        (result,) = await self.propose_all([command])
        if isinstance(result, DledgerError):
            raise result
        return result

    async def propose_all(self, commands: Sequence[Command[R]]) -> list[R | DledgerError]:
        """Return of each command what `propose` would return or raise; all are proposed at once.

        Commands that wait together are one caller's proposal: the leader gathers callers. A
        proposal is refused as a whole, so what frees space is never in one with what does not.
        """
        answers: dict[int, R | DledgerError] = {}
        encoded: list[tuple[int, Command[R], bytes]] = []
        for at, command in enumerate(commands):
            try:
                encoded.append((at, command, encode(command)))
            except DledgerError as error:
                answers[at] = error
        waiting: list[tuple[list[tuple[int, Command[R], bytes]], asyncio.Future[Settled]]] = []
        for frees_space, run in groupby(encoded, lambda each: each[1].frees_space):
            together = list(run)
            rows = [command.rows_read_max for _, command, _ in together]
            for portion in portions([len(payload) for _, _, payload in together], rows):
                proposed = together[portion]
                future: asyncio.Future[Settled] = self._loop.create_future()
                waiting.append((proposed, future))
                self._host.propose_nowait(
                    EntryKind.COMMANDS,
                    [payload for _, _, payload in proposed],
                    _settles(future),
                    frees_space=frees_space,
                    rows=sum(rows[portion]),
                )
        for proposed, future in waiting:
            settled = _answers(await future, len(proposed))
            answers.update(zip((at for at, _, _ in proposed), settled, strict=True))
        return [answers[at] for at in range(len(commands))]


def _settles(future: asyncio.Future[Settled]) -> OnSettled:
    def settle(outcome: Settled) -> None:
        if not future.done():
            future.set_result(outcome)

    return settle


def _answers(settled: Settled, count: int) -> list[Any]:
    """Return what a proposal of so many commands came to: a result or an error of each."""
    if settled.outcome is Outcome.UNKNOWN:
        return [DledgerError(Code.UNKNOWN_OUTCOME, settled.detail)] * count
    if settled.outcome is Outcome.NOT_STORED:
        return [DledgerError(settled.code, settled.detail)] * count
    return [
        DledgerError(result.code, result.detail) if isinstance(result, Refused) else result
        for result in settled.results
    ]
