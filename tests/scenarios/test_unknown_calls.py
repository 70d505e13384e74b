"""Calls of which one try ended unknown: never told as refused, never repeated where that does harm.

A copy of the unknown try may have been carried out, or may be still; so a refusal of the next try
says nothing about the call as a whole (D11).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

import pytest

from dledger.state.results import TopicChanged
from dledger.state.topics.commands import DeleteTopic
from dledger_client import AsyncAdmin, ConnectionConfig
from dledger_client.errors import NoPermission, OffsetBehind, TopicExists, UnknownOutcome
from dledger_proto.errors import Code, DledgerError
from dledger_proto.v1 import broker_pb2 as pb
from tests.unit.client.fake_member import FakeCluster
from tests.unit.client.helpers import eventually
from tests.unit.state.kit import Driven, code_of, create

LOST = DledgerError(Code.UNKNOWN_OUTCOME, "the answer was lost")
TOPIC_ID = b"t".ljust(16, b".")


def run(body: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(body, 20))


def calls_of(cluster: FakeCluster, name: str) -> int:
    return cluster.leader().calls.count(name)


def test_a_refusal_after_an_unknown_try_is_unknown() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap) as admin:
            exists = DledgerError(Code.TOPIC_EXISTS, "with other queues")
            cluster.leader().call_errors.extend([LOST, exists])
            with pytest.raises(UnknownOutcome, match="TOPIC_EXISTS: with other queues") as ended:
                await admin.create_topic("n")
            assert "the answer was lost" in str(ended.value)
            assert isinstance(ended.value.__cause__, TopicExists)
            cluster.leader().call_errors.append(exists)
            with pytest.raises(TopicExists):
                await admin.create_topic("n")

    run(body())


def test_a_definite_end_of_time_after_an_unknown_try_is_unknown() -> None:
    async def body() -> None:
        config = ConnectionConfig(call_timeout_ms=300)
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap, config) as admin:
            nobody = DledgerError(Code.NO_LEADER)
            cluster.leader().call_errors.extend([LOST, *[nobody] * 1_000])
            with pytest.raises(UnknownOutcome, match="NO_LEADER"):
                await admin.create_topic("n")

    run(body())


def test_a_success_after_an_unknown_try_is_a_success() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap) as admin:
            cluster.leader().call_errors.append(LOST)
            await admin.commit_offsets("g", {("t", 0): 7})
            assert cluster.offsets == {("g", TOPIC_ID, 0): 7}
            assert calls_of(cluster, "CommitOffsets") == 2

    run(body())


def test_an_offset_that_is_behind_after_an_unknown_try_is_unknown() -> None:
    """It may have been stored first, and another's after it."""

    async def body() -> None:
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap) as admin:
            cluster.offsets["g", TOPIC_ID, 0] = 9
            cluster.leader().call_errors.append(LOST)
            with pytest.raises(UnknownOutcome, match="OFFSET_BEHIND: t/0: offset 7") as ended:
                await admin.commit_offsets("g", {("t", 0): 7, ("t", 1): 7})
            assert isinstance(ended.value.__cause__, OffsetBehind)
            with pytest.raises(OffsetBehind):
                await admin.commit_offsets("g", {("t", 0): 7})

    run(body())


@pytest.mark.parametrize("name", ["CommitOffsets", "UpdateTopic", "Hold"])
def test_what_undoes_others_is_not_repeated(name: str) -> None:
    """A reset, a change of a topic, a release: meanwhile somebody else may have changed it."""

    async def body() -> None:
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap) as admin:
            await admin.describe_topic("t")
            cluster.leader().call_errors.append(LOST)
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "CommitOffsets": lambda: admin.commit_offsets("g", {("t", 0): 7}, reset=True),
                "UpdateTopic": lambda: admin.update_topic("t", read_queues=3),
                "Hold": lambda: admin.release_hold("job", "t", 0),
            }
            with pytest.raises(UnknownOutcome):
                await calls[name]()
            assert calls_of(cluster, name) == 1
            assert not cluster.offsets

    run(body())


