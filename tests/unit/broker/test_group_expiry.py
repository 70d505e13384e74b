"""The control group's leader deletes consumer groups that nobody used for long.

Method: the decision by itself, and a leader whose state machine applies what it proposes. The other
broker group is a server that answers as the test says.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random
from typing import Any, cast

import grpc.aio
import pytest
from structlog.testing import capture_logs

from dledger.raft.api import Role
from dledger.state.consumers.groups import CreateConsumerGroup, DeleteConsumerGroup
from dledger.state.consumers.settings import GroupSettings
from dledger.state.consumers.usage import USE_STEP_MS
from dledger.state.counted_time import COUNTED_AT_ONCE_MAX_MS
from dledger.state.values import LayoutPart
from dledger.types import MemberId
from dledger_broker.cluster import group_expiry
from dledger_broker.cluster.channels import GROUP_KEY, Channels
from dledger_broker.cluster.consumer_groups import ConsumerGroupAuthority
from dledger_broker.cluster.group_expiry import (
    ANSWERS_LAST_SECONDS,
    GROUPS_PER_LOOK_MAX,
    LOOK_SECONDS_MAX,
    Candidates,
    GroupExpiry,
    all_agree,
    look_seconds,
    to_ask,
    unused_here,
)
from dledger_broker.cluster.topic_authority import TopicAuthority
from dledger_broker.cluster.view import ClusterView
from dledger_broker.group.group_view import ANSWER_BY
from dledger_proto.rpc.raw import RawContext, UnaryMethod, raw_handlers
from dledger_proto.v1 import delivery_pb2 as pb
from dledger_proto.v1 import routes_pb2
from tests.ports import free_port
from tests.unit.broker.fakes import NAMES, ManualClock
from tests.unit.broker.test_consumer_group_authority import Applying
from tests.unit.broker.test_messaging import FakeQueries, Host, messaging
from tests.unit.broker.test_topic_authority import OTHER_GROUP, Knowing, Taking
from tests.unit.state.groups_kit import of_group
from tests.unit.state.kit import Driven

EXPIRY_MS = 3_600_000
BILLING, MAILS = b"B" * 16, b"M" * 16
SETTINGS = GroupSettings(NAMES.group, b"D" * 16)


def create(group_id: bytes, name: str, *broker_groups: str) -> CreateConsumerGroup:
    dead = bytes((group_id[0] + 1,)) + group_id[1:]
    layout = tuple(LayoutPart(each, 1) for each in broker_groups or (NAMES.group,))
    settings = replace(SETTINGS, dead_letter_topic_id=dead)
    return CreateConsumerGroup(group_id, name, layout, settings)


def pass_time(driven: Driven, unused_ms: int = EXPIRY_MS) -> None:
    driven.count_time(unused_ms + USE_STEP_MS + COUNTED_AT_ONCE_MAX_MS)


# The decision.


@pytest.mark.parametrize(
    ("answers", "agreed"),
    [
        ({"h": {BILLING}, "l": {BILLING, MAILS}}, True),
        ({"h": {BILLING}, "l": {MAILS}}, False),
        ({"h": {BILLING}, "l": None}, False),
        ({"h": {BILLING}}, False),
        ({"h": None, "l": None}, False),
        ({"h": set(), "l": {BILLING}}, False),
    ],
)
def test_all_that_were_asked_must_call_it_unused(
    answers: dict[str, set[bytes] | None], agreed: bool
) -> None:
    asked = {"h": [BILLING], "l": [MAILS, BILLING], "x": [MAILS]}
    assert all_agree(BILLING, asked, answers) is agreed, "x was asked about another group"


def test_one_broker_group_that_has_a_use_is_enough_to_keep_it() -> None:
    asked = {name: [BILLING] for name in ("h", "l", "x")}
    everywhere = {name: {BILLING} for name in asked}
    assert all_agree(BILLING, asked, everywhere)
    for name in asked:
        assert not all_agree(BILLING, asked, {**everywhere, name: {MAILS}})


def test_who_has_its_retries_and_who_is_known_is_asked() -> None:
    """A broker group that left has its retries; one that joined may have progress already."""
    billing, mails = (of_group(each, "%RETRY%x", 1, SETTINGS) for each in (BILLING, MAILS))
    billing = replace(billing, layout=(LayoutPart("g", 1), LayoutPart("gone", 1)))
    mails = replace(mails, layout=(LayoutPart("g", 1),))
    assert to_ask([billing, mails], ("g", "new")) == {
        "g": [BILLING, MAILS],
        "gone": [BILLING],
        "new": [BILLING, MAILS],
    }


def test_it_looks_eight_times_within_the_expiry_and_each_ten_minutes() -> None:
    assert look_seconds(EXPIRY_MS) == 450.0
    assert look_seconds(100 * EXPIRY_MS) == LOOK_SECONDS_MAX == 600.0


def test_each_look_goes_on_behind_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """So groups that another broker group keeps do not hide those behind them."""
    monkeypatch.setattr(group_expiry, "GROUPS_PER_LOOK_MAX", 2)
    driven = Driven(group=NAMES.group)
    ids = [bytes((number,)) * 16 for number in (2, 4, 6, 8, 10)]
    for group_id in ids:
        driven.one(create(group_id, f"g{group_id[0]}"))
    candidates, queries = Candidates(EXPIRY_MS), driven.machine.queries
    assert candidates.take(queries, 0) == []
    pass_time(driven)
    looks = [[each.topic_id for each in candidates.take(queries, 0)] for _ in range(4)]
    assert looks == [ids[:2], ids[2:4], [ids[4], ids[0]], ids[1:3]]


def test_a_look_reads_more_of_some_groups_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_expiry, "GROUPS_LOOKED_AT_MAX", 2)
    driven = Driven(group=NAMES.group)
    ids = [bytes((number,)) * 16 for number in (2, 4, 6)]
    for group_id in ids:
        driven.one(create(group_id, f"g{group_id[0]}"))
    pass_time(driven)
    candidates, queries = Candidates(EXPIRY_MS), driven.machine.queries
    assert [each.topic_id for each in candidates.take(queries, 0)] == ids[:2]
    assert [each.topic_id for each in candidates.take(queries, 0)] == [ids[2], ids[0]]


# A leader.


class Elsewhere:
    """The leader of the other broker group."""

    def __init__(self, home: "Home") -> None:
        self.unused: set[bytes] = {BILLING, MAILS}
        self.meanwhile: Callable[[], object] = lambda: None
        self.requests: list[pb.CheckUnusedGroupsRequest] = []
        self.asked_for: list[str] = []
        self.short = 0
        port = free_port()
        member = routes_pb2.MemberRoute(member="x", peer_address=f"127.0.0.1:{port}")
        route = routes_pb2.GroupRoute(group=OTHER_GROUP, term=1, leader="x", members=[member])
        home.cluster.merge(routes_pb2.RoutesReply(cluster="c", groups=[route]))
        self.server = grpc.aio.server()  # pyright: ignore[reportUnknownMemberType]
        method = {"CheckUnusedGroups": UnaryMethod(self._answer)}
        self.server.add_generic_rpc_handlers((raw_handlers("dledger.v1.Delivery", method),))
        self.server.add_insecure_port(f"127.0.0.1:{port}")

    async def _answer(self, data: bytes, context: RawContext) -> bytes:
        request = pb.CheckUnusedGroupsRequest.FromString(data)
        self.requests.append(request)
        metadata = dict(cast("Any", context.invocation_metadata()))
        self.asked_for.append(metadata[GROUP_KEY])
        unused = [each in self.unused for each in request.group_ids]
        self.meanwhile()
        return pb.CheckUnusedGroupsReply(
            unused=unused[: len(unused) - self.short]
        ).SerializeToString()


class Home:
    """The control group's leader, with the consumer groups `billing` and `mails`."""

    def __init__(self) -> None:
        self.applying = Applying()
        self.driven = self.applying.driven
        for group_id, name in ((BILLING, "billing"), (MAILS, "mails")):
            self.driven.one(create(group_id, name, NAMES.group, OTHER_GROUP))
        self.host = Host()
        queries = cast("FakeQueries", self.driven.machine.queries)
        self.messaging = messaging(self.host, b"", 0, queries, self.applying)
        self.clock = cast("ManualClock", self.messaging.view.clock)
        self.channels = Channels()
        self.cluster = ClusterView("c", {NAMES.group: {"n1": "127.0.0.1:1"}})
        topics = TopicAuthority(
            self.messaging, self.cluster, self.channels,
            {OTHER_GROUP: messaging(Host(), b"", 0, Knowing(), Taking())},
            Random(1), auto_create=True, default_queues_per_group=2,
        )  # fmt: skip
        authority = ConsumerGroupAuthority(
            self.messaging, self.cluster, topics, Random(1), auto_create=True
        )
        self.expiry = GroupExpiry(
            self.messaging.view, self.cluster, self.channels, authority, EXPIRY_MS
        )
        self.elsewhere = Elsewhere(self)

    async def look(self) -> list[bytes]:
        """Return the consumer groups that a look deletes."""
        before = len(self.applying.proposed)
        await self.expiry.look()
        proposed = self.applying.proposed[before:]
        assert all(isinstance(each, DeleteConsumerGroup) for each in proposed)
        return [each.group_id for each in proposed if isinstance(each, DeleteConsumerGroup)]

    def use(self, group_id: bytes = BILLING) -> None:
        """Note a use in the control group."""
        self.driven.machine._state.usage.touch(group_id)


