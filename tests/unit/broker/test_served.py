"""Commands of one turn share a proposal; what frees space is not refused for its neighbours."""

import asyncio
from collections.abc import Sequence

import pytest

from dledger.state import command as commands
from dledger.state.values import LayoutPart, Topic, TopicType
from dledger.types import Buffer, EntryKind, LogIndex, OnSettled, Settled, Term
from dledger_broker.served import Commands
from dledger_proto.errors import Code, DledgerError, Outcome
from tests.unit.broker.fakes import FakeHost

TOPIC = bytes(16)
TRIM = commands.Trim(TOPIC, 0, 5)
REGISTER = commands.RegisterProducer(bytes(16), fence=False)


class LowHost(FakeHost):
    """Takes what frees space and refuses the rest; says so at once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, bool]] = []
        """Of each proposal: how many payloads, and whether it frees space."""

    def propose_nowait(
        self,
        kind: EntryKind,
        payloads: Sequence[Buffer],
        settled: OnSettled,
        *,
        frees_space: bool = False,
    ) -> None:
        """Settle."""
        assert kind is EntryKind.COMMANDS
        self.asked.append((len(payloads), frees_space))
        if frees_space:
            results = [bytes(each) for each in payloads]
            stored = Settled(Outcome.STORED, Code.OK, "", LogIndex(9), Term(3), results)
            settled(stored)
        else:
            settled(Settled(Outcome.NOT_STORED, Code.DISK_FULL, "no room"))


def test_commands_are_proposed_together_and_in_order_by_what_they_need() -> None:
    async def run() -> None:
        host = LowHost()
        served = Commands(host)
        wanted: list[commands.Command] = [
            REGISTER,
            REGISTER,
            TRIM,
            commands.DeleteTopic(TOPIC),
            TRIM,
            REGISTER,
        ]
        answers = await asyncio.gather(
            *(served.propose(each) for each in wanted), return_exceptions=True
        )
        assert host.asked == [(2, False), (3, True), (1, False)]
        for command, answer in zip(wanted, answers, strict=True):
            if commands.frees_space(command):
                assert answer == commands.encode(command)
            else:
                assert isinstance(answer, DledgerError)
                assert answer.code is Code.DISK_FULL

    asyncio.run(run())


@pytest.mark.parametrize("deleted", [False, True])
def test_a_deletion_that_the_control_group_decided_frees_space(*, deleted: bool) -> None:
    layout = (LayoutPart("g", 1),)
    topic = Topic(TOPIC, "orders", TopicType.NORMAL, 1, layout, 1, 6, 7, deleted)
    assert commands.frees_space(commands.ImportTopic(topic)) == deleted
