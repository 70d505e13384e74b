"""Real processes: three members form, store, survive their leader's death, agree in the end."""

import asyncio
import signal
from pathlib import Path

import grpc
import pytest

from dledger_client import AsyncAdmin
from dledger_proto.batch.codec import BatchView, Compression, ProducerStamp, Record, encode_batch
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.frames import AnswerRow
from dledger_proto.rpc.status import from_rpc_error
from dledger_proto.v1 import broker_pb2 as pb
from tests.integration.cluster import (
    AppendClient,
    Cluster,
    Member,
    batch_of,
    eventually,
    producer_id,
    running_cluster,
)
from tests.link_caller import Caller
from tests.ports import free_port
from tests.unreadable import compressed, with_bad_properties, without_declared_size

TOPIC = "orders"


class Writer:
    """An idempotent producer of the simplest kind: one batch at a time, retried until stored."""

    def __init__(self, cluster: Cluster, topic: pb.Topic, seed: int) -> None:
        self.cluster = cluster
        self.topic = topic
        self.id = producer_id(seed)
        self.epoch = 0
        self.sequence = 0
        self.stored: list[bytes] = []

    async def register(self) -> None:
        async def registered() -> int | None:
            reply = await self.cluster.running()[0].broker.RegisterProducer(
                pb.RegisterProducerRequest(producer_id=self.id, life_id=self.id), timeout=5
            )
            return reply.epoch

        self.epoch = await eventually(registered, "a registered producer")

    async def write(self, body: bytes) -> AnswerRow:
        batch = batch_of(
            self.topic.id, [body], 0, ProducerStamp(self.id, self.epoch, self.sequence)
        )

        async def stored() -> AnswerRow | None:
            for member in self.cluster.running():
                row = await member.append_one(batch)
                if row.code is Code.OK:
                    return row
                assert row.code in (
                    Code.UNKNOWN_OUTCOME,
                    Code.NOT_LEADER,
                    Code.NO_LEADER,
                    Code.SHUTTING_DOWN,
                ), row
            return None

        row = await eventually(stored, f"{body!r} stored")
        self.sequence += 1
        self.stored.append(body)
        return row


async def started(cluster: Cluster) -> tuple[Member, pb.Topic]:
    leader = await cluster.leader()
    return leader, await cluster.create_topic(TOPIC)


def test_leadership_is_handed_over_and_asking_again_changes_nothing(tmp_path: Path) -> None:
    """At any member; a repeated call finds that the target leads already, and so it is done."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader = await cluster.leader()
            target, other = await cluster.followers()
            request = pb.TransferLeadershipRequest(target=target.name)
            await other.admin.TransferLeadership(request, timeout=10, metadata=other.metadata)
            assert (await cluster.leader(other_than=leader.name)).name == target.name
            term = (await target.status()).term
            for member in cluster.members:
                reply = await member.admin.TransferLeadership(
                    request, timeout=10, metadata=member.metadata
                )
                assert (reply.leader, reply.term) == (target.name, term)

    asyncio.run(run())


def test_a_leader_that_was_deposed_while_it_stood_still_claims_no_term(tmp_path: Path) -> None:
    """It is asked to lead, finds out that it leads no more, and is handed leadership again."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            old = await cluster.leader()
            cluster.local.pause(old.name)
            new = await cluster.leader(other_than=old.name)
            request = pb.TransferLeadershipRequest(target=old.name)
            call = old.admin.TransferLeadership(request, timeout=20, metadata=old.metadata)
            cluster.local.resume(old.name)
            reply = await call
            between = (await new.status()).term
            assert reply.term >= between
            assert reply.term == (await (await cluster.leader()).status()).term
            assert reply.leader in ("", old.name)

    asyncio.run(run())


def test_kill_the_leader_and_go_on(tmp_path: Path, secure: bool) -> None:
    """Nothing acknowledged is lost or doubled over a SIGKILL of the leader and its return."""

    async def run() -> None:
        async with running_cluster(tmp_path, secure=secure) as cluster:
            leader, topic = await started(cluster)
            writer = Writer(cluster, topic, 1)
            await writer.register()
            for number in range(20):
                await writer.write(b"before %d" % number)
            cluster.local.kill(leader.name)
            for number in range(20):
                await writer.write(b"without %d" % number)
            after = await cluster.leader(other_than=leader.name)
            assert after.name != leader.name
            cluster.local.start(leader.name)
            for number in range(20):
                await writer.write(b"again %d" % number)
            await eventually(leader.status, f"{leader.name} is back")
            await cluster.assert_identical()
            for member in cluster.members:
                assert await member.read_all(TOPIC, 0, 60) == writer.stored

    asyncio.run(run())


