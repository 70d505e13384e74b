"""Every unary call of the .proto services has one row, and a row says what the .proto says."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from dledger.raft.api import Role
from dledger.state.users.values import Action, ResourceKind, User
from dledger.state.values import QueueSpan
from dledger_broker.cluster.channels import FORWARDED_KEY, USER_KEY
from dledger_broker.rpc.calls import AnsweredBy, Call, Calls, HostedGroup, Row
from dledger_broker.rpc.routes import RouteWatch
from dledger_broker.rpc.streams import Streams
from dledger_broker.rpc.table import ROWS, STREAMS
from dledger_broker.security import rules
from dledger_broker.security.access import Access
from dledger_broker.security.gate import LOGIN_KEY, Confirm, Gate
from dledger_proto.errors import Code, DledgerError
from dledger_proto.limits import QUEUES_PER_CALL_MAX, SUBSCRIPTIONS_MAX
from dledger_proto.network.tls import client_name, member_name
from dledger_proto.rpc import status
from dledger_proto.v1 import (
    broker_pb2,
    delivery_pb2,
    login_pb2,
    routes_pb2,
    snapshots_pb2,
    users_pb2,
)
from tests.unit.broker.fakes import OTHER, FakeHost, ManualClock, admission
from tests.unit.broker.test_messaging import FakeQueries, Host, messaging
from tests.unit.security.users import allow, log_in, user_of

if TYPE_CHECKING:
    from dledger_broker.cluster.channels import Channels
    from dledger_proto.rpc.raw import RawContext

NAME_SERVER_ONLY = "Registry"
PEER = "ipv4:10.0.0.1:4711"


def unary_methods() -> dict[str, MethodDescriptor]:
    modules = (broker_pb2, delivery_pb2, login_pb2, routes_pb2, snapshots_pb2, users_pb2)
    return {
        f"/{service.full_name}/{method.name}": method
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
        if service.name != NAME_SERVER_ONLY
        for method in service.methods
        if not method.client_streaming and not method.server_streaming
    }


def test_each_unary_call_has_exactly_one_row() -> None:
    assert sorted(row.path for row in ROWS) == sorted(unary_methods())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.name))
def test_a_row_has_the_messages_of_its_method(row: object) -> None:
    method = unary_methods()[getattr(row, "path")]  # noqa: B009
    assert getattr(row, "request").DESCRIPTOR is method.input_type  # noqa: B009
    assert getattr(row, "reply").DESCRIPTOR is method.output_type  # noqa: B009


@pytest.mark.parametrize(
    ("name", "field", "least"),
    [
        ("QueueOffsets", "queues", 0),
        ("CommitOffsets", "offsets", 0),
        ("ReadOffsets", "queues", 0),
        ("PlanReads", "queues", 1),
        ("HoldAll", "queues", 1),
    ],
)
def test_the_queues_of_one_call_are_bounded(name: str, field: str, least: int) -> None:
    (row,) = (row for row in ROWS if row.name == name)
    call = cast("Call", None)
    for count in (least, QUEUES_PER_CALL_MAX):
        row.check(call, SimpleNamespace(**{field: range(count)}))
    for count in (QUEUES_PER_CALL_MAX + 1, *range(least)):
        with pytest.raises(DledgerError, match=f"INVALID_ARGUMENT: {count} {field} in one call"):
            row.check(call, SimpleNamespace(**{field: range(count)}))


class Refusal(Exception):
    """How a call was ended."""


class Stranger:
    """A client with a certificate and without a login."""

    def __init__(self, *metadata: tuple[str, str]) -> None:
        self.metadata = metadata
        self.name = client_name("c", "app")

    def invocation_metadata(self) -> object:
        return self.metadata

    def time_remaining(self) -> float | None:
        return 1.0

    def peer(self) -> str:
        return PEER

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"peer_uri": [self.name.encode()]}

    async def abort(
        self, _code: object, _details: str = "", trailing_metadata: Sequence[tuple[str, str]] = ()
    ) -> None:
        raise Refusal(Code(int(dict(trailing_metadata)[status.CODE_KEY])).name)

    async def read(self) -> object:
        raise AssertionError("nothing is read before the gate")


class NoTopics(FakeQueries):
    def topic_by_id(self, topic_id: bytes) -> None:
        """Return none."""


def gated(*users: User, confirm: Confirm | None = None) -> Calls:
    """Return the calls of a member that asks for users."""
    clock = ManualClock()
    known = {user.name: user for user in users}
    gate = Gate(Access("c", proves=True), known.get, clock, on=True, confirm=confirm)
    core = messaging(Host(), b"", 0, NoTopics(QueueSpan(0, 0, 0, 1, 0, 1)))
    return Calls({"g": HostedGroup(core)}, admission(), cast("Channels", None), clock, gate=gate)


def test_nobody_creates_a_topic_without_a_login() -> None:
    (row,) = (row for row in ROWS if row.name == "CreateTopic")
    test_nobody_calls_without_a_login(row)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.name))
def test_nobody_calls_without_a_login(row: Row[Any, Any]) -> None:
    """Also what needs no right: who calls is asked first. A login itself is the exception."""

    async def run() -> None:
        async def handler(_call: Call, _request: object) -> object:
            raise AssertionError("the gate let a stranger through")

        context = cast("RawContext", Stranger())
        expected = "NO_PERMISSION" if row.rule is rules.MEMBERS else "UNAUTHENTICATED"
        with pytest.raises(Refusal, match=f"^{expected}$"):
            await gated().answer(replace(row, handler=handler), b"", context)

    if row.rule is not rules.BEFORE_LOGIN:
        asyncio.run(run())
    else:
        assert row.service == "Login"


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_no_stream_begins_without_a_login(name: str) -> None:
    async def run() -> None:
        calls = gated()
        views = {name: group.messaging.view for name, group in calls.groups.items()}
        streams = Streams(calls, {})
        watch = RouteWatch(views, calls.admission.route_watchers, calls.gate)
        begin = {
            "Broker/Append": streams.append, "Broker/AppendOne": streams.append_one,
            "Broker/Fetch": streams.fetch, "Delivery/Session": streams.session,
            "Admin/LogEntries": streams.log_entries, "Routes/Watch": watch.watch,
        }  # fmt: skip
        with pytest.raises(Refusal, match=r"^UNAUTHENTICATED$"):
            await begin[name](b"", cast("RawContext", Stranger()))

    asyncio.run(run())


def test_every_stream_has_a_rule() -> None:
    modules = (broker_pb2, delivery_pb2, routes_pb2)
    streaming = {
        f"{service.name}/{method.name}"
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
        if service.name != NAME_SERVER_ONLY
        for method in service.methods
        if method.client_streaming or method.server_streaming
    }
    raw = {"Broker/Append", "Broker/AppendOne", "Broker/Fetch", "Delivery/Session"}
    assert set(STREAMS) == streaming | raw


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.name))
def test_a_user_without_rights_is_refused_what_a_row_names(row: Row[Any, Any]) -> None:
    """Topics and groups do not exist for it; the rest of the rows show it only what it may know."""
    fill = {"topic": "secret", "name": "secret", "consumer_group": "secret"}
    fields = row.request.DESCRIPTOR.fields_by_name
    request = row.request(**{
        key: value for key, value in fill.items()
        if key in fields and fields[key].type == fields[key].TYPE_STRING
    })  # fmt: skip
    if "batch" in fields:
        request.batch = bytes(64)
    for queue in ("queue", "queues", "assignments", "wanted"):
        if queue in fields and queue == "queue" and fields[queue].message_type is not None:
            request.queue.topic = "secret"
        elif queue in fields and fields[queue].message_type is not None:
            item = getattr(request, queue).add()
            ref = item if fields[queue].message_type.name == "QueueRef" else item.queue
            if not isinstance(ref, int):  # as in calls that members alone make
                ref.topic = "secret"

    async def run() -> None:
        calls = gated(user_of("bob"))
        login = log_in(calls.gate.logins, "bob", PEER)
        context = Stranger((LOGIN_KEY, login))

        async def handler(_call: Call, _request: object) -> object:
            raise AssertionError("the gate let it through")

        with pytest.raises(Refusal, match=r"NOT_FOUND|NO_PERMISSION"):
            await calls.answer(
                replace(row, handler=handler), request.SerializeToString(),
                cast("RawContext", context),
            )  # fmt: skip

    if row.rule not in (rules.ANYONE, rules.BEFORE_LOGIN):
        asyncio.run(run())


async def outcome(user: User, name: str, request: Message) -> str:
    """Return how the call of a user ends; OK when it reaches its handler."""
    (row,) = (row for row in ROWS if row.name == name)
    calls = gated(user)
    login = log_in(calls.gate.logins, user.name, PEER)

    async def handler(_call: Call, _request: object) -> Message:
        return cast("Message", row.reply())

    try:
        await calls.answer(
            replace(row, handler=handler, answered_by=AnsweredBy.ANY_MEMBER),
            request.SerializeToString(),
            cast("RawContext", Stranger((LOGIN_KEY, login))),
        )
    except Refusal as refusal:
        return str(refusal)
    return "OK"


SECRET = broker_pb2.QueueRef(topic="secret")
PROGRESS_CALLS: dict[str, Message] = {
    "CommitOffsets": broker_pb2.CommitOffsetsRequest(
        consumer_group="g", offsets=[broker_pb2.GroupOffset(queue=SECRET)]
    ),
    "ReadOffsets": broker_pb2.ReadOffsetsRequest(consumer_group="g", queues=[SECRET]),
    "ClaimQueues": delivery_pb2.ClaimQueuesRequest(
        consumer_group="g", queues=[delivery_pb2.ClaimQueuesRequest.Wanted(queue=SECRET)]
    ),
    "ReleaseQueues": delivery_pb2.ReleaseQueuesRequest(
        consumer_group="g", queues=[delivery_pb2.ClaimQueuesRequest.Wanted(queue=SECRET)]
    ),
    "FailRecords": delivery_pb2.FailRecordsRequest(
        consumer_group="g", records=[delivery_pb2.FailRecordsRequest.Failed(queue=SECRET)]
    ),
    "ReadProgress": delivery_pb2.ReadProgressRequest(consumer_group="g", queues=[SECRET]),
}


@pytest.mark.parametrize("name", PROGRESS_CALLS)
def test_a_right_to_a_consumer_group_opens_no_topic(name: str) -> None:
    """Else a failure would move its records to where the group reads them."""
    group = allow(ResourceKind.GROUP, "g", Action.SUBSCRIBE, Action.GET)
    topic = allow(ResourceKind.TOPIC, "secret", Action.SUBSCRIBE, Action.GET)
    request = PROGRESS_CALLS[name]
    for policies, expected in (
        ((group, topic), "OK"),
        ((group,), "TOPIC_NOT_FOUND"),
        ((topic,), "CONSUMER_GROUP_NOT_FOUND"),
    ):
        user = user_of("bob", "secret", *policies)
        assert asyncio.run(outcome(user, name, request)) == expected


def test_the_gate_looks_at_no_more_than_a_call_takes() -> None:
    """A Join of 14 MiB kept a member busy for 20 s, before anybody counted its subscriptions."""
    policies = (
        allow(ResourceKind.GROUP, "g", Action.SUBSCRIBE),
        allow(ResourceKind.TOPIC, "secret", Action.SUBSCRIBE),
    )
    user = user_of("bob", "secret", *policies)
    subscription = delivery_pb2.Subscription(topic="secret")
    for count, expected in ((SUBSCRIPTIONS_MAX, "OK"), (SUBSCRIPTIONS_MAX + 1, "INVALID_ARGUMENT")):
        created = delivery_pb2.CreateConsumerGroupRequest(
            name="g", automatic=True, subscriptions=[subscription] * count
        )
        assert asyncio.run(outcome(user, "CreateConsumerGroup", created)) == expected
    for count, expected in (
        (QUEUES_PER_CALL_MAX, "OK"),
        (QUEUES_PER_CALL_MAX + 1, "INVALID_ARGUMENT"),
    ):
        offsets = broker_pb2.QueueOffsetsRequest(queues=[SECRET] * count)
        assert asyncio.run(outcome(user, "QueueOffsets", offsets)) == expected


def test_nothing_of_a_stranger_is_parsed() -> None:
    async def run() -> None:
        (row,) = (row for row in ROWS if row.name == "QueueOffsets")
        with pytest.raises(Refusal, match=r"^UNAUTHENTICATED$"):
            await gated().answer(row, b"garbage", cast("RawContext", Stranger()))

    asyncio.run(run())


@pytest.mark.parametrize("is_pattern", [False, True])
def test_a_first_consumer_learns_of_no_topic_without_a_right(is_pattern: bool) -> None:
    """The member would say which of its subscriptions mean a topic."""
    group = allow(ResourceKind.GROUP, "g", Action.SUBSCRIBE)
    request = delivery_pb2.CreateConsumerGroupRequest(
        name="g", automatic=True,
        subscriptions=[delivery_pb2.Subscription(topic="secret", pattern=is_pattern)],
    )  # fmt: skip
    name = "CreateConsumerGroup"
    refused = "NO_PERMISSION" if is_pattern else "TOPIC_NOT_FOUND"
    assert asyncio.run(outcome(user_of("bob", "secret", group), name, request)) == refused
    every = allow(ResourceKind.TOPIC, "*", Action.SUBSCRIBE)
    assert asyncio.run(outcome(user_of("bob", "secret", group, every), name, request)) == "OK"


def test_the_story_of_a_record_needs_more_than_its_topic() -> None:
    """It names groups and consumers, and a cursor that somebody made up leads to any record."""
    request = delivery_pb2.ExplainRecordRequest(queue=SECRET, cursor=b"[1,{}]")
    topic = allow(ResourceKind.TOPIC, "*", Action.SUBSCRIBE, Action.GET)
    cluster = allow(ResourceKind.CLUSTER, "*", Action.GET)
    for policy, expected in ((topic, "NO_PERMISSION"), (cluster, "OK")):
        user = user_of("bob", "secret", policy)
        assert asyncio.run(outcome(user, "ExplainRecord", request)) == expected


def test_what_a_handler_asks_of_the_caller_is_not_forwarded() -> None:
    """The leader would take the call for one of the member: whoever calls a follower may all."""

    async def run() -> None:
        calls = gated(user_of("bob"))
        core = calls.groups["g"].messaging
        assert isinstance(core.view.host, FakeHost)
        core.view.host.become(Role.FOLLOWER, OTHER)
        login = log_in(calls.gate.logins, "bob", PEER)
        request = delivery_pb2.RecallTimerRequest(message_id=bytes(24)).SerializeToString()
        (row,) = (row for row in ROWS if row.name == "RecallTimer")
        with pytest.raises(Refusal, match=r"^NOT_LEADER$"):
            await calls.answer(row, request, cast("RawContext", Stranger((LOGIN_KEY, login))))

    asyncio.run(run())


class Leader:
    """The channel to a leader: it notes what calls carry."""

    def __init__(self) -> None:
        self.carried: dict[str, str] = {}

    def to(self, _callee: object) -> "Leader":
        return self

    def unary_unary(self, _method: str, *_codecs: object) -> object:
        async def call(
            _request: bytes, timeout: float, metadata: Sequence[tuple[str, str]]
        ) -> bytes:
            assert timeout > 0
            self.carried = dict(metadata)
            return b""

        return call


def test_the_audit_has_what_the_state_refuses() -> None:
    """No policy forbids it: the producer is another user's."""

    async def handler(_call: Call, _request: object) -> Message:
        raise DledgerError(Code.NO_PERMISSION, "another user's")

    async def run() -> None:
        (row,) = (row for row in ROWS if row.name == "RegisterProducer")
        calls = gated(PUBLISHER)
        login = log_in(calls.gate.logins, "bob", PEER)
        noted: list[tuple[object, ...]] = []
        calls.gate.audit.refused = lambda *told, **fields: noted.append((*told[:3], fields))  # type: ignore[method-assign]
        with pytest.raises(Refusal, match=r"^NO_PERMISSION$"):
            await calls.answer(
                replace(row, handler=handler, answered_by=AnsweredBy.ANY_MEMBER),
                REGISTER.SerializeToString(),
                cast("RawContext", Stranger((LOGIN_KEY, login))),
            )
        assert noted == [("call", PEER, "bob", {"wished": "RegisterProducer"})]

    asyncio.run(run())


