"""The calls of `dledger.v1.Users`.

Owns: which group may answer. Not owned: what is decided (`authority`),
how a list is taken over (`cluster.topic_follower`), who may call (`rpc.table`).
"""

from dledger_broker.rpc.calls import Call
from dledger_broker.users.authority import UserAuthority
from dledger_proto.errors import Code, DledgerError
from dledger_proto.v1 import users_pb2 as pb


def _authority(call: Call) -> UserAuthority:
    authority = call.group.user_authority
    assert authority is not None, f"group {call.group_name} is not the control group"
    return authority


async def put(call: Call, request: pb.PutUserRequest) -> pb.UserReply:
    """Create or change a user."""
    return await _authority(call).put(request)


async def delete(call: Call, request: pb.DeleteUserRequest) -> pb.UserReply:
    """Delete a user."""
    return await _authority(call).delete(request)


async def describe(call: Call, request: pb.DescribeUserRequest) -> pb.UserReply:
    """Return a user, without credentials."""
    return await _authority(call).describe(request)


async def list_all(call: Call, request: pb.ListUsersRequest) -> pb.ListUsersReply:
    """Return a page of the users, without credentials."""
    return await _authority(call).list_all(request)


def decides(call: Call, _request: pb.FollowUsersRequest) -> None:
    """Refuse every group but the control group: only its list is followed."""
    if call.group.user_authority is None:
        raise DledgerError(Code.WRONG_GROUP, "only the control group tells of users")


async def follow(call: Call, request: pb.FollowUsersRequest) -> pb.FollowUsersReply:
    """Return a page of the list for another group."""
    return await _authority(call).follow(request)


def follows_control_group(call: Call, _request: pb.PullUsersRequest) -> None:
    """Refuse the control group: it takes over no decisions."""
    if call.group.follower is None:
        raise DledgerError(Code.WRONG_GROUP, "the control group decides, it never imports")


async def pull(call: Call, request: pb.PullUsersRequest) -> pb.PullUsersReply:
    """Take over the list of the control group now."""
    follower = call.group.follower
    assert follower is not None, "the check has seen it"
    await follower.pull_users(request.revision, call.seconds_left())
    return pb.PullUsersReply()