def test_all_killed_and_started_again(tmp_path: Path) -> None:
    """What was acknowledged is there after every member died at once."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            _, topic = await started(cluster)
            writer = Writer(cluster, topic, 2)
            await writer.register()
            for number in range(10):
                await writer.write(b"%d" % number)
            for member in cluster.members:
                cluster.local.kill(member.name)
            cluster.local.start_all()
            await writer.write(b"after")
            await cluster.assert_identical()
            assert await cluster.members[2].read_all(TOPIC, 0, 11) == writer.stored

    asyncio.run(run())


def test_stream_answers_in_order_and_together(tmp_path: Path) -> None:
    """Hundreds of batches in flight: every one answered, in order, in far fewer frames."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader, topic = await started(cluster)
            client = AppendClient(leader)
            for number in range(500):
                await client.send(batch_of(topic.id, [b"%d" % number]))
            rows = await client.wait(500)
            assert [row.number for row in rows] == list(range(1, 501))
            assert {row.code for row in rows} == {Code.OK}
            assert [row.base_offset for row in rows] == list(range(500))
            assert client.frames < 500
            await client.close()

    asyncio.run(run())


def test_a_follower_forwards_appends_in_order(tmp_path: Path, secure: bool) -> None:
    """Any member takes appends (D10); a forwarded one that finds no leader is not forwarded on.

    With TLS only members forward.
    """

    async def run() -> None:
        async with running_cluster(tmp_path, secure=secure) as cluster:
            leader, topic = await started(cluster)
            follower = (await cluster.followers())[0]
            client = AppendClient(follower)
            for number in range(100):
                await client.send(batch_of(topic.id, [b"%d" % number]))
            rows = await client.wait(100)
            assert [row.base_offset for row in rows] == list(range(100))
            twice = AppendClient(follower, ("dledger-forwarded", "1"))
            if secure:  # refused at once: gRPC hides the reason from a write that comes too late
                with pytest.raises(DledgerError, match="only members of the cluster"):
                    await twice.wait(1)
            else:
                await twice.send(batch_of(topic.id, [b"x"]))
                row = (await twice.wait(1))[0]
                assert (row.code, row.hint) == (Code.NOT_LEADER, leader.address)
            client.cancel()
            twice.cancel()

    asyncio.run(run())


def test_a_paused_leader_is_replaced(tmp_path: Path, secure: bool) -> None:
    """SIGSTOP: another member leads soon; resumed, the old leader follows and agrees."""

    async def run() -> None:
        async with running_cluster(tmp_path, secure=secure) as cluster:
            leader, topic = await started(cluster)
            writer = Writer(cluster, topic, 3)
            await writer.register()
            await writer.write(b"1")
            cluster.local.pause(leader.name)
            other = await eventually(
                lambda: _leads_instead(cluster, leader), "another leader while one is paused"
            )
            follower_row = await other.append_one(
                batch_of(topic.id, [b"2"], 0, ProducerStamp(writer.id, writer.epoch, 1))
            )
            assert follower_row.code is Code.OK
            cluster.local.resume(leader.name)
            await cluster.assert_identical()

    asyncio.run(run())


async def _leads_instead(cluster: Cluster, paused: Member) -> Member | None:
    for member in cluster.members:
        if member is not paused and (await member.status()).role == "leader":
            return member
    return None