def at_home(test: Callable[[Home], Coroutine[Any, Any, None]], *, serve: bool = True) -> None:
    async def run() -> None:
        async with asyncio.timeout(20):
            home = Home()
            ANSWER_BY.set(home.clock.now + 1_000)
            if serve:
                await home.elsewhere.server.start()
            try:
                await test(home)
            finally:
                await home.elsewhere.server.stop(None)
                await home.channels.close()

    asyncio.run(run())


def test_a_group_that_all_call_unused_is_deleted() -> None:
    async def test(home: Home) -> None:
        assert await home.look() == []
        assert home.elsewhere.requests == [], "its own broker group has a use of each"
        pass_time(home.driven)
        with capture_logs() as logs:
            assert await home.look() == [BILLING, MAILS]
        (request,) = home.elsewhere.requests
        assert (list(request.group_ids), request.unused_ms) == ([BILLING, MAILS], EXPIRY_MS)
        assert home.elsewhere.asked_for == [OTHER_GROUP]
        told = [line for line in logs if line["event"] == "consumer group deleted: nobody used it"]
        assert [line["consumer_group"] for line in told] == ["billing", "mails"]
        queries = home.driven.machine.queries
        assert queries.group_by_name("billing") is None
        assert queries.topic_by_name("%DLQ%billing") is None
        assert await home.look() == []

    at_home(test)