PUBLISHER = user_of("bob", "secret", allow(ResourceKind.TOPIC, "t", Action.PUBLISH))
REGISTER = broker_pb2.RegisterProducerRequest(producer_id=b"p" * 16, life_id=b"l" * 16)


def test_a_user_without_rights_registers_no_producer() -> None:
    refused = asyncio.run(outcome(user_of("bob"), "RegisterProducer", REGISTER))
    assert refused == "NO_PERMISSION"


def test_a_call_that_a_member_passes_on_says_whose_it_is() -> None:
    async def run() -> None:
        calls, leader = gated(PUBLISHER), Leader()
        calls._channels = cast("Channels", leader)
        core = calls.groups["g"].messaging
        assert isinstance(core.view.host, FakeHost)
        core.view.host.become(Role.FOLLOWER, OTHER)
        own = log_in(calls.gate.logins, "bob", PEER)
        context = Stranger((LOGIN_KEY, own), (USER_KEY, "ann"))
        (row,) = (row for row in ROWS if row.name == "RegisterProducer")
        await calls.answer(row, REGISTER.SerializeToString(), cast("RawContext", context))
        assert leader.carried[USER_KEY] == "bob", "a client says so in vain"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("who", "told"),
    [(member_name("c", "g", "n2"), "bob"), (client_name("c", "app"), "NO_PERMISSION")],
)
def test_members_alone_are_believed_whose_call_it_is(who: str, told: str) -> None:
    async def run() -> str:
        (row,) = (row for row in ROWS if row.name == "RegisterProducer")
        seen: list[str] = []

        async def handler(call: Call, _request: object) -> Message:
            seen.append(call.user)
            return cast("Message", row.reply())

        context = Stranger((FORWARDED_KEY, "1"), (USER_KEY, "bob"))
        context.name = who
        try:
            await gated().answer(
                replace(row, handler=handler, answered_by=AnsweredBy.ANY_MEMBER),
                REGISTER.SerializeToString(),
                cast("RawContext", context),
            )
        except Refusal as refusal:
            return str(refusal)
        return seen[0]

    assert asyncio.run(run()) == told


