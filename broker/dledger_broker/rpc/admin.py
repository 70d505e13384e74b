"""The unary calls of `dledger.v1.Admin`: topics, trimming and holds, status, leadership.

Owns the translation of protobuf. Not owned: what topics are (`cluster.topic_authority`), what a
trim (`usecases.messaging`) or a hold (`usecases.holds`) does, which member executes a call
(`table`, `calls`).
"""

from dledger.types import MemberId
from dledger_broker.cluster.topic_authority import TopicAuthority
from dledger_broker.cluster.topic_pages import topics_page
from dledger_broker.group.group_view import CALL_SECONDS_MAX
from dledger_broker.rpc.calls import Call
from dledger_broker.rpc.status import status_reply
from dledger_broker.rpc.topic_proto import topic_to_proto
from dledger_broker.security import deciding
from dledger_broker.security.gate import EVERYBODY
from dledger_broker.usecases import holds
from dledger_broker.usecases.queues import resolve
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import SCRUB_RATE_MIN
from dledger_proto.v1 import broker_pb2 as pb


def _authority(call: Call) -> TopicAuthority:
    authority = call.group.authority
    assert authority is not None, f"group {call.group_name} is not the control group"
    return authority


async def create_topic(call: Call, request: pb.CreateTopicRequest) -> pb.CreateTopicReply:
    """Create a topic."""
    return await _authority(call).create(request)


async def update_topic(call: Call, request: pb.UpdateTopicRequest) -> pb.TopicReply:
    """Change permission, read queues or layout of a topic."""
    topic, missing = await _authority(call).update(request)
    return pb.TopicReply(topic=topic_to_proto(topic), missing_groups=missing)


async def delete_topic(call: Call, request: pb.DeleteTopicRequest) -> pb.TopicReply:
    """Delete a topic."""
    topic, missing = await _authority(call).delete(request)
    return pb.TopicReply(topic=topic_to_proto(topic), missing_groups=missing)


async def describe_topic(call: Call, request: pb.DescribeTopicRequest) -> pb.TopicReply:
    """Return a topic as a quorum confirms it."""
    topic = await call.messaging.topic_now(request.name, CALL_SECONDS_MAX)
    return pb.TopicReply(topic=topic_to_proto(topic))


async def list_topics(call: Call, request: pb.ListTopicsRequest) -> pb.ListTopicsReply:
    """Return a page of the topics, as a quorum confirms them."""
    view = call.messaging.view
    await view.confirm(CALL_SECONDS_MAX)
    reply = topics_page(view, request)
    if call.caller is not EVERYBODY:
        known = [each for each in reply.topics if call.caller.knows(deciding.topic(each.name))]
        del reply.topics[:]
        reply.topics.extend(known)
    return reply


def follows_control_group(call: Call, _request: pb.PullTopicsRequest) -> None:
    """Refuse the control group: it takes over no decisions."""
    if call.group.follower is None:
        raise DledgerError(Code.WRONG_GROUP, "the control group decides, it never imports")


async def pull_topics(call: Call, request: pb.PullTopicsRequest) -> pb.PullTopicsReply:
    """Take over a decision of the control group now."""
    follower = call.group.follower
    assert follower is not None, "the check has seen it"
    await follower.pull(request.topic_id, request.control_index, call.seconds_left())
    return pb.PullTopicsReply()


async def trim(call: Call, request: pb.TrimRequest) -> pb.TrimReply:
    """Move a queue's minimum up."""
    trimmed = await call.messaging.trim(
        await resolve(call.messaging, request.queue), request.offset
    )
    return pb.TrimReply(
        minimum=trimmed.minimum, held_by=trimmed.held_by, held_until_ms=trimmed.held_until_ms
    )


async def hold(call: Call, request: pb.HoldRequest) -> pb.HoldReply:
    """Place, renew or release a hold on one queue."""
    return await holds.hold(call.messaging, request)


async def hold_all(call: Call, request: pb.HoldAllRequest) -> pb.HoldAllReply:
    """Place, renew or release holds on many queues."""
    return await holds.hold_all(call.messaging, request)


async def list_holds(call: Call, request: pb.ListHoldsRequest) -> pb.ListHoldsReply:
    """Return a page of the holds that last."""
    return await holds.list_holds(call.messaging, request)


async def group_status(call: Call, _request: pb.StatusRequest) -> pb.StatusReply:
    """Return what this member knows of itself and its group, also before the group has formed."""
    group = call.group
    problem = group.follower.problem if group.follower is not None else ""
    view = group.messaging.view
    return status_reply(view, group.flush_mode, problem, security=group.security)


async def scrub(call: Call, request: pb.ScrubRequest) -> pb.ScrubReply:
    """Begin a scrub of this member."""
    if 0 < request.bytes_per_second < SCRUB_RATE_MIN:
        raise invalid(
            f"bytes_per_second {request.bytes_per_second}, must be 0 or at least {SCRUB_RATE_MIN}"
        )
    return pb.ScrubReply(number=call.messaging.view.scrub_now(request.bytes_per_second))


def names_a_member(call: Call, request: pb.TransferLeadershipRequest) -> None:
    """Refuse a target that is no member of the group."""
    members = call.messaging.view.names.addresses
    if request.target and request.target not in members:
        raise invalid(f"target {request.target!r}: members are {', '.join(members)}")


async def transfer_leadership(
    call: Call, request: pb.TransferLeadershipRequest
) -> pb.TransferLeadershipReply:
    """Hand leadership to another member."""
    view = call.messaging.view
    target = MemberId(request.target) if request.target else None
    if target == view.names.member:
        await view.host.read_barrier()  # this member may not know yet that it was deposed
    leader = await view.host.transfer(target)
    return pb.TransferLeadershipReply(leader=leader or "", term=view.host.group.term)


async def lift_quarantine(call: Call, request: pb.LiftQuarantineRequest) -> pb.LiftQuarantineReply:
    """End this member's quarantine, as an operator has decided (D18)."""
    view = call.messaging.view
    if request.member != view.names.member:
        raise invalid(f"this is member {view.names.member!r}; send the call to {request.member!r}")
    view.host.lift_quarantine(view.names.member, request.i_accept_possible_loss)
    return pb.LiftQuarantineReply()
