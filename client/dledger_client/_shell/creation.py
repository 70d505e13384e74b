"""Creating a topic in two steps, so that no late copy of it brings back what was deleted since.

Owns the order: the first call tells an index of the control group's log, before anybody could know
the topic's id; the second names it. A copy of the first creates nothing, a copy of the second is
refused when deletions above that index are forgotten, and by the topic's row before that.
"""

import asyncio

from dledger_client._shell import calls
from dledger_client._shell.cluster import Cluster
from dledger_proto.v1 import broker_pb2 as pb


async def create_topic(
    cluster: Cluster, request: pb.CreateTopicRequest, *, group: str
) -> pb.CreateTopicReply:
    """Create the topic that a request names, with the caller's id; ClientError.

    Both steps share the budget of one call. The reply has a topic.
    """
    loop = asyncio.get_running_loop()
    budget_ms = cluster.config.call_timeout_ms
    deadline = loop.time() + budget_ms / 1_000
    looked = await cluster.call(
        calls.LOOK_BEFORE_CREATION, request, group=group, timeout_ms=budget_ms
    )
    if looked.HasField("topic"):
        return looked
    wanted = pb.CreateTopicRequest()
    wanted.CopyFrom(request)
    wanted.known_index = looked.known_index
    left_ms = max(1.0, (deadline - loop.time()) * 1_000)
    return await cluster.call(calls.CREATE_TOPIC, wanted, group=group, timeout_ms=left_ms)