LONG_NAMES: dict[str, Message] = {
    "DescribeTopic": broker_pb2.DescribeTopicRequest(name="x" * 128),
    "CreateTopic": broker_pb2.CreateTopicRequest(name="x" * 128),
    "ReadProgress": delivery_pb2.ReadProgressRequest(consumer_group="x" * 121),
    "CreateConsumerGroup": delivery_pb2.CreateConsumerGroupRequest(name="x" * 121),
    "Trim": broker_pb2.TrimRequest(queue=broker_pb2.QueueRef(topic_id=bytes(17))),
}


@pytest.mark.parametrize("name", LONG_NAMES)
def test_the_gate_remembers_no_long_name(name: str) -> None:
    """Nor does the audit note it: a user without rights could fill memory and disk."""
    assert asyncio.run(outcome(user_of("bob"), name, LONG_NAMES[name])) == "INVALID_ARGUMENT"


def test_users_are_for_administrators_and_their_keys_for_members() -> None:
    needs = {row.name: row.rule for row in ROWS if row.service == "Users"}
    assert needs == {
        **dict.fromkeys(("Put", "Delete", "Describe", "List"), rules.ADMINISTRATORS),
        **dict.fromkeys(("Pull", "Follow"), rules.MEMBERS),
    }


def test_nobody_makes_users_before_users_are_on() -> None:
    """Else a client would be an administrator already when they are turned on."""

    async def run() -> None:
        (row,) = (row for row in ROWS if row.service == "Users" and row.name == "Put")
        calls = gated()
        calls.gate.is_on = False
        with pytest.raises(Refusal, match=r"^NO_PERMISSION$"):
            await calls.answer(row, b"", cast("RawContext", Stranger()))

    asyncio.run(run())


def test_a_member_that_asks_for_no_users_says_so() -> None:
    """A client with a user takes that for leave to call without a login, as at a name server."""

    async def run() -> None:
        (row,) = (row for row in ROWS if row.service == "Login" and row.name == "Begin")
        calls = gated()
        calls.gate.is_on = False
        with pytest.raises(Refusal, match=r"^UNIMPLEMENTED$"):
            await calls.answer(row, b"", cast("RawContext", Stranger()))

    asyncio.run(run())