@pytest.mark.parametrize(
    ("name", "is_safe"),
    [
        ("CreateTopic", True),
        ("CommitOffsets", True),
        ("Trim", True),
        ("Hold", True),
        ("Reset", False),
        ("UpdateTopic", False),
        ("DeleteTopic", False),
        ("ReleaseHold", False),
        ("TransferLeadership", False),
        ("LiftQuarantine", False),
    ],
)
def test_an_unknown_call_is_retriable_where_twice_is_once(name: str, is_safe: bool) -> None:
    """Of what is safe every try within the budget is lost; what is not safe has but one."""

    async def body() -> None:
        config = ConnectionConfig(call_timeout_ms=300)
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap, config) as admin:
            await admin.describe_topic("t")
            leader = cluster.leader()
            leader.call_errors.extend([LOST] * 1_000)
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "CreateTopic": lambda: admin.create_topic("n"),
                "CommitOffsets": lambda: admin.commit_offsets("g", {("t", 0): 7}),
                "Trim": lambda: admin.trim("t", 0, 7),
                "Hold": lambda: admin.hold("job", "t", 0, 7, 1_000),
                "Reset": lambda: admin.commit_offsets("g", {("t", 0): 7}, reset=True),
                "UpdateTopic": lambda: admin.update_topic("t", read_queues=3),
                "DeleteTopic": lambda: admin.delete_topic("t"),
                "ReleaseHold": lambda: admin.release_hold("job", "t", 0),
                "TransferLeadership": lambda: admin.transfer_leadership("a"),
                "LiftQuarantine": lambda: admin.lift_quarantine(leader.address, "a", "a2", "yes"),
            }
            with pytest.raises(UnknownOutcome) as ended:
                await calls[name]()
            assert ended.value.retriable is is_safe

    run(body())


def test_a_call_that_was_refused_for_good_after_an_unknown_try_is_not_retriable() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap) as admin:
            cluster.leader().call_errors.extend([LOST, DledgerError(Code.TOPIC_EXISTS, "other")])
            with pytest.raises(UnknownOutcome) as ended:
                await admin.create_topic("n")
            assert not ended.value.retriable

    run(body())


def test_an_unknown_of_one_group_comes_before_the_refusal_of_another() -> None:
    """A caller who is told of the refusal alone takes it for nothing done."""

    async def body() -> None:
        topics = {"t": [("a", 1), ("b", 1)]}
        async with (
            FakeCluster({"a": 1, "b": 1}, topics) as cluster,
            AsyncAdmin(cluster.bootstrap) as admin,
        ):
            await admin.describe_topic("t")
            refusal = DledgerError(Code.NO_PERMISSION, "no")
            cluster.leader("a").call_errors.append(refusal)
            cluster.leader("b").call_errors.append(LOST)
            with pytest.raises(UnknownOutcome):
                await admin.commit_offsets("g", {("t", 0): 7, ("t", 1): 7}, reset=True)
            cluster.leader("a").call_errors.append(refusal)
            with pytest.raises(NoPermission):
                await admin.commit_offsets("g", {("t", 0): 7, ("t", 1): 7}, reset=True)

    run(body())


def test_every_try_of_a_creation_names_the_same_topic() -> None:
    async def body() -> None:
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap) as admin:
            leader = cluster.leader()
            leader.call_errors.append(LOST)
            await admin.create_topic("n")
            await admin.create_topic("m")
            first, again, other = (
                pb.CreateTopicRequest.FromString(request).topic_id
                for name, request in zip(leader.calls, leader.requests, strict=True)
                if name == "CreateTopic"
            )
            assert len(first) == 16
            assert first == again
            assert other != first

    run(body())


def test_a_creation_that_comes_after_the_deletion_makes_nothing() -> None:
    """A late copy of a call that was told as done, or unknown."""
    driven = Driven()
    made = driven.one(create())
    assert isinstance(made, TopicChanged)
    driven.one(DeleteTopic(made.topic.topic_id))
    assert code_of(driven.one(create())) is Code.TOPIC_EXISTS
    assert driven.machine.queries.topic_by_name(made.topic.name) is None


def test_a_write_that_its_closed_client_had_on_its_way_is_unknown() -> None:
    """Whether others share its connections or not; the member carries it out in any case."""

    async def body() -> None:
        async with FakeCluster() as cluster, AsyncAdmin(cluster.bootstrap) as other:
            for is_shared in (True, False):
                closed = await AsyncAdmin(cluster.bootstrap).start()
                await closed.groups()
                if not is_shared:
                    await other.close()
                member = cluster.leader()
                before, member.held["CommitOffsets"] = len(member.calls), asyncio.Event()
                call = asyncio.create_task(closed.commit_offsets("g", {("t", 0): 7}))
                await eventually(lambda: len(member.calls) > before, "it is on its way")  # noqa: B023
                await closed.close()
                with pytest.raises(UnknownOutcome, match="closed during the call"):
                    await call

    run(body())
