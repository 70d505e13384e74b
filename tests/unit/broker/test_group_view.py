"""Commands of one turn share a proposal; what frees space is not refused for its neighbours."""

import asyncio

import pytest

from dledger.state.commands import codec as commands
from dledger.state.values import LayoutPart, Topic, TopicType
from dledger.types import EntryKind, LogIndex, Settled, Term
from dledger_broker.group.group_view import ENTRY_ROWS_MAX, Commands
from dledger_proto.errors import Code, DledgerError, Outcome
from tests.unit.broker.fakes import FakeHost
from tests.waiting import until

TOPIC = bytes(16)
TRIM = commands.Trim(TOPIC, 0, 5)
REGISTER = commands.RegisterProducer(bytes(16), bytes(16))


def test_commands_are_proposed_together_and_in_order_by_what_they_need() -> None:
    async def run() -> None:
        host = FakeHost(kind=EntryKind.COMMANDS)
        view = Commands(host)
        wanted: list[commands.Command] = [
            REGISTER,
            REGISTER,
            TRIM,
            commands.DeleteTopic(TOPIC),
            TRIM,
            REGISTER,
        ]
        waiting = [asyncio.ensure_future(view.propose(each)) for each in wanted]
        await until(lambda: len(host.proposals) == 3, "all are proposed")
        assert [len(payloads) for payloads, _ in host.proposals] == [2, 3, 1]
        assert host.frees_space == [False, True, False]
        for frees_space in host.frees_space:
            payloads = host.proposals[0][0]
            stored = Settled(Outcome.STORED, Code.OK, "", LogIndex(9), Term(3), payloads)
            full = Settled(Outcome.NOT_STORED, Code.DISK_FULL, "no room")
            host.settle(stored if frees_space else full)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        for command, answer in zip(wanted, answers, strict=True):
            if commands.frees_space(command):
                assert answer == commands.encode(command)
            else:
                assert isinstance(answer, DledgerError)
                assert answer.code is Code.DISK_FULL

    asyncio.run(run())


def test_what_apply_reads_for_one_entry_is_bounded() -> None:
    """A thousand producers that register at once: each is told of up to 4,096 queues."""

    async def run() -> None:
        host = FakeHost(kind=EntryKind.COMMANDS)
        view = Commands(host)
        waiting = [asyncio.ensure_future(view.propose(REGISTER)) for _ in range(100)]
        each = ENTRY_ROWS_MAX // commands.LAST_SEQUENCES_MAX
        await until(lambda: len(host.proposals) == -(-100 // each), "all are proposed")
        counts = [len(payloads) for payloads, _ in host.proposals]
        assert sum(counts) == 100
        assert max(counts) == each
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(run())


def test_no_command_alone_reads_more_than_an_entry_may() -> None:
    many = tuple(commands.CommitOffset(TOPIC, queue, 0) for queue in range(commands.LIST_ITEMS_MAX))
    assert commands.rows_read_max(commands.CommitOffsets("g", many)) <= ENTRY_ROWS_MAX
    assert commands.rows_read_max(REGISTER) <= ENTRY_ROWS_MAX
    assert commands.rows_read_max(commands.DeleteTopic(TOPIC)) <= ENTRY_ROWS_MAX


@pytest.mark.parametrize("deleted", [False, True])
def test_a_deletion_that_the_control_group_decided_frees_space(*, deleted: bool) -> None:
    layout = (LayoutPart("g", 1),)
    topic = Topic(TOPIC, "orders", TopicType.NORMAL, 1, layout, 1, 1, 6, 7, deleted)
    assert commands.frees_space(commands.ImportTopic(topic)) == deleted
