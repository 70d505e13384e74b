"""What the control group's leader does about users.

Owns: proposing changes, and telling each other group at once that there is a list to fetch. Not
owned: the rules of a user (`dledger.state.users`), how a group takes a list over (`following`).
"""

from typing import Final

import structlog

from dledger.state.commands.command import Command
from dledger.state.results import UserChanged
from dledger.state.users.commands import DeleteUser, PutMode, PutUser
from dledger.state.users.values import User, check_user
from dledger_broker.cluster.channels import Channels
from dledger_broker.cluster.telling import Telling
from dledger_broker.cluster.view import ClusterView
from dledger_broker.group.group_view import CALL_SECONDS_MAX, GroupView
from dledger_broker.users.user_proto import user_from_proto, user_to_proto
from dledger_proto.errors import Code, DledgerError, invalid
from dledger_proto.limits import TOPICS_PAGE_SIZE
from dledger_proto.v1 import users_pb2 as pb

PULL_METHOD: Final = "/dledger.v1.Users/Pull"
USERS_PER_PAGE_MAX: Final = 256
ROW_OVERHEAD: Final = 8
"""Tag and length of a user in its answer, at most."""


class UserAuthority:
    """Decides about users."""

    def __init__(self, view: GroupView, cluster_view: ClusterView, channels: Channels) -> None:
        self._view = view
        self._telling = Telling(view, cluster_view, channels)
        self._log = structlog.get_logger().bind(group=view.names.group)

    async def put(self, request: pb.PutUserRequest) -> pb.UserReply:
        """Create or change a user; without credentials a user that exists keeps its own."""
        await self._view.confirm(CALL_SECONDS_MAX)
        queries = self._view.machine.queries
        revision = queries.users_revision
        if request.known_revision > revision:
            raise invalid(f"known_revision {request.known_revision}, at most {revision} here")
        known = queries.user(request.user.name)
        credentials = None
        if not request.user.HasField("credentials"):
            if request.create:
                raise invalid(f"user {request.user.name!r}: has no credentials")
            credentials = self._existing(known, request.user.name).credentials
        user = user_from_proto(request.user, credentials)
        check_user(user)
        mode = PutMode.CREATE if request.create else PutMode.CHANGE
        known_revision = request.known_revision or (0 if request.create else revision)
        return await self._changed(PutUser(mode, user, known_revision), user)

    async def delete(self, request: pb.DeleteUserRequest) -> pb.UserReply:
        """Delete a user; the reply has it as it was."""
        await self._view.confirm(CALL_SECONDS_MAX)
        known = self._existing(self._view.machine.queries.user(request.name), request.name)
        return await self._changed(DeleteUser(request.name), known)

    async def describe(self, request: pb.DescribeUserRequest) -> pb.UserReply:
        """Return a user as a quorum confirms it."""
        await self._view.confirm(CALL_SECONDS_MAX)
        queries = self._view.machine.queries
        user = self._existing(queries.user(request.name), request.name)
        return pb.UserReply(user=user_to_proto(user), revision=queries.users_revision)

    async def list_all(self, request: pb.ListUsersRequest) -> pb.ListUsersReply:
        """Return a page of the users, without credentials."""
        await self._view.confirm(CALL_SECONDS_MAX)
        limit = min(request.limit or USERS_PER_PAGE_MAX, USERS_PER_PAGE_MAX)
        users, more = self._page(request.after, limit, with_credentials=False)
        revision = self._view.machine.queries.users_revision
        return pb.ListUsersReply(users=users, more=more, revision=revision)

    async def follow(self, request: pb.FollowUsersRequest) -> pb.FollowUsersReply:
        """Return a page of the list for another group, with credentials."""
        view = self._view
        await view.confirm(CALL_SECONDS_MAX)
        revision = view.machine.queries.users_revision
        reply = pb.FollowUsersReply(
            revision=revision,
            confirmed_index=view.machine.applied_index,
            cluster=view.names.cluster,
            group=view.names.group,
            group_id=view.log.group_id,
        )
        if revision != request.known_revision:
            users, more = self._page(request.after, USERS_PER_PAGE_MAX, with_credentials=True)
            reply.users.extend(users)
            reply.more = more
        return reply

    def _page(
        self, after: str, limit: int, *, with_credentials: bool
    ) -> tuple[list[pb.User], bool]:
        """Return users behind a name, at least one, and whether there are others behind them."""
        found = self._view.machine.queries.users(after, limit + 1)
        page: list[pb.User] = []
        size = 0
        for user in found[:limit]:
            wire = user_to_proto(user, with_credentials=with_credentials)
            size += wire.ByteSize() + ROW_OVERHEAD
            if page and size > TOPICS_PAGE_SIZE:
                break
            page.append(wire)
        return page, len(page) < len(found)

    @staticmethod
    def _existing(user: User | None, name: str) -> User:
        if user is None:
            raise DledgerError(Code.USER_NOT_FOUND, f"user {name!r} does not exist")
        return user

    async def _changed(self, command: Command[UserChanged], user: User) -> pb.UserReply:
        changed = await self._view.commands.propose(command)
        request = pb.PullUsersRequest(revision=changed.revision).SerializeToString()
        missing = await self._telling.missing(
            self._telling.others(), lambda group: self._telling.pulled(group, PULL_METHOD, request)
        )
        if missing:
            self._log.warning(
                "some groups do not have the user yet", user=user.name, missing=missing
            )
        return pb.UserReply(
            user=user_to_proto(user), revision=changed.revision, missing_groups=missing
        )