def test_long_poll_wakes_on_commit(tmp_path: Path) -> None:
    """A reader on a follower that waits gets the message by the wake, long before its own time."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader, topic = await started(cluster)
            follower = (await cluster.followers())[0]
            reading = asyncio.create_task(follower.read_all(TOPIC, 0, 1))
            await eventually(follower.status, "the follower answers while it holds a fetch")
            assert not reading.done()
            await leader.append_one(batch_of(topic.id, [b"hello"]))
            async with asyncio.timeout(4):  # the reader asked to be told after 5 s
                assert await reading == [b"hello"]

    asyncio.run(run())


def _reserved_type() -> pb.TopicType.ValueType:
    return pb.TOPIC_TYPE_TRANSACTION


def _no_type() -> pb.TopicType.ValueType:
    return pb.TopicType.ValueType(77)


def test_bad_input_changes_nothing(tmp_path: Path) -> None:
    """Each is refused with its own code; the log does not move."""

    async def run() -> None:
        async with running_cluster(tmp_path, topics__auto_create=False) as cluster:
            leader, topic = await started(cluster)
            good = batch_of(topic.id, [b"good"])
            before = (await leader.status()).last_index
            flipped = bytearray(good)
            flipped[-1] ^= 1
            packed = compressed(topic.id, 0, 3)
            tagged = encode_batch(
                [Record(b"x", tag="tag")], topic_id=topic.id, queue=0, stamp=None, base_number=0,
                base_time_ms=1,
            )  # fmt: skip
            refused = [
                (bytes(flipped), Code.CORRUPT_BATCH),
                (with_bad_properties(tagged), Code.UNREADABLE_BATCH),
                (without_declared_size(packed), Code.UNREADABLE_BATCH),
                (batch_of(producer_id(9), [b"x"]), Code.TOPIC_NOT_FOUND),
                (batch_of(topic.id, [b"x"], queue=77), Code.QUEUE_NOT_FOUND),
            ]
            for batch, code in refused:
                assert (await leader.append_one(batch)).code is code
            other = topic.write_queues + 1
            for request, code in (
                (pb.CreateTopicRequest(name="unknown", automatic=True), Code.TOPIC_NOT_FOUND),
                (pb.CreateTopicRequest(name="bad name"), Code.INVALID_ARGUMENT),
                (pb.CreateTopicRequest(name="t2", topic_id=b"short"), Code.INVALID_ARGUMENT),
                (pb.CreateTopicRequest(name="t2", type=_no_type()), Code.INVALID_ARGUMENT),
                (pb.CreateTopicRequest(name="t2", type=_reserved_type()), Code.UNIMPLEMENTED),
            ):
                with pytest.raises(grpc.RpcError) as caught:
                    await leader.admin.CreateTopic(request, timeout=5)
                assert from_rpc_error(caught.value).code is code
            assert (await leader.status()).last_index == before
            with pytest.raises(grpc.RpcError) as caught:
                await leader.admin.CreateTopic(
                    pb.CreateTopicRequest(name=topic.name, write_queues_per_group=other), timeout=5
                )
            assert from_rpc_error(caught.value).code is Code.TOPIC_EXISTS
            same = pb.CreateTopicRequest(name=topic.name)
            assert (await leader.admin.CreateTopic(same, timeout=5)).topic == topic
            stale = batch_of(topic.id, [b"x"], 0, ProducerStamp(producer_id(5), 1, 0))
            assert (await leader.append_one(stale)).code is Code.UNKNOWN_PRODUCER

    asyncio.run(run())


def test_sigterm_hands_over_and_exits_zero(tmp_path: Path, secure: bool) -> None:
    """SIGTERM under load: exit 0, leadership given away, no acknowledged message lost."""

    async def run() -> None:
        async with running_cluster(tmp_path, secure=secure) as cluster:
            leader, topic = await started(cluster)
            writer = Writer(cluster, topic, 4)
            await writer.register()
            await writer.write(b"1")
            process = cluster.local.processes[leader.name]
            process.send_signal(signal.SIGTERM)
            code = await asyncio.to_thread(process.wait, 10)
            assert code == 0
            assert "handed over" in cluster.local.log_text(leader.name)
            await writer.write(b"2")
            cluster.local.start(leader.name)
            await eventually(leader.status, "the member is back")
            await cluster.assert_identical()

    asyncio.run(run())


def test_wrong_cluster_in_a_peer_handshake(tmp_path: Path) -> None:
    """A link that says another cluster, group or member is refused, and told once."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader, _ = await started(cluster)
            said = {
                "dledger-cluster": cluster.local.cluster,
                "dledger-group": cluster.local.group,
                "dledger-member": "n9",
                "dledger-to": leader.name,
                "dledger-incarnation": "00" * 16,
            }
            for key, value in (("dledger-cluster", "other"), ("dledger-to", "n7"), ("x", "y")):
                for _ in range(2):
                    caller = await Caller.dial(cluster.local.link_ports[leader.name])
                    refusal = await caller.greet(tuple({**said, key: value}.items()))
                    assert "this member expects" in refusal
                    assert await caller.is_closed()
                    caller.close()
            lines = cluster.local.log_text(leader.name)
            assert lines.count("link refused") == 3

    asyncio.run(run())


