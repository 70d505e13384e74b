"""A claim that raises a fence is proposed only when the coordinator granted it (D21)."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import grpc.aio
import pytest

from dledger.state.consumers.granting import Assign, TopicTargets
from dledger.state.consumers.settings import GroupSettings, StartFrom
from dledger.state.consumers.table import EPOCHS_VALUE, Epochs, Subscribed, read_epochs
from dledger.state.results import QueuesClaimed
from dledger.state.topics.commands import ImportTopic
from dledger_broker.cluster.channels import Channels
from dledger_broker.cluster.view import ClusterView
from dledger_broker.delivery.grants import Grants
from dledger_broker.usecases.messaging import Queue
from dledger_broker.usecases.progress import Wanted, claim_queues
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc.raw import RawContext, UnaryMethod, raw_handlers
from dledger_proto.v1 import delivery_pb2 as pb
from dledger_proto.v1 import routes_pb2
from tests.ports import free_port
from tests.unit.broker.fakes import NAMES
from tests.unit.broker.test_consumer_group_authority import Applying
from tests.unit.broker.test_messaging import Host, messaging
from tests.unit.state.consumer_kit import BILLING, DEAD, ORDERS, join, orders, retry_topic
from tests.unit.state.kit import TOPIC, batch

FORGED = (1 << 64) - 1


class Home:
    """The leader of the home group of `orders`, and perhaps of the coordinator."""

    def __init__(self, coordinator: str = NAMES.group, start: StartFrom = StartFrom.FIRST) -> None:
        self.applying = Applying()
        settings = GroupSettings(coordinator, DEAD, start=start)
        for topic in (orders(group=NAMES.group), retry_topic(settings)):
            self.one(ImportTopic(topic, b"c" * 16))
        queries = cast("Any", self.applying.driven.machine.queries)
        self.host = Host()
        self.messaging = messaging(self.host, b"", 0, queries, self.applying)
        self.channels = Channels()
        self.cluster = ClusterView("c", {})
        self.grants = Grants(self.messaging.view, self.cluster, self.channels)

    def one(self, command: Any) -> Any:
        return self.applying.driven.one(command)

    def granted(self, consumer: str) -> int:
        """Let one consumer have all queues of `orders`; return the epoch of queue 0."""
        rows = self.applying.driven.machine.queries.consumers(BILLING)
        self.one(join(consumer))
        everything = TopicTargets(TOPIC, (1, 1, 1, 1))
        self.one(Assign(BILLING, rows.epochs.group, (consumer,), (everything,)))
        return min(grant.epoch for grant in rows.grants.values())

    async def claim(self, member: str, *epochs: int) -> list[tuple[Code, str]]:
        """Claim the queues from 0 on by these epochs."""
        wanted: list[Wanted] = [(Queue(TOPIC, at), epoch) for at, epoch in enumerate(epochs)]
        wanted, begin = await self.grants.checked("billing", member, wanted)
        claimed = await claim_queues(self.messaging, "billing", member, wanted, begin)
        assert isinstance(claimed, QueuesClaimed)
        return [(row.code, row.detail) for row in claimed.rows]

    def floor(self, queue: int) -> int:
        row = self.applying.driven.machine.queries.progress("billing", TOPIC, queue).row
        assert row is not None
        return row.floor

    async def codes(self, member: str, *epochs: int) -> list[Code]:
        return [code for code, _ in await self.claim(member, *epochs)]


def at_home(
    test: Callable[[Home], Coroutine[Any, Any, None]],
    coordinator: str = "g",
    start: StartFrom = StartFrom.FIRST,
) -> None:
    async def run() -> None:
        async with asyncio.timeout(20):
            home = Home(coordinator, start)
            try:
                await test(home)
            finally:
                await home.channels.close()

    asyncio.run(run())


def test_no_number_that_somebody_made_up_closes_a_queue() -> None:
    """A fence at 2^64-1 would refuse every true grant for ever."""

    async def test(home: Home) -> None:
        epoch = home.granted("c1")
        for forger, forged in (("evil", FORGED), ("c1", FORGED), ("evil", epoch)):
            ((code, detail),) = await home.claim(forger, forged)
            assert code is Code.FENCED
            assert detail == f"epoch {forged}: the coordinator did not grant the queue to {forger}"
        assert await home.codes("c1", epoch) == [Code.OK]
        assert home.applying.driven.machine.queries.fence_of("billing", TOPIC, 0) == epoch

    at_home(test)


def test_a_queue_that_is_named_twice_is_asked_about_twice() -> None:
    async def test(home: Home) -> None:
        epoch = home.granted("c1")
        wanted: list[Wanted] = [(Queue(TOPIC, 0), epoch), (Queue(TOPIC, 0), FORGED)]
        checked = await home.grants.checked("billing", "c1", wanted)
        (_, first), (refusal, second) = checked.wanted
        assert (first, second) == (epoch, FORGED)
        assert isinstance(refusal, DledgerError)

    at_home(test)


class Elsewhere:
    """A coordinator in another broker group."""

    def __init__(self, home: Home) -> None:
        self.asked: list[pb.CheckGrantsRequest] = []
        self.grants: set[tuple[str, int]] = set()
        self.wanted_ms = -1
        port = free_port()
        member = routes_pb2.MemberRoute(member="x", peer_address=f"127.0.0.1:{port}")
        route = routes_pb2.GroupRoute(group="other", term=1, leader="x", members=[member])
        home.cluster.merge(routes_pb2.RoutesReply(cluster="c", groups=[route]))
        self.server = grpc.aio.server()  # pyright: ignore[reportUnknownMemberType]
        handlers = raw_handlers("dledger.v1.Delivery", {"CheckGrants": UnaryMethod(self._answer)})
        self.server.add_generic_rpc_handlers((handlers,))
        self.server.add_insecure_port(f"127.0.0.1:{port}")

    async def _answer(self, data: bytes, _context: RawContext) -> bytes:
        request = pb.CheckGrantsRequest.FromString(data)
        self.asked.append(request)
        granted = [(request.member_id, each.epoch) in self.grants for each in request.queues]
        wanted_ms = [self.wanted_ms] * len(granted)
        return pb.CheckGrantsReply(granted=granted, wanted_ms=wanted_ms).SerializeToString()


def test_another_broker_group_is_asked_for_what_it_granted() -> None:
    async def test(home: Home) -> None:
        elsewhere = Elsewhere(home)
        elsewhere.grants = {("c1", 7), ("c2", 9)}
        await elsewhere.server.start()
        assert await home.codes("c1", 7, 8) == [Code.OK, Code.FENCED]
        assert await home.codes("c2", 9) == [Code.OK]
        assert await home.codes("c1", 7) == [Code.FENCED]
        assert len(elsewhere.asked) == 2, "the row answers an epoch that raises nothing"
        await elsewhere.server.stop(None)

    at_home(test, "other")


def test_renewals_need_no_coordinator() -> None:
    """It is away: what is held goes on, and what is new waits."""

    async def test(home: Home) -> None:
        elsewhere = Elsewhere(home)
        elsewhere.grants = {("c1", 7)}
        await elsewhere.server.start()
        assert await home.codes("c1", 7) == [Code.OK]
        await elsewhere.server.stop(None)
        assert await home.codes("c1", 7, 8) == [Code.OK, Code.UNAVAILABLE]

    at_home(test, "other")


def test_a_group_that_is_not_known_claims_nothing() -> None:
    """Not even when it comes to be known before the claim is applied."""

    async def test(home: Home) -> None:
        with pytest.raises(DledgerError, match="no consumer group is called 'nobody'"):
            await home.grants.checked("nobody", "c1", [(Queue(TOPIC, 0), FORGED)])

    at_home(test)


def test_last_begins_with_the_join_that_brought_the_topic() -> None:
    """Not where the queue ends at the first claim, and not where another topic was joined."""

    async def test(home: Home) -> None:
        driven = home.applying.driven
        driven.append(batch(3), time_ms=2_000)
        driven.one(join("c1"), 3_000)
        driven.append(batch(4), time_ms=3_500)
        epoch = home.granted("c1")
        more = (*ORDERS, Subscribed("other"))
        driven.one(join("c1", subscriptions=tuple(sorted(more))), 9_000)
        assert driven.machine.queries.consumers(BILLING).epochs.since_ms == (3_000, 9_000)
        await home.claim("c1", epoch)
        assert home.floor(0) == 3

    at_home(test, start=StartFrom.LAST)


def test_two_clocks_that_differ_hide_no_record() -> None:
    """The coordinator says how long ago; the home group counts back by its own stamps (S103)."""

    async def test(home: Home) -> None:
        driven = home.applying.driven
        driven.append(batch(3), time_ms=298_999)
        driven.append(batch(4), time_ms=299_000)
        home.host.now_ms = 300_000
        elsewhere = Elsewhere(home)
        elsewhere.grants = {("c1", 7)}
        elsewhere.wanted_ms = 1_000
        await elsewhere.server.start()
        await home.claim("c1", 7)
        assert home.floor(0) == 3
        await elsewhere.server.stop(None)

    at_home(test, "other", start=StartFrom.LAST)


def test_an_older_row_of_epochs_knows_no_times() -> None:
    parts: list[bytes] = []
    EPOCHS_VALUE.write(Epochs(3, 2, 1, "circle", ORDERS), parts)
    written = b"".join(parts)
    older = written[:-2]
    assert read_epochs(written) == read_epochs(older) == Epochs(3, 2, 1, "circle", ORDERS)
