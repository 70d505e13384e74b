"""A group takes the control group's list of users over.

Owns: the pages of one pull, and which answers are believed. Not owned: when a group pulls
(`cluster.topic_follower`), the rules of a range (`dledger.state.users.commands`).
"""

from typing import Final

import grpc
import grpc.aio

from dledger.state.users.commands import ImportUsers
from dledger_broker.cluster.channels import GROUP_KEY, Channels
from dledger_broker.cluster.topic_pages import BadPage, check_history
from dledger_broker.group.group_view import GroupView
from dledger_broker.users.user_proto import user_from_proto
from dledger_proto.network.tls import Callee
from dledger_proto.rpc import raw
from dledger_proto.v1 import users_pb2 as pb

FOLLOW_METHOD: Final = "/dledger.v1.Users/Follow"
PAGE_SECONDS: Final = 2.0
"""How long the leader waits for one member of the control group."""
BEGUN_AGAIN_MAX: Final = 10
"""How often one pull begins again because the list changes while it is read."""
NEXT: Final = "\0"
"""A name with this behind it is the next one that sorts after the name."""


class UserFollower:
    """Takes the list over while this member leads a group that is not the control group."""

    def __init__(self, view: GroupView, control_group: str, channels: Channels) -> None:
        self._view = view
        self._control_group = control_group
        self._channels = channels

    async def follow(self, member: Callee, term: int) -> None:
        """Take over what one member of the control group tells; raise what went wrong.

        A list that changes while it is read is read anew: its pages belong to no one moment.
        """
        for _ in range(BEGUN_AGAIN_MAX):
            if await self._take_list(member, term):
                return
        raise BadPage(f"the list of users changed {BEGUN_AGAIN_MAX} times while it was read")

    async def _take_list(self, member: Callee, term: int) -> bool:
        """Take over the list; False: it changed meanwhile."""
        view = self._view
        queries = view.machine.queries
        known = queries.users_revision
        revision: int | None = None
        after = first = ""
        while True:
            reply = await self._page(
                member, pb.FollowUsersRequest(after=after, known_revision=known)
            )
            if reply is None:
                return True  # it is of an older dledger, which knows no users
            if term != view.host.leadership.term:
                raise view.not_leader()
            check_history(reply, queries.control_id, known)
            self._check(reply, after)
            if reply.revision < known:
                raise BadPage(f"revision {reply.revision} of the users, known is {known}")
            if reply.revision == known:
                return True
            if revision is None:
                revision = reply.revision
            if reply.revision != revision:
                return False
            users = tuple(user_from_proto(user) for user in reply.users)
            if reply.more:
                after = users[-1].name
            end = after + NEXT if reply.more else ""
            await view.commands.propose(ImportUsers(first, end, users, revision, reply.group_id))
            if not reply.more:
                return True
            first = end

    async def _page(
        self, member: Callee, request: pb.FollowUsersRequest
    ) -> pb.FollowUsersReply | None:
        unary = raw.raw_unary(self._channels.to(member), FOLLOW_METHOD)
        metadata = ((GROUP_KEY, self._control_group),)
        try:
            answer = await unary(
                request.SerializeToString(), timeout=PAGE_SECONDS, metadata=metadata
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise
        return pb.FollowUsersReply.FromString(answer)

    def _check(self, reply: pb.FollowUsersReply, after: str) -> None:
        """Raise BadPage unless the configured control group can have given this answer."""
        cluster = self._view.names.cluster
        if (reply.cluster, reply.group) != (cluster, self._control_group):
            raise BadPage(
                f"cluster {reply.cluster!r}, group {reply.group!r} answers, "
                f"not the control group {self._control_group} of {cluster}"
            )
        if reply.revision > reply.confirmed_index:
            raise BadPage(
                f"revision {reply.revision} of the users, confirmed is {reply.confirmed_index}"
            )
        for user in reply.users:
            if user.name <= after:
                raise BadPage(f"user {user.name!r} is out of order, behind {after!r}")
            after = user.name
        if reply.more and not reply.users:
            raise BadPage("a page without users says that there are more")
