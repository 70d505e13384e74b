# Generated from administration_async.py by client/generate_sync.py. Change that file, not this one.
"""Administration by blocking calls: each runs its twin of `administration_async.py`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Self, Unpack

from dledger_client._core.consumer.state import Place
from dledger_client._core.users import (
    User,
    UserChange,
)
from dledger_client._shell.group.administration_async import AsyncGroupAdministration
from dledger_client._shell.runner import SyncRunner
from dledger_client.config import ConnectionConfig
from dledger_client.model import (
    ConsumerGroup,
    ConsumerGroupSettings,
    DeadRecord,
    GroupDescription,
    QueueProgress,
    SettledRecords,
)


class GroupAdministration:
    """Consumer groups, their offsets, their dead letters; users."""

    def __init__(
        self, bootstrap: str | Iterable[str], config: ConnectionConfig | None = None
    ) -> None:
        self._group_administration = AsyncGroupAdministration(bootstrap, config)
        self._runner = SyncRunner()

    def start(self) -> Self:
        """Connect, in the background; `with` does it. Returns itself."""
        self._runner.run(self._group_administration.start())
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; calls that wait end as ClientClosed."""
        return self._runner.run(self._group_administration.close())

    # Consumer groups, and how far they are.

    def create_consumer_group(
        self, name: str, **settings: Unpack[ConsumerGroupSettings]
    ) -> ConsumerGroup:
        """Create a consumer group; what is left out of the settings has the cluster's default.

        The same group again is no error; ConsumerGroupExists when it exists with other settings.
        """
        return self._runner.run(self._group_administration.create_consumer_group(name, **settings))

    def update_consumer_group(
        self, name: str, **settings: Unpack[ConsumerGroupSettings]
    ) -> ConsumerGroup:
        """Change the settings that are given; the others stay as they are."""
        return self._runner.run(self._group_administration.update_consumer_group(name, **settings))

    def delete_consumer_group(self, name: str) -> ConsumerGroup:
        """Delete a consumer group with its offsets, retries and dead letters; return it."""
        return self._runner.run(self._group_administration.delete_consumer_group(name))

    def consumer_group(self, name: str) -> ConsumerGroup:
        """Return a consumer group as the control group has it; ConsumerGroupNotFound."""
        return self._runner.run(self._group_administration.consumer_group(name))

    def consumer_groups(self) -> list[ConsumerGroup]:
        """Return all consumer groups as the control group has them, by name."""
        return self._runner.run(self._group_administration.consumer_groups())

    def read_offsets(self, consumer_group: str, topic: str) -> dict[int, int]:
        """Return a consumer group's offsets, the next to consume, by queue; none: left out."""
        return self._runner.run(self._group_administration.read_offsets(consumer_group, topic))

    def commit_offsets(
        self, consumer_group: str, offsets: Mapping[Place, int], *, reset: bool = False
    ) -> None:
        """Store a consumer group's offsets; without `reset` OffsetBehind for one that goes back."""
        return self._runner.run(
            self._group_administration.commit_offsets(consumer_group, offsets, reset=reset)
        )

    def group_progress(self, consumer_group: str, topic: str) -> dict[int, QueueProgress]:
        """Return how far a consumer group is in each queue of a topic, and what waits there."""
        return self._runner.run(self._group_administration.group_progress(consumer_group, topic))

    def topics_of_group(self, consumer_group: str) -> list[str]:
        """Return the topics in which a consumer group has an offset, also without consumers.

        It asks for every queue of the cluster.
        """
        return self._runner.run(self._group_administration.topics_of_group(consumer_group))

    def describe_consumer_group(self, consumer_group: str) -> GroupDescription:
        """Return the consumers of a group, and who has which queue."""
        return self._runner.run(self._group_administration.describe_consumer_group(consumer_group))

    def reset_offsets(
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
        return self._runner.run(
            self._group_administration.reset_offsets(
                consumer_group,
                topic,
                to=to,
                time_ms=time_ms,
                offset=offset,
                delta=delta,
                queues=queues,
            )
        )

    def clone_offsets(self, source: str, target: str, topic: str) -> dict[int, int]:
        """Move a consumer group to where another one is; return the new floors by queue."""
        return self._runner.run(self._group_administration.clone_offsets(source, target, topic))

    def resume_consumer_group(self, consumer_group: str) -> dict[str, str]:
        """End the pauses that waves of failures began; return why, by broker group."""
        return self._runner.run(self._group_administration.resume_consumer_group(consumer_group))

    # Dead letters.

    def dead_letters(
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
        return self._runner.run(
            self._group_administration.dead_letters(
                consumer_group,
                since_ms=since_ms,
                until_ms=until_ms,
                key=key,
                error=error,
                limit=limit,
            )
        )

    def dead_letter(
        self, consumer_group: str, broker_group: str, dead_offset: int
    ) -> DeadRecord | None:
        """Return the dead letter at an offset of a broker group; None when it is settled."""
        return self._runner.run(
            self._group_administration.dead_letter(consumer_group, broker_group, dead_offset)
        )

    def resend_dead_letters(
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
        return self._runner.run(
            self._group_administration.resend_dead_letters(
                consumer_group,
                since_ms=since_ms,
                until_ms=until_ms,
                key=key,
                error=error,
                limit=limit,
                rate=rate,
                resent_max=resent_max,
                dry_run=dry_run,
            )
        )

    def purge_dead_letters(
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
        return self._runner.run(
            self._group_administration.purge_dead_letters(
                consumer_group,
                since_ms=since_ms,
                until_ms=until_ms,
                key=key,
                error=error,
                limit=limit,
            )
        )

    # Users.

    def put_user(
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
        return self._runner.run(
            self._group_administration.put_user(
                user,
                secret=secret,
                secret_is_drawn=secret_is_drawn,
                create=create,
                known_revision=known_revision,
            )
        )

    def delete_user(self, name: str) -> UserChange:
        """Delete a user; its logins end. UserNotFound."""
        return self._runner.run(self._group_administration.delete_user(name))

    def describe_user(self, name: str) -> UserChange:
        """Return a user, without its credentials; UserNotFound."""
        return self._runner.run(self._group_administration.describe_user(name))

    def list_users(self) -> list[User]:
        """Return all users by name, without their credentials."""
        return self._runner.run(self._group_administration.list_users())