def test_offsets_commits_and_lookups(tmp_path: Path) -> None:
    """The unary calls, at a follower: it forwards or confirms, and answers as the leader would."""

    async def run() -> None:
        async with running_cluster(tmp_path) as cluster:
            leader, topic = await started(cluster)
            follower = (await cluster.followers())[0]
            await leader.append_one(batch_of(topic.id, [b"a", b"b", b"c"]))
            ref = pb.QueueRef(topic=TOPIC, queue=0)
            meta = follower.metadata
            bounds = await follower.broker.QueueOffsets(
                pb.QueueOffsetsRequest(queues=[ref], linearizable=True), timeout=5, metadata=meta
            )
            assert [(row.minimum, row.maximum) for row in bounds.rows] == [(0, 3)]
            commit = pb.CommitOffsetsRequest(consumer_group="g")
            commit.offsets.add(queue=ref, offset=2)
            reply = await follower.broker.CommitOffsets(commit, timeout=5, metadata=meta)
            assert (list(reply.codes), list(reply.stored_offsets)) == ([0], [2])
            commit.offsets[0].offset = 1
            reply = await follower.broker.CommitOffsets(commit, timeout=5, metadata=meta)
            assert list(reply.codes) == [Code.OFFSET_BEHIND]
            stored = await follower.broker.ReadOffsets(
                pb.ReadOffsetsRequest(consumer_group="g", queues=[ref]), timeout=5, metadata=meta
            )
            assert stored.offsets[0].offset == 2
            found = await follower.broker.LookupOffset(
                pb.LookupOffsetRequest(queue=ref, offset=1), timeout=5, metadata=meta
            )
            assert (found.records[0].offset, found.records[0].store_time_ms > 0) == (1, True)
            assert BatchView(found.records[0].batch).record(0).body == b"b", "alone"
            with pytest.raises(grpc.RpcError) as caught:
                await follower.broker.LookupOffset(
                    pb.LookupOffsetRequest(queue=ref, offset=9), timeout=5, metadata=meta
                )
            assert from_rpc_error(caught.value).code is Code.OFFSET_OUT_OF_RANGE

    asyncio.run(run())


def test_every_record_of_a_common_key_is_found_in_small_answers(tmp_path: Path) -> None:
    """Through the client, which follows the pages: batches of a thousand records of a KiB."""

    async def run() -> None:
        async with running_cluster(tmp_path, members=1) as cluster:
            leader, topic = await started(cluster)
            for batch in range(3):
                records = [Record(b"%d" % n + bytes(1_024), keys=("k",)) for n in range(1_000)]
                row = await leader.append_one(
                    encode_batch(
                        records, topic_id=topic.id, queue=0, stamp=None,
                        base_number=1_000 * batch, base_time_ms=1, compression=Compression.LZ4,
                    )
                )  # fmt: skip
                assert row.code is Code.OK
            async with AsyncAdmin([leader.address]) as admin:
                found = await admin.lookup_key(TOPIC, "k")
                assert [each.offset for each in found] == list(range(2_000, 2_032))
                found = await admin.lookup_key(TOPIC, "k", limit=5_000)
                newest_first = [*range(2_000, 3_000), *range(1_000, 2_000), *range(1_000)]
                assert [each.offset for each in found] == newest_first
                assert found[7].record.body == b"7" + bytes(1_024)

    asyncio.run(run())


def test_a_second_process_on_the_folder_is_refused(tmp_path: Path) -> None:
    """The data folder's lock names the folder, and the first process goes on."""

    async def run() -> None:
        async with running_cluster(tmp_path, members=1) as cluster:
            leader, topic = await started(cluster)
            config = (tmp_path / "n1" / "config.toml").read_text()
            second = tmp_path / "second.toml"
            listen = f'listen = "{leader.address}"'
            assert listen in config
            config = config.replace(cluster.local.link_address("n1"), f"127.0.0.1:{free_port()}")
            second.write_text(config.replace(listen, f'listen = "127.0.0.1:{free_port()}"'))
            command = [*cluster.local._command("n1")[:-1], str(second)]
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            output, _ = await process.communicate()
            assert process.returncode == 73, output
            assert str(tmp_path / "n1" / "data").encode() in output
            assert (await leader.append_one(batch_of(topic.id, [b"x"]))).code is Code.OK

    asyncio.run(run())
