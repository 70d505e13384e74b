"""Calls about consumer groups as objects of the cluster, to the control group's leader.

Not owned: what the calls do (`cluster.consumer_groups`), which member executes them (`table`,
`calls`). Consumer groups are listed as topics are.
"""

from dledger_broker.cluster.consumer_groups import ConsumerGroupAuthority
from dledger_broker.rpc.calls import Call
from dledger_proto.v1 import delivery_pb2 as pb


def _authority(call: Call) -> ConsumerGroupAuthority:
    authority = call.group.group_authority
    assert authority is not None, f"group {call.group_name} is not the control group"
    return authority


async def create(call: Call, request: pb.CreateConsumerGroupRequest) -> pb.ConsumerGroupReply:
    """Create a consumer group."""
    return await _authority(call).create(request)


async def update(call: Call, request: pb.UpdateConsumerGroupRequest) -> pb.ConsumerGroupReply:
    """Change settings of a consumer group."""
    return await _authority(call).update(request)


async def delete(call: Call, request: pb.DeleteConsumerGroupRequest) -> pb.ConsumerGroupReply:
    """Delete a consumer group."""
    return await _authority(call).delete(request)
