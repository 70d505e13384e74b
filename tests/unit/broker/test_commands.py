"""A command is judged by itself, however many are proposed in the same turn."""

import asyncio

import pytest

from dledger.state.commands.codec import LIST_ITEMS_MAX
from dledger.state.commands.command import Command
from dledger.state.commands.registry import encode
from dledger.state.offsets import CommitOffset
from dledger.state.producers.registration import RegisterProducer
from dledger.state.producers.table import LAST_SEQUENCES_MAX
from dledger.state.progress.commits import CommitOffsets
from dledger.state.queues.trim import Trim
from dledger.state.results import Refused
from dledger.state.topics.commands import DeleteTopic, ImportTopic
from dledger.state.values import LayoutPart, Topic, TopicType
from dledger.types import EntryKind, LogIndex, Settled, Term
from dledger_broker.group.commands import Commands
from dledger_proto.errors import Code, DledgerError, Outcome
from dledger_proto.limits import ENTRY_ROWS_MAX
from tests.unit.broker.fakes import FakeHost
from tests.waiting import until

TOPIC = bytes(16)
TRIM = Trim(TOPIC, 0, 5)
REGISTER = RegisterProducer(bytes(16), bytes(16))


def test_what_frees_space_is_not_refused_for_its_neighbours() -> None:
    async def run() -> None:
        host = FakeHost(kind=EntryKind.COMMANDS)
        proposer = Commands(host)
        wanted: list[Command[object]] = [
            REGISTER, REGISTER, TRIM, DeleteTopic(TOPIC), TRIM, REGISTER,
        ]  # fmt: skip
        waiting = [asyncio.ensure_future(proposer.propose(each)) for each in wanted]
        await until(lambda: len(host.proposals) == len(wanted), "all are proposed")
        assert host.proposed() == [encode(each) for each in wanted]
        assert host.frees_space == [each.frees_space for each in wanted]
        for frees_space in host.frees_space:
            payloads = host.proposals[0][0]
            stored = Settled(Outcome.STORED, Code.OK, "", LogIndex(9), Term(3), payloads)
            full = Settled(Outcome.NOT_STORED, Code.DISK_FULL, "no room")
            host.settle(stored if frees_space else full)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        for command, answer in zip(wanted, answers, strict=True):
            if command.frees_space:
                assert answer == encode(command)
            else:
                assert isinstance(answer, DledgerError)
                assert answer.code is Code.DISK_FULL

    asyncio.run(run())


def test_commands_proposed_together_are_one_caller_and_are_answered_each() -> None:
    """One proposal as long as its commands fit an entry and agree on whether they free space."""

    async def run() -> None:
        host = FakeHost(kind=EntryKind.COMMANDS)
        unfit = Trim(bytes(15), 0, 5)
        wanted: list[Command[object]] = [REGISTER, unfit, REGISTER, TRIM, *[REGISTER] * 40]
        waiting = asyncio.ensure_future(Commands(host).propose_all(wanted))
        await until(lambda: len(host.proposals) > 2, "all are proposed")
        per_proposal = ENTRY_ROWS_MAX // REGISTER.rows_read_max
        assert [len(payloads) for payloads, _ in host.proposals] == [
            2, 1, per_proposal, 40 - per_proposal,
        ]  # fmt: skip
        assert host.frees_space == [False, True, False, False]
        assert max(host.rows) <= ENTRY_ROWS_MAX
        refused = Refused(Code.STALE_EPOCH, "taken")
        host.settle(Settled(Outcome.STORED, Code.OK, results=["first", refused]))
        host.settle(Settled(Outcome.NOT_STORED, Code.DISK_FULL, "no room"))
        host.settle(Settled(Outcome.UNKNOWN, Code.UNKNOWN_OUTCOME, "lost"))
        host.settle(Settled(Outcome.STORED, Code.OK, results=["last"] * (40 - per_proposal)))
        answers = await waiting
        assert [answers[0], *answers[-(40 - per_proposal) :]] == ["first"] + ["last"] * (
            40 - per_proposal
        )
        assert [each.code for each in answers if isinstance(each, DledgerError)] == [
            Code.INVALID_ARGUMENT, Code.STALE_EPOCH, Code.DISK_FULL,
            *[Code.UNKNOWN_OUTCOME] * per_proposal,
        ]  # fmt: skip

    asyncio.run(run())


def test_a_command_says_how_many_rows_apply_reads_for_it() -> None:
    """A thousand producers that register at once: each is told of up to 4,096 queues."""

    async def run() -> None:
        host = FakeHost(kind=EntryKind.COMMANDS)
        waiting = asyncio.ensure_future(Commands(host).propose(REGISTER))
        await until(lambda: bool(host.rows), "it is proposed")
        assert host.rows == [REGISTER.rows_read_max]
        assert host.rows[0] >= LAST_SEQUENCES_MAX
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(run())


def test_no_command_alone_reads_more_than_an_entry_may() -> None:
    many = tuple(CommitOffset(TOPIC, queue, 0) for queue in range(LIST_ITEMS_MAX))
    assert CommitOffsets("g", many).rows_read_max <= ENTRY_ROWS_MAX
    assert REGISTER.rows_read_max <= ENTRY_ROWS_MAX
    assert DeleteTopic(TOPIC).rows_read_max <= ENTRY_ROWS_MAX


@pytest.mark.parametrize("deleted", [False, True])
def test_a_deletion_that_the_control_group_decided_frees_space(*, deleted: bool) -> None:
    layout = (LayoutPart("g", 1),)
    topic = Topic(TOPIC, "orders", TopicType.NORMAL, 1, layout, 1, 1, 6, 7, deleted)
    assert ImportTopic(topic).frees_space == deleted
