"""Claims, failures, resets, lag and dead letters over two broker groups of real processes."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dledger_broker.cli import main
from dledger_broker.config.sections import RETENTION_DEFAULT_MS
from dledger_client import AsyncAdmin, AsyncProducer, InvalidRequest, StartFrom
from dledger_proto.errors import Code
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import delivery_pb2 as dpb
from dledger_proto.v1 import delivery_pb2_grpc as rpc
from tests.integration.cluster import Member, eventually
from tests.integration.test_groups import two_groups
from tests.integration.test_sessions import Consumer

RECORDS = 6


class Owner:
    """A consumer of the group `billing` made by hand, in one queue of the topic `t`."""

    def __init__(self, member: Member, queue: int, name: str, epoch: int = 0) -> None:
        self._stub: Any = rpc.DeliveryStub(member.channel)
        self._broker: Any = member.broker
        self._metadata = member.metadata
        self.queue = pb.QueueRef(topic="t", queue=queue)
        self.name = name
        self.epoch = epoch
        self.resets = 0

    async def claim(self) -> dpb.ClaimQueuesReply.Row:
        request = dpb.ClaimQueuesRequest(
            consumer_group="billing",
            member_id=self.name,
            queues=[dpb.ClaimQueuesRequest.Wanted(queue=self.queue, epoch=self.epoch)],
        )
        reply = await self._stub.ClaimQueues(request, metadata=self._metadata, timeout=10)
        row: dpb.ClaimQueuesReply.Row = reply.rows[0]
        self.resets = row.resets
        return row

    async def commit(self, offset: int, *done: tuple[int, int]) -> Code:
        item = pb.GroupOffset(
            queue=self.queue,
            offset=offset,
            epoch=self.epoch,
            resets=self.resets,
            done=[pb.OffsetRange(first=first, end=end) for first, end in done],
        )
        request = pb.CommitOffsetsRequest(
            consumer_group="billing", offsets=[item], member_id=self.name
        )
        reply = await self._broker.CommitOffsets(request, metadata=self._metadata, timeout=10)
        return Code(reply.codes[0])

    async def fail(self, offset: int, delay_ms: int) -> dpb.FailRecordsReply.Row:
        failed = dpb.FailRecordsRequest.Failed(
            queue=self.queue,
            epoch=self.epoch,
            resets=self.resets,
            offset=offset,
            error=f"bad {offset}",
            delay_ms=delay_ms,
        )
        request = dpb.FailRecordsRequest(
            consumer_group="billing", member_id=self.name, records=[failed]
        )
        reply = await self._stub.FailRecords(request, metadata=self._metadata, timeout=10)
        row: dpb.FailRecordsReply.Row = reply.rows[0]
        return row


def test_progress_from_the_first_claim_to_the_dead_letters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        async with two_groups(tmp_path) as groups:
            address = groups["red"]["n1"].address
            async with AsyncAdmin(address) as admin, AsyncProducer(address) as producer:
                await admin.create_topic("t", queues_per_group=1)
                made = await admin.create_consumer_group("billing", start=StartFrom.FIRST)
                route = await admin.describe_topic("t")
                for queue in range(2):
                    for number in range(RECORDS):
                        await producer.send("t", b"%d" % number, queue=queue, keys=[f"k{number}"])
                owners = [
                    Owner(groups[route.group_of(queue) or ""]["n1"], queue, "a")
                    for queue in range(2)
                ]
                await check_fences(groups, groups[made.coordinator], owners)
                await check_lag_and_resets(admin, owners)
                await check_dead_letters(admin, address, owners, capsys)

    asyncio.run(run())


@asynccontextmanager
async def granted(coordinator: dict[str, Member], name: str) -> AsyncIterator[dict[int, int]]:
    """Yield the epochs by which a consumer has the queues of `t`, while it has a session."""

    async def led() -> Member | None:
        for member in coordinator.values():
            if (await member.status()).role == "leader":
                return member
        return None

    member = await eventually(led, "a leader of the coordinator")
    consumer = Consumer(member, name, consumer_group="billing")

    async def has_both() -> dict[int, int]:
        held = {queue: epoch for (topic, queue), epoch in consumer.held.items() if topic == "t"}
        return held if len(held) == 2 else {}

    try:
        yield await eventually(has_both, f"{name} has both queues")
        await consumer.say(leave=dpb.Leave())
    finally:
        await consumer.close()


async def check_fences(
    groups: dict[str, dict[str, Member]], coordinator: dict[str, Member], owners: list[Owner]
) -> None:
    async with granted(coordinator, "a") as epochs:
        for owner in owners:
            owner.epoch = epochs[owner.queue.queue]
            row = await owner.claim()
            assert (Code(row.code), row.floor) == (Code.OK, 0)
            assert await owner.commit(1, (2, 3)) is Code.OK
            forger = Owner(groups["red"]["n2"], owner.queue.queue, "evil", (1 << 64) - 1)
            forger._metadata = owner._metadata
            row = await forger.claim()
            assert (Code(row.code), row.floor) == (Code.FENCED, 0)
            assert await owner.commit(1) is Code.OK
    async with granted(coordinator, "b") as epochs:
        for owner in owners:
            queue = owner.queue.queue
            newer = Owner(groups["red"]["n2"], queue, "b", epochs[queue])
            newer._metadata = owner._metadata
            row = await newer.claim()
            assert (row.floor, [(each.first, each.end) for each in row.done]) == (1, [(2, 3)])
            assert await owner.commit(3) is Code.FENCED
            row = await owner.claim()
            assert (Code(row.code), row.holder) == (Code.FENCED, "b")
    async with granted(coordinator, "a") as epochs:
        for owner in owners:
            owner.epoch = epochs[owner.queue.queue]
            assert Code((await owner.claim()).code) is Code.OK


async def check_lag_and_resets(admin: AsyncAdmin, owners: list[Owner]) -> None:
    found = await admin.group_progress("billing", "t")
    for queue in range(2):
        progress = found[queue]
        assert (progress.floor, progress.done, progress.holder) == (1, ((2, 3),), "a")
        assert progress.lag_messages == RECORDS - 2
        assert progress.lag_bytes
        assert progress.lag_ms >= 0
        assert progress.expires_in_ms is not None
        assert 0 < progress.expires_in_ms <= RETENTION_DEFAULT_MS
        assert progress.lost == 0
    await admin.update_topic("t", retention_ms=3_600_000)
    expires_in_ms = (await admin.group_progress("billing", "t"))[0].expires_in_ms
    assert expires_in_ms is not None
    assert 0 < expires_in_ms <= 3_600_000
    assert await admin.reset_offsets("billing", "t", delta=2) == {0: 3, 1: 3}
    assert await owners[0].commit(4) is Code.OFFSET_RESET
    row = await owners[0].claim()
    assert (row.floor, row.resets, list(row.done)) == (3, 1, [])
    assert await admin.reset_offsets("billing", "t", to="latest") == {0: RECORDS, 1: RECORDS}
    found = await admin.group_progress("billing", "t")
    assert [found[queue].lag_messages for queue in range(2)] == [0, 0]
    assert await admin.clone_offsets("billing", "audit", "t") == {0: RECORDS, 1: RECORDS}
    assert await admin.read_offsets("audit", "t") == {0: RECORDS, 1: RECORDS}
    assert await admin.reset_offsets("billing", "t", to="earliest") == {0: 0, 1: 0}


async def check_dead_letters(
    admin: AsyncAdmin, address: str, owners: list[Owner], capsys: pytest.CaptureFixture[str]
) -> None:
    async def dledger(*arguments: str) -> Any:
        at = "--name-servers", address
        code = await asyncio.to_thread(main, [*arguments, *at])
        out = capsys.readouterr()
        assert code == 0, out.err
        (rows,) = [line for line in out.out.splitlines() if line.startswith("[")]
        return json.loads(rows)  # the members' log is written between

    for owner in owners:
        await owner.claim()
        for offset in range(3):
            row = await owner.fail(offset, -2)
            assert (Code(row.code), row.dead, row.attempts) == (Code.OK, True, 1)
    listed = await dledger("dlq", "list", "billing", "--error", "bad 1", "--json")
    assert sorted((row["origin"], row["attempts"]) for row in listed) == [
        ("t/0@1", 1),
        ("t/1@1", 1),
    ]
    first = listed[0]
    (row,) = await dledger("dlq", "show", "billing", first["group"], str(first["offset"]), "--json")
    assert (row["keys"], row["error"]) == (["k1"], first["error"])
    (row,) = await dledger("dlq", "export", "billing", "--key", "k2", "--limit", "1")
    assert (base64.b64decode(row["body"]), row["keys"]) == (b"2", ["k2"])
    dry = await dledger("dlq", "resend", "billing", "--key", "k0", "--dry-run", "--json")
    assert len(dry) == 2
    guarded = await admin.resend_dead_letters("billing", key="k0", dry_run=True)
    assert (guarded.settled, guarded.left_by_guard) == (2, 0)
    until_ms = min(row["died_ms"] for row in listed)
    dead = await admin.dead_letters("billing", until_ms=until_ms, error="bad 1")
    assert dead == []
    with pytest.raises(InvalidRequest, match="rate"):
        await admin.resend_dead_letters("billing", rate=-1)
    for sent in (2, 0):  # the second time there is none left
        (row,) = await dledger("dlq", "resend", "billing", "--key", "k0", "--yes", "--json")
        assert (row["sent"], row["others"]) == (sent, 0)
    (row,) = await dledger("dlq", "purge", "billing", "--yes", "--json")
    assert row["dropped"] == 4
    rows = await dledger("group", "lag", "billing", "--topic", "%RETRY%billing", "--json")
    assert [row["maximum"] for row in rows] == [1, 1]
    rows = await dledger("group", "lag", "billing", "--json")
    assert [(row["topic"], row["queue"]) for row in rows] == [
        ("%RETRY%billing", 0), ("%RETRY%billing", 1), ("t", 0), ("t", 1),
    ]  # fmt: skip
    assert await admin.topics_of_group("billing") == ["t"]
    assert await admin.topics_of_group("nobody") == []
