"""Administration of consumer groups and users: what every admin has beside its own calls.

`administration.py` is generated from this file by `client/generate_sync.py`. Owns: the connection
of an admin, and its calls about consumer groups and users. Not: topics, members, lookups
(`admin_async.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self, Unpack

from dledger_client import _machine
from dledger_client._core.consumer.state import Place
from dledger_client._core.users import (
    User,
    UserChange,
    change_of,
    check_user,
    credentials_of,
    user_of,
    user_request,
)
from dledger_client._shell import calls
from dledger_client._shell.cluster import Cluster
from dledger_client._shell.group.admin import GroupProgress, ResetTo
from dledger_client._shell.group.dead_letters import DeadLetters, LetterFilter
from dledger_client._shell.group.describing import describe
from dledger_client._shell.group.objects import ConsumerGroups, group_of
from dledger_client._shell.queries import Queries
from dledger_client._shell.wire import parse_addresses
from dledger_client.config import ConnectionConfig
from dledger_client.errors import UserExists
from dledger_client.model import (
    ConsumerGroup,
    ConsumerGroupSettings,
    DeadRecord,
    GroupDescription,
    QueueProgress,
    SettledRecords,
)
from dledger_proto.login.derivation import SALT_SIZE
from dledger_proto.v1 import users_pb2 as upb

CREATIONS_MAX: Final = 10
"""Tries to create a user, each in a newer list: others changed users before the last one came."""


class AsyncGroupAdministration:
    """Consumer groups, their offsets, their dead letters; users."""

    def __init__(
        self, bootstrap: str | Iterable[str], config: ConnectionConfig | None = None
    ) -> None:
        self._cluster = Cluster(parse_addresses(bootstrap), config or ConnectionConfig())
        self._queries = Queries(self._cluster)
        self._progress = GroupProgress(self._cluster, self._queries)
        self._groups = ConsumerGroups(self._cluster, self._queries)
        self._dead_letters = DeadLetters(self._cluster)
        self._budget = self._cluster.config.call_timeout_ms / 1_000

    async def start(self) -> Self:
        """Connect, in the background; `async with` does it. Returns itself."""
        self._cluster.start()
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; calls that wait end as ClientClosed."""
        await self._cluster.close()

    # Consumer groups, and how far they are.

    async def create_consumer_group(
        self, name: str, **settings: Unpack[ConsumerGroupSettings]
    ) -> ConsumerGroup:
        """Create a consumer group; what is left out of the settings has the cluster's default.

        The same group again is no error; ConsumerGroupExists when it exists with other settings.
        """
        return group_of(await self._groups.create(name, settings))

    async def update_consumer_group(
        self, name: str, **settings: Unpack[ConsumerGroupSettings]
    ) -> ConsumerGroup:
        """Change the settings that are given; the others stay as they are."""
        return await self._groups.update(name, settings)

    async def delete_consumer_group(self, name: str) -> ConsumerGroup:
        """Delete a consumer group with its offsets, retries and dead letters; return it."""
        return await self._groups.delete(name)

    async def consumer_group(self, name: str) -> ConsumerGroup:
        """Return a consumer group as the control group has it; ConsumerGroupNotFound."""
        return await self._groups.find(name)

    async def consumer_groups(self) -> list[ConsumerGroup]:
        """Return all consumer groups as the control group has them, by name."""
        return await self._groups.all()

    async def read_offsets(self, consumer_group: str, topic: str) -> dict[int, int]:
        """Return a consumer group's offsets, the next to consume, by queue; none: left out."""
        places = await self._queries.places(topic)
        found = await self._queries.committed(consumer_group, places)
        return {queue: offset for (_, queue), offset in found.items()}

    async def commit_offsets(
        self, consumer_group: str, offsets: Mapping[Place, int], *, reset: bool = False
    ) -> None:
        """Store a consumer group's offsets; without `reset` OffsetBehind for one that goes back."""
        await self._queries.commit(consumer_group, offsets, reset=reset)

    async def group_progress(self, consumer_group: str, topic: str) -> dict[int, QueueProgress]:
        """Return how far a consumer group is in each queue of a topic, and what waits there."""
        places = await self._queries.places(topic)
        found = await self._progress.read(consumer_group, places)
        return {queue: found[topic, queue] for _, queue in places}

    async def topics_of_group(self, consumer_group: str) -> list[str]:
        """Return the topics in which a consumer group has an offset, also without consumers.

        It asks for every queue of the cluster.
        """
        return await self._progress.topics(consumer_group)

    async def describe_consumer_group(self, consumer_group: str) -> GroupDescription:
        """Return the consumers of a group, and who has which queue."""
        return await describe(self._cluster, consumer_group)

    async def reset_offsets(
        self,
        consumer_group: str,
        topic: str,
        *,
        to: str = "",
        time_ms: int | None = None,
        offset: int | None = None,
        delta: int | None = None,
        queues: Sequence[int] = (),
    ) -> dict[int, int]:
        """Move a consumer group in a topic, forward or back; return the new floors by queue.

        To "earliest", to "latest" (which skips the backlog), to the first record stored at
        `time_ms` or later, to an `offset`, or by `delta` records, as far as there are any. In all
        queues, or in some. It works with consumers and without: those that run begin there at once,
        and none commits over it. Nothing is moved when an offset is out of range.
        """
        places = await self._queries.places(topic)
        if queues:
            places = [(topic, queue) for queue in queues]
        target = ResetTo(to, time_ms, offset, delta)
        moved = await self._progress.reset(consumer_group, places, target)
        return {queue: floor for (_, queue), floor in moved.items()}

    async def clone_offsets(self, source: str, target: str, topic: str) -> dict[int, int]:
        """Move a consumer group to where another one is; return the new floors by queue."""
        places = await self._queries.places(topic)
        moved = await self._progress.clone(source, target, places)
        return {queue: floor for (_, queue), floor in moved.items()}

    async def resume_consumer_group(self, consumer_group: str) -> dict[str, str]:
        """End the pauses that waves of failures began; return why, by broker group."""
        return await self._progress.resume(consumer_group)

    # Dead letters.

    async def dead_letters(
        self,
        consumer_group: str,
        *,
        since_ms: int = 0,
        until_ms: int = 0,
        key: str = "",
        error: str = "",
        limit: int = 100,
    ) -> list[DeadRecord]:
        """Return up to `limit` dead letters that are not settled; of each broker group, by age.

        Those that died at `since_ms` or later and before `until_ms` (0: no end), that have this
        key, and whose last error holds this text. `lookup_offset` gives the message of one.
        """
        wanted = LetterFilter(since_ms, until_ms, key, error, limit)
        return [dead async for dead in self._dead_letters.found(consumer_group, wanted)]

    async def dead_letter(
        self, consumer_group: str, broker_group: str, dead_offset: int
    ) -> DeadRecord | None:
        """Return the dead letter at an offset of a broker group; None when it is settled."""
        return await self._dead_letters.one(consumer_group, broker_group, dead_offset)

    async def resend_dead_letters(
        self,
        consumer_group: str,
        *,
        since_ms: int = 0,
        until_ms: int = 0,
        key: str = "",
        error: str = "",
        limit: int = 1_000_000,
        rate: float = 0,
        resent_max: int = 3,
        dry_run: bool = False,
    ) -> SettledRecords:
        """Send dead letters to their consumer group again, each once, with all its tries.

        At most `rate` a second (0: as fast as it goes). Those that were sent again `resent_max`
        times stay (0: none stays). A job that was broken off is run again: what was sent is not
        sent twice. With `dry_run` nothing is sent.
        """
        wanted = LetterFilter(since_ms, until_ms, key, error, limit)
        done = await self._dead_letters.resend(
            consumer_group, wanted, rate=rate, resent_max=resent_max, dry_run=dry_run
        )
        if not dry_run:
            await self._progress.nudge(consumer_group)
        return done

    async def purge_dead_letters(
        self,
        consumer_group: str,
        *,
        since_ms: int = 0,
        until_ms: int = 0,
        key: str = "",
        error: str = "",
        limit: int = 1_000_000,
    ) -> SettledRecords:
        """Drop dead letters for good."""
        wanted = LetterFilter(since_ms, until_ms, key, error, limit)
        return await self._dead_letters.purge(consumer_group, wanted)

    # Users.

    async def put_user(
        self,
        user: User,
        *,
        secret: str = "",
        secret_is_drawn: bool = False,
        create: bool = False,
        known_revision: int = 0,
    ) -> UserChange:
        """Create a user, or replace what it may do; without a secret it keeps its own.

        The secret stays here: a member gets keys from which nobody can log in. A secret that a
        person chose has at least 16 characters; `secret_is_drawn` says that it is random, and saves
        time at each login. With `known_revision`, of `describe_user`, UserExists when users have
        changed since. UserNotFound, or with `create` UserExists. A creation names the list that
        it read first: a late copy of it brings back no user that was deleted meanwhile.
        """
        request = upb.PutUserRequest(
            user=user_request(user), create=create, known_revision=known_revision
        )
        if secret or create:
            salt = _machine.random_bytes(SALT_SIZE)
            request.user.credentials.CopyFrom(
                credentials_of(secret, salt, is_drawn=secret_is_drawn)
            )
        group = await self._queries.control_group()
        if create and not known_revision:
            return await self._create_user(request, group)
        return await self._put_user(request, group)

    async def _create_user(self, request: upb.PutUserRequest, group: str) -> UserChange:
        """Create a user in the newest list: in a newer one, when others change users meanwhile."""
        refused: UserExists | None = None
        for _ in range(CREATIONS_MAX):
            newest = await self._cluster.call(
                calls.LIST_USERS, upb.ListUsersRequest(limit=1), group=group
            )
            if refused is not None and newest.revision <= request.known_revision:
                break  # the list is the one that was named, so the user is in it
            request.known_revision = newest.revision
            try:
                return await self._put_user(request, group)
            except UserExists as error:
                refused = error
        assert refused is not None, "each round returns, or is refused"
        raise refused

    async def _put_user(self, request: upb.PutUserRequest, group: str) -> UserChange:
        method = calls.PUT_USER if request.known_revision else calls.CHANGE_USER
        return change_of(await self._cluster.call(method, request, group=group))

    async def delete_user(self, name: str) -> UserChange:
        """Delete a user; its logins end. UserNotFound."""
        check_user(name)
        request, group = upb.DeleteUserRequest(name=name), await self._queries.control_group()
        return change_of(await self._cluster.call(calls.DELETE_USER, request, group=group))

    async def describe_user(self, name: str) -> UserChange:
        """Return a user, without its credentials; UserNotFound."""
        check_user(name)
        request, group = upb.DescribeUserRequest(name=name), await self._queries.control_group()
        return change_of(await self._cluster.call(calls.DESCRIBE_USER, request, group=group))

    async def list_users(self) -> list[User]:
        """Return all users by name, without their credentials."""
        request, group = upb.ListUsersRequest(), await self._queries.control_group()
        found: list[User] = []
        while True:
            reply = await self._cluster.call(calls.LIST_USERS, request, group=group)
            found += map(user_of, reply.users)
            if not reply.more:
                return found
            request.after = reply.users[-1].name
