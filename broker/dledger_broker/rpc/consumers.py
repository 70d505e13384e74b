"""The unary calls of `dledger.v1.Delivery` about the consumers of a consumer group.

Not owned: what is told (`delivery.group_proto`), which member executes a call (`table`, `calls`).
"""

from dledger_broker.cluster.group_expiry import unused_here
from dledger_broker.delivery.grants import granted
from dledger_broker.delivery.group_proto import described
from dledger_broker.rpc.calls import Call
from dledger_proto.v1 import delivery_pb2 as pb


async def describe(
    call: Call, request: pb.DescribeConsumerGroupRequest
) -> pb.DescribeConsumerGroupReply:
    """Return who is in a consumer group, and who has which queue."""
    await call.messaging.view.confirm()
    return described(call.messaging.view, call.coordinator.led_by_name(request.name))


async def nudge(call: Call, request: pb.NudgeConsumersRequest) -> pb.NudgeConsumersReply:
    """Tell all consumers of a group to claim their queues again."""
    await call.messaging.view.confirm()
    return pb.NudgeConsumersReply(told=call.coordinator.led_by_name(request.name).nudge())


async def check_grants(call: Call, request: pb.CheckGrantsRequest) -> pb.CheckGrantsReply:
    """Say which queues a consumer has, and by which epochs."""
    await call.messaging.view.confirm()
    retry, settings = call.coordinator.find(request.consumer_group)
    return await granted(call.messaging.view, retry, settings, request)


async def check_unused_groups(
    call: Call, request: pb.CheckUnusedGroupsRequest
) -> pb.CheckUnusedGroupsReply:
    """Say which consumer groups are unused in this broker group."""
    return pb.CheckUnusedGroupsReply(unused=await unused_here(call.messaging.view, request))
