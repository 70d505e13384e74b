"""Commits of many queues: a queue that cannot be served is refused alone."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dledger.state.commands.command import Command
from dledger.state.progress.commits import CommitOffsets
from dledger.state.results import OffsetsCommitted
from dledger_broker.rpc.calls import Call
from dledger_broker.rpc.delivery.progress import claim_queues, fail_records, release_queues
from dledger_broker.rpc.native import commit_offsets
from dledger_proto.errors import Code, DledgerError
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2 as dpb
from tests.unit.broker.fakes import TOPIC, FakeCommands
from tests.unit.broker.test_holds import GONE, HeldQueries
from tests.unit.broker.test_messaging import Host, messaging


class Stores(FakeCommands):
    """Takes every commit, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.proposed: list[CommitOffsets] = []

    async def propose(self, command: Command[Any]) -> Any:
        assert isinstance(command, CommitOffsets)
        self.proposed.append(command)
        offsets = tuple(each.offset for each in command.offsets)
        return OffsetsCommitted((Code.OK,) * len(offsets), offsets)


def test_a_queue_of_a_deleted_topic_is_refused_alone() -> None:
    stores = Stores()
    core = messaging(Host(), b"", 1, HeldQueries([]), stores)
    call = cast("Call", SimpleNamespace(messaging=core))
    request = pb.CommitOffsetsRequest(
        consumer_group="g",
        offsets=[
            pb.GroupOffset(queue=pb.QueueRef(topic_id=topic, queue=queue), offset=queue + 5)
            for topic, queue in ((TOPIC, 0), (GONE, 1), (TOPIC, 2))
        ],
    )
    reply = asyncio.run(commit_offsets(call, request))
    assert list(reply.codes) == [Code.OK, Code.TOPIC_NOT_FOUND, Code.OK]
    assert list(reply.stored_offsets) == [5, -1, 7]
    (command,) = stores.proposed
    assert [(each.queue, each.offset) for each in command.offsets] == [(0, 5), (2, 7)]


def test_a_call_that_names_a_queue_twice_is_refused() -> None:
    """What is stored would depend on the order, and a reset would count twice."""
    stores = Stores()
    core = messaging(Host(), b"", 1, HeldQueries([]), stores)
    call = cast("Call", SimpleNamespace(messaging=core, group=SimpleNamespace(grants=None)))
    rows = [pb.GroupOffset(queue=pb.QueueRef(topic_id=TOPIC, queue=each)) for each in (0, 1, 0)]
    request = pb.CommitOffsetsRequest(consumer_group="g", offsets=rows, reset=True)
    with pytest.raises(DledgerError, match=r"offsets\[2\]: names the same as offsets\[0\]"):
        asyncio.run(commit_offsets(call, request))
    twice = [rows[0].queue] * 2
    wanted = [dpb.ClaimQueuesRequest.Wanted(queue=each, epoch=1) for each in twice]
    claim = dpb.ClaimQueuesRequest(consumer_group="g", member_id="a", queues=wanted)
    release = dpb.ReleaseQueuesRequest(consumer_group="g", member_id="a", queues=wanted)
    records = [dpb.FailRecordsRequest.Failed(queue=each, offset=3) for each in twice]
    failures = dpb.FailRecordsRequest(consumer_group="g", member_id="a", records=records)
    with pytest.raises(DledgerError, match="names the same"):
        asyncio.run(release_queues(call, release))
    with pytest.raises(DledgerError, match="names the same"):
        asyncio.run(fail_records(call, failures))
    with pytest.raises(DledgerError, match="names the same"):
        asyncio.run(claim_queues(call, claim))
    assert not stores.proposed