def test_a_use_in_one_broker_group_keeps_it() -> None:
    async def test(home: Home) -> None:
        pass_time(home.driven)
        home.elsewhere.unused = {MAILS}
        assert await home.look() == [MAILS]
        home.elsewhere.unused = {BILLING}
        home.use()
        assert await home.look() == []

    at_home(test)


def test_a_broker_group_that_does_not_answer_keeps_all() -> None:
    async def test(home: Home) -> None:
        pass_time(home.driven)
        with capture_logs() as logs:
            assert await home.look() == []
        (line,) = logs
        assert line["event"] == "unused consumer groups are kept until the next look"
        assert line["broker_group"] == OTHER_GROUP

    at_home(test, serve=False)


def test_a_broker_group_that_nobody_knows_keeps_all() -> None:
    """It has a queue in the layout, and no name server tells where it is."""

    async def test(home: Home) -> None:
        home.cluster.merge(routes_pb2.RoutesReply(cluster="c", removed_groups=[OTHER_GROUP]))
        pass_time(home.driven)
        assert await home.look() == []
        assert home.elsewhere.requests == []

    at_home(test)


def test_an_answer_of_another_length_is_none() -> None:
    async def test(home: Home) -> None:
        pass_time(home.driven)
        home.elsewhere.short = 1
        assert await home.look() == []

    at_home(test)


def test_a_use_here_while_the_others_answer_keeps_it() -> None:
    """The control group looks at its own state last, at the moment of the proposal."""

    async def test(home: Home) -> None:
        pass_time(home.driven)
        home.elsewhere.meanwhile = home.use
        assert await home.look() == [MAILS]

    at_home(test)


def test_old_answers_delete_nothing() -> None:
    """The process stood still since: a use may be minutes old by now."""

    async def test(home: Home) -> None:
        def stand_still() -> None:
            home.clock.now += ANSWERS_LAST_SECONDS + 0.1

        pass_time(home.driven)
        home.elsewhere.meanwhile = stand_still
        assert await home.look() == []
        home.elsewhere.meanwhile = lambda: None
        assert await home.look() == [BILLING, MAILS]

    at_home(test)


def test_a_leader_that_leads_no_more_deletes_nothing() -> None:
    async def test(home: Home) -> None:
        pass_time(home.driven)
        home.elsewhere.meanwhile = lambda: home.host.become(Role.FOLLOWER, MemberId("n2"))
        assert await home.look() == []

    at_home(test)


def test_a_group_that_somebody_deleted_first_is_told() -> None:
    async def test(home: Home) -> None:
        pass_time(home.driven)
        home.applying.before = lambda: home.driven.one(DeleteConsumerGroup(BILLING))
        with capture_logs() as logs:
            assert await home.look() == [BILLING, MAILS]
        told = [line.get("consumer_group") for line in logs]
        assert told == ["mails", None]
        assert "no consumer group has the id" in logs[1]["reason"]

    at_home(test)


def test_a_broker_group_answers_for_each() -> None:
    """In the order of the question, by its own state; what it does not know is not unused."""

    async def test(home: Home) -> None:
        pass_time(home.driven)
        home.use(MAILS)
        request = pb.CheckUnusedGroupsRequest(
            group_ids=[MAILS, b"?" * 16, BILLING], unused_ms=EXPIRY_MS
        )
        assert await unused_here(home.messaging.view, request) == [False, False, True]
        request.unused_ms = 2 * EXPIRY_MS
        assert await unused_here(home.messaging.view, request) == [False, False, False]

    at_home(test, serve=False)


def test_one_look_asks_no_more_than_one_call_takes() -> None:
    assert GROUPS_PER_LOOK_MAX == 256, "as docs/delivery.md and the .proto say"
