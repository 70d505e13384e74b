"""`dledger.v1.Admin`: topics, trimming and holds, status, leadership, the log's fingerprint.

Owns the translation of protobuf and the way of topic calls to the control group, wherever it is.
Not owned: what topics are (`topics`), who executes a write (`calls`).
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Final, TypeVar

import grpc.aio
from google.protobuf.message import Message

from dledger.types import MemberId
from dledger_broker.cluster.topic_authority import TopicAuthority
from dledger_broker.cluster.topic_follower import TopicFollower
from dledger_broker.cluster.topic_pages import topics_page
from dledger_broker.read.log_entries import log_entries
from dledger_broker.read.plan_reads import hold_all
from dledger_broker.rpc.calls import DEADLINE_MAX_SECONDS, Call, Calls, Method
from dledger_broker.rpc.status import status_reply
from dledger_broker.rpc.topic_proto import topic_to_proto
from dledger_broker.usecases.holds import list_holds
from dledger_broker.usecases.messaging import Messaging
from dledger_proto.errors import Code, DledgerError
from dledger_proto.rpc import status
from dledger_proto.rpc.stall import within_stall_limit
from dledger_proto.v1 import broker_pb2 as pb
from dledger_proto.v1 import broker_pb2_grpc

CREATE: Final = Method[pb.CreateTopicRequest, pb.CreateTopicReply](
    "Admin", "CreateTopic", pb.CreateTopicReply
)
UPDATE: Final = Method[pb.UpdateTopicRequest, pb.TopicReply]("Admin", "UpdateTopic", pb.TopicReply)
DELETE: Final = Method[pb.DeleteTopicRequest, pb.TopicReply]("Admin", "DeleteTopic", pb.TopicReply)
PULL: Final = Method[pb.PullTopicsRequest, pb.PullTopicsReply](
    "Admin", "PullTopics", pb.PullTopicsReply
)
TRIM: Final = Method[pb.TrimRequest, pb.TrimReply]("Admin", "Trim", pb.TrimReply)
HOLD: Final = Method[pb.HoldRequest, pb.HoldReply]("Admin", "Hold", pb.HoldReply)
HOLD_ALL: Final = Method[pb.HoldAllRequest, pb.HoldAllReply]("Admin", "HoldAll", pb.HoldAllReply)
TRANSFER: Final = Method[pb.TransferLeadershipRequest, pb.TransferLeadershipReply](
    "Admin", "TransferLeadership", pb.TransferLeadershipReply
)

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)


class AdminService(broker_pb2_grpc.AdminServicer):
    """Administration of the groups hosted here."""

    def __init__(
        self,
        calls: Calls,
        control_group: str,
        authority: TopicAuthority | None,
        followers: Mapping[str, TopicFollower],
        control_addresses: Callable[[], list[str]],
        lift: Callable[[Messaging, str, str], None],
        flush_mode: str,
        version: str,
    ) -> None:
        self._calls = calls
        self._control_group = control_group
        self._authority = authority
        self._followers = followers
        self._control_addresses = control_addresses
        self._lift = lift
        self._flush_mode = flush_mode
        self._version = version

    # Topics: decided by the control group.

    async def CreateTopic(  # noqa: N802 - the wire's names
        self,
        request: pb.CreateTopicRequest,
        context: "grpc.aio.ServicerContext[pb.CreateTopicRequest, pb.CreateTopicReply]",
    ) -> pb.CreateTopicReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.CreateTopicReply:
            async def execute(authority: TopicAuthority) -> pb.CreateTopicReply:
                return await authority.create(request)

            return await self._at_control(call, CREATE, request, execute)

        return await self._calls.answer(context, self._calls.admission.admin_calls, run)

    async def UpdateTopic(  # noqa: N802
        self,
        request: pb.UpdateTopicRequest,
        context: "grpc.aio.ServicerContext[pb.UpdateTopicRequest, pb.TopicReply]",
    ) -> pb.TopicReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.TopicReply:
            async def execute(authority: TopicAuthority) -> pb.TopicReply:
                topic, missing = await authority.update(request)
                return pb.TopicReply(topic=topic_to_proto(topic), missing_groups=missing)

            return await self._at_control(call, UPDATE, request, execute)

        return await self._calls.answer(context, self._calls.admission.admin_calls, run)

    async def DeleteTopic(  # noqa: N802
        self,
        request: pb.DeleteTopicRequest,
        context: "grpc.aio.ServicerContext[pb.DeleteTopicRequest, pb.TopicReply]",
    ) -> pb.TopicReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.TopicReply:
            async def execute(authority: TopicAuthority) -> pb.TopicReply:
                topic, missing = await authority.delete(request)
                return pb.TopicReply(topic=topic_to_proto(topic), missing_groups=missing)

            return await self._at_control(call, DELETE, request, execute)

        return await self._calls.answer(context, self._calls.admission.admin_calls, run)

    async def _at_control(
        self,
        call: Call,
        method: Method[Request, Reply],
        request: Request,
        execute: Callable[[TopicAuthority], Awaitable[Reply]],
    ) -> Reply:
        messaging = self._calls.groups.get(self._control_group)
        authority = self._authority
        if messaging is not None and authority is not None:
            return await self._calls.on_leader(
                call, messaging, method, request, lambda: execute(authority)
            )
        if call.is_forwarded:
            raise DledgerError(
                Code.WRONG_GROUP, f"control group {self._control_group} is not served here"
            )
        for address in self._control_addresses()[:1]:
            return await self._calls.forward(
                call, address, self._control_group, method, request, forwarded=False
            )
        raise DledgerError(
            Code.UNAVAILABLE, f"no member of the control group {self._control_group} is known here"
        )

    async def DescribeTopic(  # noqa: N802
        self,
        request: pb.DescribeTopicRequest,
        context: "grpc.aio.ServicerContext[pb.DescribeTopicRequest, pb.TopicReply]",
    ) -> pb.TopicReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.TopicReply:
            messaging = self._calls.group_of(call)
            topic = await messaging.topic_now(request.name, DEADLINE_MAX_SECONDS)
            return pb.TopicReply(topic=topic_to_proto(topic))

        return await self._calls.answer(context, self._calls.admission.admin_calls, run)

    async def ListTopics(  # noqa: N802
        self,
        request: pb.ListTopicsRequest,
        context: "grpc.aio.ServicerContext[pb.ListTopicsRequest, pb.ListTopicsReply]",
    ) -> pb.ListTopicsReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.ListTopicsReply:
            view = self._calls.group_of(call).view
            await view.confirm(DEADLINE_MAX_SECONDS)
            return topics_page(view, request)

        return await self._calls.answer(context, self._calls.admission.admin_calls, run)

    async def PullTopics(  # noqa: N802
        self,
        request: pb.PullTopicsRequest,
        context: "grpc.aio.ServicerContext[pb.PullTopicsRequest, pb.PullTopicsReply]",
    ) -> pb.PullTopicsReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.PullTopicsReply:
            messaging = self._calls.group_of(call)
            follower = self._followers.get(messaging.view.names.group)
            if follower is None:
                raise DledgerError(Code.WRONG_GROUP, "the control group decides, it never imports")

            async def execute() -> pb.PullTopicsReply:
                seconds = call.seconds_left()
                await follower.pull(request.topic_id, request.control_index, seconds)
                return pb.PullTopicsReply()

            return await self._calls.on_leader(call, messaging, PULL, request, execute)

        return await self._calls.answer(context, self._calls.admission.admin_calls, run)

    # The head of the log.

    async def Trim(  # noqa: N802
        self,
        request: pb.TrimRequest,
        context: "grpc.aio.ServicerContext[pb.TrimRequest, pb.TrimReply]",
    ) -> pb.TrimReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.TrimReply:
            messaging = self._calls.group_of(call)

            async def execute() -> pb.TrimReply:
                ref = request.queue
                queue = await messaging.resolve(ref.topic, ref.topic_id, ref.queue)
                trimmed = await messaging.trim(queue, request.offset)
                return pb.TrimReply(
                    minimum=trimmed.minimum,
                    held_by=trimmed.held_by,
                    held_until_ms=trimmed.held_until_ms,
                )

            return await self._calls.on_leader(call, messaging, TRIM, request, execute)

        return await self._calls.answer(context, self._calls.admission.admin_calls, run)

    async def Hold(  # noqa: N802
        self,
        request: pb.HoldRequest,
        context: "grpc.aio.ServicerContext[pb.HoldRequest, pb.HoldReply]",
    ) -> pb.HoldReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.HoldReply:
            messaging = self._calls.group_of(call)

            async def execute() -> pb.HoldReply:
                ref = request.queue
                queue = await messaging.resolve(ref.topic, ref.topic_id, ref.queue)
                until_ms = await messaging.hold(
                    request.owner, queue, request.offset, request.ttl_ms
                )
                return pb.HoldReply(until_ms=until_ms)

            return await self._calls.on_leader(call, messaging, HOLD, request, execute)

        return await self._calls.answer(context, self._calls.admission.admin_calls, run)

    async def HoldAll(  # noqa: N802
        self,
        request: pb.HoldAllRequest,
        context: "grpc.aio.ServicerContext[pb.HoldAllRequest, pb.HoldAllReply]",
    ) -> pb.HoldAllReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.HoldAllReply:
            messaging = self._calls.group_of(call)

            async def execute() -> pb.HoldAllReply:
                return await hold_all(messaging, request)

            return await self._calls.on_leader(call, messaging, HOLD_ALL, request, execute)

        return await self._calls.answer(context, self._calls.admission.admin_calls, run)

    async def ListHolds(  # noqa: N802
        self,
        request: pb.ListHoldsRequest,
        context: "grpc.aio.ServicerContext[pb.ListHoldsRequest, pb.ListHoldsReply]",
    ) -> pb.ListHoldsReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.ListHoldsReply:
            return await list_holds(self._calls.group_of(call), request)

        return await self._calls.answer(context, self._calls.admission.admin_calls, run)

    # The group.

    async def Status(  # noqa: N802
        self,
        request: pb.StatusRequest,  # noqa: ARG002 - it has no fields
        context: "grpc.aio.ServicerContext[pb.StatusRequest, pb.StatusReply]",
    ) -> pb.StatusReply:
        """See broker.proto. Answered also while draining, and before the group has formed."""
        try:
            call = Call(context, self._calls.clock)
            messaging = self._calls.group_of(call)
            follower = self._followers.get(messaging.view.names.group)
            problem = follower.problem if follower is not None else ""
            return status_reply(messaging.view, self._flush_mode, self._version, problem)
        except DledgerError as error:
            await status.abort(context, error)

    async def TransferLeadership(  # noqa: N802
        self,
        request: pb.TransferLeadershipRequest,
        context: (
            "grpc.aio.ServicerContext[pb.TransferLeadershipRequest, pb.TransferLeadershipReply]"
        ),
    ) -> pb.TransferLeadershipReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.TransferLeadershipReply:
            messaging = self._calls.group_of(call)
            view = messaging.view
            if request.target and request.target not in view.names.addresses:
                raise DledgerError(
                    Code.INVALID_ARGUMENT,
                    f"target {request.target!r}: members are {', '.join(view.names.addresses)}",
                )

            async def execute() -> pb.TransferLeadershipReply:
                target = MemberId(request.target) if request.target else None
                if target == view.names.member:
                    await view.host.read_barrier()  # it may not know yet that it was deposed
                leader = await view.host.transfer(target)
                return pb.TransferLeadershipReply(leader=leader or "", term=view.host.group.term)

            return await self._calls.on_leader(call, messaging, TRANSFER, request, execute)

        return await self._calls.answer(context, self._calls.admission.admin_calls, run)

    async def LiftQuarantine(  # noqa: N802
        self,
        request: pb.LiftQuarantineRequest,
        context: "grpc.aio.ServicerContext[pb.LiftQuarantineRequest, pb.LiftQuarantineReply]",
    ) -> pb.LiftQuarantineReply:
        """See broker.proto."""

        async def run(call: Call) -> pb.LiftQuarantineReply:
            messaging = self._calls.group_of(call)
            self._lift(messaging, request.member, request.i_accept_possible_loss)
            return pb.LiftQuarantineReply()

        return await self._calls.answer(context, self._calls.admission.admin_calls, run)

    # A coroutine that writes: the time of each message is limited.
    async def LogEntries(  # type: ignore[override] # noqa: N802 # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        request: pb.LogEntriesRequest,
        context: "grpc.aio.ServicerContext[pb.LogEntriesRequest, pb.LogEntriesReply]",
    ) -> None:
        """See broker.proto."""
        write = within_stall_limit(context.write, "ask again from the last index")
        try:
            with self._calls.admission.log_streams.held():
                messaging = self._calls.group_of(Call(context, self._calls.clock))
                replies = log_entries(messaging.view, request.from_index)
                async with aclosing(replies):
                    async for reply in replies:
                        await write(reply)
        except DledgerError as error:
            await status.abort(context, error)
